"""The verb `off`: what servers say of switching the machine off, and what they ask.

Each verb has a JSON object on stdin, but for `now` and `look`:
- order `{"owner", "command", "latest_s", "after_s", "disk_survives"}`: a server's wish
- home `{"runs": {ID: ATTEMPT}}`: files of these runs are at home
- queue `{"owner", "count"}`: number of runs that wait for this machine
- withdraw `{"owner"}`: the wish ends
"""

from __future__ import annotations

import fcntl
import os
import sys
import time

from .machinewide import WAIT_S, lock, machine_file, registered
from .orders import NOW, OFF, ORDER, QUEUE, STATE, Look, give_order, orders, valid_owner, was_here, watchman
from .reading import parse_json, read_json
from .watchman import ensure_watchman
from .words import HOME_MARK, Problem, arguments, valid_id
from .writing import say, unlink, write_json

GONE_S = 10.0


def verb_off(args: list[str]) -> None:
    """off order|home|queue|now|withdraw|look ROOT, with {...} on stdin"""
    (what, root), _ = arguments(args, 2, {})
    root = os.path.abspath(root)
    body = {}
    if what not in ("now", "look"):
        try:
            body = parse_json(sys.stdin.buffer.read(), dict)
        except ValueError as e:
            raise Problem("usage", "%s (%s)" % (verb_off.__doc__, e)) from None
    if what not in WORDS:
        raise Problem("usage", verb_off.__doc__ or "")
    say(WORDS[what](root, body) or {})
    if what not in ("look", "queue") or was_here(root):
        ensure_watchman(root)


def off_order(root: str, body: dict) -> None:
    give_order(root, body)


def off_home(root: str, body: dict) -> None:
    """The files of these runs are at home: {"runs": {ID: ATTEMPT}}."""
    for run_id, attempt in body.get("runs", {}).items():
        run_dir = os.path.join(root, "runs", run_id)
        if valid_id(run_id) and os.path.isdir(run_dir) and not os.path.islink(run_dir):
            write_json(os.path.join(run_dir, HOME_MARK), {"attempt": attempt, "at": time.time()})


def off_queue(root: str, body: dict) -> None:
    """So many runs of this owner wait for the machine: {"owner", "count"}.
    Said again it changes nothing, so its time goes on."""
    owner = body.get("owner")
    if not valid_owner(owner):
        raise Problem("usage", "not an owner")
    path = os.path.join(root, OFF, "%s%s.json" % (QUEUE, owner))
    if not body.get("count"):
        unlink(path)
    elif {**(read_json(path) or {}), "at": 0} != {**body, "at": 0}:
        os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)
        write_json(path, dict(body, at=time.time()))


def off_now(root: str, body: dict) -> dict:
    """Ask for it now. Refused while a run is alive or queued; what is not at home is named."""
    look = Look(registered(root))
    fd = machine_file("alive")
    if fd >= 0:
        busy = not lock(fd, fcntl.LOCK_EX, WAIT_S)
        os.close(fd)
        if busy or look.working:
            raise Problem(
                "state",
                "runs are active on the machine"
                + (": " + ", ".join(look.working[:5]) if look.working else ""),
            )
    if look.queues or look.staged:
        raise Problem("state", "runs are waiting to start on the machine")
    if not look.orders:
        raise Problem("state", "no --off command is set for this machine")
    write_json(os.path.join(root, OFF, NOW), {"at": time.time()}, sync=True)
    return {"owed": look.owed}


def off_withdraw(root: str, body: dict) -> None:
    """The wish of this owner is no more; the watchman ends with the last wish: {"owner"}."""
    owner = body.get("owner")
    if not valid_owner(owner):
        raise Problem("usage", "not an owner")
    for prefix in (ORDER, QUEUE):
        unlink(os.path.join(root, OFF, "%s%s.json" % (prefix, owner)))
    deadline = time.monotonic() + GONE_S
    while not orders(registered(root)) and watchman(root) and time.monotonic() < deadline:
        time.sleep(0.05)


def off_look(root: str, body: dict) -> dict:
    """What is asked for, and where the watchman stands."""
    roots = registered(root)
    look = Look(roots)
    state = read_json(os.path.join(root, OFF, STATE)) or {}
    return {
        "orders": look.orders,
        "watchman": bool(watchman(root)),
        "owed": look.owed,
        "working": look.working,
        "state": state,
        "at": time.time(),
    }


WORDS = {
    "order": off_order,
    "home": off_home,
    "queue": off_queue,
    "now": off_now,
    "withdraw": off_withdraw,
    "look": off_look,
}
