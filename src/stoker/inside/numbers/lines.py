"""The file of an attempt that holds what was captured. A line is written at once:
a kill loses none, and an image knows of no buffer.

In a ghost phase nothing is written: the life before has done that.
The tail of a resume writes its steps once more, with equal values;
of two lives the reader takes the later one.
"""

from __future__ import annotations

import json
import os
import sys
import time
from _thread import get_ident as _ident

NAME = "numbers.jsonl"
SIZE_MAX = 2 << 30  # bytes
_now, _open, _write, _fstat, _getpid = (  # the real ones: exact resume puts others there
    getattr(each, "__wrapped__", each) for each in (time.time, os.open, os.write, os.fstat, os.getpid))


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


def guarded(source: str, call: object, /, *args: object, **kwargs: object) -> None:
    """A fault of Stoker is noted once, and the script goes on."""
    if source in _faulty:
        return
    try:
        call(*args, **kwargs)
    except Exception as e:
        _faulty.add(source)
        from ..entry.processes import record
        record(numbers=f"{source}: {type(e).__name__}: {e}")


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
    line = {
        "step": step,
        "at": round(_now(), 3),
        "from": source,
        "pid": _getpid(),
        "axis": axis,
        "values": values,
    }
    if folder:
        line["folder"] = folder
    if nth > 1:
        line["nth"] = nth
    _put(line)


def _counted(key: tuple) -> int:
    number = _counts[key] = _counts.get(key, 0) + 1
    return number


def summary(source: str, values: dict, nth: int = 1) -> None:
    """Numbers that stand for the whole run: a later one replaces an earlier one."""
    if values:
        _put(
            {
                "at": round(_now(), 3),
                "from": source,
                "pid": _getpid(),
                "summary": values,
                **({"nth": nth} if nth > 1 else {}),
            }
        )


def picture(source: str, name: str, step: object, file: str, size: int) -> None:
    """A picture that was kept as a file of this folder."""
    place = (
        {"step": step, "axis": "step"}
        if step is not None
        else {"step": _counted((source, "picture", name)), "axis": "order"}
    )
    _put(
        {
            **place,
            "at": round(_now(), 3),
            "from": source,
            "pid": _getpid(),
            "picture": {"name": name, "file": file, "bytes": size},
        }
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
        _put({"at": round(_now(), 3), "from": source, "pid": _getpid(), "parameters": values})


def _put(line: dict) -> None:
    if not silent() and _size() < SIZE_MAX:
        _write(_fd, (_encode(line) + "\n").encode())


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
