"""A script that works in a copy of its folder:
what lies beside the folder (`../data`, `import common` from the folder above) does not lie beside the copy,
and is found where the folder really is.
"""

from __future__ import annotations

import os
import sys

from . import paths
from .entry.methods import Of, replace

_copy = ""  # where the script works, with a slash at the end
_origin = ""  # the folder it is a copy of
# the two folders over the copy, with a slash: nothing of the user's is there but what we find here
_above: tuple = ()
_ours: tuple = ()
_chdir = os.chdir


def install(copy: str, origin: str, ours: tuple) -> None:
    """From here on `led` answers for this copy, os.chdir goes there, and modules beside the folder are found.
    ours: folders of our own, where nothing leads elsewhere."""
    global _copy, _origin, _above, _ours
    if os.path.realpath(copy) == os.path.realpath(origin):
        return
    over = os.path.dirname(os.path.realpath(copy))
    _above = tuple(os.path.join(each, "") for each in (over, os.path.dirname(over)) if each != "/")
    _ours = tuple(os.path.join(os.path.realpath(each), "") for each in ours if each)
    _copy, _origin = os.path.join(os.path.realpath(copy), ""), os.path.realpath(origin)
    replace(os, "chdir", chdir, Of("os"))
    sys.meta_path.append(_Beside)
    sys.dont_write_bytecode = True  # import writes beside what it reads, past os.open


def led(path: object) -> object:
    """Where `path` leads from the folder that the script was copied from;
    `path` itself in all but the few cases where that is not where it leads from the copy:
    out of the copy by `..`, or to something in the folders above it that is not there."""
    name = paths.text(path) if _copy else ""
    if not name:
        return path
    try:
        aimed = os.path.join(os.getcwd(), name)
    except OSError:  # the working folder is gone
        return path
    whole = os.path.join(os.path.normpath(aimed), "")
    if whole.startswith((_copy, *_ours)):
        return path
    if (
        not aimed.startswith(_copy)
        and whole not in _above
        and (not whole.startswith(_above) or paths.existed(whole[:-1]))
    ):
        return path
    there = os.path.normpath(os.path.join(_origin, os.path.relpath(whole, _copy)))
    return os.fsencode(there) if isinstance(path, bytes) else there


def chdir(_of: object, path: object) -> None:
    """os.chdir."""
    _chdir(led(path))


class _Beside:
    """Last in sys.meta_path: `sys.path.append("..")` names the folder above the real one."""

    @staticmethod
    def find_spec(name: str, path: object = None, target: object = None) -> object:
        if path is not None:
            return None
        entries = [there for there in map(led, sys.path) if there not in sys.path]
        return (
            sys.modules["_frozen_importlib_external"].PathFinder.find_spec(name, entries, target)
            if entries
            else None
        )
