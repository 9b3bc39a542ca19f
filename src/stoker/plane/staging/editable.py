"""Lets editable installs of a copied folder import the copy:
PYTHONPATH entries in front of what the environment would find."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from stoker.doctor import python

# Finders that Python and setuptools bring: they stand behind, or look only at sys.path.
_PLAIN = frozenset({"BuiltinImporter", "FrozenImporter", "PathFinder", "DistutilsMetaFinder"})


@dataclass(frozen=True)
class Editables:
    """env: variables to set for the run. warnings: installs that still import the original folder."""

    env: dict[str, str] = field(default_factory=dict)
    warnings: list[str] = field(default_factory=list)


def editable_env(folder: Path, work: Path, interpreter: str, env: dict[str, str]) -> dict[str, str]:
    """Variables that make `interpreter` import the copy `work` instead of `folder` for editable installs;
    {} if there are none."""
    return editables(folder, work, interpreter, env).env


def editables(folder: Path, work: Path, interpreter: str, env: dict[str, str]) -> Editables:
    """As `editable_env`, plus the installs that cannot be redirected. `work` must exist. Starts the
    interpreter once.
    A path in a .pth file is overridden by the copy's path in PYTHONPATH, which Python searches first.
    PYTHONPATH also overrides the finders of setuptools, which come after the path search. Finders before
    the path search (meson-python, scikit-build-core) cannot be overridden."""
    answer = python.ask(interpreter, folder, env, finders=True)
    if isinstance(answer, python.Silence):
        return Editables(
            _path_env([], folder, work, env),
            [
                f"{interpreter} did not list its editable installs ({answer.why}); imports may come from the "
                "original folders, not from the copy."
            ],
        )
    warnings: list[str] = []
    front: list[str] = []
    user_path = [
        os.path.abspath(os.path.join(folder, p)) for p in env.get("PYTHONPATH", "").split(os.pathsep) if p
    ]
    for entry in answer.path:
        inside = _inside(entry, folder)
        if inside is None or entry in user_path or _is_library(entry, answer):
            continue
        if (work / inside).is_dir():
            _redirect(work / inside, entry, front, warnings)
        else:
            warnings.append(
                f"{entry} is in sys.path of {interpreter} but not in the copy, so Python imports from the "
                "original folder."
            )
    for before_path, name, origin in _mapped(answer.finders):
        inside = _inside(origin, folder)
        if inside is None:
            continue
        parent = _import_root(name, work / inside)
        if parent is None or before_path:
            warnings.append(f"The editable install of {name} is imported from {origin}, not from the copy.")
        else:
            _redirect(parent, origin, front, warnings)
    warnings += [
        f"An editable install ({f['kind']}) may import from the original folder."
        for f in _opaque(answer.finders)
    ]
    return Editables(_path_env(front, folder, work, env), warnings)


def _redirect(to: Path, origin: str, front: list[str], warnings: list[str]) -> None:
    """Put `to` in front, unless a file in it would hide a module of Python's own there."""
    if os.fspath(to) in front:
        return
    modules = {
        n.removesuffix(".py")
        for n in os.listdir(to)
        if n.endswith(".py") or (to / n / "__init__.py").exists()
    }
    hidden = sorted(modules & sys.stdlib_module_names)
    if hidden:
        warnings.append(
            f"Python imports {origin} from the original folder, not from the copy. In the copy, the module "
            f"{hidden[0]} would hide the standard module of the same name."
        )
        return
    front.append(os.fspath(to))


def _inside(path: str, folder: Path) -> str | None:
    """`path` relative to `folder` if it lies there, by name or by real place."""
    for one, top in (
        (os.path.abspath(path), os.path.abspath(folder)),
        (os.path.realpath(path), os.path.realpath(folder)),
    ):
        if one == top:
            return "."
        if one.startswith(top + os.sep):
            return one[len(top) + 1:]
    return None


def _is_library(entry: str, answer: python.Answer) -> bool:
    """True for the environment's own folders: a .venv may lie in the folder, and is no part of the copy."""
    return any(entry == p or entry.startswith(p + os.sep) for p in (answer.prefix, answer.base_prefix))


def _mapped(finders: tuple[dict, ...]) -> Iterator[tuple[bool, str, str]]:
    """(stands before the path search, top-level name, file or folder) of each redirection."""
    before = True
    for finder in finders:
        if finder["kind"] == "PathFinder":
            before = False
        for name, origin in finder["mapping"].items():
            yield before, name, origin


def _opaque(finders: tuple[dict, ...]) -> list[dict]:
    """Finders in front of the path search whose targets cannot be read."""
    front = []
    for finder in finders:
        if finder["kind"] == "PathFinder":
            break
        if (
            finder["kind"] not in _PLAIN
            and not finder["mapping"]
            and "edit" in (finder["kind"] + finder["module"]).lower()
        ):
            front.append(finder)
    return front


def _import_root(name: str, place: Path) -> Path | None:
    """The folder that must be on the path so that `import name` finds `place` in the copy;
    None where no folder can do that."""
    if place.name in ("__init__.py", "__init__.pyi"):
        place = place.parent
    parts = name.split(".")
    trail = [*place.parts[:-1], place.stem if place.is_file() else place.name]
    if tuple(trail[-len(parts):]) != tuple(parts) or not place.exists():
        return None
    return Path(*trail[:-len(parts)])


def _path_env(front: list[str], folder: Path, work: Path, env: dict[str, str]) -> dict[str, str]:
    """PYTHONPATH with `front` before it and its own entries in `folder` moved to the copy;
    {} when that changes nothing."""
    own = [p for p in env.get("PYTHONPATH", "").split(os.pathsep) if p]
    moved = []
    for entry in own:
        inside = _inside(entry, folder) if os.path.isabs(entry) else None
        there = work / inside if inside is not None else None
        moved.append(os.fspath(there) if there is not None and there.is_dir() else entry)
    entries = list(dict.fromkeys([*moved, *front]))
    return {"PYTHONPATH": os.pathsep.join(entries)} if entries != own else {}
