"""A process that the script started makes an optimizer: it is going to train (`mp.spawn`, `Process`), and no part of that is recorded.
Said as soon as it shows, unless the script's first process has told of itself; if that one trains too, what it says then replaces this.
"""

from __future__ import annotations

import os

from . import words

STATE = "state.json"


def trains() -> None:
    """Called in such a process."""
    folder = os.environ.get("STOKER_RESUME_DIR", "")
    if not folder or os.environ.get("STOKER_RESUME") != "auto":
        return
    import json

    path = os.path.join(folder, STATE)
    mine = f"{path}.{os.getpid()}"
    os.makedirs(folder, mode=0o700, exist_ok=True)
    fd = os.open(mine, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    try:
        os.write(fd, json.dumps({"state": "not resumable", "reason": words.SPAWNED}).encode())
        os.fsync(fd)
        os.link(mine, path)
    except FileExistsError:
        pass
    finally:
        os.close(fd)
        os.unlink(mine)
