"""The stop ladder: an image of what is recorded;
INT to the foreground, or TERM to the processes that handle it; TERM to the tree, KILL to what is left.

- Image: if the attempt is recorded for exact resume, the agent writes hooks/image.ask, and the training
  process answers with hooks/image.done. This takes at most half of the first grace, and counts as part of
  it.
- First signal: `spec.stop_signal`; by default TERM if the script itself has a handler for it, else INT. INT
  goes to the foreground process group. Another signal goes to the processes with a handler for it (SigCgt,
  and the line `handles_term` in processes.jsonl, show it); if there is none, to the foreground process
  group.
- TERM to every process: 0.3 s after all those processes have ended, at the latest after the first grace.
- KILL after the second grace.

Processes that the command left behind have 0.3 s to end. Then the ladder is used on them, with graces of at
most 5 s. While a ladder goes on, the heartbeat has `stage` `{"name", "began", "left_s"}`.
"""

from __future__ import annotations

import os
import signal
import time

from .processes import catches, command_of, lives, proc, send
from .reading import read_json, read_tail, told_lines
from .tree import kill_all, leftovers
from .words import (
    HOOKS, IMAGE_ASK, IMAGE_DONE, KILL_S, LEFTOVER_GRACE_S, NATURAL_S, OWNER, RESUME, RESUME_STATE,
    signal_name, signal_number,
)
from .writing import open_folder, unlink, write_whole

TYPE_CHECKING = False
if TYPE_CHECKING:
    from .attempts import Attempt
    from .keeping import Agent
    from .processes import Proc


class Ladder:
    """Takes steps when asked; `due` says when it wants to be asked again.
    Stages without grace are skipped."""

    def __init__(self, agent: Agent, reason: str, grace: tuple[float, float], natural: bool) -> None:
        self.agent, self.reason, self.grace = agent, reason, grace
        self.signalled_run = False  # did the run's own process get a signal from us?
        self.found: dict[tuple[int, int], Proc] = {}  # left behind by the first process
        self.survivors: list[Proc] = []
        self.sent: set[tuple[int, int, int]] = set()
        self.signal: int = signal.SIGINT  # the first one
        self.asked: list[Proc] = []  # who alone gets the first signal; empty: the foreground process group
        self.heard = 0.0  # when all of them had ended
        self.due = 0.0
        self.pause = 0.01
        self.began = self.opened = time.monotonic()
        self.stage = "wait"
        if not natural:
            self._enter(self._after("wait"))

    def hurry(self, grace: tuple[float, float]) -> None:
        """A newer wish: its graces count from when the present stage began."""
        self.grace, self.opened = grace, self.began
        self.due = 0.0

    def told(self) -> dict:
        """Where it is, for people: the stage, and until when it lasts."""
        names = {"int": signal_name(self.signal), "term": "SIGTERM", "kill": "SIGKILL"}
        return {
            "name": names.get(self.stage, self.stage),
            "began": time.time() - (time.monotonic() - self.began),
            "left_s": None if self.stage == "kill" else round(max(0.0, self._ends() - time.monotonic()), 1),
        }

    def leftovers(self) -> dict:
        """What was found after the run's own end, what could not be killed, and what was spared."""
        return leftovers(list(self.found.values()), self.survivors, self.agent.tree.spared)

    def step(self, now: float) -> bool:
        """Do what is due; True when nothing is left, or what is left cannot be killed."""
        agent = self.agent
        over = agent.status is not None or not agent.holder_lives
        if self.stage == "image" and (over or image_answered(agent.att)):
            self._enter("int")
        if self.stage in ("image", "int") and not over and now < self._ends():
            self._listen(now)
            return False
        left = agent.tree.look()
        if not left and over:
            return True
        while self.stage != "kill" and now >= self._ends():
            self._enter(self._after(self.stage))
        if self.stage in ("image", "int") and not over:
            self._listen(now)
            return False
        # noted before they are told to end: at the next look they may be gone
        if over and self.stage != "wait":
            for p in left:
                self.found.setdefault(p.key, p)
        if self.stage == "kill":
            if now - self.began >= KILL_S + (20.0 if not over else 0.0):
                self.survivors = left
                agent.event("survivors", pids=[p.pid for p in left])
                return True
            self.signalled_run = self.signalled_run or not over
            kill_all(agent.tree)
            self.due = now + min(self.pause, 0.5)
            self.pause *= 2
            return False
        if self.stage == "term" or (self.stage == "int" and over):
            for p in left:
                self._send_once(p)
        self.pause = min(self.pause * 1.5, 0.25)
        self.due = min(self._ends(), now + self.pause)
        return False

    def _listen(self, now: float) -> None:
        """When to look again while the run itself ends, or takes its image."""
        if (
            self.stage == "int"
            and self.asked
            and not self.heard
            and not any(lives({"pid": p.pid, "start": p.start}) for p in self.asked)
        ):
            self.heard = now  # a shell around them lives on: it may end by itself before it is told to
        looks = self.stage == "image" or (self.asked and not self.heard)
        self.due = min(self._ends(), now + 0.1) if looks else self._ends()

    def _ends(self) -> float:
        if self.stage == "wait":
            return self.began + NATURAL_S
        if self.stage == "image":
            return self.began + self.grace[0] / 2
        if self.stage == "int" and self.agent.status is None:
            ends = self.opened + self.grace[0]
            return min(ends, self.heard + NATURAL_S) if self.heard else ends
        grace = self.grace[0] if self.stage == "int" else self.grace[1]
        return self.began + (min(grace, LEFTOVER_GRACE_S) if self.agent.status is not None else grace)

    def _after(self, stage: str) -> str:
        lives_on = self.agent.status is None and self.agent.holder_lives and self.reason != "stalled"
        if stage == "wait" and self.grace[0] > 0 and lives_on and image_possible(self.agent.att):
            return "image"
        if stage in ("wait", "image") and self.grace[0] > 0:
            return "int"
        if stage in ("wait", "image", "int") and self.grace[1] > 0:
            return "term"
        return "kill"

    def _enter(self, stage: str) -> None:
        agent = self.agent
        self.stage, self.began, self.pause = stage, time.monotonic(), 0.01
        if stage == "image":
            ask_for_image(agent.att)
        if stage == "int":
            self.signal, self.asked = first_signal(agent)
        agent.event(
            "ladder",
            stage=(signal_name(self.signal) or "SIG0")[3:] if stage == "int" else stage.upper(),
            reason=self.reason or "leftovers",
        )
        if stage == "int" and agent.status is None and agent.holder_lives:
            self.signalled_run = True
            self._send_first()
        if agent.ladder is self:
            agent._beat(self.began)

    def _send_first(self) -> None:
        if not self.asked:
            self.agent.pass_signal(self.signal)
        for p in self.asked:
            self._send(p, self.signal)

    def _send_once(self, p: Proc) -> None:
        first = self.signal if any(p.key == each.key for each in self.asked) else signal.SIGINT
        sig = first if self.stage == "int" else signal.SIGTERM
        if (p.pid, p.start, sig) in self.sent:
            return
        self.signalled_run = self.signalled_run or self.agent.status is None
        self._send(p, sig)

    def _send(self, p: Proc, sig: int) -> None:
        self.sent.add((p.pid, p.start, sig))
        send(p, sig)
        send(p, signal.SIGCONT)  # one that is suspended hears nothing else


