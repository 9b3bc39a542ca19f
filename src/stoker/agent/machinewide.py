"""What all users of a machine see: a lock that living runs hold,
and notes about the state folders that are here."""

from __future__ import annotations

import fcntl
import json
import os
import time

from .claiming import held_leases, lease_folder, open_lease
from .processes import machine_identity
from .reading import read_regular
from .words import JSON_MAX, Problem

WAIT_S = 2.0  # who only looks has a lock for a moment


def this_boot() -> str:
    """Names this machine since its boot."""
    return "".join(c for c in str(machine_identity().get("boot_id") or "") if c.isalnum())[:32] or "0"


def machine_file(what: str) -> int:
    """A descriptor of a file of this machine since its boot; -1 where none can be made.
    What somebody planted in its place is passed
    over: all take the next name then."""
    for suffix in ("", ".1", ".2", ".3"):
        path = os.path.join(lease_folder(), "stoker-%s-%s%s" % (what, this_boot(), suffix))
        fd = open_lease(path, True)
        if fd >= 0:
            return fd
    return -1


def lock(fd: int, how: int, wait_s: float = 0.0) -> bool:
    """Whether the lock could be had in time."""
    deadline = time.monotonic() + wait_s
    while True:
        try:
            fcntl.flock(fd, how | fcntl.LOCK_NB)
            return True
        except OSError:
            if time.monotonic() >= deadline:
                return False
            time.sleep(0.05)


def hold_machine(root: str) -> None:
    """Before a start: the machine stays on while a caretaker of this attempt lives.
    Raises Problem when it is being switched off.

    Its error is `switching_off`. The watchman runs the `off` command only while no process holds this lock.
    """
    register(root)
    fd = machine_file("alive")
    if fd < 0:
        return  # no file can be made that all users see
    if not lock(fd, fcntl.LOCK_SH, WAIT_S):
        os.close(fd)
        raise Problem("switching_off", "the machine is being switched off")
    held_leases.append(fd)


def register(root: str) -> None:
    """Leave a note where all users find it that there is a state folder here."""
    fd = machine_file("roots-%d" % os.getuid())
    if fd < 0 or not lock(fd, fcntl.LOCK_EX, WAIT_S):
        return
    try:
        known = noted(os.pread(fd, JSON_MAX, 0))
        if root not in known:
            there = [each for each in known if os.path.isdir(os.path.join(each, "runs"))]
            data = "".join(json.dumps(each) + "\n" for each in [*there, root]).encode()
            os.ftruncate(fd, 0)
            os.pwrite(fd, data, 0)
    except OSError:
        pass  # others hold the lock of running runs all the same
    finally:
        os.close(fd)


def noted(data: bytes) -> list[str]:
    """The paths in such a note. Any user may have written it: they are only read."""
    found = []
    for line in data.split(b"\n")[:1000]:
        try:
            path = json.loads(line)
        except ValueError:
            continue
        if isinstance(path, str) and path.startswith("/") and "\0" not in path:
            found.append(path)
    return found


def registered(root: str) -> list[str]:
    """The state folders of this machine that are known, `root` first."""
    found = [root]
    try:
        names = sorted(
            name
            for name in os.listdir(lease_folder())
            if name.startswith("stoker-roots-") and this_boot() in name
        )
    except OSError:
        names = []
    for name in names[:100]:
        try:
            found += noted(read_regular(os.path.join(lease_folder(), name), JSON_MAX))
        except (OSError, ValueError):
            continue
    return [
        path for path in dict.fromkeys(found) if path == root or os.path.isdir(os.path.join(path, "runs"))
    ]
