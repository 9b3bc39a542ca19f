"""Objects of libraries that are known by what pickle tells of them: tables of pandas, tokenizers. They are compared, not put back: what a
script does with them in its loop a ghost does again, and what a data set changes in them refuses the image."""

from __future__ import annotations

import pickle
import types
import zlib

from . import leaves

_TOLD = ("pandas", "tokenizers")  # libraries of which every object is taken so
_PARTS = frozenset((*_TOLD, *"numpy pyarrow builtins datetime decimal collections copyreg _codecs zoneinfo pytz".split()))
_BY_NAME = (type, types.FunctionType, types.BuiltinFunctionType)  # pickled as a name


class _NotOfLibraries(Exception):
    pass


class _Sum:
    """A file that keeps no more than the checksum of what is written."""

    def __init__(self):
        self.size = self.crc = 0

    def write(self, data) -> None:
        """More of it, of whatever form."""
        data = memoryview(data).cast("B")
        self.size += len(data)
        self.crc = zlib.crc32(data, self.crc)


class _Pickler(pickle.Pickler):
    """Pickle, as long as it meets nothing of the script's own: what that tells of itself its code decides."""

    def reducer_override(self, thing):
        """Called for all but the plainest things."""
        by_name = isinstance(thing, _BY_NAME) or type(thing).__name__ == "cython_function_or_method"
        named = thing if by_name else type(thing)
        if _library(named) not in _PARTS:
            raise _NotOfLibraries
        if type(thing).__name__ == "BlockManager":  # of pandas: a look at a row may put columns together, or not
            return list, ([*thing.axes, *map(thing.iget_values, range(len(thing.items)))],)
        return NotImplemented


def knows(kind: type) -> bool:
    """Whether a class is one of theirs."""
    return _library(kind) in _TOLD


def _library(thing) -> str:
    module = thing.__module__
    return module.partition(".")[0] if isinstance(module, str) else "builtins"


def checksum(thing) -> tuple | None:
    """(bytes, checksum) of its content; None: there is a thing of the script's in it, a circle, or no pickle is made of it."""
    told = _Sum()
    pickler = _Pickler(told, 5, buffer_callback=lambda buffer: told.write(buffer.raw()))
    pickler.fast = True  # by content: which parts are the same object differs between lives
    try:
        pickler.dump(thing)
    except Exception:
        return None
    return told.size, told.crc


def of_pickled(walk, thing, path):
    """Memory that only it holds needs no saving."""
    found = checksum(thing)
    if found is None:
        from . import walk_kinds
        walk_kinds.of_unknown(walk, thing, path)
        return
    walk.facts[path] = (leaves.name_of(type(thing)), *found)
    walk.leave_out.append(thing)
