"""Whether a run still moves, is quiet or stalled,
and the lines in which its ranks and workers wait where it does not."""

from __future__ import annotations

import os
import time

from .processes import catches, command_of, rank_of
from .reading import key_value, newest_line, open_regular, size_of, stamp_of, told_lines
from .words import (
    ERR, HOOKS, OUT, QUIET_S, SLOW_STEPS, STACKS_MAX, STACK_WAIT_S, STALLED_S, STEPS, STILL, STILL_LOOK_S,
    number,
)
from .writing import unlink, write_json

TYPE_CHECKING = False
if TYPE_CHECKING:
    from .attempts import Attempt
    from .processes import Proc


class StandStill:
    """Whether a run stands still, and where. Time is passed in.

    Quiet: it has made steps, and none for max(30 s, 10 x the slowest hundredth, twice the time of the last
    line of steps), outside of an evaluation or a save. Stalled: no step, no output, no bytes read or
    written for max(5 min, 10 x the same), or for what `--stall` says. Without `--stall` only a run whose
    processes use torch can be stalled: others may mean to wait.

    still.json is there while a run is quiet or stalled: `{"since", "quiet", "stalled", "text", "places"}`;
    see `places`. An evaluation or a save goes on if a file hooks/busy-PID is newer than steps.jsonl.
    `spec.stall_do`: `warn`, `stop`, or `restart` (at most 3 times, or `restarts`).
    """

    def __init__(self, att: Attempt, spec: dict, now: float, wall: float) -> None:
        self.att = att
        self.wanted_s, self.act = number(spec.get("stall_s")), str(spec.get("stall_do") or "")
        self.quiet = self.stalled = False
        self.text = ""  # where each rank and worker waits
        self.places: list[dict] = []
        self.sizes: tuple = ()
        self.io: dict[int, int] = {}
        self.next_io = 0.0
        self.moved = self.stepped = now
        self.since = wall  # when it moved, or stepped, last
        try:
            # an agent before us has seen it
            self.stepped = now - max(0.0, wall - os.stat(att.path(STEPS)).st_mtime)
        except OSError:
            pass

    def look(self, now: float, wall: float, members: list[Proc], run: dict | None) -> bool:
        """Take notice of what has changed since the last look; True when quiet or stalled has."""
        steps = stamp_of(self.att.path(STEPS))
        sizes = (steps, size_of(self.att.path(OUT)), size_of(self.att.path(ERR)))
        if sizes != self.sizes:
            if self.sizes and steps != self.sizes[0]:
                self.stepped = now
            if self.sizes:
                self.moved = now
            self.sizes = sizes
        if now >= self.next_io:
            self.next_io = now + (
                STILL_LOOK_S if self.wanted_s <= 0 else min(STILL_LOOK_S, self.wanted_s / 4)
            )
            io = bytes_moved(members)
            if self.io != io:
                self.moved = now
            self.io = io
        before = (self.quiet, self.stalled)
        self._judge(now, steps is not None, members)
        if before == (self.quiet, self.stalled):
            return False
        self.since = wall - (now - (self.stepped if steps is not None else max(self.moved, self.stepped)))
        if not self.quiet and not self.stalled:
            self.text, self.places = "", []
            unlink(self.att.path(STILL))
            return True
        self.places = places(self.att, members, run)
        self.text = place_words(self.places)
        self.io = bytes_moved(members)  # the stacks were written by them
        try:
            write_json(self.att.path(STILL), self.told())
        except OSError:
            pass
        return True

    def told(self) -> dict:
        """For still.json and the heartbeat."""
        return {
            "since": self.since,
            "quiet": self.quiet,
            "stalled": self.stalled,
            "text": self.text,
            "places": self.places,
        }

    def _judge(self, now: float, stepped: bool, members: list[Proc]) -> None:
        idle = now - max(self.moved, self.stepped)
        if now - self.stepped < QUIET_S and idle < (self.wanted_s or STALLED_S):
            self.quiet = self.stalled = False
            return
        last = newest_line(self.att.path(STEPS)) if stepped else {}
        slow = SLOW_STEPS * number(last.get("p99_ms"), number(last.get("max_ms"))) / 1000
        trained = bool(last.get("step"))
        limit = max(QUIET_S, slow, 2 * number(last.get("s")))  # a line of a long run comes each minute
        self.quiet = trained and now - self.stepped >= limit and not busy_since(self.att)
        if self.wanted_s > 0:
            self.stalled = idle >= self.wanted_s
        else:
            self.stalled = idle >= max(STALLED_S, slow) and bool(told_stacks(self.att))


