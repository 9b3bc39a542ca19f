"""The file of the log: a chain of parts, each with its length and CRC-32;
one that is torn or damaged ends it.

A part is one write. What was written survives the death of the process, whenever it comes;
what was synced, that of the machine.
"""

from __future__ import annotations

import marshal
import os
import struct
from array import array
from zlib import crc32

from ...entry.aside import aside
from . import own

MAGIC = b"stoker log 2\n"
CHUNK = 1 << 16  # bytes: so many parts are read together
# events, values, bytes of the values; with no event: names (0, 0, bytes) or notes (0, 1, bytes)
_PART = struct.Struct("<III")
_CRC = struct.Struct("<I")  # of those three, and of what follows: events by number, values
_HEAD = _PART.size + _CRC.size
_pwrite = os.pwrite  # the real one


def parts(names: tuple, notes: list, events: array, values: list) -> bytes:
    """What has happened since the last write. `names`:
    of kinds, of places, and the entries that `events` are the numbers of."""
    found = _part(0, 0, b"", names) if any(names) else b""
    if notes:
        found += _part(0, 1, b"", notes)
    return found + _part(len(events), len(values), events.tobytes(), values) if events else found


def _part(events: int, with_value: int, numbers: bytes, what: object) -> bytes:
    packed = marshal.dumps(what, 2)
    head = _PART.pack(events, with_value, len(packed))
    return b"".join((head, _CRC.pack(crc32(packed, crc32(numbers, crc32(head)))), numbers, packed))


class Writer:
    """Writes parts from `end` on. No mapping into memory, though that would need no call:
    on a full disk, or with a lost share, a page of it is the death of the process, and a write is an error
    that can be told."""

    def __init__(self, path: str, end: int = 0) -> None:
        self._fd = aside(own.open_made(path, os.O_RDWR))
        os.ftruncate(self._fd, end)
        self.end = end or len(MAGIC)
        if not end:
            self._write(MAGIC, 0)

    def append(self, data: bytes) -> None:
        """Write what `parts` made behind all that is there. Raises OSError; a torn rest is no part."""
        self._write(data, self.end)
        self.end += len(data)

    def _write(self, data: bytes, at: int) -> None:
        done = _pwrite(self._fd, data, at)
        while done < len(data):
            done += _pwrite(self._fd, data[done:], at + done)

    def sync(self) -> None:
        os.fsync(self._fd)

    def close(self) -> None:
        os.close(self._fd)


class Reader:
    """The recorded events in order, a chunk of parts in memory at a time. All are checked first:
    `count` and `end` (bytes) are sure."""

    def __init__(self, path: str) -> None:
        self._f = open(path, "rb", opener=_private)  # noqa: SIM115 - read on for as long as the replay lasts
        self.names: list = []
        self.sites: list = []
        self.entries: list = []  # number -> (kind << 1 | has a value, site)
        self.notes: dict = {}  # event -> the chunk with the note
        self.count, self.end = 0, len(MAGIC)
        self._chunks: list = []  # [offset, length, events before it, events, values in it]
        if self._f.read(len(MAGIC)) == MAGIC:
            while self._scan():
                pass
        self._notes_of = (-1, {})
        self._next_chunk = 0
        self.events, self.at = array("H"), 0
        self._values, self._value_at = [], 0

    def __del__(self) -> None:
        self._f.close()  # quietly: a script may be listening for warnings of files that are left open

    def _scan(self) -> bool:
        head = self._f.read(_HEAD)
        if len(head) < _HEAD:
            return False
        events, values, size = _PART.unpack_from(head)
        body = self._f.read(2 * events + size)
        if (
            len(body) < 2 * events + size
            or crc32(body, crc32(head[: _PART.size])) != _CRC.unpack_from(head, _PART.size)[0]
        ):
            return False
        chunk = self._chunks[-1] if self._chunks else None
        if chunk is None or chunk[1] > CHUNK:
            chunk = [self.end, 0, self.count, 0, 0]
            self._chunks.append(chunk)
        if events:
            chunk[3:] = chunk[3] + events, chunk[4] + values
            self.count += events
        elif values:
            self.notes.update((event, len(self._chunks) - 1) for event, _ in marshal.loads(body))
        else:
            names, sites, entries = marshal.loads(body)
            self.names += names
            self.sites += sites
            self.entries += entries
        chunk[1] += _HEAD + len(body)
        self.end += _HEAD + len(body)
        return True

    def more(self) -> bool:
        return self.at < len(self.events) or self._load()

    def peek(self) -> tuple:
        """(kind << 1 | has a value, site) of the next event; only when there is `more()`."""
        return self.entries[self.events[self.at]]

    def next(self) -> tuple:
        """As `peek`, and go on behind it."""
        i = self.at
        self.at = i + 1
        return self.entries[self.events[i]]

    def value(self) -> object:
        """The value of the event that `next` gave last, if it has one."""
        self._value_at += 1
        return self._values[self._value_at - 1]

    def note(self, event: int) -> object:
        """What was noted about the moment when so many events had been; only for those in `notes`."""
        chunk = self.notes[event]
        if self._notes_of[0] != chunk:
            body, found = self._body(chunk), {}
            for events, some, start, end in _parts(body):
                if some and not events:
                    found.update(marshal.loads(body[start:end]))
            self._notes_of = chunk, found
        return self._notes_of[1][event]

    def values_behind(self, events: int) -> int:
        """How many values there are behind the first so many events."""
        count = 0
        for number, (_, _, first, n, values) in enumerate(self._chunks):
            if first >= events:
                count += values
            elif first + n > events:
                count += sum(self.entries[each][0] & 1 for each in self._content(number)[0][events - first:])
        return count

    def _load(self) -> bool:
        while self._next_chunk < len(self._chunks):
            self._next_chunk += 1
            self.events, self._values = self._content(self._next_chunk - 1)
            self.at = self._value_at = 0
            if self.events:
                return True
        return False

    def _content(self, number: int) -> tuple:
        """All events of a chunk, and all their values."""
        body, numbers, values = self._body(number), array("H"), []
        for events, _, start, end in _parts(body):
            if events:
                numbers.frombytes(body[start - 2 * events:start])
                values += marshal.loads(body[start:end])
        return numbers, values

    def _body(self, number: int) -> bytes:
        offset, length = self._chunks[number][:2]
        self._f.seek(offset)
        return self._f.read(length)


def _parts(body: bytes):
    """(events, values, start, end of the packed values) of each part;
    the events' numbers stand right before their values."""
    at = 0
    while at < len(body):
        events, values, size = _PART.unpack_from(body, at)
        at += _HEAD + 2 * events
        yield events, values, at, at + size
        at += size


def _private(path: str, flags: int) -> int:
    return aside(own.open_file(path, flags))
