"""The agent proper: watches, limits, ends, explains, starts again. It may die at any moment:
the holder forks another."""

from __future__ import annotations

import json
import os
import select
import signal
import socket
import time

from .attempts import drop_spares, folder_age
from .auditing import Auditor
from .claiming import claim, launch
from .explaining import conclude
from .ladder import Ladder, handling
from .machine import leave_group
from .observing import notify_watchers
from .processes import Stillness, foreground_of, lives, memory_of, send, status_of_dead, stopped_mark
from .reading import Broken, open_regular, size_of
from .settling import forget_images, give_files_back, settle
from .standstill import StandStill
from .telemetry import Sampler, Written, stdin_is_awaited
from .tree import Tree
from .wishes import Wishes
from .words import (
    AGENT, BACKOFF_MAX_S, BACKOFF_RESET_S, CLAIM_S, ERR, EVENTS, EXIT, EXIT_SPARE, GAPS_MAX, GONE_S,
    HEARTBEAT, LEFTOVER_GRACE_S, NEVER_PASSES, OUT, STALL_RESTARTS, STATUS, STILL, SYNC_MAX, TELEMETRY,
    THIN_AFTER_S, THIN_TICK_S, TICK_S, crash_point, forget_crash_points, format_duration, number, signal_name,
    signal_number,
)
from .writing import append_line, log_exception, unlink, write_json

TYPE_CHECKING = False
if TYPE_CHECKING:
    from .attempts import Attempt
    from .holding import Holder
    from .processes import Proc


