"""The words that the agent understands, each with the file it is in; only that file is read.

Call: `PYTHON -I -S FOLDER/__main__.py [--owner ID] VERB ...`; the folder may have any name. ROOT is the
folder that holds `runs/`, RUN_DIR is ROOT/runs/<id>. The docstring of `verb_NAME` has the arguments.
- Every verb may be repeated. A second `start`, `stop`, `rm` has no further effect.
- Answers are lines of JSON on stdout. `attach`, `follow` and `send` print frames, `read` prints raw bytes.
- An error is one line {"error": word, "detail": sentence} and exit code 1; exit code 2 for wrong arguments.
  It is on stdout, but on stderr for attach, read, send and follow.
- `--owner` names the state folder that asks. `start`, `stop` and `rm` refuse a run that belongs to another
  one (`not_yours`).
- Times (`at`, `..._at`) are Unix seconds, `..._mono` is CLOCK_MONOTONIC.
"""

from __future__ import annotations

import json
import os

from .owning import asker
from .words import Problem

VERBS = {
    "start": "starting",
    "poll": "polling",
    "look": "polling",
    "watch": "polling",
    "stop": "stopping",
    "attach": "following",
    "read": "following",
    "send": "following",
    "follow": "channel",
    "probe": "telemetry",
    "rm": "stopping",
    "off": "off",
    "adopt": "owning",
    "_hold": "holding",
    "_watch_off": "watchman",
}


def main(argv: list[str]) -> int:
    """Run one verb; the exit code. `--owner ID` before it says who asks."""
    if argv[1:2] == ["--owner"]:
        asker[:], argv = argv[2:3], [argv[0], *argv[3:]]
    if len(argv) < 2 or argv[1] not in VERBS:
        problem = Problem("usage", "agent %s ..." % "|".join(v for v in VERBS if not v.startswith("_")))
    else:
        try:
            verb = "verb_" + argv[1].lstrip("_")
            file = __import__("%s.%s" % (__package__, VERBS[argv[1]]), fromlist=[verb])
            getattr(file, verb)(argv[2:])
            return 0
        except Problem as e:
            problem = e
        except BrokenPipeError:
            return 0
        except OSError as e:
            problem = Problem("system", str(e))
    line = json.dumps({"error": problem.error, "detail": problem.detail}) + "\n"
    try:
        os.write(2 if len(argv) > 1 and argv[1] in ("attach", "read", "send", "follow") else 1, line.encode())
    except OSError:
        pass
    return 2 if problem.error == "usage" else 1
