"""One look at a run from wherever it is asked about: its phase, its caretakers, its door."""

from __future__ import annotations

import os
import socket
import struct
import time

from .attempts import Attempt, attempt_numbers, folder_age, used_by
from .machine import is_of_this_kernel
from .owning import owner_of
from .processes import lives, machine_identity, same_kernel, same_place
from .reading import flaw, last_sample, read_json, read_regular, size_of
from .words import (
    AGENT, ATTEMPTS, CLAIM_S, ERR, EXIT, FRESH_S, HEARTBEAT, JSON_MAX, KEEP_WISH, LIMITS, OUT, SOCKET, SPEC,
    STATUS, STILL_BEAT_S, STOP, TELEMETRY, encode, number, valid_id,
)
from .writing import unlink

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


def caretakers(att: Attempt, record: dict, beat: dict) -> str:
    """Do the caretakers of an attempt live: "alive", "dead",
    or "unseen" where that cannot be known from here.

    Where agent.json was written, its pids say so. From another PID namespace or node they say nothing:
    a door that answers or a heartbeat that changes proves life.
    On a local disk, which only this kernel serves,
    a closed door and a heartbeat that stands still prove death.

    The place is the same if boot id, start of pid 1 and PID namespace are (`pid_ns`: inode of
    /proc/self/ns/pid; older records lack it). A heartbeat proves life by a change within 10 s, and death by
    none for 3 s. "unseen": Stoker ends nothing.
    """
    if not record:
        return "alive" if is_fresh(att, beat) else "dead"
    here = machine_identity()
    if same_place(record.get("machine"), here):
        return "alive" if lives(record.get("holder")) or lives(record.get("agent")) else "dead"
    door = door_state(att)
    if door == "open" or moves(att):
        return "alive"
    closed = door == "closed" or (door == "missing" and not same_kernel(record.get("machine"), here))
    return (
        "dead"
        if closed and not in_doubt(att) and is_of_this_kernel(os.path.realpath(att.folder))
        else "unseen"
    )


# heartbeat file -> (content, when this content was first seen, whether another was seen before)
_beats: dict[str, tuple] = {}


def moves(att: Attempt) -> bool:
    """Was its heartbeat seen to change in the last FRESH_S? By content:
    the times in it are of another machine's clock."""
    try:
        content = read_regular(att.path(HEARTBEAT), JSON_MAX)
    except (OSError, ValueError):
        content = b""
    now = time.monotonic()
    known = _beats.get(att.folder)
    if known is None or known[0] != content:
        known = _beats[att.folder] = (content, now, known is not None)
    return known[2] and now - known[1] < FRESH_S


def in_doubt(att: Attempt) -> bool:
    """Has its heartbeat been looked at for too short a time to say that it stands still?"""
    known = _beats.get(att.folder)
    return known is not None and time.monotonic() - known[1] < STILL_BEAT_S


def notify_watchers(att: Attempt) -> None:
    """The run's id to every `watch` of this root. A watcher that died is unlinked.

    Each `watch` binds a datagram socket ROOT/watch/<pid>.sock.
    """
    folder = os.path.join(att.root, "watch")
    try:
        names = [name for name in os.listdir(folder) if name.endswith(".sock")]
        if not names:
            return
        fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError:
        return
    out = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    out.setblocking(False)
    for name in names:
        try:
            out.sendto(encode(att.id), "/proc/self/fd/%d/%s" % (fd, name))
        except ConnectionRefusedError:
            unlink(os.path.join(folder, name))
        except OSError:
            pass
    out.close()
    os.close(fd)


def observe(root: str, run_id: str) -> dict:
    """What can be seen of a run now. Read-only.
    Takes up to STILL_BEAT_S for a run of another PID namespace or node."""
    seen = glance(root, run_id)
    while seen["phase"] == "unseen" and in_doubt(
        Attempt(os.path.join(root, "runs", run_id), seen["attempt"])
    ):
        time.sleep(0.1)
        seen = glance(root, run_id)
    return seen


