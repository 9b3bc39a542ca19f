"""Files that a data set or a forward opens when it first needs them, to read from:
a ghost, which calls neither, opens them as they were opened and goes to the same place.
Their content stands in no image; it must not have changed."""

from __future__ import annotations

import mmap
import os
import sys

from ...looks import isinstance
from ..world import opening

_GONE = " (deleted)"  # so the kernel marks the name of a mapped file that has none any more


def told(thing: object) -> tuple | None:
    """How to open it again, in plain values; None for what is no such file."""
    if thing is None:
        return None
    numpy, h5 = sys.modules.get("numpy"), sys.modules.get("h5py")
    try:
        if type(thing) is getattr(numpy, "memmap", None):
            return _mapped(thing)
        if type(thing) in (
            getattr(h5, "File", None),
            getattr(h5, "Dataset", None),
            getattr(h5, "Group", None),
        ):
            return _h5(thing)
        call = opening.opened_within(thing)
        if call is not None:
            return (
                "file",
                (os.fspath(call.file), call.mode, *call.layers()),
                thing.tell(),
                _marks(thing.fileno()),
            )
    except (OSError, ValueError, RuntimeError):  # closed, or of a place that it does not tell
        pass
    return None


def _mapped(array: object) -> tuple | None:
    """An array over a file, or a window of one without gaps."""
    base = array
    while type(base.base) is type(array):
        base = base.base
    if (
        array.mode != "r"
        or type(base.base) is not mmap.mmap
        or not array.flags.c_contiguous
        or array.dtype.names is not None
    ):
        return None
    name, begin = str(array.filename), base.offset + array.ctypes.data - base.ctypes.data
    return (
        None
        if replaced([array])
        else ("mapped", (name, array.dtype.str, begin, tuple(array.shape)), None, _marks(name))
    )


def replaced(arrays: list) -> str:
    """The name of a file that one of these was mapped from, if another file has taken its place since, or
    nothing has; else ""."""
    roots = {id(root): root for root in map(_root, arrays) if root is not None}
    if not roots:
        return ""
    with open("/proc/self/maps", encoding="utf-8", errors="replace") as maps:
        found = [line.split(None, 5) for line in maps]
    spans = [
        (*(int(word, 16) for word in line[0].split("-")), int(line[4]), line[5].rstrip("\n"))
        for line in found
        if len(line) > 5
    ]
    for root in roots.values():
        name, at = str(root.filename), root.ctypes.data
        inode, path = next(((inode, path) for low, high, inode, path in spans if low <= at < high), (0, name))
        # the inode alone may
        moved = (
            path not in (name, os.path.realpath(name))
            and os.path.exists(name)
            and os.stat(name).st_ino != inode
        )
        if moved or path.endswith(_GONE) or not os.path.exists(name):  # be another one in an overlay
            return name
    return ""


def _root(array: object) -> object:
    """The array that a file was mapped to, of one that lies in it; None of others."""
    memmap, found = sys.modules["numpy"].memmap, None
    while array is not None:
        if isinstance(array, memmap):
            found = array
        array = getattr(array, "base", None)
    return found if found is not None and found.filename is not None and found.size else None


def _h5(thing: object) -> tuple | None:
    file = thing.file
    if file.mode != "r" or file.driver != "sec2":
        return None
    # another file took its place
    if not os.path.samestat(os.fstat(file.id.get_vfd_handle()), os.stat(file.filename)):
        return None
    return ("h5", (type(thing).__name__, file.filename, thing.name), None, _marks(file.filename))


def _marks(file: object) -> tuple:
    found = os.stat(file)
    return found.st_size, found.st_mtime_ns


def open_again(tree: tuple, known: dict) -> object:
    """The file of such a tree. `known`: name -> file of h5py, which is closed once for all that was found in
    it. OSError, ValueError: it is not there, or no longer the same."""
    kind, how, place, marks = tree
    if _marks(how[1] if kind == "h5" else how[0]) != tuple(marks):
        raise ValueError(how[0])
    if kind == "mapped":
        name, dtype, begin, shape = how
        return sys.modules["numpy"].memmap(name, dtype, "r", begin, tuple(shape))
    if kind == "h5":
        what, name, inner = how
        file = known.get(name)
        if file is None:
            file = known[name] = sys.modules["h5py"].File(name, "r")
        return file if what == "File" else file[inner]
    return opening.open_within(how, place)
