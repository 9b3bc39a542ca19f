"""The verbs `stop` and `rm`: the wish to end a run, the end of one whose caretakers cannot obey, and the end
of its folder.

`stop` writes stop.json, wakes the agent and returns; with `--grace 0 0` it waits up to 5 s. An attempt that
has ended is left as it is.
- `--attempt N`: if attempt N has not begun, it is claimed and ended, so that a `start` of N that comes
  later fails.
- If both caretakers are dead and there is no exit.json, `stop` settles the attempt itself: it kills the
  process tree and writes exit.json, with the reason `agent_lost`, or `rebooted` if the machine's identity
  has changed.
- `--reason agent_lost` only settles an abandoned attempt.
- `--gone`: the caller says that the machine of an `unseen` attempt no longer exists. It is settled, unless
  its caretakers end it within 5 s.
- A stop cancels an automatic restart that waits.
`rm` refuses a run that is active.
"""

from __future__ import annotations

import os
import signal
import time

from .attempts import Attempt, attempt_numbers, newest_attempt
from .claiming import claim
from .observing import observe, phase_of, wake
from .owning import guard
from .processes import lives, machine_identity, same_place
from .reading import read_json
from .settling import mind_files, settle
from .tree import Tree, end_tree, is_caretaker
from .words import (
    AGENT, EXIT, FORCE_S, FULL, HEARTBEAT, SPEC, STATUS, STOP, STOP_SPARE, Problem, arguments, seconds,
    valid_id, whole_number,
)
from .writing import open_folder, remove_at, say, write_json


def verb_stop(args: list[str]) -> None:
    """stop RUN_DIR [--attempt N] [--grace INT_S TERM_S] [--reason R] [--gone]"""
    (run_dir,), options = arguments(args, 1, {"--attempt": 1, "--grace": 2, "--reason": 1, "--gone": 0})
    guard(run_dir)
    if "--attempt" in options:
        forestall(
            Attempt(run_dir, whole_number(options["--attempt"][0])),
            options.get("--reason", ["stopped_by_user"])[0],
        )
    att = newest_attempt(run_dir)
    if att is None:
        say({"attempt": None, "phase": "staged" if os.path.isdir(run_dir) else "absent"})
        return
    while True:
        wish_end(att, options)
        newest = newest_attempt(run_dir)
        if newest is None or newest.n == att.n:
            break
        att = newest  # begun by an automatic restart while we wrote: it is the one that is meant
    say({"attempt": att.n, "phase": observe(att.root, att.id)["phase"]})


def forestall(att: Attempt, reason: str) -> None:
    """End an attempt that has not begun: it is claimed and settled here, so that a start which is still on
    its way comes too late."""
    if read_json(os.path.join(att.run_dir, SPEC)) is None or os.path.isdir(att.folder):
        return
    if (
        observe(att.root, att.id)["phase"] in ("staged", "ended")
        and max(attempt_numbers(att.run_dir), default=0) < att.n
        and claim(att)
    ):
        settle(att, reason)


def wish_end(att: Attempt, options: dict[str, list[str]]) -> None:
    """Write the wish to end this attempt and wake its caretakers;
    settle it when they are dead, or `--gone` with their machine.

    The reason `agent_lost` only settles: what lives by now, or cannot be seen from here, is left alone."""
    phase = observe(att.root, att.id)["phase"]
    reason = options.get("--reason", ["stopped_by_user"])[0]
    gone = "--gone" in options and phase == "unseen"
    if phase == "ended" or (reason == "agent_lost" and phase != "abandoned" and not gone):
        return
    spec = read_json(os.path.join(att.run_dir, SPEC)) or {}
    grace = [seconds(g) for g in options.get("--grace", [])] or list(spec.get("grace_s") or (10.0, 10.0))
    wish = {"reason": reason, "grace_s": grace, "at": time.time()}
    try:
        write_json(att.path(STOP), wish, sync=True, spare=att.path(STOP_SPARE), pad=256)
    except OSError as e:
        if phase != "abandoned":
            raise Problem(
                "disk_full" if e.errno in FULL else "cannot_write",
                "the stop request cannot be written: %s" % e.strerror,
            ) from e
    if phase == "abandoned":
        settle(att)
        return
    wake(att)
    if gone and not obeyed(att):
        settle(att, reason)
    elif grace == [0.0, 0.0] and not obeyed(att):
        end_without_caretakers(att, reason)


def obeyed(att: Attempt) -> bool:
    """Within FORCE_S after a wish: has the attempt ended, has a restart begun another, or are its caretakers
    at work on it?"""
    before = att.json(HEARTBEAT) or {}
    deadline = time.monotonic() + FORCE_S
    while time.monotonic() < deadline:
        if (
            phase_of(att, att.json(AGENT) or {}, att.json(EXIT), {}) == "ended"
            or max(attempt_numbers(att.run_dir)) != att.n
        ):
            return True
        time.sleep(0.05)
    beat = att.json(HEARTBEAT) or {}
    return beat.get("mono") != before.get("mono") and beat.get("phase") in ("stopping", "waiting")


def end_without_caretakers(att: Attempt, reason: str) -> None:
    """They stand still, or are stuck: the tree is ended while the holder, which keeps its orphans, is
    stopped; then both caretakers."""
    record = att.json(AGENT) or {}
    if not same_place(record.get("machine"), machine_identity()):
        return
    holder, agent = (
        known if is_caretaker(att, known) else None for known in (record.get("holder"), record.get("agent"))
    )
    if holder:
        os.kill(holder["pid"], signal.SIGSTOP)  # or it would start another agent
    if agent:
        os.kill(agent["pid"], signal.SIGKILL)
    end_tree(Tree(att, holder, (agent or {}).get("pid", 0), record.get("run")), grace_s=0.0)
    if holder and lives(holder):
        os.kill(holder["pid"], signal.SIGKILL)
    settle(att, "" if att.json(STATUS) else reason)


def verb_rm(args: list[str]) -> None:
    """rm RUN_DIR"""
    (run_dir,), _ = arguments(args, 1, {})
    run_dir = os.path.abspath(run_dir)
    root, run_id = os.path.dirname(os.path.dirname(run_dir)), os.path.basename(run_dir)
    if os.path.basename(os.path.dirname(run_dir)) != "runs" or not valid_id(run_id):
        raise Problem("not_a_run", "%s is not a run folder: its parent folder is not named runs" % run_dir)
    guard(run_dir)
    phase = observe(root, run_id)["phase"]
    if phase not in ("absent", "staged", "ended"):
        raise Problem("state", "%s is %s" % (run_id, phase))
    newest = newest_attempt(run_dir)
    record = (newest.json(AGENT) if newest else None) or {}
    runs_on = same_place(record.get("machine"), machine_identity()) and lives(record.get("run"))
    if phase != "ended" or runs_on:  # it may have spoilt its folder
        end_tree(Tree(Attempt(run_dir, 0), None, 0, None))
    if newest:
        mind_files(newest)
    try:
        runs = open_folder(root, "runs")
    except FileNotFoundError:
        say({"removed": False})
        return
    there = run_id in os.listdir(runs)
    if there:
        aside = ".rm-%s-%d" % (run_id, os.getpid())
        remove_at(runs, aside)
        os.rename(run_id, aside, src_dir_fd=runs, dst_dir_fd=runs)  # at once absent for all who look
    for name in os.listdir(runs):
        if name.rpartition("-")[0] == ".rm-" + run_id:  # ours, or of one that was killed in the middle
            remove_at(runs, name)
    os.close(runs)
    say({"removed": there})
