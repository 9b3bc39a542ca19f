"""How everything of Stoker's is deleted: no link is followed,
neither in what is deleted nor on the way to it."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

from stoker.agent import writing


def remove(top: Path | str, *names: str) -> None:
    """Delete top/NAME/.../NAME: a file, a link, or a folder with its content. Only `top` may be a link.
    Has no effect if nothing is there. Raises OSError."""
    writing.remove(os.fspath(top), *names)


def clear(top: Path | str, *names: str) -> None:
    """As `remove`, but ignores files that cannot be deleted."""
    with contextlib.suppress(OSError):
        remove(top, *names)
