"""What a process of a rehearsal tells the conductor: one JSON line at a time, in a file of its own."""

from __future__ import annotations

import json
import os
import sys
import threading
import time

STEPS = 3
_fd = -1
_pid = 0
_once: set = set()


class CannotRehearse(RuntimeError):
    """The script uses something that has no meaning without a GPU."""


def tell(event: str, **said: object) -> None:
    """Append one line; a forked child gets a file of its own."""
    global _fd, _pid
    room = os.environ.get("STOKER_REHEARSE_ROOM")
    if not room:
        return
    if _pid != os.getpid():
        _fd, _pid = (
            os.open(
                os.path.join(room, f"{os.getpid()}.jsonl"),
                os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC,
                0o600,
            ),
            os.getpid(),
        )
    line = json.dumps({"e": event, "t": time.time(), **said}, default=str) + "\n"
    os.write(_fd, line.encode("utf-8", "replace"))


def once(event: str, key: object = None, **said: object) -> None:
    """As `tell`, the first time that this event comes with this key."""
    if (event, key) not in _once:
        _once.add((event, key))
        tell(event, **said)


def is_main_of_its_own() -> bool:
    """False in processes that only load data."""
    loader = sys.modules.get("torch.utils.data._utils.worker") or sys.modules.get("torch.utils.data")
    info = getattr(loader, "get_worker_info", None)
    return not (info and info() is not None)


def place_in_script() -> str:
    """ "train.py:44": the innermost line of the running code that belongs to the user."""
    frame = sys._getframe(1)
    while frame is not None:
        name = frame.f_code.co_filename
        if not _is_library(name):
            return f"{os.path.basename(name)}:{frame.f_lineno}"
        frame = frame.f_back
    return ""


def _is_library(name: str) -> bool:
    return (
        name.startswith("<")
        or "site-packages" in name
        or "stoker_hooks" in name
        or name.startswith((sys.base_prefix + "/lib", sys.prefix + "/lib"))
    )


def watch_the_end() -> None:
    """The exception that ends this process is told as well as printed."""
    before = sys.excepthook

    def hook(kind: type, value: BaseException, trace: object) -> None:
        try:
            _tell_error(kind, value, trace)
        except Exception:  # a fault of ours must not hide the script's
            pass
        if not issubclass(kind, CannotRehearse):  # the report says it
            before(kind, value, _without_ours(trace))

    sys.excepthook = hook


def _without_ours(trace: object) -> object:
    """The traceback as it would be on a GPU: frames of ours are left out."""
    try:
        while trace is not None and _is_ours(trace):
            trace = trace.tb_next
        each = trace
        while each is not None:
            while each.tb_next is not None and _is_ours(each.tb_next):
                each.tb_next = each.tb_next.tb_next
            each = each.tb_next
    except Exception:  # a traceback that cannot be changed is shown as it is
        pass
    return trace


def _is_ours(trace: object) -> bool:
    return "stoker_hooks" in trace.tb_frame.f_code.co_filename


def _tell_error(kind: type, value: BaseException, trace: object) -> None:
    if issubclass(kind, KeyboardInterrupt) or threading.current_thread() is not threading.main_thread():
        return
    at, text = "", str(value)
    while trace is not None:
        name = trace.tb_frame.f_code.co_filename
        if not _is_library(name):
            at = f"{os.path.basename(name)}:{trace.tb_lineno}"
        trace = trace.tb_next
    if kind.__name__ == "ProcessRaisedException":
        error_of_spawned(text)
        return
    tell("error", kind=kind.__name__, text=text[:2000], at=at, rank=os.environ.get("RANK", ""))


def error_of_spawned(text: str) -> None:
    """mp.spawn tells the parent what its child died of, as text."""
    lines = [line for line in text.splitlines() if line.strip()]
    which = next((line.split()[2] for line in lines if line.startswith("-- Process ")), "")
    last = next((i for i in range(len(lines) - 1, -1, -1) if not lines[i].startswith((" ", "-"))), -1)
    kind, _, message = lines[last].partition(": ") if last >= 0 else ("Exception", "", text)
    places = [line.strip() for line in lines if line.strip().startswith("File ")]
    at = ""
    for place in places:
        name, _, rest = place[6:].partition('"')
        if not _is_library(name):
            at = f"{os.path.basename(name)}:{rest.split('line ')[1].split(',')[0]}"
    tell("error", kind=kind.rsplit(".", 1)[-1], text=message[:2000], at=at, rank=which)
