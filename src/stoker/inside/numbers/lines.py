"""The file of an attempt that holds what was captured. Numbers that come one by one are written at once.
Numbers that come faster wait in memory and are written together: by a later call, or by a thread within
BEAT_S. Before an image, and before this process ends or becomes another program, nothing waits.

In a ghost phase nothing is written: the life before has done that.
The tail of a resume writes its steps once more, with equal values;
of two lives the reader takes the later one.

Lines of hooks/numbers.jsonl: `{"begin", "pid", "rank"?}` of each process, then at each call `{"step", "at",
"from", "pid", "axis", "folder"?, "values": {NAME: value}}`.

Parameters are a line `{"at", "from", "pid", "parameters"}`; a picture is a line that names its file.
"""

from __future__ import annotations

import _thread
import atexit
import json
import os
import sys
import time
from _thread import get_ident as _ident
from collections import deque

NAME = "numbers.jsonl"
SIZE_MAX = 2 << 30  # bytes
SOON_S = 0.1  # a call this long after the last write is written at once: what waited goes with it
BEAT_S = 0.5
PATIENCE_S = 5.0  # for a write that another thread has begun
# the real ones: exact resume puts others there
_now, _sleep, _start_thread, _open, _write, _fstat, _getpid = (
    getattr(each, "__wrapped__", each)
    for each in (
        time.time,
        time.sleep,
        _thread.start_new_thread,
        os.open,
        os.write,
        os.fstat,
        os.getpid,
    )
)


def _refused(value: object) -> object:
    raise TypeError(f"{type(value).__name__} is not plain")


def _encoder() -> object:
    """What `JSONEncoder.encode` makes again in each call, made once: a third of the time.
    The plain one where this Python has another."""
    try:
        made = json.encoder.c_make_encoder(
            None, _refused, json.encoder.encode_basestring_ascii, None, ": ", ", ", False, False, True
        )
        if "".join(made({"a": [1.5, "b"]}, 0)) == '{"a": [1.5, "b"]}':
            return lambda value: "".join(made(value, 0))
    except Exception:
        pass
    return json.JSONEncoder().encode


_encode = _encoder()
_modules = sys.modules
_fd = -1
_identity = (0, 0)  # device and inode: a script may close descriptors that it does not know
_counts: dict = {}  # (source, folder, name) -> calls without a step
_outer = 0  # the thread in which a trainer hands on to other loggers what was captured from it
_faulty: set = set()  # sources that are not captured any more
_waiting: deque = deque()  # (source, values, step, time, axis, folder, nth), or (source, line)
_writing = _thread.allocate_lock()
_written = 0.0  # when what waited was written
_at_once = False  # in a child, and while this process ends
_beats = False  # there is a thread that writes what waits


def guarded(source: str, call: object, /, *args: object, **kwargs: object) -> None:
    """A fault of Stoker is noted once, and the script goes on."""
    if source in _faulty:
        return
    try:
        call(*args, **kwargs)
    except Exception as e:
        _note(source, e)


def _note(source: str, error: Exception) -> None:
    if source not in _faulty:
        _faulty.add(source)
        from ..entry.processes import record
        record(numbers=f"{source}: {type(error).__name__}: {error}")


def after(where: object, name: str, source: str, take: object, outer: bool = False) -> None:
    """Call `take(what it returned,
    *its arguments)` after each call of the function `name` of a class or module.

    outer: what other libraries are told within the call is the same once more, and is not taken.
    """
    from ..clock.wrapping import wrap

    def seen(real: object) -> object:
        def wrapper(*args, **kwargs):
            result = told_on(real, *args, **kwargs) if outer else real(*args, **kwargs)
            guarded(source, take, result, *args, **kwargs)
            return result
        return wrapper
    wrap(where, name, seen)


def told_on(real: object, /, *args: object, **kwargs: object) -> object:
    """Call it, and take nothing of what it tells other loggers."""
    global _outer
    before, _outer = _outer, _ident()
    try:
        return real(*args, **kwargs)
    finally:
        _outer = before


def plain(values: object, before: str = "") -> dict:
    """The numbers among them, those in nested dicts under `outer/inner`.
    What is none yet, such as a tensor, is left out and not asked."""
    found = {}
    if isinstance(values, dict):
        for name, value in values.items():
            if type(name) is not str:
                continue
            if isinstance(value, (int, float)) and type(value) is not bool:
                found[f"{before}{name}"] = value
            elif type(value) is dict and "_type" not in value:
                found.update(plain(value, f"{before}{name}/"))
    return found


