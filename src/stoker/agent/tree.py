"""The tree of a run: every process that belongs to it, found by parents, session and mark;
and how what is left of it ends."""

from __future__ import annotations

import os
import signal
import time

from .processes import (
    all_procs, children_listed, children_of, environ_of, is_alive, listed_pids, lives, proc, send,
)
from .reading import read_bytes, read_json
from .words import DAEMON_MARK, LOOKS, MULTIPLEXERS, RUN_DIR_MARK, RUN_MARK, SYSTEM_FOLDERS, encode

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from .attempts import Attempt
    from .processes import Proc


class Tree:
    """Which processes belong to a run, whatever they did to hide:
    forked, left their session, renamed themselves.

    They are the descendants of the holder (a subreaper, so orphans come back to it) and of the run's first
    process, the members of its session, and whoever carries both marks of the run in the environment, with
    all below them. Daemons of ours and servers of terminal multiplexers, with all below them, are somebody
    else's: `spared` holds those of the last look.
    """

    def __init__(self, att: Attempt, holder: dict | None, agent: int, run: dict | None) -> None:
        self.marks = [
            b"\0" + encode(k + "=" + v) + b"\0" for k, v in ((RUN_MARK, att.id), (RUN_DIR_MARK, att.run_dir))
        ]
        self.holder, self.agent, self.run = holder or {}, agent, run or {}
        self.uid = os.geteuid()
        self.spared: list[Proc] = []

    def look(self) -> list[Proc]:
        """Living members. "Nobody" is said only when it is certain:
        a member that forks and leaves while the process table is read may stand in it neither as the old pid
        nor as the new one."""
        for _ in range(LOOKS):
            before = listed_pids()
            found, spared = self._scan()
            if found or self._nobody(spared, before):
                break
        return found

    def _nobody(self, spared: set[int], before: list[int]) -> bool:
        """Every orphan below a living holder is its child, from before its own parent is dead.
        So the list of its children is read again until all that stand in it were dead before it was read:
        one of them may have left an orphan after the list before."""
        if lives(self.holder) and children_listed():
            known = spared | {self.agent, os.getpid()}
            while born := set(children_of(self.holder["pid"])) - known:
                if any(is_alive(pid) for pid in born):
                    return False
                known |= born
            return True
        return set(before) == set(listed_pids())  # else: nobody came or went meanwhile

    def _scan(self) -> tuple[list[Proc], set[int]]:
        """Living members, and the spared ones, by a full scan of the process table."""
        table = all_procs()
        children: dict[int, list[int]] = {}
        for p in table.values():
            children.setdefault(p.ppid, []).append(p.pid)

        def below(roots: list[int], stop: set[int]) -> set[int]:
            seen: set[int] = set()
            todo = list(roots)
            while todo:
                pid = todo.pop()
                if pid in seen or pid in stop or pid not in table:
                    continue
                seen.add(pid)
                todo.extend(children.get(pid, ()))
            return seen

        holder = table.get(self.holder.get("pid", 0))
        # a dead one's number may be reused
        keeper = holder.pid if holder is not None and holder.start == self.holder.get("start") else 0
        ours = {self.agent, os.getpid()}
        roots = list(children.get(keeper, ())) if keeper else []
        first = table.get(self.run.get("pid", 0))
        if first is not None and first.start != self.run.get("start"):
            first = None
        if first is not None:
            roots.append(first.pid)
        roots += self._session(table, first)
        found = below(roots, ours)
        marked = [
            pid
            for pid in table
            if pid not in found and pid not in ours and pid != keeper and self._marked(pid)
        ]
        found |= below(marked, ours)
        mine = self.run.get("pid")
        spared = below([pid for pid in found if pid != mine and is_spared(table[pid])], set())
        self.spared = [table[pid] for pid in sorted(spared) if not table[pid].dead]
        return [table[pid] for pid in sorted(found - spared - {keeper}) if not table[pid].dead], spared

    def chase(self, stopped: dict[tuple[int, int], Proc]) -> None:
        """Stop what was born since the table was read.
        The kernel's lists of children are quicker to read than the table, so a process that forks and leaves
        all the time is caught between two jumps."""
        seen = {pid for pid, _ in stopped} | {self.agent, os.getpid()}
        parents = [self.holder["pid"]] if lives(self.holder) else []
        for _ in range(100):
            born = [
                pid
                for parent in parents + [pid for pid, _ in stopped]
                for pid in children_of(parent)
                if pid not in seen
            ]
            if not born:
                return
            for pid in born:
                seen.add(pid)
                p = proc(pid)
                if p is not None and not p.dead and not is_spared(p):
                    send(p, signal.SIGSTOP)
                    stopped[p.key] = p

    def _session(self, table: dict[int, Proc], first: Proc | None) -> list[int]:
        sid = self.run.get("sid")
        if not sid:
            return []
        leader = table.get(sid)
        if leader is not None and leader is not first:
            return []  # the number was given to somebody else: our session is gone
        return [p.pid for p in table.values() if p.sid == sid and p.start >= self.run.get("start", 0)]

    def _marked(self, pid: int) -> bool:
        env = environ_of(pid)
        return all(mark in env for mark in self.marks)


