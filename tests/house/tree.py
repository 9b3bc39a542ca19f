"""The files of the project and what their Python says, for the tests that guard the house."""

from __future__ import annotations

import ast
import subprocess
from collections.abc import Iterator
from functools import cache
from pathlib import Path

REPO = Path(__file__).resolve().parents[2]
SRC = REPO / "src"
PACKAGE = SRC / "stoker"
AGENT = PACKAGE / "agent"
SKIPPED = {".git", ".venv", ".make", "__pycache__", ".pytest_cache", ".ruff_cache", ".mypy_cache", "build", "dist"}


@cache
def files() -> tuple[Path, ...]:
    """Every file of the project: tracked, or about to be. Without git, every file that no tool made."""
    done = subprocess.run(["git", "-C", str(REPO), "ls-files", "-co", "--exclude-standard", "-z"], capture_output=True, check=False)
    if done.returncode == 0 and done.stdout:
        found = [REPO / name for name in done.stdout.decode().split("\0") if name]
    else:
        found = [p for p in REPO.rglob("*") if not SKIPPED & set(p.relative_to(REPO).parts)]
    return tuple(sorted(p for p in found if p.is_file()))


def texts() -> Iterator[tuple[str, str]]:
    """(name from the root, content) of every file that is text."""
    for path in files():
        try:
            yield name_of(path), path.read_text("utf-8")
        except UnicodeDecodeError:
            continue


def name_of(path: Path) -> str:
    return path.relative_to(REPO).as_posix()


def python_files(*folders: str) -> list[Path]:
    """The .py files under these folders of the project (all of them by default)."""
    roots = tuple(f"{folder}/" for folder in folders) or ("",)
    return [p for p in files() if p.suffix == ".py" and name_of(p).startswith(roots)]


@cache
def parse(path: Path) -> ast.Module:
    return ast.parse(path.read_text("utf-8"), str(path))


def module_name(path: Path) -> str:
    """"stoker.base.units" for src/stoker/base/units.py."""
    parts = path.relative_to(SRC).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def imports(path: Path, *, at_start_only: bool = False) -> set[str]:
    """The full names this file imports; with `at_start_only` without those inside functions or under TYPE_CHECKING."""
    found: set[str] = set()
    package = module_name(path).split(".") if path.is_relative_to(SRC) else []
    if package and path.name != "__init__.py":
        package = package[:-1]
    for node in _nodes(parse(path), at_start_only):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            base = ".".join(package[: len(package) - node.level + 1]) if node.level else ""
            origin = ".".join(part for part in (base, node.module or "") if part)
            found |= {f"{origin}.{alias.name}" for alias in node.names}
    return found


def _nodes(tree: ast.AST, at_start_only: bool) -> Iterator[ast.AST]:
    for node in ast.iter_child_nodes(tree):
        if at_start_only and isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)):
            continue
        if at_start_only and isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test):
            continue
        yield node
        yield from _nodes(node, at_start_only)