def first_signal(agent: Agent) -> tuple[int, list[Proc]]:
    """The signal that the ladder begins with, and who gets it:
    nobody named means the foreground process group.
    It is the one that `--stop-signal` names, else TERM where the script has a handler for it, else INT."""
    wanted = signal_number(agent.spec.get("stop_signal"))
    if wanted == signal.SIGINT:
        return wanted, []
    sig = wanted or signal.SIGTERM
    found = handling(agent.att, agent.tree.look(), sig, agent.run)
    return (sig, found) if wanted or found else (signal.SIGINT, [])


def handling(att: Attempt, members: list[Proc], sig: int, run: dict | None) -> list[Proc]:
    """The processes of a run in which the script itself has a handler for this signal.

    Looked at are the Python processes that Stoker's hooks are in, and the first process;
    all, where there are no hooks. A forked copy of a process (a worker of a DataLoader) has its handlers too
    and is left out: the script's handler would run twice.
    """
    hooked, handled = told_handlers(att)
    lines = {p.pid: command_of(p.pid) for p in members}
    hooked &= set(lines)
    found = []
    for p in members:
        if p.pid not in hooked and (
            lines.get(p.ppid) == lines[p.pid] or (hooked and p.pid != (run or {}).get("pid"))
        ):
            continue
        if p.pid in hooked and sig == signal.SIGTERM and p.pid not in handled:
            continue  # what is caught there is Stoker's own handler, or one of torch's
        if catches(p.pid, sig):
            found.append(p)
    return found


def told_handlers(att: Attempt) -> tuple[set[int], set[int]]:
    """Pids that told of themselves through the hooks;
    and those of them in which the script has a handler for SIGTERM."""
    hooked: set[int] = set()
    handled: set[int] = set()
    for said in told_lines(att):
        pid = said["pid"]
        if "role" in said:
            hooked.add(pid)
            # a later process with the same number, or another program in its place
            handled.discard(pid)
        if "handles_term" in said:
            (handled.add if said["handles_term"] else handled.discard)(pid)
    return hooked, handled


def image_possible(att: Attempt) -> bool:
    """Does exact resume record this attempt now? Its process lives,
    and its last life is one of this attempt."""
    resume = os.path.join(att.run_dir, RESUME)
    state = read_json(os.path.join(resume, RESUME_STATE)) or {}
    known = state.get("lives") or [{}]
    if (
        state.get("state") not in ("recording", "resumable")
        or state.get("reason")
        or known[-1].get("attempt") != att.n
    ):
        return False
    try:
        attempt, pid = read_tail(os.path.join(resume, OWNER), 100).split()
        return int(attempt) == att.n and proc(int(pid)) is not None
    except (OSError, ValueError):
        return False


def ask_for_image(att: Attempt) -> None:
    """Wish an image of the recorded training; `image_answered` tells when it is on the disk."""
    try:
        folder = open_folder(*os.path.split(att.path(HOOKS)))
    except OSError:
        return
    unlink("/proc/self/fd/%d/%s" % (folder, IMAGE_DONE))
    try:
        write_whole("/proc/self/fd/%d/%s" % (folder, IMAGE_ASK), b"")
    except OSError:
        pass
    os.close(folder)


def image_answered(att: Attempt) -> bool:
    return os.path.exists(os.path.join(att.path(HOOKS), IMAGE_DONE)) or not image_possible(att)
