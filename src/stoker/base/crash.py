"""Named places where a test may kill this process, to stand between two steps of the real program.

The names, by process. Without STOKER_CRASH_AT, a point costs one look-up.
- server: `submit.spooled submit.committed stage.before stage.after start.before start.after apply.before
  apply.after stop.before stop.after migrate.middle`
- agent (words.crash_point): `claimed spawned status_written ladder_done before_exit exit_written
  restart_claimed`
- Engine, in a script: `checkpoint-tensors checkpoint-state checkpoint-manifest checkpoint-replaced
  checkpoint-renamed checkpoint-latest`
"""

from __future__ import annotations

import os
import signal

_name, _, _count = os.environ.get("STOKER_CRASH_AT", "").partition(":")
_left = int(_count or 1) if _name else 0


def point(name: str) -> None:
    """Kill this process with SIGKILL if STOKER_CRASH_AT=name[:n] names this point and it is passed for the
    n-th time."""
    global _left
    if name != _name:
        return
    _left -= 1
    if _left == 0:
        os.kill(os.getpid(), signal.SIGKILL)
