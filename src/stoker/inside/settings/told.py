"""What was applied and what was left, and why:
one line in processes.jsonl, written again when it changes. The newest counts.

`{"settings": {"applied": ["threads=2", "ID workers=2", ...], "left": {"threads" or "ID workers": why}}}`.
"""

from __future__ import annotations

import os

from ..entry.processes import record

_applied: list = []
_left: dict = {}
_written: tuple | None = None
_open = False  # whether each change is written at once: behind the first step


def applied(name: str) -> None:
    """`name` as `threads=2` or `train.py:9#0 workers=2`."""
    _left.pop(name.partition("=")[0], None)
    if name not in _applied:
        _applied.append(name)
    if _open:
        write()


def left(name: str, why: str) -> None:
    """`name` as in `applied`, without its value. What was applied before is no longer."""
    knob = name.partition("=")[0]
    _applied[:] = [each for each in _applied if each.partition("=")[0] != knob]
    _left[knob] = " ".join(why.split())[:300]
    if _open:
        write()


def failed(what: str, error: BaseException) -> None:
    left(what, f"{type(error).__name__}: {error}")


def write() -> None:
    """Tell it, if there is something to tell that was not told."""
    global _written, _open
    _open = True
    now = os.getpid(), tuple(_applied), tuple(_left.items())
    if now == _written or not (_applied or _left):
        return
    _written = now
    record(settings={"applied": list(_applied), "left": dict(_left)})


def state() -> dict:
    return {"applied": list(_applied), "left": dict(_left)}
