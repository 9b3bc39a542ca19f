"""The file of an attempt that holds what was captured. A line is written at once: a kill loses none, and an image knows of no buffer.

In a ghost phase nothing is written: the life before has done that. The tail of a resume writes its steps once more, with equal values; of
two lives the reader takes the later one.
"""

from __future__ import annotations

import json
import os
import sys
import time

NAME = "numbers.jsonl"
SIZE_MAX = 2 << 30  # bytes
_now, _open, _write, _fstat, _getpid = (  # the real ones: exact resume puts others there
    getattr(each, "__wrapped__", each) for each in (time.time, os.open, os.write, os.fstat, os.getpid))
_fd = -1
_identity = (0, 0)  # device and inode: a script may close descriptors that it does not know
_counts: dict = {}  # (source, folder, name) -> calls without a step
_faulty = False


def guarded(call: object, *args: object) -> None:
    """A fault of Stoker is noted once, and the script goes on."""
    global _faulty
    if _faulty:
        return
    try:
        call(*args)
    except Exception as e:
        _faulty = True
        from ..entry import record
        record(numbers=f"{type(e).__name__}: {e}")


def write(source: str, values: dict, step: object, folder: str = "") -> None:
    """One call's numbers. Without a step its place is how many such calls there were, those of a ghost included."""
    axis = "step"
    if step is None:
        key = (source, folder, *values)
        step = _counts[key] = _counts.get(key, 0) + 1
        axis = "order"
    life = sys.modules.get("stoker_hooks.ghost.life")
    if life is not None and life.phase == life.GHOST:
        return
    size = _size()
    line = {"step": step, "at": round(_now(), 3), "from": source, "pid": _getpid(), "axis": axis, "values": values}
    if folder:
        line["folder"] = folder
    if size < SIZE_MAX:
        _write(_fd, (json.dumps(line) + "\n").encode())


def _size() -> int:
    """Of the file, which is opened if it is not; the first line says which process begins."""
    global _fd, _identity
    try:
        if _fd >= 0:
            info = _fstat(_fd)
            if (info.st_dev, info.st_ino) == _identity:
                return info.st_size
    except OSError:
        pass
    from ..entry.aside import aside
    flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
    _fd = aside(_open(os.path.join(os.environ["STOKER_HOOKS"], NAME), flags, 0o600))
    info = _fstat(_fd)
    _identity = (info.st_dev, info.st_ino)
    rank = os.environ.get("RANK", "")
    begin = {"begin": round(_now(), 3), "pid": _getpid(), **({"rank": int(rank)} if rank.isdigit() else {})}
    _write(_fd, (json.dumps(begin) + "\n").encode())
    return info.st_size
