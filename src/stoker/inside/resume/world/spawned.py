"""A process that the script started makes an optimizer:
it is going to train (`mp.spawn`, `Process`), and no part of that is recorded.
Said as soon as it shows, unless the script's first process has told of itself;
if that one trains too, what it says then replaces this.
"""

from __future__ import annotations

import os

from ..core import own, words

STATE = "state.json"


def trains() -> None:
    """Called in such a process."""
    folder = os.environ.get("STOKER_RESUME_DIR", "")
    if not folder or os.environ.get("STOKER_RESUME") != "auto":
        return
    import json

    mine = f"{STATE}.{os.getpid()}"
    own.make(folder)
    own.write(
        os.path.join(folder, mine),
        json.dumps({"state": "not resumable", "reason": words.SPAWNED}).encode(),
        sync=True,
    )
    with own.Folder(folder) as here:
        try:
            os.link(f"{here}/{mine}", f"{here}/{STATE}")
        except FileExistsError:
            pass
        finally:
            os.unlink(f"{here}/{mine}")
