"""Adding a backend touches its own file and one line of the registry."""

from __future__ import annotations

import ast

from tree import PACKAGE, imports, name_of, parse, python_files

from stoker.backends import registry

BACKENDS = PACKAGE / "backends"


def leaves() -> dict[str, str]:
    """File -> class, of each class of backends/ that is a leaf."""
    return {path.stem: node.name for path in BACKENDS.glob("*.py") for node in parse(path).body
            if isinstance(node, ast.ClassDef) and any(ast.unparse(base) == "Leaf" for base in node.bases)}


def test_each_leaf_has_its_file_and_its_line():
    assert leaves() == registry.LEAVES
    lines = (BACKENDS / "registry.py").read_text("utf-8").splitlines()
    assert {name: sum(f'"{name}"' in line for line in lines) for name in registry.LEAVES} == dict.fromkeys(registry.LEAVES, 1)


def test_nothing_else_knows_a_leaf():
    for path in python_files("src"):
        for name in imports(path) if path.is_relative_to(PACKAGE) else ():
            parts = name.split(".")
            known = parts[:2] == ["stoker", "backends"] and len(parts) > 2 and parts[2] in registry.LEAVES
            assert not known, f"{name_of(path)} imports {name}: take a backend from backends/registry.py"


def test_a_leaf_knows_neither_the_core_nor_another_leaf():
    for name in registry.LEAVES:
        others = {f"stoker.backends.{each}" for each in {"core", "registry", *registry.LEAVES} - {name}}
        assert not {each for each in imports(BACKENDS / f"{name}.py") if each.startswith(tuple(others))}, name


def test_nobody_overrides_the_core():
    for path in python_files("src"):
        for node in ast.walk(parse(path)):
            if isinstance(node, ast.ClassDef):
                assert not {"Core", "core.Core"} & {ast.unparse(base) for base in node.bases}, f"{name_of(path)}: {node.name}"
