"""The words that the agent understands, each with the file it is in; only that file is read."""

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
