"""What a process of the tuner says into its room: lines as it goes;
of a guard's and a batch's, also that it has come to its end."""

from __future__ import annotations

import json
import os
import time

EVERY_S = 0.5  # between two lines of progress
_now = time.monotonic
_state: dict = {"room": "", "phase": "", "told": 0.0, "steps": 0}


def begin(room: str, phase: str) -> None:
    """This process has the room's order."""
    _state.update(room=room, phase=phase)


def take(room: str) -> bool:
    """Whether the order is for this process: the first that comes here has it."""
    path = os.path.join(room, "taken")
    try:
        with open(path, "x") as f:
            f.write(str(os.getpid()))
        return True
    except FileExistsError:
        try:
            with open(path) as f:
                return f.read() == str(os.getpid())
        except OSError:
            return False
    except OSError:
        return True


def step(number: int) -> None:
    """A sign of life, now and then."""
    _state["steps"] = number
    if _now() - _state["told"] > EVERY_S:
        progress("")


def steps() -> int:
    """How many this process has made."""
    return _state["steps"]


def progress(text: str) -> None:
    """One line for who watches."""
    _state["told"] = _now()
    line("progress.jsonl", at=time.time(), phase=_state["phase"], steps=_state["steps"], text=text)


def line(name: str, **said: object) -> None:
    """One line into a file of the room, at once: the next moment may be the last."""
    try:
        fd = os.open(
            os.path.join(_state["room"], name),
            os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC,
            0o600,
        )
        try:
            os.write(fd, (json.dumps(said) + "\n").encode())
        finally:
            os.close(fd)
    except OSError:
        pass
