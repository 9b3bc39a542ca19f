"""After the end of a run on another machine:
waits until its files are here, and says what has come and what has not."""

from __future__ import annotations

import sys
import time

from stoker.base.errors import ServerError
from stoker.cli import output
from stoker.cli.options import Patience, plane

STEP_S = 20.0


def awaited(run: dict, *, quiet: bool = False) -> dict:
    """Wait until the run's files are here, or its machine does not answer, and return the run. Ctrl-C ends
    only the wait. `quiet`: prints nothing."""
    name, patience = output.shown(run["name"]), Patience()
    try:
        with output.slow(
            f"{name} has ended; Stoker is copying its files to this machine. Ctrl-C: "
            "stop waiting (the copying continues)"
        ):
            while (run.get("outputs") or {}).get("state") == "coming":
                try:
                    run = plane().wait(run["id"], STEP_S, outputs=True)
                    patience.heard()
                except ServerError:
                    pause_s = patience.left_s()
                    if not pause_s:
                        break
                    time.sleep(pause_s)
    except KeyboardInterrupt:
        output.say(
            f"{name}: Stoker is still copying the run's files. To see which files: stoker show "
            f"{output.type_ref(run)}"
        )
        return run
    told = run.get("outputs") or {}
    smooth = told.get("state") == "settled" and not any(
        (told.get(what) or {}).get("count") for what in ("kept", "left", "failed")
    )
    if not quiet and (output.is_terminal(sys.stderr) or not smooth):
        for line in told.get("lines") or ():
            output.say(f"{name}: {output.shown(line)}")
    return run
