"""No circle of imports in the sources, imports inside functions counted; rooms of exact resume import downward only."""

from __future__ import annotations

import ast
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

from tree import PACKAGE, SRC, module_name, parse, python_files

HOOKS = "stoker_hooks"  # how `stoker.inside` is called in the user's Python
RESUME = "stoker.inside.resume"
ROOMS = ("core", "world", "state", "compute", "data", "image", "audit")  # each imports those before it
SOURCES = {module_name(p): p for p in python_files("src") if p.is_relative_to(PACKAGE)}


def imported(module: str, path: Path, known: dict) -> set[str]:
    """The files of `known` that this one imports, wherever the statement stands; TYPE_CHECKING excluded."""
    package = module if path.name == "__init__.py" else module.rpartition(".")[0]
    found: set[str] = set()
    for node in _statements(parse(path)):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        else:
            base = package.split(".")[: len(package.split(".")) - node.level + 1] if node.level else []
            origin = ".".join([*base, *([node.module] if node.module else [])])
            names = [f"{origin}.{alias.name}" for alias in node.names]
        found |= {target for name in names if (target := _file(name, known))}
    return found - {module}


def _file(name: str, known: dict) -> str:
    """The file that a full name lies in; "" for what is none of ours."""
    if name.split(".", maxsplit=1)[0] == HOOKS:
        name = "stoker.inside" + name[len(HOOKS):]
    while name and name not in known:
        name = name.rpartition(".")[0]
    return name


def _statements(tree: ast.AST):
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, (ast.Import, ast.ImportFrom)):
            yield node
        elif isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            for other in node.orelse:
                yield from _statements(other)
        else:
            yield from _statements(node)


def circle(graph: dict[str, set[str]]) -> list[str]:
    """The files of one circle, the first again at the end; [] if there is none."""
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as e:
        return e.args[1]
    return []


def test_no_circle_of_imports():
    graph = {module: imported(module, path, SOURCES) for module, path in SOURCES.items()}
    graph = {module: targets - {"stoker"} for module, targets in graph.items()}  # `from stoker import __version__`
    assert not circle(graph), f"a circle of imports: {' <- '.join(circle(graph))}"


def test_rooms_of_exact_resume_import_downward():
    wrong = []
    for module, path in SOURCES.items():
        here = module[len(RESUME) + 1:].split(".")[0] if module.startswith(RESUME + ".") else ""
        for target in imported(module, path, SOURCES) if here else ():
            there = target[len(RESUME) + 1:].split(".")[0] if target.startswith(RESUME + ".") else ""
            if target == RESUME or (there and ROOMS.index(there) > ROOMS.index(here)):
                wrong.append(f"{module} imports {target}")
    assert not wrong, "arrows up inside exact resume:\n" + "\n".join(wrong)


def test_hidden_imports_count(tmp_path):
    (tmp_path / "a.py").write_text("def f():\n    from stoker.b import x\n")
    (tmp_path / "b.py").write_text("TYPE_CHECKING = False\nif TYPE_CHECKING:\n    from stoker import c\nimport stoker_hooks.d\n")
    known = {name: tmp_path for name in ("stoker", "stoker.b", "stoker.c", "stoker.inside.d")}
    assert imported("stoker.a", tmp_path / "a.py", known) == {"stoker.b"}
    assert imported("stoker.b", tmp_path / "b.py", known) == {"stoker.inside.d"}
    assert circle({"a": {"b"}, "b": {"c"}, "c": {"a"}})
    assert not circle({"a": {"b", "c"}, "b": {"c"}, "c": set()})


def test_each_room_opens_with_a_page():
    """What a room inside the scripts answers for, and what it may import."""
    rooms = [p for m, p in SOURCES.items() if p.name == "__init__.py" and m.startswith("stoker.inside")]
    short = [p.relative_to(SRC).as_posix() for p in rooms if len(ast.get_docstring(parse(p)) or "") < 150]
    assert not short, f"rooms without a page: {short}"
    for room in ROOMS:
        assert "import" in (ast.get_docstring(parse(SOURCES[f"{RESUME}.{room}"])) or ""), room