class Agent(Wishes):
    """The one who samples, enforces limits, ends the tree and writes the last words."""

    def __init__(self, holder: Holder, link: socket.socket) -> None:
        super().__init__(holder.att, holder.spec)
        self.gpus, self.link = holder.gpus, link
        self.first = holder.agents == 0
        self.holder_stillness = Stillness(holder.me)
        self.holder_stands = False  # it stands still, and SIGCONT has not helped yet
        self.chased = holder.frozen > 1  # somebody stops one agent after the other
        self.run, self.status = holder.run, holder.status
        self.gaps, self.interrupt = holder.gaps, holder.interrupt
        self.lost = sum(w.lost for w in holder.writers)
        self.outlets = holder.outlets  # its descriptors are ours too: should it die, we write the logs
        self.started_at, self.started_mono = holder.started_at, holder.started_mono
        self.holder_lives = True
        self.drained = False
        # not getppid(): when the holder is dead that is somebody else
        self.tree = Tree(self.att, holder.me, os.getpid(), self.run)
        self.sampler = Sampler(self.att, holder.pid, os.getpid(), self.run, self.gpus)
        self.written = Written(self.att, self.spec)
        self.auditor = Auditor(self.att, self.spec)
        self.standstill = StandStill(self.att, self.spec, time.monotonic(), time.time())
        self.begun = ""  # why an agent proper before us had begun to end the run
        self.not_warned = ""  # why it was not sent
        self.memory_used = 0  # bytes, when `--memory` ended it
        self.phase = "running"
        self.waits = False
        self.next_telemetry = 0.0

    def live(self) -> None:
        """Until the attempt has ended and, if one was planned, the next one has been started."""
        ended = self.att.json(EXIT)
        if ended is None:
            self._begin()
            while not self._step():
                pass
            ended = self._finish()
        self.sampler.gpus.close()
        self._after(ended)

    def _begin(self) -> None:
        if self.first:
            self.event("started", pid=(self.run or {}).get("pid"))
        else:
            self.event("agent_restarted")
        self._look()
        before = self.att.json(HEARTBEAT) or {}
        if not self.first:
            self.warned = before.get("warned")
        if not self.first and before.get("ladder") and self.ladder is None:
            self.begun = str(before["ladder"])
            if self.status is None:
                self._end(self.begun, self._grace(None))
        self.notify()

    def _step(self) -> bool:
        """One round; True when the tree is gone and the run's status known, or will never be."""
        now = time.monotonic()
        if self.ladder is None and self.status is None and now - self.started_mono >= self._limit_left():
            self.event("limit", limit_s=self._limit())
            self._end("limit_time", self._grace(None))
        if self.ladder is None and self.status is None and now - self.started_mono >= self._warn_left():
            self._warn(now)
        if self.ladder is None and (self.status is not None or not self.holder_lives):
            self._end_by_itself()
        due = self.next_tick
        if self.ladder is not None:
            if self.ladder.step(now):
                return True
            due = min(due, self.ladder.due)
        else:
            due = min(due, self.started_mono + min(self._limit_left(), self._warn_left()))
        if now >= self.next_tick:
            self._tick(now)
            due = min(due, self.next_tick) if self.ladder is not None else self.next_tick
        self._wait(due)
        return False

    # -- news

    def _wait(self, until: float) -> None:
        """Sleep until then, or until the holder says something, or dies."""
        timeout = max(0.0, until - time.monotonic())
        if not self.holder_lives:
            self._write_logs(min(timeout, 0.5))
            return
        poller = select.poll()
        poller.register(self.link.fileno(), select.POLLIN)
        if poller.poll(int(timeout * 1000) + 1):
            self._hear()

    def _hear(self) -> None:
        try:
            data = self.link.recv(65536)
        except OSError:
            data = b""
        if not data:
            self.holder_lives = False
            self.event("holder_lost")
            for outlet in self.outlets:
                outlet.adopt(self._gap)
            return
        message = json.loads(data.decode())
        word = message["m"]
        if word == "started":
            self.run = self.tree.run = self.sampler.run = message["run"]
            self.notify()
        elif word == "ended":
            self.status = message["status"]
            if self.ladder is not None:
                self.ladder.due = 0.0
        elif word == "look":
            self._look()
        elif word == "kill":
            self._kill_asked()
        elif word == "gap":
            self._gap(message["gap"])
        elif word == "passed":
            self.interrupt = message["interrupt"]
            self.event("signal", signal=signal_name(self.interrupt["signal"]))
        elif word == "drained":
            self.gaps, self.lost, self.drained = message["gaps"], message["lost"], True
            for outlet in self.outlets:
                outlet.close()

    def _gap(self, gap: dict) -> None:
        self.gaps = self.gaps[1 - GAPS_MAX:] + [gap]
        self.event("gap", **gap)

    def _write_logs(self, for_s: float) -> None:
        """In the place of a dead holder: what the run prints while it is told to end belongs into its log."""
        until = time.monotonic() + for_s
        poller = select.poll()
        by_fd = {o.source: o for o in self.outlets if o.source >= 0}
        for fd in by_fd:
            poller.register(fd, select.POLLIN)
        while time.monotonic() < until:
            for fd, _ in poller.poll(max(0.0, until - time.monotonic()) * 1000):
                if by_fd[fd].move() is None:
                    poller.unregister(fd)
                    by_fd[fd].close()

    def _warn(self, now: float) -> None:
        """The signal before the limit, only to processes that have a handler for it:
        others would die of it."""
        sig = signal_number(self.spec.get("warn_signal")) or signal.SIGUSR1
        self.warned = self._limit()
        found = handling(self.att, self.tree.look(), sig, self.run)
        self.not_warned = (
            ""
            if found
            else "no process of the run handles %s, so Stoker did not send the warning signal"
            % signal_name(sig)
        )
        self._beat(now)  # before the signal: an agent proper after us knows of it
        self.event("warned", signal=signal_name(sig), pids=[p.pid for p in found])
        for p in found:
            send(p, sig)

    def _warning_ended_it(self) -> bool:
        """Whether the run ended well, or of the warning's own signal, after it was warned of the limit."""
        raw = (self.status or {}).get("status")
        if self.warned is None or self.warned != self._limit() or self.not_warned or not isinstance(raw, int):
            return False
        sig = signal_number(self.spec.get("warn_signal")) or signal.SIGUSR1
        if os.WIFSIGNALED(raw):
            return os.WTERMSIG(raw) == sig
        return os.WEXITSTATUS(raw) in (0, 128 + sig)

    # -- each 2 seconds

    def _tick(self, now: float) -> None:
        self.next_tick = now + TICK_S
        self._look()
        self._mind_holder(now)
        if self.holder_lives and self._changed(self.att.path(AGENT)) and self.att.json(AGENT) is None:
            self.link.send(b'{"m": "record"}')  # somebody spoilt it
        if self.phase != "waiting":
            members = self.sampler.members()
            waits = stdin_is_awaited(members, self.run)
            if waits != self.waits:
                self.waits = waits
                self.notify()
            if now >= self.next_telemetry:
                used = now - self.started_mono
                self.next_telemetry = now + (TICK_S if used < THIN_AFTER_S else THIN_TICK_S) - 0.1
                append_line(
                    self.att.path(TELEMETRY),
                    dict({"at": time.time(), "t": round(used, 1)}, **self.sampler.sample(members)),
                )
                self.written.look(now, members)
            if self.phase == "running" and self.auditor.look(self.sampler.last):
                self.notify()
            if self.phase == "running" and not waits:
                self._look_whether_it_moves(now, members)
            if self.phase == "running" and self.ladder is None:
                self._look_at_memory(members)
        self._beat(now)

    def _mind_holder(self, now: float) -> None:
        """A holder that stands still is sent SIGCONT, never killed: the run would end with it.
        While a debugger holds it, its part is done from here:
        signals, and the news that the run has ended."""
        stands = self.holder_lives and self.holder_stillness.look()
        if stands and not self.holder_stands:
            self.event("holder_frozen", pid=self.holder_stillness.known.get("pid"))
        self.holder_stands = stands
        if not stands:
            return
        try:
            os.kill(self.holder_stillness.known["pid"], signal.SIGCONT)
        except OSError:
            pass
        status = status_of_dead(self.run or {}) if self.status is None else None
        if status is not None:
            used = max(0.0, now - self.started_mono)
            self.status = {
                "status": status,
                "ended_mono": now,
                "ended_at": self.started_at + used,
                "used_s": used,
            }

    def _holder_is_stopped(self) -> bool:
        return bool(stopped_mark(self.holder_stillness.known))

    def _look_at_memory(self, members: list[Proc]) -> None:
        """What `--memory` allows: where no cgroup could be made, and where one does not help (memory that was
        paid for elsewhere)."""
        limit = int(number(self.spec.get("memory_bytes")))
        if limit <= 0 or sum(p.rss_pages for p in members) * self.sampler.page <= limit:
            return  # shared pages count once in what it really uses, which is less
        used = sum(memory_of(p) for p in members)
        if used <= limit:
            return
        self.memory_used = used
        self.event("memory", used_bytes=used, limit_bytes=limit)
        self._end("host_oom", (0.0, min(self._grace(None)[1], LEFTOVER_GRACE_S)))

    def _look_whether_it_moves(self, now: float, members: list[Proc]) -> None:
        still = self.standstill
        if not still.look(now, time.time(), members, self.run):
            return
        self.notify()
        self.event("still", quiet=still.quiet, stalled=still.stalled, text=still.text)
        if still.stalled and still.wanted_s and still.act in ("stop", "restart"):
            self._end("stalled", self._grace(None))

    def _beat(self, now: float, begins: str | None = None) -> None:
        """Write the heartbeat. `used_s`: running time of this attempt. `ladder`: the reason of a stop ladder
        that has begun.
        """
        body = {
            "at": time.time(),
            "mono": now,
            "phase": self.phase,
            "used_s": round(self._used(now), 3),
            "limits_seq": self.limits.get("seq"),
            "waits_for_input": self.waits,
            "out_bytes": size_of(self.att.path(OUT)),
            "err_bytes": size_of(self.att.path(ERR)),
            "ladder": begins or (self.ladder.reason if self.ladder else None),
            "stage": self.ladder.told() if self.ladder else None,
            "warned": self.warned,
            "stalled": self.standstill.told() if self.standstill.stalled else None,
        }
        try:
            write_json(self.att.path(HEARTBEAT), body, pad=512)
        except OSError:
            pass

    def _used(self, now: float) -> float:
        return self.status["used_s"] if self.status else max(0.0, now - self.started_mono)

    def event(self, word: str, **facts: object) -> None:
        """A line of events.jsonl: `{"at", "event": word, ...}`."""
        append_line(self.att.path(EVENTS), dict({"at": time.time(), "event": word}, **facts))

    def notify(self) -> None:
        notify_watchers(self.att)

    # -- the end

    def _end(self, reason: str, grace: tuple[float, float]) -> None:
        """Begin the stop ladder."""
        self.phase = "stopping"
        self.auditor.stop()
        # before the first signal: an agent proper after us knows who ended the run
        self._beat(time.monotonic(), reason)
        self.ladder = Ladder(self, reason, grace, natural=False)
        self._beat(time.monotonic())
        self.notify()

    def _end_by_itself(self) -> None:
        """The first process ended, or nobody can say any more: the same ladder over what is left."""
        self.phase = "stopping"
        self.auditor.stop()
        grace = [min(g, LEFTOVER_GRACE_S) for g in self._grace((self.stop or {}).get("grace_s"))]
        lost = self.status is None
        self.ladder = Ladder(
            self,
            "agent_lost" if lost else "",
            (0.0, grace[1]) if lost else (grace[0], grace[1]),
            natural=not lost,
        )

    def pass_signal(self, sig: int) -> None:
        """To the foreground process group: through the holder,
        who alone knows that the pid is still the run's."""
        if self.holder_lives and not self._holder_is_stopped():
            try:
                self.link.send(json.dumps({"m": "signal", "signal": sig}).encode())
            except OSError:
                pass
        elif lives(self.run) and self.run:
            try:
                os.killpg(foreground_of(self.run["pid"]), sig)
            except OSError:
                pass

    def _finish(self) -> dict:
        crash_point("ladder_done")
        self.auditor.close()
        self._drain()
        self._sync_logs()
        give_files_back(self.att)
        ladder = self.ladder
        reason = ladder.reason if ladder is not None and ladder.signalled_run else self.begun
        if not reason and self._warning_ended_it():
            reason = "limit_time"
        if self.status is None:
            self.status = self.att.json(STATUS)  # the holder may have written it as its last deed
            if self.status is None and not self.holder_lives:
                reason = reason or "agent_lost"
        now = time.monotonic()
        body = conclude(
            self.att,
            self.status,
            reason,
            used_s=self._used(now),
            interrupt=self.interrupt,
            limit_s=self._limit(),
            gaps=self.gaps + ([{"bytes": self.lost, "offset": None}] if self.lost else []),
            leftovers=ladder.leftovers() if ladder else None,
        )
        if body["reason"] == "host_oom" and self.memory_used:
            body["evidence"].update(
                kind="memory",
                limit_bytes=int(number(self.spec.get("memory_bytes"))),
                used_bytes=self.memory_used,
            )
        leave_group((self.att.json(AGENT) or {}).get("memory_group"))
        if body["reason"] == "stalled":
            body["evidence"].update(
                limit=format_duration(self.standstill.wanted_s),
                place=self.standstill.text or "position not known",
            )
        unlink(self.att.path(STILL))
        if self.not_warned:
            body["evidence"]["not_warned"] = self.not_warned
        if self.stop is None and self._limit_left() > body["used_s"]:
            body["restart"] = plan_restart(self.att, self.spec, body)
        crash_point("before_exit")
        gone_at = time.monotonic() + GONE_S
        while True:
            try:
                write_json(self.att.path(EXIT), body, sync=True, spare=self.att.path(EXIT_SPARE))
                break
            except OSError:  # the last words are worth waiting for
                log_exception()
                if os.path.isdir(self.att.folder):
                    gone_at = time.monotonic() + GONE_S
                elif time.monotonic() > gone_at:  # nobody can read them any more
                    return dict(body, restart=None)
                self._wait(time.monotonic() + TICK_S)
        crash_point("exit_written")
        if body["restart"]:
            self.event("restart_planned", **body["restart"])
        self.notify()
        if body["reason"] == "exited":
            forget_images(self.att)
        return body

    def _sync_logs(self) -> None:
        """exit.json shall not outlive the end of the log when the plug is pulled.
        Giants are left to the kernel."""
        for name in (OUT, ERR):
            try:
                fd = open_regular(self.att.path(name))
                try:
                    if os.fstat(fd).st_size <= SYNC_MAX:
                        os.fdatasync(fd)
                finally:
                    os.close(fd)
            except (OSError, Broken):
                pass

    def _drain(self) -> None:
        """Have moved into the logs what the pty or the pipes still hold: by the holder, or in its place."""
        stands = self.holder_stands and self._holder_is_stopped()
        if stands:
            for outlet in self.outlets:
                outlet.adopt(self._gap)
        if not self.holder_lives or stands:
            for outlet in self.outlets:
                outlet.finish()
                outlet.writer.mind_cut()
            self.lost = sum(o.writer.lost for o in self.outlets) or self.lost
            return
        try:
            self.link.send(b'{"m": "drain"}')
        except OSError:
            return
        deadline = time.monotonic() + 5.0
        while self.holder_lives and not self.drained and time.monotonic() < deadline:
            self._wait(deadline)

    def _after(self, ended: dict) -> None:
        """Wait out the backoff, then start the next attempt; a stop calls it off."""
        plan = ended.get("restart")
        if plan:
            self._wait_and_restart(ended, plan)
        drop_spares(self.att)

    def _wait_and_restart(self, ended: dict, plan: dict) -> None:
        self.phase, self.ladder = "waiting", None
        self.status = self.status or {"used_s": number(ended.get("used_s"))}
        following = self.att.sibling(int(plan["attempt"]))
        self.stop = None
        while time.monotonic() < plan["mono"]:
            now = time.monotonic()
            if now >= self.next_tick:
                self._tick(now)
            else:
                self._look()
            if self.stop is not None:
                break
            self._wait(min(self.next_tick, plan["mono"]) if self.holder_lives else now + 0.5)
        self._look()
        if self.stop is not None and not os.path.isdir(following.folder):
            self._call_off(ended)
            return
        self._restart(following)

    def _call_off(self, ended: dict) -> None:
        ended["restart"] = None
        self.event("restart_called_off")
        write_json(self.att.path(EXIT), ended, sync=True, spare=self.att.path(EXIT_SPARE))
        self.notify()

    def _restart(self, following: Attempt) -> None:
        """In a fresh holder, as `start` does.
        A folder that a dead predecessor of ours claimed is taken over."""
        if not claim(following):
            while not following.json(AGENT) and not following.json(EXIT) and folder_age(following) < CLAIM_S:
                self._wait(time.monotonic() + 0.5)
            if following.json(AGENT) or following.json(EXIT):
                return
        crash_point("restart_claimed")
        forget_crash_points()
        self._look()
        if self.stop is not None:  # typed while we claimed; whoever types it later looks at the new attempt
            settle(following, str(self.stop.get("reason") or "stopped_by_user"))
            return
        said = launch(following, self.gpus, 10.0)
        if said.startswith("no holder"):
            log_exception()
            settle(following, "start_failed", said[len("no holder: "):])
        notify_watchers(following)


