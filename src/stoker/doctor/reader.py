"""Turns a parsed script into a flat list of its calls and device names, each with the conditions it stands
under. No opinion of its own."""

from __future__ import annotations

import ast
import contextlib
import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from stoker.doctor import certain
from stoker.doctor.python import Answer
from stoker.doctor.source import Source, forgives, is_main_test

_PATH_CALLS = frozenset({"os.path.join", "pathlib.Path", "os.path.expanduser", "os.path.abspath", "str"})
_DEVICE = re.compile(r"(.*_)?device(_type)?", re.IGNORECASE)


@dataclass(frozen=True)
class Surroundings:
    """Where the script will run. answer: what its interpreter has, None when it was not asked. no_gpu:
    surely none is visible."""

    folder: Path
    env: dict[str, str]
    command: tuple[str, ...] = ()
    answer: Answer | None = None
    no_gpu: bool = False

    @property
    def home(self) -> str:
        return self.env.get("HOME") or os.path.expanduser("~")

    def name(self, source: Source) -> str:
        """A file as the user would write it."""
        name = os.path.relpath(source.path, self.folder)
        return os.fspath(source.path) if name.startswith("../..") else name


@dataclass(frozen=True)
class Call:
    """One call. name: dotted, with import aliases undone ("torch.cuda.set_device");
    "" where it hangs on an expression.

    method: the last attribute. args: how many positional ones. texts: all texts in its arguments. guards:
        the conditions it stands under, as source. forgiven: inside a try that catches. inside:
    the keyword or call it is an argument of. shadowed:
    its name is bound in the file, so it may not be the builtin. certain: reached whenever the script runs.
    """

    node: ast.Call
    line: int
    name: str
    method: str
    args: tuple[ast.expr, ...]
    texts: tuple[str, ...]
    positional_texts: tuple[str, ...]
    keywords: dict[str, str]
    guards: tuple[str, ...]
    forgiven: bool
    inside: str
    shadowed: bool
    certain: bool


@dataclass(frozen=True)
class Text:
    """A text that names a device. role: "assigned to device" or "default of device"."""

    line: int
    value: str
    role: str
    guards: tuple[str, ...]


@dataclass
class Reader:
    """What was read of one file."""

    source: Source
    calls: list[Call] = field(default_factory=list)
    texts: list[Text] = field(default_factory=list)


def read(source: Source, command: Sequence[str] = (), main: bool = True) -> Reader:
    """Read a file. command: the user's, whose --options stand for what argparse would give.
    main: the file is the script itself, and not one that the script imports."""
    reader = Reader(source)
    if source.tree is not None:
        # generated code may nest without end; what was read until then counts
        with contextlib.suppress(RecursionError):
            reached = certain.calls(source.tree) if main else set()
            _Walk(reader, _values(source.tree, command), reached).block(source.tree.body, _Context())
    return reader


def dotted(node: ast.AST) -> str:
    """"a.b.c" for a chain of names; "" for anything else."""
    parts = []
    while isinstance(node, ast.Attribute):
        parts.append(node.attr)
        node = node.value
    return ".".join([node.id, *reversed(parts)]) if isinstance(node, ast.Name) else ""


@dataclass(frozen=True)
class _Context:
    guards: tuple[str, ...] = ()
    forgiven: bool = False
    inside: str = ""
    bound: frozenset[str] = frozenset()

    def under(self, test: ast.expr) -> _Context:
        return (
            self
            if is_main_test(test)
            else _Context((*self.guards, ast.unparse(test)), self.forgiven, "", self.bound)
        )

    def in_(self, name: str) -> _Context:
        return _Context(self.guards, self.forgiven, name, self.bound)


