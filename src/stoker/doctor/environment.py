"""The Python environment of a folder: `.venv`, where no other is active, as uv and editors take it."""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path

PLACES = (".venv", "venv")


def activated(command: Sequence[str], folder: Path, env: Mapping[str, str]) -> tuple[dict[str, str], str]:
    """The environment with the folder's own virtual environment active, and which that is;
    unchanged and "" where it is not used.

    It is used for a script (`train.py`), and for a program that only it has.
    An environment that is active wins; conda's `base` is active in each shell of many machines and does not.
    """
    own = None if _is_active(env) or not command else _own(folder, env)
    if own is None or not (command[0].endswith(".py") or _only_there(command[0], own, env)):
        return dict(env), ""
    return active(own, env), os.path.relpath(own, folder)


def active(environment: Path, env: Mapping[str, str]) -> dict[str, str]:
    """The variables as `source bin/activate` leaves them."""
    path = f"{environment / 'bin'}{os.pathsep}{env.get('PATH', os.defpath)}"
    kept = {name: value for name, value in env.items() if name != "PYTHONHOME"}
    return {**kept, "VIRTUAL_ENV": os.fspath(environment), "PATH": path}


def of_interpreter(interpreter: Path) -> Path | None:
    """The virtual environment that an interpreter belongs to."""
    environment = interpreter.parent.parent
    return environment if (environment / "pyvenv.cfg").exists() else None


def _is_active(env: Mapping[str, str]) -> bool:
    conda = env.get("CONDA_PREFIX") and env.get("CONDA_DEFAULT_ENV") != "base"
    return bool(env.get("VIRTUAL_ENV") or conda or env.get("PYENV_VERSION"))


def _own(folder: Path, env: Mapping[str, str]) -> Path | None:
    """The environment of the folder, or of the project that it is a part of."""
    named = env.get("UV_PROJECT_ENVIRONMENT")
    for place in (folder, *folder.parents):
        for name in (*([named] if named else []), *PLACES):
            found = place / name
            if (found / "pyvenv.cfg").exists() and (found / "bin" / "python").exists():
                return found
        if (place / "pyproject.toml").exists() or (place / ".git").exists():
            return None  # the project ends here
        if place == Path.home():
            return None
    return None


def _only_there(program: str, own: Path, env: Mapping[str, str]) -> bool:
    return (
        "/" not in program
        and (own / "bin" / program).exists()
        and shutil.which(program, path=env.get("PATH")) is None
    )
