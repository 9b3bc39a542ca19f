"""What a script hands to open() and its like, looked at with the functions that were there before anybody
replaced them."""

from __future__ import annotations

import os

_lstat = os.lstat


def text(path: object) -> str:
    """A path as text; "" for what is none: a descriptor, None, the path "" itself."""
    if isinstance(path, int) or path is None:
        return ""
    try:
        return os.fsdecode(os.fspath(path))
    except TypeError:
        return ""


def existed(path: str) -> bool:
    """Whether there is anything, be it a link that leads nowhere."""
    try:
        _lstat(path)
    except (OSError, ValueError):
        return False
    return True