def told_ends(att: Attempt) -> list[dict]:
    """How processes of an attempt ended, as they say themselves: `{"pid", "rank", "uncaught"}`;
    `uncaught` is the exception that nobody caught, `{"type", "message", "frames"}`, or None."""
    found = []
    for said in told_lines(att):
        if "uncaught" not in said:
            continue
        told = said["uncaught"]
        try:
            if told is not None:
                told = {
                    "type": str(told["type"]),
                    "message": told["message"] if isinstance(told["message"], str) else None,
                    "frames": [(str(file), int(line)) for file, line in told["frames"]],
                }
        except (TypeError, KeyError, ValueError):
            continue
        found.append({"pid": said["pid"], "rank": str(said.get("rank")), "uncaught": told})
    return found


def told_begins(att: Attempt) -> frozenset:
    """The pids of the processes of an attempt in which Stoker's hooks were."""
    return frozenset(said["pid"] for said in told_lines(att) if "argv" in said)


def busy_since(att: Attempt) -> bool:
    """Has a process of the run begun an evaluation or a save since the newest line of its steps?"""
    try:
        line = os.stat(att.path(STEPS)).st_mtime
        names = [name for name in os.listdir(att.path(HOOKS)) if name.startswith("busy-")]
        return any(os.stat(os.path.join(att.path(HOOKS), name)).st_mtime >= line - 0.05 for name in names)
    except OSError:
        return False


def bytes_moved(members: list[Proc]) -> dict[int, int]:
    """Process -> bytes that it has read and written.
    torchrun keeps in touch with itself all the time and does not count."""
    found = {}
    for p in members:
        line = command_of(p.pid)
        if b"torch.distributed.run" in line or b"/torchrun\0" in line:
            continue
        path = "/proc/%d/io" % p.pid
        read, wrote = key_value(path, "rchar:"), key_value(path, "wchar:")
        if read is not None and wrote is not None:
            found[p.pid] = read + wrote
    return found


def told_stacks(att: Attempt) -> dict[int, dict]:
    """Pid -> {"signal", "fd", "path"}:
    the processes that write their stacks into a file when they get that signal."""
    told = {said["pid"]: said["stacks"] for said in told_lines(att) if isinstance(said.get("stacks"), dict)}
    within = os.path.join(os.path.realpath(att.path(HOOKS)), "stacks-")
    return {
        pid: stacks
        for pid, stacks in told.items()
        if str(stacks.get("path")).startswith(within) and ".." not in str(stacks["path"])
    }


def places(att: Attempt, members: list[Proc], run: dict | None) -> list[dict]:
    """Where each rank and worker waits: `{"pid", "rank"?, "worker"?, "file", "line", "function", "call"}`;
    `call` is "data", the function of a library that the script's line is in, or "".
    Workers that wait for work are left out."""
    registered = told_stacks(att)
    by_pid = {p.pid: p for p in members}
    found = []
    workers: dict[int, int] = {}  # parent -> how many workers it has
    for p in sorted(members, key=lambda p: (p.start, p.pid))[:STACKS_MAX]:
        owner = p
        while (
            owner.pid not in registered
            and owner.ppid in by_pid
            and command_of(owner.ppid) == command_of(p.pid)
        ):
            owner = by_pid[owner.ppid]  # a fork has the handlers, and the open file, of its parent
        if owner.pid not in registered:
            continue
        told: dict = {"pid": p.pid}
        if owner is not p:
            workers[owner.pid] = workers.get(owner.pid, 0) + 1
            told["worker"] = workers[owner.pid] - 1
        rank = rank_of(owner.pid)
        if rank is not None:
            told["rank"] = rank
        place = place_of(frames_of(stacks_of(p.pid, registered[owner.pid])), owner is not p)
        if place:
            found.append(dict(told, **place))
    return found


