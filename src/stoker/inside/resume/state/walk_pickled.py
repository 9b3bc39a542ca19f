"""Objects of libraries that are known by what pickle tells of them:
tables of pandas, Arrow and polars, tokenizers. They are compared, not put back:
what a script does with them in its loop a ghost does again,
and what a data set changes in them refuses the image."""

from __future__ import annotations

import pickle
import types
import zlib

from ...looks import isinstance
from ..core import leaves
from . import walk_classes

_TOLD = ("pandas", "tokenizers", "pyarrow", "polars")  # libraries of which every object is taken so
_PARTS = frozenset(
    (*_TOLD, *"numpy builtins datetime decimal collections copyreg _codecs zoneinfo pytz".split())
)
# bytes of a table of Arrow or polars; of larger ones, which may be maps of files, a part is looked at
WHOLE = 16 << 20
_PAGE, _PAGES, _ROWS = 4096, 256, 10_000
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
        # of pandas: a look at a row may put columns together, or not
        if type(thing).__name__ == "BlockManager":
            return list, ([*thing.axes, *map(thing.iget_values, range(len(thing.items)))],)
        return NotImplemented


def knows(kind: type) -> bool:
    """Whether a class is one of theirs."""
    return _library(kind) in _TOLD


def _library(thing) -> str:
    module = thing.__module__
    return module.partition(".")[0] if isinstance(module, str) else "builtins"


def checksum(thing) -> tuple | None:
    """(bytes, checksum) of its content; None: there is a thing of the script's in it, a circle, or no pickle
    is made of it."""
    told = _Sum()
    pickler = _Pickler(told, 5, buffer_callback=lambda buffer: told.write(buffer.raw()))
    pickler.fast = True  # by content: which parts are the same object differs between lives
    try:
        size = _size(thing)
        if size > WHOLE and _library(type(thing)) == "polars":
            pickler.dump((size, len(thing), thing.gather_every(len(thing) // _ROWS + 1)))
        elif size > WHOLE:
            _write_some(told, thing)
        else:
            pickler.dump(thing)
    except Exception:
        return None
    return told.size, told.crc


def _size(thing) -> int:
    """Bytes of a table or a column of Arrow or polars; 0 for all else."""
    asked = {"pyarrow": "get_total_buffer_size", "polars": "estimated_size"}.get(_library(type(thing)))
    return getattr(thing, asked)() if asked and hasattr(thing, asked) else 0


def _write_some(told: _Sum, thing) -> None:
    """Of what nobody can change in place: its form, and some pages of each buffer."""
    parts = getattr(thing, "columns", None) or getattr(thing, "chunks", None)
    if parts is not None:
        told.write(repr((len(thing), len(parts), str(getattr(thing, "schema", "")))).encode())
        for part in parts:
            _write_some(told, part)
        return
    told.write(repr((len(thing), thing.offset, str(thing.type))).encode())
    if hasattr(thing, "dictionary"):
        _write_some(told, thing.dictionary)
    for buffer in thing.buffers():
        view = memoryview(buffer or b"").cast("B")
        for at in range(0, len(view), max(_PAGE, len(view) // _PAGES)):
            told.write(view[at:at + _PAGE])


def of_pickled(walk, thing, path):
    """Memory that only it holds needs no saving."""
    found = checksum(thing)
    if found is None:
        walk_classes.of_unknown(walk, thing, path)
        return
    walk.facts[path] = (leaves.name_of(type(thing)), *found)
    walk.leave_out.append(thing)