def plan_restart(att: Attempt, spec: dict, body: dict) -> dict | None:
    """The automatic restart that follows this end, if the spec allows one."""
    allowed = int(number(spec.get("restarts")))
    stalled = body["reason"] == "stalled" and spec.get("stall_do") == "restart"
    allowed = max(allowed, STALL_RESTARTS) if stalled else allowed
    if allowed <= 0 or (body["reason"] not in (spec.get("retry_reasons") or ()) and not stalled):
        return None
    if comes_again(body):
        body["evidence"]["not_restarted"] = True
        return None
    backoff = number(spec.get("backoff_s"), 5.0)
    done = 0
    quick = body["used_s"] <= BACKOFF_RESET_S
    for n in range(att.n - 1, 0, -1):  # automatic restarts in a row; a start by hand begins a new row
        earlier = att.sibling(n).json(EXIT) or {}
        if not earlier.get("restart"):
            break
        done += 1
        quick = quick and number(earlier.get("used_s")) <= BACKOFF_RESET_S
        if quick:
            backoff = min(backoff * 2, BACKOFF_MAX_S)
    if done >= allowed:
        return None
    return {"attempt": att.n + 1, "at": time.time() + backoff, "mono": time.monotonic() + backoff}


def comes_again(body: dict) -> bool:
    """Whether it died of an error that each attempt would meet:
    an error of that kind is the last that it said.
    One that it had caught and printed before it was killed, or before it failed for another reason,
    says nothing."""
    kind = (body["evidence"].get("exception") or {}).get("type")
    last_line = (body["evidence"].get("tail") or "").rstrip().rpartition("\n")[2]
    return body["reason"] == "nonzero_exit" and kind in NEVER_PASSES and last_line.startswith(kind)