def write(
    source: str, values: dict, step: object, *, axis: str = "step", folder: str = "", nth: int = 1
) -> None:
    """One call's numbers. Without a step its place is how many such calls there were,
    those of a ghost included.

    nth: the number of the logger, of several that get the same names.
    """
    if _outer and _outer == _ident():
        return
    if step is None:
        step, axis = _counted((source, folder, nth, *values)), "order"
    if silent():
        return
    now = _now()
    _waiting.append((source, values, step, now, axis, folder, nth))
    if not 0 <= now - _written < SOON_S or _at_once:
        flush()
    elif not _beats:
        _begin_to_beat()


def _counted(key: tuple) -> int:
    number = _counts[key] = _counts.get(key, 0) + 1
    return number


def summary(source: str, values: dict, nth: int = 1) -> None:
    """Numbers that stand for the whole run: a later one replaces an earlier one."""
    if values:
        _put(
            source,
            {
                "at": round(_now(), 3),
                "from": source,
                "pid": _getpid(),
                "summary": values,
                **({"nth": nth} if nth > 1 else {}),
            },
        )


def picture(source: str, name: str, step: object, file: str, size: int) -> None:
    """A picture that was kept as a file of this folder."""
    place = (
        {"step": step, "axis": "step"}
        if step is not None
        else {"step": _counted((source, "picture", name)), "axis": "order"}
    )
    _put(
        source,
        {
            **place,
            "at": round(_now(), 3),
            "from": source,
            "pid": _getpid(),
            "picture": {"name": name, "file": file, "bytes": size},
        },
    )


def count_on(source: str, name: str, step: object) -> None:
    """A picture that is not kept has its number too."""
    if step is None:
        _counted((source, "picture", name))


def process() -> int:
    """The number of this process."""
    return _getpid()


def silent() -> bool:
    """Whether nothing is written now: the life before has done that."""
    phases = _modules.get("stoker_hooks.resume.core.phases")
    return phases is not None and phases.phase == phases.GHOST


def parameters(source: str, values: dict) -> None:
    """What a script was asked to do, as a library parsed it or was told it."""
    if values:
        _put(source, {"at": round(_now(), 3), "from": source, "pid": _getpid(), "parameters": values})


def _put(source: str, line: dict) -> None:
    if not silent():
        _waiting.append((source, _encode(line) + "\n"))
        flush()


def flush() -> None:
    """Write what waits, if no other thread does that now. Raises nothing of its own."""
    global _written
    while _waiting and (lock := _writing).acquire(False):
        lines = list(_waiting)
        left = len(lines)  # they are taken out late: a Ctrl-C before that loses none
        try:
            texts: list = []
            for each in lines:
                guarded(each[0], _add, texts, each)
            data, room = "".join(texts).encode(), _size() < SIZE_MAX
            while left:
                _waiting.popleft()
                left -= 1
            if data and room:
                _write(_fd, data)
        except Exception as e:
            while left:
                _waiting.popleft()
                left -= 1
            for source in {each[0]: None for each in lines}:
                _note(source, e)
        finally:
            _written = _now()
            lock.release()


def _add(texts: list, each: tuple) -> None:
    if len(each) == 2:
        texts.append(each[1])
        return
    source, values, step, at, axis, folder, nth = each
    line = {
        "step": step,
        "at": round(at, 3),
        "from": source,
        "pid": _getpid(),
        "axis": axis,
        "values": values,
    }
    if folder:
        line["folder"] = folder
    if nth > 1:
        line["nth"] = nth
    texts.append(_encode(line) + "\n")


def settle() -> None:
    """Write what waits, after what another thread writes now. Raises nothing."""
    global _writing
    if _writing.acquire(True, PATIENCE_S):
        _writing.release()
    else:  # its thread was interrupted, or its disk hangs
        _writing = _thread.allocate_lock()
    flush()


def _begin_to_beat() -> None:
    global _beats
    _beats = True
    _start_thread(_beat, ())


def _beat() -> None:
    while True:
        _sleep(BEAT_S)
        flush()


def _end() -> None:
    """What comes from now on does not wait."""
    global _at_once
    _at_once = True
    settle()


def _in_child() -> None:
    """What waits is the parent's; a child may end at any moment, without a word."""
    global _writing, _at_once, _beats
    _waiting.clear()
    _writing, _at_once, _beats = _thread.allocate_lock(), True, True


def _ending(real: object) -> object:
    def last(*args, **kwargs):
        _end()
        return real(*args, **kwargs)
    return last


def _watch_the_end() -> None:
    """Also the ways out of which Python tells nobody."""
    from ..clock.wrapping import wrap
    atexit.register(_end)
    os.register_at_fork(after_in_child=_in_child)
    for name in ("_exit", "execv", "execve"):
        wrap(os, name, _ending)


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


_watch_the_end()
