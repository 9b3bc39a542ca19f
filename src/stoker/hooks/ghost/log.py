"""The log: in call order, every event of a life with where in the code it came from and, for most, a value.

A first life puts events in. A ghost takes them out. In the tail, what is put is compared bit for bit with what stands there.
The file is a chain of chunks, each with its length and CRC-32; a chunk that is torn or damaged ends it.
"""

from __future__ import annotations

import marshal
import os
import struct
import sys
from array import array
from math import isnan
from time import monotonic as _monotonic  # the real one: this file is imported before any clock is patched
from zlib import crc32

from . import fate, life, words

NOTHING = type("Nothing", (), {"__repr__": lambda self: "nothing"})()
MAGIC = b"stoker log 1\n"
CAP = int(os.environ.get("STOKER_LOG_CAP") or 4 << 30)  # bytes; past it recording stops
FLUSH_S = 1.0
_HEAD = struct.Struct("<II")  # length and CRC-32 of a chunk
_LENGTH = struct.Struct("<I")  # of what a chunk says about itself, before its events
_NOWHERE = 0xFFFFFFFF
_SCALARS = frozenset((int, float, str, bytes, bool, type(None), complex))
_ARRAY = "\0array"
_HERE = os.path.dirname(os.path.abspath(__file__))
_getframe = sys._getframe


def pack(array_like: object) -> tuple:
    """A numpy array as a value of the log."""
    return (_ARRAY, array_like.dtype.str, array_like.shape, array_like.tobytes())


def unpack(value: object) -> object:
    """The array that `pack` made a value of (a fresh, writable one); any other value as it is."""
    if type(value) is not tuple or len(value) != 4 or value[0] != _ARRAY:
        return value
    import numpy
    return numpy.frombuffer(bytearray(value[3]), dtype=value[1]).reshape(value[2])


def equal(a: object, b: object) -> bool:
    """Bit for bit; one NaN equals another."""
    try:
        return marshal.dumps(a, 2) == marshal.dumps(b, 2) or _alike(a, b)
    except ValueError:
        return False


