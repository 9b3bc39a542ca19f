"""Reads Python source without running it: what a script imports, where,
and whether it minds when that is missing."""

from __future__ import annotations

import ast
import os
import re
import tokenize
import warnings
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

MAX_BYTES = 2_000_000  # a larger "script" is data
MAX_LOCAL_FILES = 60
_FORGIVING = frozenset({"ImportError", "ModuleNotFoundError", "Exception", "BaseException"})
_INSTALLS = re.compile(
    r"""pip3?['", ]+install|\bos\.exec[lv]|\bconda['", ]+install|\buv['", ]+(pip['", ]+)?install"""
)
_CHANGES_PATH = re.compile(r"\bsys\.path\b|\baddsitedir\b|\bsys\.meta_path\b|\bruntime_import|\bPYTHONPATH\b")


@dataclass(frozen=True)
class Import:
    """module: dotted, absolute. kind: "always" (as the file starts), "later" (inside a function), "maybe"
    (guarded or conditional)."""

    module: str
    line: int
    kind: str
    names: tuple[str, ...] = ()  # of `from module import names`

    @property
    def top(self) -> str:
        return self.module.split(".")[0]


@dataclass(frozen=True)
class Source:
    """One Python file as read. `tree` is None when it does not parse here;
    `problem` is then (line, message)."""

    path: Path
    text: str
    tree: ast.Module | None
    problem: tuple[int, str] | None = None

    @cached_property
    def imports(self) -> tuple[Import, ...]:
        """All absolute imports, in order of lines.
        Relative ones belong to the user's own package and are in `relative`."""
        return tuple(sorted(_imports(self.tree), key=lambda i: i.line)) if self.tree else ()

    @cached_property
    def relative(self) -> tuple[tuple[int, str, tuple[str, ...]], ...]:
        """(level, module, names) of each `from . import`."""
        nodes = ast.walk(self.tree) if self.tree else ()
        return tuple(
            (n.level, n.module or "", tuple(a.name for a in n.names))
            for n in nodes
            if isinstance(n, ast.ImportFrom) and n.level
        )

    @property
    def installs(self) -> bool:
        """True when the file itself may install what it imports, or start another Python:
        then nobody can say what is missing."""
        return bool(_INSTALLS.search(self.text))

    @property
    def changes_path(self) -> bool:
        """True when the file may change where modules are looked for."""
        return bool(_CHANGES_PATH.search(self.text))


def load(path: Path) -> Source | None:
    """The source in a file; None when it cannot be read or is no text a Python file could hold."""
    try:
        if path.stat().st_size > MAX_BYTES:
            return None
        with tokenize.open(path) as f:
            text = f.read()
    except (OSError, SyntaxError, UnicodeDecodeError, LookupError):
        return None
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return Source(path, text, ast.parse(text))
    except (SyntaxError, ValueError, RecursionError, MemoryError) as e:
        return Source(path, text, None, (getattr(e, "lineno", 0) or 0, getattr(e, "msg", None) or str(e)))


def family(script: Path, import_path: Sequence[str]) -> list[Source]:
    """The script first, then the user's own files that it imports itself:
    one level down, at most MAX_LOCAL_FILES."""
    first = load(script)
    if first is None:
        return []
    found: dict[str, Source] = {os.path.realpath(script): first}
    for path in _own_files(first, import_path):
        if len(found) > MAX_LOCAL_FILES:
            break
        real = os.path.realpath(path)
        if real not in found and (source := load(path)):
            found[real] = source
    return list(found.values())


def _own_files(source: Source, import_path: Sequence[str]) -> Iterator[Path]:
    for item in source.imports:
        for base in import_path:
            yield from _module_files(Path(base), item.module.split("."), item.names)
    for level, module, names in source.relative:
        place = source.path.parent
        for _ in range(level - 1):
            place = place.parent
        yield from _module_files(place, module.split(".") if module else [], names)


def _module_files(base: Path, parts: list[str], names: Sequence[str]) -> Iterator[Path]:
    """The files that `from parts import names` runs, as far as they lie under `base`."""
    if parts and not os.path.lexists(base / parts[0]) and not os.path.lexists(base / f"{parts[0]}.py"):
        return
    if _is_installed(base):
        return
    for n in range(1, len(parts) + 1):
        folder = base.joinpath(*parts[:n])
        yield from (p for p in (folder / "__init__.py", folder.with_name(folder.name + ".py")) if p.is_file())
    folder = base.joinpath(*parts)
    yield from (
        p
        for name in names
        for p in (folder / f"{name}.py", folder / name / "__init__.py")
        if name != "*" and p.is_file()
    )


def _is_installed(base: Path) -> bool:
    return base.name in ("site-packages", "dist-packages")


def _imports(tree: ast.Module) -> Iterator[Import]:
    yield from _imports_in(tree.body, "always")


def _imports_in(body: Sequence[ast.stmt], kind: str) -> Iterator[Import]:
    for node in body:
        if isinstance(node, ast.Import):
            yield from (Import(a.name, node.lineno, kind) for a in node.names)
        elif isinstance(node, ast.ImportFrom):
            if not node.level and node.module and node.module != "__future__":
                yield Import(node.module, node.lineno, kind, tuple(a.name for a in node.names))
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield from _imports_in(node.body, "later" if kind == "always" else kind)
        elif isinstance(node, ast.ClassDef):
            yield from _imports_in(node.body, kind)
        elif isinstance(node, ast.If):
            main = is_main_test(node.test)
            yield from _imports_in(node.body, kind if main else "maybe")
            yield from _imports_in(node.orelse, "maybe")
        elif isinstance(node, ast.Try | getattr(ast, "TryStar", ast.Try)):
            forgiving = any(forgives(h) for h in node.handlers)
            yield from _imports_in(node.body, "maybe" if forgiving else kind)
            for handler in node.handlers:
                yield from _imports_in(handler.body, "maybe")
            yield from _imports_in(node.orelse, "maybe" if forgiving else kind)
            yield from _imports_in(node.finalbody, kind)
        elif isinstance(node, ast.With | ast.AsyncWith):
            suppresses = any(
                "suppress" in ast.dump(item.context_expr) or "raises" in ast.dump(item.context_expr)
                for item in node.items
            )
            yield from _imports_in(node.body, "maybe" if suppresses else kind)
        elif isinstance(node, ast.For | ast.AsyncFor | ast.While):
            yield from _imports_in([*node.body, *node.orelse], "maybe")
        elif isinstance(node, ast.Match):
            yield from _imports_in([s for case in node.cases for s in case.body], "maybe")


def forgives(handler: ast.ExceptHandler, kinds: Iterable[str] = _FORGIVING) -> bool:
    """True when a handler catches one of `kinds` (or a name that ends so) and does not raise it again."""
    if any(isinstance(n, ast.Raise) and n.exc is None for n in handler.body):
        return False
    names = (
        [str(getattr(n, "id", None) or getattr(n, "attr", "")) for n in ast.walk(handler.type)]
        if handler.type
        else list(kinds)
    )
    return any(n.endswith(tuple(kinds)) for n in names)


def is_main_test(test: ast.expr) -> bool:
    """True for `__name__ == "__main__"`, which holds for a script."""
    return isinstance(test, ast.Compare) and any(
        isinstance(n, ast.Name) and n.id == "__name__" for n in ast.walk(test)
    )
