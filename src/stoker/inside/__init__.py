"""Code that runs inside the user's own Python: it observes, applies settings and remembers.
Standard library only, Python 3.9 and newer.

Rooms, each of which imports only those before it: entry (which part works in which process;
what all may use) · clock (where the time of a step goes) · numbers (what the script logs) · settings (what
the tuner found, applied) · measure (the tuner's part in the script) · rehearse (a script for GPUs tried on a
CPU) · resume (exact resume). The files beside the rooms serve several of them:
paths, looks, wrote, scratch, copied, unseen. None imports anything of Stoker outside this folder.

In the script the package is named `stoker_hooks` (base/vendor.py). It uses torch and numpy only after the
script itself has imported them.

The environment that switches it on (the agent sets it; tests do so directly):
- STOKER_HOOKS: folder of this attempt's records
- STOKER_RESUME=auto or off · STOKER_RESUME_DIR: RUN_DIR/resume (0700), one for all attempts ·
  STOKER_ATTEMPT
- STOKER_AUDIT=on (a run with --audit) or child (a process of an audit)
- STOKER_IMAGE_EVERY=auto, 20s or 50steps · PYTHONHASHSEED: with exact resume, if the user set none; the
  same for all attempts
- STOKER_SETTINGS: file of settings · STOKER_TUNE: room of a trial · STOKER_CLOCK=off or steps
- STOKER_REHEARSE=N: a rehearsal; exact resume and the clock are off
"""

from __future__ import annotations

import sys

TYPE_CHECKING = False  # typing and collections would be imported for nothing
if TYPE_CHECKING:
    from collections.abc import Callable


def keeping_bytecode(call: Callable, *args: object) -> None:
    """Call `call(*args)`. The bytecode of what it imports is kept, as Python does by default, also where the
    script's Python is told to keep none (PYTHONDONTWRITEBYTECODE): compiling these files takes 0.2 s, and
    every process of the run would do it."""
    if not sys.dont_write_bytecode:
        call(*args)
        return
    sys.dont_write_bytecode = False
    try:
        call(*args)
    finally:
        sys.dont_write_bytecode = True
