"""The verb `start`: an attempt begins, once, whoever asks how often.

It claims attempts/N by mkdir and detaches the holder by a double fork. It waits, at most 10 s, until the
command runs or could not be started. It prints {"claimed": true, "attempt": N}, or "claimed": false if
another process has claimed the attempt; both with exit code 0.
- `--gpus`: GPUs that Stoker gives to the run; they become CUDA_VISIBLE_DEVICES. The error `gpu_taken` says
  that another program holds one.
- `--lease`: GPUs that the run's own environment names; locked if they are free.
- `--again`: an automatic restart. exit.json of the attempt before gets `restart`.
- `--order`: an order as for `off order` is on stdin.
- Error `switching_off`: the command that switches the machine off is running (machinewide.py).
"""

from __future__ import annotations

import os
import sys
import time

from .attempts import Attempt, attempt_numbers
from .claiming import claim, launch, take_leases
from .machinewide import hold_machine
from .observing import observe
from .orders import give_order
from .owning import guard
from .reading import parse_json, read_json
from .settling import settle
from .watchman import ensure_watchman
from .words import EXIT, SPEC, Problem, arguments, crash_point, whole_number
from .writing import say, write_json


def verb_start(args: list[str]) -> None:
    """start RUN_DIR N [--gpus UUID,UUID] [--lease UUID,UUID] [--again] [--order], which is {...} on stdin:
    how to switch it off"""
    (run_dir, n), options = arguments(args, 2, {"--gpus": 1, "--lease": 1, "--again": 0, "--order": 0})
    att = Attempt(run_dir, whole_number(n))
    guard(att.run_dir)
    if read_json(os.path.join(att.run_dir, SPEC)) is None:
        raise Problem("no_spec", "%s has no readable %s" % (att.run_dir, SPEC))
    numbers = attempt_numbers(run_dir)
    if att.n not in numbers and numbers:
        last = att.sibling(numbers[-1])
        if att.n < last.n:
            raise Problem("state", "attempt %d already exists" % last.n)
        phase = observe(att.root, att.id)["phase"]
        if phase not in ("ended", "waiting") and not last.json(EXIT):
            raise Problem("state", "attempt %d is %s" % (last.n, phase))
    if "--order" in options:
        give_order(att.root, parse_json(sys.stdin.buffer.read(), dict))
    if not os.path.isdir(att.folder):
        hold_machine(att.root)
        take_leases(att, [u for u in options.get("--gpus", [""])[0].split(",") if u], needed=True)
        take_leases(att, [u for u in options.get("--lease", [""])[0].split(",") if u], needed=False)
    if not claim(att):
        say({"claimed": False, "attempt": att.n})
        return
    crash_point("claimed")
    if "--again" in options:
        note_restart(att)
    said = launch(att, options.get("--gpus", [""])[0], 10.0)
    if said.startswith("no holder"):
        settle(att, "start_failed", said[len("no holder: "):])
    ensure_watchman(att.root)
    say({"claimed": True, "attempt": att.n})


def note_restart(att: Attempt) -> None:
    """The attempt before is restarted automatically, by somebody who does it in the place of its dead
    caretakers: it counts."""
    before = att.sibling(att.n - 1)
    ended = before.json(EXIT)
    if ended is not None:
        try:
            write_json(before.path(EXIT), dict(ended, restart={"attempt": att.n, "at": time.time()}))
        except OSError:
            pass
