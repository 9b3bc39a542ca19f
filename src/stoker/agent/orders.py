"""Orders to switch the machine off, as files in ROOT/off, and what stands in the way of it.

`order-OWNER.json` is a server's wish, `queue-OWNER.json` says that it has runs that wait for this machine,
`now.json` that a person wants it now, `watchman.json` is the watchman's.
A run whose files are at home has `home.json` in its folder.
"""

from __future__ import annotations

import os
import time

from .attempts import attempt_numbers, run_ids
from .machinewide import this_boot
from .observing import glance
from .processes import lives
from .reading import read_json, stamp_of
from .words import ATTEMPTS, EXIT, HOME_MARK, Problem, number
from .writing import write_json

OFF = "off"
ORDER, QUEUE, NOW, STATE, OFF_LOG = "order-", "queue-", "now.json", "watchman.json", "log"
AT_WORK = ("claimed", "running", "stopping", "waiting", "unseen")


def off_files(root: str, prefix: str) -> list[str]:
    """Paths of the files in ROOT/off that begin so."""
    folder = os.path.join(root, OFF)
    try:
        return sorted(
            os.path.join(folder, name)
            for name in os.listdir(folder)
            if name.startswith(prefix) and name.endswith(".json")
        )
    except OSError:
        return []


def orders(roots: list[str]) -> list[dict]:
    """The wishes of all servers, the newest last; what cannot be used is passed over."""
    found = [
        body
        for root in roots
        for path in off_files(root, ORDER)
        if (body := read_json(path) or {}) and is_order(body)
    ]
    return sorted(found, key=lambda body: number(body.get("at")))


def is_order(body: dict) -> bool:
    """Whether a file holds a command that can be run."""
    words = body.get("command")
    return isinstance(words, list) and bool(words) and all(isinstance(word, str) for word in words)


def give_order(root: str, body: dict) -> None:
    """Write down a server's wish. Raises Problem."""
    owner = (body.get("owner") or {}).get("id")
    if not is_order(body) or not valid_owner(owner):
        raise Problem("usage", "not an order")
    path = os.path.join(root, OFF, "%s%s.json" % (ORDER, owner))
    before = read_json(path) or {}
    if {**before, "at": 0} != {**body, "at": 0}:
        os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)
        write_json(path, dict(body, at=time.time()), sync=True)


def valid_owner(owner: object) -> bool:
    return isinstance(owner, str) and owner.isalnum() and owner.isascii() and len(owner) <= 64


class Look:
    """The machine as it is now, as far as its switching off goes."""

    def __init__(self, roots: list[str]) -> None:
        self.orders = orders(roots)
        self.working: list[str] = []  # runs with living caretakers
        self.owed: list[str] = []  # runs whose files are not at home
        self.staged: list[str] = []  # runs that have not begun
        self.known: set[tuple] = set()  # changes when a run comes or begins again
        self.now = [
            path for root in roots for path in off_files(root, NOW[:-5]) if os.path.basename(path) == NOW
        ]
        self.queues = [(path, stamp_of(path)) for root in roots for path in off_files(root, QUEUE)]
        for root in roots:
            for run_id in run_ids(root):
                self._add(root, run_id)

    def _add(self, root: str, run_id: str) -> None:
        run_dir = os.path.join(root, "runs", run_id)
        numbers = attempt_numbers(run_dir)
        newest = numbers[-1] if numbers else 0
        self.known.add((root, run_id, newest))
        if (read_json(os.path.join(run_dir, HOME_MARK)) or {}).get("attempt") == newest:
            return
        if not numbers:
            self.staged.append(run_id)
            return
        ended = read_json(os.path.join(run_dir, ATTEMPTS, str(newest), EXIT))
        if (ended is None or ended.get("restart")) and glance(root, run_id)["phase"] in AT_WORK:
            self.working.append(run_id)
        else:
            self.owed.append(run_id)

    def key(self) -> str:
        """Changes with every start of a run, and every word of a server whose runs wait."""
        import hashlib  # here, since each start reads this file

        return hashlib.sha256(
            repr((sorted(self.known), self.queues)).encode("utf-8", "backslashreplace")
        ).hexdigest()

    def wait_s(self, name: str) -> float:
        """Of all the orders the most patient one."""
        return max((number(body.get(name)) for body in self.orders), default=0.0)

    def drained(self) -> bool:
        """Whether nothing is lost by switching off: all files are at home, or the disk survives."""
        return not self.owed or all(body.get("disk_survives") is True for body in self.orders)


def was_here(root: str) -> bool:
    """Whether a watchman has begun since the boot.
    A machine that somebody switched on again stays on until a run starts there."""
    return (read_json(os.path.join(root, OFF, STATE)) or {}).get("boot") == this_boot()


def watchman(root: str) -> dict | None:
    """The watchman that lives, if there is one."""
    known = (read_json(os.path.join(root, OFF, STATE)) or {}).get("watchman")
    return known if lives(known) else None
