"""What would refuse an image, and can be told when it is taken, without a second life:
weights that the script serialized into memory, where a life on its way back has those of stand-ins, and text
made of a clock that no life repeats.
"""

from __future__ import annotations

import calendar
import io
import re
import time
import zlib

from ..core import early_log, phases, words
from ..state import walk
from ..world import effects

MOST = 1024  # of what was saved into memory, the newest
HEAD = 1 << 12  # bytes of something packed that are looked into
WALL_CLOCKS = (
    "time",
    "time_ns",
    "localtime",
    "gmtime",
    "ctime",
    "asctime",
    "strftime",
    "clock_gettime",
    "clock_gettime_ns",
    "datetime.now",
    "datetime.utcnow",
    "date.today",
    "system",
    "subprocess.run",
    "subprocess.call",
)
_saved: dict = {}  # (bytes, checksum) of what was saved into memory after set-up, the newest at the end
_before: set = set()  # as they were at the end of set-up, which each life makes anew
_MOMENT = re.compile(r"(20\d\d)[-_/.]?(\d\d)[-_/.]?(\d\d)[ T_-]{0,3}(\d\d)[-_:.h]?(\d\d)[-_:.m]?(\d\d)")
_SECONDS = re.compile(r"(?<!\d)(1\d{9})(?!\d)")
_LENGTHS = range(8, 1 << 16)  # characters of a text that may hold a moment
_wall = getattr(time.time, "__wrapped__", time.time)
_born = _wall()


def saved(f: object) -> None:
    """torch.save has written into something else than a file;
    only of one in memory it is known what that holds now."""
    if phases.phase <= phases.SETUP or type(f) is not io.BytesIO or f.closed:
        return
    data = f.getvalue()
    if not _has_tensors(data):
        return
    mark = (len(data), zlib.crc32(data))
    _saved.pop(mark, None)
    _saved[mark] = True
    if len(_saved) > MOST:
        del _saved[next(iter(_saved))]


def _has_tensors(data: bytes) -> bool:
    return b"/data/0" in data or data[:1] == b"\x80"


def at_setup_end(seen: object) -> None:
    """What is there already is the same in each life."""
    if effects.pickled:
        _before.update(mark for _, mark in _packed(seen))


def why(seen: object) -> str:
    """The sentence why no image can be taken of what this walk saw, or ""."""
    if _saved:
        for path, mark in _packed(seen):
            if mark not in _before:
                return words.WEIGHTS_IN_MEMORY.format(name=walk.tell(path, seen.frames))
    if not early_log.early_names.isdisjoint(WALL_CLOCKS) or phases.log.knows(WALL_CLOCKS):
        return ""  # that clock is repeated
    path = next((path for path, fact in seen.facts.items() if type(fact) is str and _is_now(fact)), "")
    return (
        words.OTHER_CLOCK.format(name=walk.tell(path, seen.frames), value=seen.facts[path][:80])
        if path
        else ""
    )


def _packed(seen: object) -> list:
    """[(path, (bytes, checksum))] of all that may be weights in bytes."""
    found = []
    for path, fact in seen.facts.items():
        if type(fact) is tuple and fact[1:3] in _saved:  # of a file in memory, or bytes that may change
            found.append((path, fact[1:3]))
        for data in _bytes(fact):
            mark = (len(data), zlib.crc32(data))
            if mark in _saved or _is_packed(data):
                found.append((path, mark))
    return found


def _bytes(fact: object) -> list:
    if type(fact) is bytes:
        return [fact] if len(fact) > 64 else []
    return [data for part in fact for data in _bytes(part)] if type(fact) in (tuple, list) else []


def _is_packed(data: bytes, deep: int = 2) -> bool:
    """Whether it looks like weights that were packed once more: pickled, or compressed."""
    if data[:4] == b"PK\x03\x04" and deep < 2:
        return b"data.pkl" in data[:512]
    if data[:1] == b"\x80":
        return b"_load_from_bytes" in data or b"_rebuild_tensor" in data
    if deep and (data[:2] == b"\x1f\x8b" or data[:1] == b"x"):
        try:
            return _is_packed(zlib.decompressobj(47).decompress(data[:HEAD], HEAD), deep - 1)
        except zlib.error:
            return False
    return False


def _is_now(text: str) -> bool:
    """Whether it holds a moment since this process began, to the second."""
    if len(text) not in _LENGTHS:
        return False
    first, last = _born - 60.0, _wall() + 1.0
    if any(first <= int(each) <= last for each in _SECONDS.findall(text)):
        return True
    for fields in _MOMENT.findall(text):
        moment = (*map(int, fields), 0, 0, -1)
        if first <= time.mktime(moment) <= last or first <= calendar.timegm(moment) <= last:
            return True
    return False