class Log:
    """Events of one run, over all its lives. In memory until `open()`: a process that never trains writes nothing.

    put, take, peek and kind are what the hooks call; the rest is for the one who leads from phase to phase."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.n = 0  # events of this life so far
        self.stop = 0  # as a ghost: the event at which the image stands
        self.compared = 0  # events of the tail that were equal, and those of them with a value
        self.values_compared = 0
        self.bytes = 0
        self._names: list = []
        self._codes: dict = {}
        self._placeless: set = set()  # kinds
        self._sites: dict = {}  # (id of the code, place in it) -> ordinal, in order of appearance
        self._codes_kept: list = []
        self._ours: set = set()
        self._fd = -1
        self._new_names: list = []
        self._new_sites: list = []
        self._kinds, self._where, self._values = bytearray(), array("I"), []
        self._notes: list = []  # (event, value)
        self._noted: set = set()
        self._flush_at = 0.0
        self._reader: _Reader | None = None

    def __len__(self) -> int:
        return self.n

    def kind(self, name: str, placed: bool = True) -> int:
        """The number of a kind of event. The same name has the same number in all lives of a run. Events that are not `placed` come out of
        a library's code, which a ghost does not run: where in the code is not asked."""
        code = self._codes.get(name)
        if code is None:
            code = self._codes[name] = len(self._names)
            if code > 127:
                raise ValueError("too many kinds of events")
            self._names.append(name)
            self._new_names.append(name)
        if not placed:
            self._placeless.add(code)
        return code

    def name(self, kind: int) -> str:
        return self._names[kind]

    def put(self, kind: int, value: object = NOTHING) -> None:
        """An event that happened. What it says must consist of None, bool, int, float, complex, str, bytes, tuple, list, dict."""
        if life.phase == life.TAIL:
            return self._compare(kind, value)
        if kind in self._placeless:
            site = _NOWHERE
        else:
            f = _getframe(1)
            code = f.f_code
            while id(code) in self._ours:
                f = f.f_back
                code = f.f_code
            site = self._sites.get((id(code), f.f_lasti))
            if site is None:
                site = self._site()
        if value is NOTHING:
            self._kinds.append(kind << 1)
        else:
            self._kinds.append(kind << 1 | 1)
            self._values.append(value if type(value) in _SCALARS else marshal.loads(marshal.dumps(value, 2)))
        self._where.append(site)
        self.n += 1
        if self._fd >= 0 and _monotonic() > self._flush_at:
            self.flush()

    def take(self, kind: int) -> object:
        """The value of the next event, which must be of this kind and from this place in the code; NOTHING if it has none."""
        if life.phase != life.TAIL and self.n >= self.stop and life.phase == life.GHOST:
            fate.diverged(words.PASSED_POINT.format(event=self.n))
        reader = self._reader
        if not reader.more():
            fate.diverged(words.LOG_ENDED.format(event=self.n, now=self._names[kind]))
        entry, where = reader.next()
        if entry >> 1 != kind:
            fate.diverged(words.OTHER_EVENT.format(event=self.n, then=self._told(entry >> 1, where), now=self._names[kind], here=_place()))
        self._check_site(where)
        self.n += 1
        value = reader.value() if entry & 1 else NOTHING
        if life.phase == life.TAIL:
            self._after_tail_event(False)
        return value

    def peek(self) -> int | None:
        """The kind of the next recorded event; None where the record ends, or, as a ghost, where the image stands."""
        if self._reader is None or not self._reader.more() or (life.phase == life.GHOST and self.n >= self.stop):
            return None
        return self._reader.kinds[self._reader.at] >> 1

    def note(self, event: int, value: object) -> None:
        """Something about an earlier moment, when `event` events had been, that showed only later."""
        if event not in self._noted and (self._reader is None or event not in self._reader.notes):
            self._noted.add(event)
            self._notes.append((event, value))

    def noted(self, event: int) -> object:
        """What was noted about the moment when `event` events had been, or None."""
        return self._reader.note(event) if event in self._reader.notes else None

    def left(self) -> bool:
        """Whether recorded events are left that this life has not come to."""
        return self._reader is not None and self._reader.more()

    # -- from phase to phase

    def open(self) -> None:
        """From here on on disk, as the record of a first life."""
        if os.path.exists(self.path):
            set_aside(self.path)
        self._fd = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        os.write(self._fd, MAGIC)
        self.bytes = len(MAGIC)
        self.flush()

    def replay(self, stop: int) -> None:
        """Go to the event number `stop` as a ghost, and through the rest as its tail. Kinds keep their recorded numbers."""
        self._reader = _Reader(self.path)
        self.stop = stop
        for name in self._reader.names:
            self._codes[name] = len(self._names)
            self._names.append(name)
        self._new_names.clear()

    def go_on(self) -> None:
        """All recorded events are repeated: write on behind them; what was torn is cut."""
        end = self._reader.end
        self._reader = None
        self._fd = os.open(self.path, os.O_RDWR | os.O_CLOEXEC)
        os.ftruncate(self._fd, end)
        os.lseek(self._fd, end, os.SEEK_SET)
        self.bytes = end

    def flush(self, sync: bool = False) -> None:
        """Everything put so far survives the death of this process; with `sync`, that of the machine."""
        if self._fd < 0:
            return
        self._flush_at = _monotonic() + FLUSH_S
        if self._kinds or self._notes:
            try:
                about = marshal.dumps((self.n - len(self._kinds), len(self._kinds), len(self._values), self._new_names, self._new_sites,
                                       [event for event, _ in self._notes]), 2)
                body = about + marshal.dumps((bytes(self._kinds), self._where.tobytes(), self._values, self._notes), 2)
                body = _LENGTH.pack(len(about)) + body
                data = memoryview(_HEAD.pack(len(body), crc32(body)) + body)
                self.bytes += len(data)
                while data:
                    data = data[os.write(self._fd, data):]
            except (OSError, ValueError) as e:
                self._drop()
                fate.refuse(words.LOG_UNWRITABLE.format(error=e))
                return
            self._kinds, self._where, self._values = bytearray(), array("I"), []
            self._new_names, self._new_sites, self._notes = [], [], []
            if len(self._noted) > 1000:  # only ever asked about the latest
                self._noted = set(sorted(self._noted)[-10:])
            if self.bytes > CAP:
                fate.refuse(words.LOG_CAP.format(size=self.bytes >> 20))
        if sync:
            os.fsync(self._fd)

    def close(self) -> None:
        self.flush()
        self._drop()

    def tail(self, events: int) -> int:
        """How many recorded events with a value stand behind the first `events` of them: what the tail check will look at."""
        return _Reader(self.path).values_behind(events)

    def _drop(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
        self._fd = -1
        self._kinds, self._where, self._values = bytearray(), array("I"), []

    # -- the tail check

    def _compare(self, kind: int, value: object) -> None:
        reader = self._reader
        if reader is None or not reader.more():  # the tail ended within this event's own shield
            life.end_tail()
            return self.put(kind, value)
        entry, where = reader.next()
        if entry >> 1 != kind:
            fate.diverged(words.OTHER_EVENT.format(event=self.n, then=self._told(entry >> 1, where), now=self._names[kind], here=_place()))
        self._check_site(where)
        if entry & 1:
            then = reader.value()
            if value is NOTHING or not equal(then, value):
                fate.diverged(words.OTHER_VALUE.format(event=self.n, what=self._names[kind], then=_short(then), now=_short(value),
                                                       place=_place(), behind=self.compared))
        elif value is not NOTHING:
            fate.diverged(words.OTHER_VALUE.format(event=self.n, what=self._names[kind], then="nothing", now=_short(value), place=_place(),
                                                   behind=self.compared))
        self.n += 1
        self._after_tail_event(bool(entry & 1))

    def _after_tail_event(self, with_value: bool) -> None:
        self.compared += 1
        self.values_compared += with_value
        if not self._reader.more():
            self.go_on()
            life.end_tail()

    # -- places in the code

    def _site(self) -> int:
        """The ordinal of the place that an event comes from: the innermost frame that is not one of ours."""
        f = _getframe(1)
        code = f.f_code
        while code.co_filename.startswith(_HERE):
            if id(code) not in self._ours:
                self._ours.add(id(code))
                self._codes_kept.append(code)
            f = f.f_back
            code = f.f_code
        key = (id(code), f.f_lasti)
        site = self._sites.get(key)
        if site is None:
            site = self._sites[key] = len(self._sites)
            self._codes_kept.append(code)
            told = f"{code.co_filename}:{f.f_lineno} in {code.co_name}+{f.f_lasti}"
            if self._reader is None:
                self._new_sites.append(told)
            elif site >= len(self._reader.sites) or self._reader.sites[site] != told:
                then = self._reader.sites[site] if site < len(self._reader.sites) else "nothing new"
                fate.diverged(words.OTHER_PLACE.format(event=self.n, then=then, now=told))
        return site

    def _check_site(self, where: int) -> None:
        site = self._site() if where != _NOWHERE else _NOWHERE
        if site != where:
            fate.diverged(words.OTHER_PLACE.format(event=self.n, then=self._reader.sites[where], now=_place()))

    def _told(self, kind: int, where: int) -> str:
        return self._names[kind] if where == _NOWHERE else f"{self._names[kind]} ({self._reader.sites[where]})"


def set_aside(path: str) -> None:
    """Make room for a new record; of the old ones the last is kept, for whoever asks what went wrong."""
    os.replace(path, path + ".old")


class _Reader:
    """The recorded events in order, one chunk in memory at a time. All chunks are checked first: `events` and `end` (bytes) are sure."""

    def __init__(self, path: str) -> None:
        self._f = open(path, "rb", opener=_private)  # noqa: SIM115 - read on for as long as the replay lasts
        self.names: list = []
        self.sites: list = []
        self.notes: dict = {}  # event -> the chunk with the note
        self.events, self.end = 0, len(MAGIC)
        self._chunks: list = []  # (offset, length, events before it, values in it)
        if self._f.read(len(MAGIC)) == MAGIC:
            while self._scan():
                pass
        self._notes_of = (-1, {})
        self._next_chunk = 0
        self.kinds, self.at = b"", 0
        self._where, self._values, self._value_at = array("I"), [], 0

    def _scan(self) -> bool:
        head = self._f.read(_HEAD.size)
        if len(head) < _HEAD.size:
            return False
        length, crc = _HEAD.unpack(head)
        body = self._f.read(length)
        if len(body) < length or crc32(body) != crc:
            return False
        first, events, values, names, sites, notes = marshal.loads(memoryview(body)[_LENGTH.size:])
        if first != self.events:
            return False
        self._chunks.append((self.end + _HEAD.size, length, first, events, values))
        self.names += names
        self.sites += sites
        self.notes.update((event, len(self._chunks) - 1) for event in notes)
        self.events += events
        self.end += _HEAD.size + length
        return True

    def more(self) -> bool:
        return self.at < len(self.kinds) or self._load()

    def next(self) -> tuple:
        i = self.at
        self.at = i + 1
        return self.kinds[i], self._where[i]

    def value(self) -> object:
        self._value_at += 1
        return self._values[self._value_at - 1]

    def note(self, event: int) -> object:
        chunk = self.notes[event]
        if self._notes_of[0] != chunk:
            self._notes_of = chunk, dict(self._events(*self._chunks[chunk][:2])[3])
        return self._notes_of[1][event]

    def values_behind(self, events: int) -> int:
        count = 0
        for offset, length, first, n, values in self._chunks:
            if first >= events:
                count += values
            elif first + n > events:
                count += sum(k & 1 for k in self._events(offset, length)[0][events - first:])
        return count

    def _load(self) -> bool:
        if self._next_chunk >= len(self._chunks):
            return False
        offset, length = self._chunks[self._next_chunk][:2]
        self._next_chunk += 1
        self.kinds, where, self._values, _ = self._events(offset, length)
        self._where = array("I", where)
        self.at = self._value_at = 0
        return True

    def _events(self, offset: int, length: int) -> tuple:
        self._f.seek(offset)
        body = self._f.read(length)
        return marshal.loads(memoryview(body)[_LENGTH.size + _LENGTH.unpack_from(body)[0]:])


def _private(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_CLOEXEC)


def _place() -> str:
    """Where the script stands now."""
    f = _getframe(1)
    while f is not None and f.f_code.co_filename.startswith(_HERE):
        f = f.f_back
    return "nowhere" if f is None else f"{f.f_code.co_filename}:{f.f_lineno} in {f.f_code.co_name}"


def _short(value: object) -> str:
    told = repr(value)
    return told if len(told) <= 60 else told[:57] + "..."


def _alike(a: object, b: object) -> bool:
    if type(a) is not type(b):
        return False
    if type(a) is float:
        return (isnan(a) and isnan(b)) or struct.pack("<d", a) == struct.pack("<d", b)
    if type(a) is complex:
        return _alike(a.real, b.real) and _alike(a.imag, b.imag)
    if type(a) in (list, tuple):
        return len(a) == len(b) and all(_alike(x, y) for x, y in zip(a, b))  # noqa: B905 - Python 3.9
    if type(a) is dict:
        return list(a) == list(b) and all(_alike(a[k], b[k]) for k in a)
    return a == b
