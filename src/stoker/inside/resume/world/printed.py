"""Where the log of a run stands at an image,
so that the logs of all lives make one text without gap or double.

Everything that reaches the run's standard output counts, also what children print, or a shell around the
script. The bytes are in the log's file or still in the pipe in front of it.
What is still in a terminal nobody can ask: there the log is waited for, until it holds what was printed last.
"""

from __future__ import annotations

import os
import stat
import sys
import time

from ..core import phases, words
from . import journal, streams

_TRIES = 60  # looks: the reader of the pipe may be moving bytes just now
_TERMINAL_TRIES, _TERMINAL_S = 60, 0.003
_OTHERS = 1 << 12  # bytes that others may have printed since


def place() -> list:
    """`[attempt, bytes of out.log, bytes of err.log or None]` as of now; [] where that cannot be known.
    What the script printed is flushed, since the next life prints nothing of what came before."""
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except (OSError, ValueError, AttributeError):
            pass
    folder = os.environ.get("STOKER_RUN_DIR", "")
    if not folder or not phases.attempt:
        return []
    logs = os.path.join(folder, "attempts", str(phases.attempt))
    out, err = (
        _bytes(fd, os.path.join(logs, name), os.path.join(logs, "moves"))
        for fd, name in ((1, "out.log"), (2, "err.log"))
    )
    return [] if out is None else [phases.attempt, out, err]


def told(lives: list, image_place: object) -> list:
    """`lives` of state.json with this life: it goes on behind `image_place`,
    or begins anew where that is None."""
    known = [each for each in lives if each.get("attempt") != phases.attempt]
    if not image_place:
        return [*known, {"attempt": phases.attempt, "from": 0, "out_bytes": 0}]
    return [
        *known,
        {
            "attempt": phases.attempt,
            "from": image_place[0],
            "out_bytes": image_place[1],
            "err_bytes": image_place[2],
        },
    ]


def _bytes(fd: int, path: str, moves: str) -> int | None:
    """What was printed on a pipe, or on a terminal as standard output, so far; None if this is neither.
    What the reader has taken out and not written yet would be missed:
    `moves` holds an odd number then, and another one afterwards. Impossible: it does not come to rest."""
    import fcntl
    import termios
    try:
        if fd == 1 and os.isatty(fd):
            return _on_terminal(path)
        if not stat.S_ISFIFO(os.fstat(fd).st_mode):
            return None
        for _ in range(_TRIES):
            before = _count(moves)
            found = _waiting(fcntl, termios, fd) + os.stat(path).st_size
            if not before & 1 and _count(moves) == before:
                return found
            time.sleep(0.0003)
    except OSError:
        return None
    raise journal.Impossible(words.LOG_MOVES)


def _on_terminal(path: str) -> int | None:
    """None: what this process printed last did not come to the log, or others print in the middle of it."""
    in_all, last = streams.sent()
    for _ in range(_TERMINAL_TRIES):
        with open(path, "rb") as f:
            size = os.fstat(f.fileno()).st_size
            f.seek(max(0, size - len(last) - _OTHERS))
            if size >= in_all and last in f.read(len(last) + _OTHERS):
                return size
        time.sleep(_TERMINAL_S)
    return None


def _count(path: str) -> int:
    with open(path, "rb") as f:
        return int.from_bytes(f.read(8), "little")


def _waiting(fcntl: object, termios: object, fd: int) -> int:
    return int.from_bytes(fcntl.ioctl(fd, termios.FIONREAD, b"\0" * 4), "little")
