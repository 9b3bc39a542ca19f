"""Every file says what it is for; none holds what has no place in a project that others read, run and change."""

from __future__ import annotations

import ast
import re

import pytest
from tree import PACKAGE, REPO, name_of, parse, python_files, texts

LINES_AT_MOST = 500  # when a file grows past this, two things live in it
LINES_OF_THE_LARGEST = 625
LARGER_FILES_AT_MOST = 23  # to be split by subject; the number only goes down

# Written so that this file does not hold them itself.
BANNED_TEXT = {
    "a note to oneself": re.compile(r"\b(TO" r"DO|FIX" r"ME|XX" r"X|HA" r"CK)\b"),
    "a path of one machine": re.compile(r"(?<![\w.>}])/(wo" r"rk/\w|ro" r"ot/\.pyenv|o" r"pt/wheels|ho" r"me/(?!you\b|me\b|user\b)\w+/\w)"),
    "the address of a package registry": re.compile(r"py" r"pi\.org|pythonhos" r"ted\.org|download\.pyt" r"orch\.org|fi" r"nd-links"),
    "a ticket that a reader cannot open": re.compile(r"\bis" r"sue \d+\b|(?<![\d}])#(?:\d{2,4}|(?<!\w #)\d)\b(?![0-9a-fA-F-])"),
}
COLOURS = re.compile(r"#(\d{3}|\d{6})\b")
PYTHON = python_files()
IDS = [name_of(p) for p in PYTHON]


@pytest.mark.parametrize("path", PYTHON, ids=IDS)
def test_a_file_opens_by_saying_what_it_is_for(path):
    if not path.read_text("utf-8").strip():
        return
    first = path.read_text("utf-8").splitlines()[0]
    said = ast.get_docstring(parse(path)) or (first[1:].strip() if first.startswith("#") and not first.startswith("#!") else "")
    assert len(said) > 15, f"{name_of(path)} does not say what it is for"


@pytest.mark.parametrize("path", python_files("src"), ids=[i for i in IDS if i.startswith("src/")])
def test_a_file_is_about_one_thing(path):
    lines = path.read_text("utf-8").count("\n")
    assert lines <= LINES_OF_THE_LARGEST, f"{name_of(path)} has {lines} lines"


def test_files_that_are_too_large_get_fewer():
    larger = [name_of(p) for p in python_files("src") if p.read_text("utf-8").count("\n") > LINES_AT_MOST]
    assert len(larger) <= LARGER_FILES_AT_MOST, larger


@pytest.mark.parametrize("what", BANNED_TEXT)
def test_no_text_holds(what):
    found = []
    for name, text in texts():
        if name == "tests/console/axe.min.js":  # a file of others; its hash is checked
            continue
        for number, line in enumerate(text.splitlines(), 1):
            if BANNED_TEXT[what].search(COLOURS.sub("", line) if name.endswith((".svg", ".css", ".html", ".js")) else line):
                found.append(f"{name}:{number}: {line.strip()[:120]}")
    assert not found, f"{what}:\n" + "\n".join(found)


WRITES_PICKLES = ("src/stoker/inside/resume/state/walk_pickled.py",)  # for their checksum; nothing of them is ever read
CALLS_A_SHELL = ("tests/resume/adversaries/setup_program_appends.py",)  # with a constant: that a script does so is what it tries


@pytest.mark.parametrize("path", PYTHON, ids=IDS)
def test_no_shell_and_no_pickle(path):
    for node in ast.walk(parse(path)):
        if isinstance(node, ast.keyword) and node.arg == "shell":
            raise AssertionError(f"{name_of(path)}:{node.value.lineno} gives a command to a shell")
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "os" and node.attr in ("system", "popen"):
            if name_of(path) in CALLS_A_SHELL:
                continue
            raise AssertionError(f"{name_of(path)}:{node.lineno} gives a command to a shell")
        names = [a.name for a in node.names] if isinstance(node, ast.Import) else [node.module or ""] if isinstance(node, ast.ImportFrom) else []
        if name_of(path) in WRITES_PICKLES and names == ["pickle"] and isinstance(node, ast.Import):
            used = {n.attr for n in ast.walk(parse(path)) if isinstance(n, ast.Attribute) and isinstance(n.value, ast.Name) and n.value.id == "pickle"}
            assert used == {"Pickler"}, f"{name_of(path)} does more than write pickles"
            continue
        assert not {n.split(".")[0] for n in names} & {"pickle", "cPickle", "shelve", "dill"}, f"{name_of(path)} imports a pickle"


@pytest.mark.parametrize("path", python_files("src"), ids=[i for i in IDS if i.startswith("src/")])
def test_nothing_is_left_unbuilt(path):
    """No body that is only `...` outside a Protocol or an abstract method, no NotImplementedError outside an interface."""
    tree = parse(path)
    interfaces = {id(n) for c in ast.walk(tree) if isinstance(c, ast.ClassDef) for n in c.body if _is_interface(c)}
    for node in ast.walk(tree):
        if not isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)) or id(node) in interfaces:
            continue
        if any("overload" in ast.dump(d) or "abstractmethod" in ast.dump(d) for d in node.decorator_list):
            continue
        body = [n for n in node.body if not (isinstance(n, ast.Expr) and isinstance(n.value, ast.Constant) and n.value.value is not ...)]
        only_dots = len(body) == 1 and isinstance(body[0], ast.Expr) and getattr(body[0].value, "value", None) is ...
        refuses = any(isinstance(n, ast.Raise) and "NotImplementedError" in ast.dump(n) for n in body)
        assert not only_dots and not refuses, f"{name_of(path)}:{node.lineno} {node.name} is not built"


def _is_interface(node: ast.ClassDef) -> bool:
    return any("Protocol" in ast.dump(b) or "ABC" in ast.dump(b) for b in node.bases) or node.name in ("Host", "Backend")


def public_without_docstring() -> list[str]:
    """Public functions, classes and methods of src/ that say nothing of themselves; overriding methods inherit their words."""
    missing = []
    for path in python_files("src"):
        for node in parse(path).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                inherits = bool(node.bases)
                missing += [f"{name_of(path)}: {node.name}"] * (ast.get_docstring(node) is None)
                missing += [f"{name_of(path)}: {node.name}.{m.name}" for m in node.body
                            if isinstance(m, (ast.FunctionDef, ast.AsyncFunctionDef)) and not inherits and _silent(m)]
            elif isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)) and _silent(node):
                missing.append(f"{name_of(path)}: {node.name}")
    return missing


def _silent(node: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    """Public, longer than its name can say, and without a docstring."""
    command = any("command" in ast.dump(d) or "get" in ast.dump(d) or "post" in ast.dump(d) for d in node.decorator_list)
    return not node.name.startswith("_") and not command and len(node.body) > 1 and ast.get_docstring(node) is None


def test_no_two_test_files_have_one_name():
    """pytest imports them by their bare names."""
    names = sorted(path.name for path in (REPO / "tests").rglob("test_*.py"))
    assert len(names) == len(set(names)), [name for name in names if names.count(name) > 1]


def test_public_things_say_what_they_do():
    """A ratchet: the number below may only go down."""
    missing = public_without_docstring()
    assert len(missing) <= int((REPO / "tests/house/undocumented.txt").read_text()), "\n".join(missing)


def test_the_version_has_one_home():
    from stoker import __version__

    text = (REPO / "CHANGELOG.md").read_text("utf-8")
    assert __version__ in text, f"CHANGELOG.md does not know version {__version__}"
    assert (PACKAGE / "__init__.py").read_text("utf-8").count(__version__) == 1
