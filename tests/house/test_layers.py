"""Imports go down only. The table below is the picture of the house; to draw a new arrow, write a decision note first."""

from __future__ import annotations

import ast
import re
import sys
import tomllib

import pytest
from tree import AGENT, PACKAGE, REPO, imports, module_name, name_of, parse, python_files

from stoker.agent.verbs import VERBS

# room: (rooms of ours it may import, packages of others it may import)
ARROWS: dict[str, tuple[set[str], set[str]]] = {
    "": ({"engine"}, set()),  # stoker/__init__.py: `stoker.Engine`, imported when it is asked for
    "base": ({"agent"}, set()),
    "agent": (set(), set()),
    "inside": (set(), {"torch", "numpy", "sitecustomize", "stoker_hooks"}),
    "hosts": ({"base"}, set()),
    "doctor": ({"base"}, set()),
    "backends": ({"hosts", "agent", "base"}, set()),
    "plane": ({"backends", "hosts", "doctor", "base"}, {"sqlalchemy", "alembic", "pathspec", "optuna"}),
    "server": ({"plane", "base"}, {"starlette", "anyio", "uvicorn", "websockets"}),
    "client": ({"base"}, {"websockets"}),
    "console": ({"client", "base"}, {"jinja2", "starlette", "anyio", "uvicorn"}),
    "engine": ({"base"}, {"torch", "numpy", "safetensors", "wandb"}),
    "compat": ({"engine", "base"}, {"torch", "numpy"}),
    "tune": ({"doctor", "base"}, {"rich", "drawsvg"}),
    "cli": ({"console", "client", "tune", "doctor", "base"}, {"click", "dotenv", "rich", "websockets", "plotille", "drawsvg", "tensorboard", "matplotlib", "wandb"}),
}
OF_THE_USER = {"inside", "engine", "compat"}  # rooms whose code runs in the user's Python: what they import is not in the base install
OPTIONAL = {"tensorboard", "optuna", "matplotlib", "wandb"}  # of one command, which says how to install it
BRINGS = {"starlette": {"anyio"}, "python_dotenv": {"dotenv"}}  # what comes with a package, and is meant to be imported beside it


def room(module: str) -> str:
    """"plane" for stoker.plane.store.database."""
    parts = module.split(".")
    return parts[1] if len(parts) > 1 and not parts[1].startswith("__") else ""


SOURCES = [p for p in python_files("src") if p.is_relative_to(PACKAGE)]
IDS = [name_of(p) for p in SOURCES]


def test_every_room_has_its_arrows_written_down():
    rooms = {room(module_name(p)) for p in SOURCES} - {""}
    assert rooms <= ARROWS.keys(), f"rooms without a line in ARROWS: {sorted(rooms - ARROWS.keys())}"


@pytest.mark.parametrize("path", SOURCES, ids=IDS)
def test_imports_go_down_only(path):
    here = room(module_name(path))
    ours, others = ARROWS.get(here, (set(), set()))
    for name in sorted(imports(path)):
        top = name.split(".")[0]
        if top == "stoker":
            there = room(name)
            assert not there or there == here or there in ours, f"{name_of(path)} imports {name}: {here} may only import {sorted(ours) or 'nothing of ours'}"
        else:
            known = top in sys.stdlib_module_names or top in others
            assert known, f"{name_of(path)} imports {top}: {here} may only import {sorted(others) or 'the standard library'}"


def test_the_agent_is_a_folder_that_can_be_carried_alone():
    """Its files name each other relative to the folder, and nothing else of ours; its entry names none."""
    files = [p for p in SOURCES if room(module_name(p)) == "agent"]
    assert {p.parent for p in files} == {AGENT} and AGENT / "__main__.py" in files
    for path in files:
        for node in ast.walk(parse(path)):
            if isinstance(node, ast.ImportFrom):
                assert node.level == 1 or node.module.split(".")[0] in sys.stdlib_module_names, f"{name_of(path)} imports {node.module}"
        assert not [n for n in imports(path) if n.startswith("stoker") and not n.startswith("stoker.agent.")], name_of(path)


def test_each_verb_of_the_agent_is_in_the_file_that_its_table_names():
    for verb, file in VERBS.items():
        assert f"verb_{verb.lstrip('_')}" in {n.name for n in parse(AGENT / f"{file}.py").body if isinstance(n, ast.FunctionDef)}, verb


def test_no_module_waits_for_itself():
    graph = {module_name(p): set() for p in SOURCES}
    for path in SOURCES:
        for name in imports(path, at_start_only=True):
            target = name if name in graph else name.rpartition(".")[0]
            if target in graph and target != module_name(path):
                graph[module_name(path)].add(target)
    done: set[str] = set()

    def walk(module: str, trail: tuple[str, ...]) -> None:
        assert module not in trail, f"import loop: {' -> '.join([*trail[trail.index(module):], module])}"
        if module in done:
            return
        for other in sorted(graph[module]):
            walk(other, (*trail, module))
        done.add(module)

    for module in graph:
        walk(module, ())


@pytest.mark.parametrize("path", [p for p in SOURCES if p.name == "__init__.py"], ids=[i for i in IDS if i.endswith("__init__.py")])
def test_a_package_does_nothing_when_imported(path):
    quiet = (ast.Import, ast.ImportFrom, ast.Assign, ast.AnnAssign, ast.FunctionDef, ast.ClassDef)
    for node in parse(path).body:
        text = isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
        for_types = isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"
        assert text or for_types or isinstance(node, quiet), f"{name_of(path)} line {node.lineno} works at import"


def test_what_is_installed_is_used_and_what_is_used_is_installed():
    project = tomllib.loads((REPO / "pyproject.toml").read_text("utf-8"))["project"]
    wanted = {re.split(r"[<>=!~\[; ]", text)[0].replace("-", "_") for text in project["dependencies"]}
    used = {name.split(".")[0] for p in SOURCES if room(module_name(p)) not in OF_THE_USER for name in imports(p)} - sys.stdlib_module_names - {"stoker"}
    brought = wanted.union(*(BRINGS.get(w, set()) for w in wanted))
    assert not used - brought - OPTIONAL, f"imported, and not in pyproject.toml: {sorted(used - brought)}"
    wanted = {each for each in wanted if not BRINGS.get(each, set()) & used}
    assert not wanted - used, f"in pyproject.toml, and nothing imports it: {sorted(wanted - used)}"


def test_the_versions_that_are_known_good_are_versions_of_what_is_needed():
    project = tomllib.loads((REPO / "pyproject.toml").read_text("utf-8"))["project"]
    asked = [*project["dependencies"], *(d for extra in project["optional-dependencies"].values() for d in extra)]
    names = {re.split(r"[<>=!~\[; ]", text)[0].lower() for text in asked} - {"stoker"}
    pinned = {line.split("==")[0].lower() for line in (REPO / "constraints.txt").read_text("utf-8").splitlines() if "==" in line}
    assert not names - pinned, f"constraints.txt has no version of {sorted(names - pinned)}"
