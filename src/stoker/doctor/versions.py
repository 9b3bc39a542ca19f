"""The Pythons of this machine by version: on PATH, of pyenv and of uv. Starts none of them."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path

_NAME = re.compile(r"python(\d+\.\d+)")
_FOLDER = re.compile(r"(?:cpython-)?(\d+\.\d+)(?:\.\d+)?(?:-.*)?")
_VERSION = re.compile(r"(?:python)?(\d+\.\d+)(?:\.\d+)?")
_SHIMS = "shims"  # the folder of pyenv's programs, most of which run only where their version is chosen


def here(env: Mapping[str, str]) -> dict[str, Path]:
    """An interpreter for each version such as "3.11", the oldest first. A version in PATH wins over one of
    pyenv, and that over one of uv."""
    found: dict[str, Path] = {}
    for version, path in (*_on_path(env), *_installed(env)):
        if version not in found and path.is_file() and os.access(path, os.X_OK):
            found[version] = path
    return {version: found[version] for version in sorted(found, key=_number)}


def how_to_get(asked: str, env: Mapping[str, str]) -> str:
    """The command that installs this version, with uv or pyenv; "" without them, or if it is no version."""
    named = _VERSION.fullmatch(asked)
    for program, words in (("uv", "python install"), ("pyenv", "install")):
        if named and shutil.which(program, path=env.get("PATH")):
            return f"{program} {words} {named[1]}"
    return ""


def _on_path(env: Mapping[str, str]) -> Iterator[tuple[str, Path]]:
    for folder in env.get("PATH", os.defpath).split(os.pathsep):
        if folder and os.path.basename(folder.rstrip("/")) != _SHIMS:
            yield from _named(Path(folder), _NAME, "")


def _installed(env: Mapping[str, str]) -> Iterator[tuple[str, Path]]:
    """The Pythons in the folders of pyenv and uv."""
    user = Path(env.get("HOME") or "~").expanduser()
    data = Path(env.get("XDG_DATA_HOME") or user / ".local" / "share")
    for folder in (
        Path(env.get("PYENV_ROOT") or user / ".pyenv") / "versions",
        Path(env.get("UV_PYTHON_INSTALL_DIR") or data / "uv" / "python"),
    ):
        yield from _named(folder, _FOLDER, "bin/python3")


def _named(folder: Path, pattern: re.Pattern[str], program: str) -> Iterator[tuple[str, Path]]:
    """The programs in a folder, or in its folders, whose names tell a version; the newest first."""
    try:
        names = sorted(os.listdir(folder), key=_number, reverse=True)
    except OSError:
        return
    for name in names:
        told = pattern.fullmatch(name)
        if told:
            yield told[1], folder / name / program


def _number(text: str) -> list[int]:
    return [int(each) for each in re.findall(r"\d+", text)]