def is_spared(p: Proc) -> bool:
    """Does it outlive the run that it was started in? A name or a variable
    that anybody may choose decides nothing."""
    return is_multiplexer(p) or is_daemon_of_ours(p)


def is_multiplexer(p: Proc) -> bool:
    """A server of tmux, screen, ...: its executable is such a program of the system's."""
    try:
        program = os.readlink("/proc/%d/exe" % p.pid)
    except OSError:
        return False
    folder, name = os.path.split(program.replace(" (deleted)", ""))
    return (
        name.split("-")[0] in MULTIPLEXERS
        and (folder + "/").startswith(SYSTEM_FOLDERS)
        and "client" not in p.name
    )


def is_daemon_of_ours(p: Proc) -> bool:
    """A server or a caretaker of Stoker:
    the record that its environment names has this very pid and start time."""
    for item in environ_of(p.pid).split(b"\0"):
        if item.startswith(DAEMON_MARK.encode() + b"=/"):
            record = read_json(os.fsdecode(item.split(b"=", 1)[1])) or {}
            return {"pid": p.pid, "start": p.start} in record.values()
    return False


def kill_all(tree: Tree, rounds: int = 8) -> None:
    """SIGKILL to every member. They are stopped first,
    so that one that forks faster than we look cannot get away."""
    stopped: dict[tuple[int, int], Proc] = {}
    for _ in range(rounds):
        fresh = [p for p in tree.look() if p.key not in stopped]
        if not fresh:
            break
        for p in fresh:
            stopped[p.key] = p
            send(p, signal.SIGSTOP)
        tree.chase(stopped)
    for p in stopped.values():
        send(p, signal.SIGKILL)


def leftovers(found: list[Proc], survivors: list[Proc], spared: list[Proc]) -> dict:
    """What exit.json says of processes that the first one left behind; 100 of each kind at most."""
    def facts(p: Proc) -> dict:
        return {"pid": p.pid, "name": p.name}

    return {
        "found": [facts(p) for p in found[:100]],
        "survivors": [dict(facts(p), state=p.state) for p in survivors[:100]],
        "spared": [facts(p) for p in spared[:100]],
    }


def end_tree(tree: Tree, grace_s: float = 2.0) -> tuple[list[Proc], list[Proc]]:
    """TERM, a short grace, KILL. Gives (survivors, found)."""
    found = tree.look()
    for p in found:
        send(p, signal.SIGTERM)
        send(p, signal.SIGCONT)
    left = found
    deadline = time.monotonic() + grace_s
    while left and time.monotonic() < deadline:
        time.sleep(0.05)
        left = tree.look()
    deadline = time.monotonic() + 5.0
    while left and time.monotonic() < deadline:
        kill_all(tree)
        time.sleep(0.05)
        left = tree.look()
    return left, found


def is_caretaker(att: Attempt, known: Any) -> bool:
    """Is it the holder or the agent proper of this run? A run may write
    into its own records whatever it wants."""
    if not lives(known):
        return False
    words = read_bytes("/proc/%d/cmdline" % known["pid"]).split(b"\0")
    return b"_hold" in words and any(word.endswith(b"/" + encode(att.id)) for word in words)