def glance(root: str, run_id: str) -> dict:
    """What can be seen of a run at once. Files that cannot be used are named in `broken`.

    An observation, as `poll`, `watch` and `look` print it. `used_s` is the sum over all attempts. `exit`,
    `keep`, `telemetry` (the newest) and `stalled` are the contents of those files, or null. Phases:
    backends/base.py.
    """
    run_dir = os.path.join(root, "runs", run_id)
    seen: dict[str, Any] = {
        "id": run_id,
        "attempt": None,
        "phase": "absent",
        "attempts": [],
        "started_at": None,
        "heartbeat_at": None,
        "heartbeat_age_s": None,
        "used_s": 0.0,
        "limits_seq": None,
        "waits_for_input": False,
        "out_bytes": 0,
        "err_bytes": 0,
        "telemetry": None,
        "exit": None,
        "keep": None,
        "run_pid": None,
        "broken": {},
        "stalled": None,
        "owner": None,
    }
    if not valid_id(run_id) or not os.path.isdir(run_dir) or os.path.islink(run_dir):
        return seen
    numbers = attempt_numbers(run_dir)
    seen["owner"] = owner_of(run_dir)
    seen.update(
        phase="staged",
        attempts=numbers,
        keep=read_json(os.path.join(run_dir, KEEP_WISH)),
        broken=flaws(run_dir, numbers),
    )
    if not numbers:
        return seen
    att = Attempt(run_dir, numbers[-1])
    record, ended, beat = att.json(AGENT) or {}, att.json(EXIT), att.json(HEARTBEAT) or {}
    seen.update(
        attempt=att.n,
        started_at=record.get("started_at"),
        exit=ended,
        run_pid=(record.get("run") or {}).get("pid"),
        heartbeat_at=beat.get("at"),
        limits_seq=beat.get("limits_seq"),
        out_bytes=size_of(att.path(OUT)),
        err_bytes=size_of(att.path(ERR)),
        telemetry=last_sample(att.path(TELEMETRY)),
    )
    seen["used_s"] = round(
        number((ended or beat).get("used_s")) + sum(used_by(att.sibling(n)) for n in numbers[:-1]), 3
    )
    if beat:
        here = same_kernel(record.get("machine"), machine_identity())
        seen["heartbeat_age_s"] = round(
            time.monotonic() - number(beat.get("mono")) if here else time.time() - number(beat.get("at")), 3
        )
    elif (
        ended is None
        and same_kernel(record.get("machine"), machine_identity())
        and record.get("started_mono")
    ):
        # frozen before its first
        seen["heartbeat_age_s"] = round(time.monotonic() - number(record["started_mono"]), 3)
    seen["phase"] = phase_of(att, record, ended, beat)
    seen["stalled"] = beat.get("stalled") if seen["phase"] == "running" else None
    seen["waits_for_input"] = bool(beat.get("waits_for_input")) and seen["phase"] == "running"
    return seen


def flaws(run_dir: str, attempts: list[int]) -> dict[str, str]:
    """Name of each file of a run that cannot be used -> why."""
    places: list[tuple[str, tuple[str, ...]]] = [(run_dir, (SPEC, LIMITS, KEEP_WISH))]
    places += [
        (os.path.join(run_dir, ATTEMPTS, str(n)), (AGENT, HEARTBEAT, STATUS, STOP, EXIT))
        for n in attempts[-1:]
    ]
    found = {
        os.path.relpath(path, run_dir): flaw(path)
        for folder, names in places
        for path in (os.path.join(folder, n) for n in names)
    }
    return {name: why for name, why in found.items() if why}


def phase_of(att: Attempt, record: dict, ended: dict | None, beat: dict) -> str:
    """Where an attempt is, read from its folder alone."""
    if ended is not None and not ended.get("restart"):
        return "ended"
    state = caretakers(att, record, beat)
    if ended is not None:
        return {"alive": "waiting", "dead": "abandoned"}.get(state, state)
    if state != "alive":
        if record or folder_age(att) >= CLAIM_S:
            told = "abandoned" if state == "dead" else state
            return "ended" if att.json(EXIT) else told  # it may have ended while we looked
        return "claimed"
    if beat.get("phase") == "stopping" or att.json(STOP) is not None:
        return "stopping"
    return "running" if record.get("run") or not record else "claimed"


def is_fresh(att: Attempt, beat: dict) -> bool:
    """Was the heartbeat written just now? It tells of living caretakers where agent.json was spoilt;
    they write that anew."""
    return (
        os.path.lexists(att.path(AGENT))
        and 0 <= time.monotonic() - number(beat.get("mono"), -FRESH_S) < FRESH_S
    )


def open_door(att: Attempt) -> socket.socket | None:
    """A connection to the holder; None when there is none (yet, or any more)."""
    try:
        return knock(att)
    except OSError:
        return None


def door_state(att: Attempt) -> str:
    """"open" while a process listens at the holder's socket, "closed" when none does, "missing" without a
    socket, else "unknown"."""
    try:
        knock(att).close()
    except (BlockingIOError, InterruptedError):
        return "open"  # it listens, and has no time
    except ConnectionRefusedError:
        return "closed"
    except FileNotFoundError:
        return "missing"
    except OSError:
        return "unknown"
    return "open"


def knock(att: Attempt) -> socket.socket:
    """A connection to the holder. Raises OSError.

    The path may be too long for a socket, so it is reached through /proc/self/fd.
    """
    folder = os.open(att.folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    door = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    door.setblocking(False)
    try:
        door.connect("/proc/self/fd/%d/%s" % (folder, SOCKET))
        return door
    except OSError:
        door.close()
        raise
    finally:
        os.close(folder)


def wake(att: Attempt) -> None:
    """Have the caretakers look at the folder now. Without it they look within two seconds."""
    door = open_door(att)
    if door is not None:
        try:
            door.send(struct.pack(">cI", b"n", 0))
        except OSError:
            pass
        door.close()
