"""Where the log of a run stands at an image, so that the logs of all lives make one text without gap or double.

Everything that reaches the run's standard output counts, also what children print, or a shell around the script. The bytes
are in the log's file or still in the pipe in front of it.
"""

from __future__ import annotations

import os
import stat
import sys
import time

from . import life

_TRIES, _QUIET = 60, 3  # the reader of the pipe may be moving bytes just now: so many looks, so many equal ones


def place() -> list:
    """`[attempt, bytes of out.log, bytes of err.log or None]` as of now; [] where that cannot be known. What the script printed is flushed,
    since the next life prints nothing of what came before."""
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except (OSError, ValueError, AttributeError):
            pass
    folder = os.environ.get("STOKER_RUN_DIR", "")
    if not folder or not life.attempt:
        return []
    logs = os.path.join(folder, "attempts", str(life.attempt))
    out = _bytes(1, os.path.join(logs, "out.log"))
    err = _bytes(2, os.path.join(logs, "err.log"))
    return [] if out is None else [life.attempt, out, err]


def told(lives: list, image_place: object) -> list:
    """`lives` of state.json with this life: it goes on behind `image_place`, or begins anew where that is None."""
    known = [each for each in lives if each.get("attempt") != life.attempt]
    if not image_place:
        return [*known, {"attempt": life.attempt, "from": 0, "out_bytes": 0}]
    return [*known, {"attempt": life.attempt, "from": image_place[0], "out_bytes": image_place[1], "err_bytes": image_place[2]}]


def _bytes(fd: int, path: str) -> object:
    import fcntl
    import termios
    try:
        if not stat.S_ISFIFO(os.fstat(fd).st_mode):
            return None
        seen, quiet = None, 0
        for _ in range(_TRIES):
            now = (_waiting(fcntl, termios, fd), os.stat(path).st_size)
            quiet = quiet + 1 if now == seen else 0
            if quiet == _QUIET:
                return sum(now)
            seen = now
            time.sleep(0.0003)
    except OSError:
        pass
    return None


def _waiting(fcntl: object, termios: object, fd: int) -> int:
    return int.from_bytes(fcntl.ioctl(fd, termios.FIONREAD, b"\0" * 4), "little")