def stacks_of(pid: int, stacks: dict) -> str:
    """What this process writes when it is asked for its stacks;
    "" where it must not be asked, or does not answer.

    Asked is only a process whose SigCgt has the signal, and whose descriptor is still this file.
    """
    sig, path = int(number(stacks.get("signal"))), str(stacks.get("path"))
    try:
        if (
            not catches(pid, sig)
            or os.readlink("/proc/%d/fd/%d" % (pid, int(number(stacks.get("fd"), -1)))) != path
        ):
            return ""
        before = size_of(path)
        os.kill(pid, sig)
        deadline, seen = time.monotonic() + STACK_WAIT_S, before
        while time.monotonic() < deadline:
            time.sleep(0.01)
            size = size_of(path)
            if size > before and size == seen:
                break
            seen = size
        with open(open_regular(path), "rb") as f:
            f.seek(before)
            return f.read(1 << 20).decode("utf-8", "replace")
    except OSError:
        return ""
    except ValueError:
        return ""


def frames_of(text: str) -> list[tuple[str, int, str]]:
    """(file, line, function) of the main thread, the innermost first, out of what faulthandler writes."""
    import re
    threads: list[list[tuple[str, int, str]]] = []
    current = -1
    for line in text.splitlines():
        frame = re.match(r'\s+File "(.+)", line (\d+) in (.+)$', line)
        if frame and threads:
            threads[-1].append((frame.group(1), int(frame.group(2)), frame.group(3)))
        elif "most recent call first" in line:
            threads.append([])
            current = len(threads) - 1 if line.startswith("Current thread") else current
    # the main thread is asked first; where it cannot, it is the last in the list
    return threads[current] if threads else []


def place_of(frames: list[tuple[str, int, str]], forked: bool = False) -> dict | None:
    """The script's own line that it is in, and what is waited for there.
    None where none of its lines is. Below the start of a forked process lie lines of its parent."""
    import re

    starts = next(
        (i for i, f in enumerate(frames) if f[2] == "_bootstrap" and "multiprocessing" in f[0]), len(frames)
    )
    frames = frames[:starts] if forked else frames
    hooks = re.compile(r"/hooks-importlib_bootstrap|/stoker_hooks/")
    library = re.compile(r"(/site-packages/|/dist-packages/|/lib/python\d|^<)")
    own = [f for f in frames if not hooks.search(f[0])]
    at = next((i for i, f in enumerate(own) if not library.search(f[0])), None)
    if at is None:
        return None
    inner = [f for f in own[:at] if f[2] not in ("wrapper", "inner", "_fn", "decorate_context", "wrapped_fn")]
    call = inner[-1][2] if inner else ""
    collective = next((f[2] for f in reversed(inner) if f[0].endswith("/distributed_c10d.py")), "")
    if any("/torch/utils/data/" in f[0] for f in inner):
        call = "data"
    return {"file": own[at][0], "line": own[at][1], "function": own[at][2], "call": collective or call}


def place_words(places: list[dict]) -> str:
    """The places in words: "rank 0 waits in all_reduce (train.py, line 14), rank 1 waits in barrier
    (train.py, line 17)"."""
    ranks = len({p.get("rank") for p in places if "worker" not in p}) > 1
    told = []
    for p in places:
        if ranks and p.get("rank") is None and "worker" not in p:
            continue  # the launcher, which only waits for the ranks
        rank = "rank %s" % p["rank"] if ranks and p.get("rank") is not None else ""
        who = ", ".join([each for each in (rank, "worker %d" % p["worker"] if "worker" in p else "") if each])
        where = "%s, line %d" % (os.path.basename(p["file"]), p["line"])
        doing = {"data": "waits for data at " + where, "": "is in %s (%s)" % (p["function"], where)}
        if "worker" in p:
            doing = {"": "is in %s (%s)" % (p["function"], where)}
        told.append(
            (who + " " if who else "") + doing.get(p["call"], "waits in %s (%s)" % (p["call"], where))
        )
    return ", ".join(told)
