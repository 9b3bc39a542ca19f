"""The hooks as they travel: one folder, named after its content, that stands in a run's PYTHONPATH.

The folder is ROOT/agent/hooks-importlib_bootstrap-<hash>/ with `sitecustomize.py` (of inside/entry/) and
the package `stoker_hooks`. Python skips files with `importlib` and `_bootstrap` in their path when it looks
for the line that warns or logs. So the hooks never are that line.
"""

from __future__ import annotations

import functools
import hashlib
import shutil
from pathlib import Path

import stoker

SOURCE = Path(stoker.__file__).parent / "inside"
PACKAGE = "stoker_hooks"
_FIRST = "entry/sitecustomize.py"
# Python leaves files whose path holds both words out when it looks for the line that a warning is for
# (warnings.warn(stacklevel=2)) or that logs (Logger.info): a script's warnings name its own lines, with our
# frames between and without.
_LEFT_OUT = "importlib_bootstrap"


@functools.cache
def hooks_name() -> str:
    """`hooks-importlib_bootstrap-<hash>`: folders with equal names have equal content."""
    digest = hashlib.sha256()
    for name, path in _files():
        digest.update(f"{name}\0{path.stat().st_size}\0".encode() + path.read_bytes())
    return f"hooks-{_LEFT_OUT}-{digest.hexdigest()[:16]}"


def lay_out(parent: Path) -> Path:
    """Create `parent/<hooks_name()>` if it is missing, and return it: `sitecustomize.py` and the package
    `stoker_hooks`, without byte code."""
    target = parent / hooks_name()
    if target.is_dir():
        return target
    temp = parent / f".{target.name}.new"
    shutil.rmtree(temp, ignore_errors=True)
    for name, path in _files():
        place = temp / ("sitecustomize.py" if name == _FIRST else f"{PACKAGE}/{name}")
        place.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(path, place)
    try:
        temp.rename(target)
    except OSError:
        shutil.rmtree(temp, ignore_errors=True)
        if not target.is_dir():  # somebody else was faster
            raise
    return target


def _files() -> list[tuple[str, Path]]:
    found = sorted(SOURCE.rglob("*.py"))
    return [(path.relative_to(SOURCE).as_posix(), path) for path in found]