class _Walk:
    def __init__(self, reader: Reader, values: dict[str, str], reached: set[ast.Call]) -> None:
        self.reader, self.values, self.reached = reader, values, reached
        tree = reader.source.tree or ast.Module([], [])
        self.aliases = dict(_aliases(tree))
        self.bound = frozenset(_bound(tree))

    def block(self, body: Sequence[ast.AST], at: _Context) -> None:
        for node in body:
            self.visit(node, at)

    def visit(self, node: ast.AST, at: _Context) -> None:
        if isinstance(node, ast.If | ast.IfExp | ast.While):
            self.visit(node.test, at)
            orelse = node.orelse if isinstance(node.orelse, list) else [node.orelse]
            body = node.body if isinstance(node.body, list) else [node.body]
            self.block(body, at if isinstance(node, ast.While) else at.under(node.test))
            self.block(orelse, at.under(node.test))
        elif isinstance(node, ast.BoolOp):
            self.block(node.values[:1], at)
            self.block(node.values[1:], at.under(node.values[0]))
        elif isinstance(node, ast.Try):
            forgiven = any(forgives(h, ("Error", "Exception")) for h in node.handlers)
            self.block([*node.body, *node.orelse], _Context(at.guards, at.forgiven or forgiven, "", at.bound))
            self.block(
                [s for h in node.handlers for s in h.body],
                _Context((*at.guards, "except"), at.forgiven, "", at.bound),
            )
            self.block(node.finalbody, at)
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            self._assignment(node, at)
        elif isinstance(node, ast.Call):
            self._call(node, at)
        else:
            self.block(list(ast.iter_child_nodes(node)), at)

    def _assignment(self, node: ast.Assign | ast.AnnAssign, at: _Context) -> None:
        targets = node.targets if isinstance(node, ast.Assign) else [node.target]
        name = dotted(targets[0]).rsplit(".", 1)[-1] or ""
        if (
            _DEVICE.fullmatch(name)
            and isinstance(node.value, ast.Constant)
            and isinstance(node.value.value, str)
        ):
            self.reader.texts.append(Text(node.lineno, node.value.value, "assigned to device", at.guards))
        if node.value is not None:
            self.visit(node.value, at.in_(name))

    def _call(self, node: ast.Call, at: _Context) -> None:
        name = self._name(node.func)
        method = node.func.attr if isinstance(node.func, ast.Attribute) else ""
        keywords = {k.arg: self._value(k.value) for k in node.keywords if k.arg}
        positional = tuple(self._value(a) for a in node.args)
        texts = tuple(t for a in (*node.args, *(k.value for k in node.keywords)) for t in self._texts(a))
        self.reader.calls.append(
            Call(
                node=node,
                line=node.lineno,
                name=name,
                method=method,
                args=tuple(node.args),
                texts=texts,
                positional_texts=positional,
                keywords=keywords,
                guards=at.guards,
                forgiven=at.forgiven,
                inside=at.inside,
                shadowed=name in self.bound,
                certain=node in self.reached,
            )
        )
        if method == "add_argument" and any(
            _DEVICE.fullmatch(p.lstrip("-").replace("-", "_")) for p in positional if p
        ):
            default = next((k.value for k in node.keywords if k.arg == "default"), None)
            if isinstance(default, ast.Constant) and isinstance(default.value, str):
                self.reader.texts.append(Text(node.lineno, default.value, "default of device", at.guards))
        self.visit(node.func, at.in_(""))
        self.block(node.args, at.in_(name or method))
        for keyword in node.keywords:
            self.visit(keyword.value, at.in_(keyword.arg or ""))

    def _name(self, func: ast.expr) -> str:
        first, dot, rest = dotted(func).partition(".")
        return self.aliases.get(first, first) + dot + rest

    def _value(self, node: ast.expr) -> str:
        """The text an expression stands for, "True"/"None" for those, else ""."""
        if isinstance(node, ast.Constant):
            return str(node.value)
        name = dotted(node)
        if name:
            return self.values.get(name.rsplit(".", 1)[-1], "")
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Div):
            parts = (self._value(node.left), self._value(node.right))
            return os.path.join(*parts) if all(parts) else ""
        if isinstance(node, ast.Call) and self._name(node.func) in _PATH_CALLS:
            words = [self._value(a) for a in node.args]
            return os.path.join(*words) if words and all(words) else ""
        return ""

    def _texts(self, node: ast.expr) -> Iterator[str]:
        yield from (
            n.value for n in ast.walk(node) if isinstance(n, ast.Constant) and isinstance(n.value, str)
        )
        known = self._value(node)
        if known and not isinstance(node, ast.Constant):
            yield known


def _aliases(tree: ast.Module) -> Iterator[tuple[str, str]]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((a.asname, a.name) for a in node.names if a.asname)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield from ((a.asname or a.name, f"{node.module}.{a.name}") for a in node.names)


def _bound(tree: ast.Module) -> Iterator[str]:
    """Names that the file itself binds, as variables, parameters or functions."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id
        elif isinstance(node, ast.arg):
            yield node.arg
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield node.name


def _values(tree: ast.Module, command: Sequence[str]) -> dict[str, str]:
    """name -> text, for names assigned one text once and for argparse options;
    the command line wins over defaults."""
    values: dict[str, str | None] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign) and len(node.targets) == 1 and isinstance(node.targets[0], ast.Name):
            text = (
                node.value.value
                if isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)
                else None
            )
            name = node.targets[0].id
            values[name] = text if name not in values else None
        elif (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Attribute)
            and node.func.attr == "add_argument"
        ):
            _option(node, command, values)
    return {k: v for k, v in values.items() if v}


def _option(node: ast.Call, command: Sequence[str], values: dict[str, str | None]) -> None:
    flags = [a.value for a in node.args if isinstance(a, ast.Constant) and isinstance(a.value, str)]
    long = next((f for f in flags if f.startswith("--")), flags[0] if flags else "")
    default = next(
        (k.value.value for k in node.keywords if k.arg == "default" and isinstance(k.value, ast.Constant)),
        None,
    )
    given = _given(flags, command)
    value = given or (default if isinstance(default, str) else None)
    if long:
        values[long.lstrip("-").replace("-", "_")] = value


def _given(flags: Sequence[str], command: Sequence[str]) -> str | None:
    for n, word in enumerate(command):
        name, equals, value = word.partition("=")
        if name in flags and name.startswith("-"):
            return value if equals else (command[n + 1] if n + 1 < len(command) else None)
    return None
