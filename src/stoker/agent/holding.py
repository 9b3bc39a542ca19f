"""The holder: parent of the run. It owns the pty master and the pipes, writes the logs, reaps, and keeps an
agent proper alive."""

from __future__ import annotations

import json
import os
import select
import signal
import socket
import time

from .attempts import Attempt, agent_record
from .claiming import held_leases
from .door import Door
from .keeping import Agent
from .machine import memory_group, oom_counters
from .output import LogWriter, Moves, Turns, open_outlet
from .processes import Stillness, close_inherited, lower_oom_score, name_process, proc, who
from .reading import Broken, open_regular, read_json
from .spawning import become_run, open_pty, run_environment
from .words import (
    AGENT, ASKING, ERR, EVENTS, EXIT, GAPS_MAX, OUT, SOCKET, SPEC, STATUS, STATUS_SPARE, STDIN, TICK_S, WORK,
    Problem, crash_point, encode, forget_crash_points, number,
)
from .writing import append_line, log_exception, unlink, write_json

TYPE_CHECKING = False
if TYPE_CHECKING:
    from .output import Outlet


class Holder(Door):
    """The parent of the run: keeps its terminal and its pipes, writes its logs, learns how it ended."""

    def __init__(self, att: Attempt, gpus: str, tell: int, mask: int) -> None:
        super().__init__(att)
        self.gpus, self.tell_fd, self.mask = gpus, tell, mask
        self.pid = os.getpid()
        self.me = who(self.pid)
        self.spec = read_json(os.path.join(att.run_dir, SPEC)) or {}
        self.done = False
        self.started_at = self.started_mono = 0.0
        self.run: dict | None = None
        self.run_pid = 0  # 0 once it was reaped
        self.exec_fd = -1
        self.failure = b""
        self.status: dict | None = None
        self.writers: list[LogWriter] = []
        self.outlets: list[Outlet] = []
        self.flows = False  # much output is coming through the pty
        self.gaps: list[dict] = []
        self.agent_pid = 0
        self.link: socket.socket | None = None
        self.agent_since = self.respawn_at = 0.0
        self.backoff = 0.1
        self.agents = 0
        self.agent_stillness = Stillness(None)
        self.frozen = 0  # agents that had to be replaced because they stood still
        self.next_tick = 0.0
        self.record: dict = {}  # what agent.json says

    def live(self) -> None:
        """Until the agent proper says that all is done."""
        self._catch_children()
        self._spawn()
        self._fork_agent()
        self._open_door()
        while not self.done:
            try:
                self._step()
            except Exception:
                log_exception()
                time.sleep(0.2)  # whatever is wrong must not become a busy loop; the run itself goes on
        unlink(self.att.path(SOCKET))

    def _step(self) -> None:
        for fd, events in self.poll.poll(self._timeout()):
            act = self.on.get(fd)
            if act:
                act(events)
        now = time.monotonic()
        if self.agent_pid and now >= self.next_tick:
            self.next_tick = now + TICK_S
            self._mind_agent()
        if self.respawn_at and now >= self.respawn_at:
            self._fork_agent()
        if self.feed_retry and now >= self.feed_retry:
            self._feed()
        for outlet in self.outlets:
            if outlet.due and now >= outlet.due:
                self._outlet_ready(outlet)

    def _timeout(self) -> int | None:
        tick = self.next_tick if self.agent_pid else 0.0
        due = [t for t in (tick, self.respawn_at, self.feed_retry, *(o.due for o in self.outlets)) if t]
        return max(0, int((min(due) - time.monotonic()) * 1000) + 1) if due else None

    # -- children

    def _catch_children(self) -> None:
        wake, ring = os.pipe()
        os.set_blocking(wake, False)
        os.set_blocking(ring, False)
        signal.set_wakeup_fd(ring, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        self._watch(wake, select.POLLIN, lambda _events: self._children(wake))

    def _children(self, wake: int) -> None:
        try:
            os.read(wake, 4096)
        except BlockingIOError:
            pass
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            if pid == self.run_pid:
                self._run_ended(status)
            elif pid == self.agent_pid:
                self._agent_ended(status)

    def _run_ended(self, status: int) -> None:
        mono = time.monotonic()
        self._exec_news(0)
        for outlet in self.outlets:  # its last line is not kept waiting by the disk
            outlet.move()
        self.run_pid = 0
        read = self._input_read()
        self._close_feed()
        used = mono - self.started_mono
        self.status = {
            "status": status,
            "ended_mono": mono,
            "ended_at": self.started_at + used,
            "used_s": used,
        }
        if read is not None:
            self.status["input_read"] = read
        if self.failure:
            self.status["start_failed"] = self.failure.decode("utf-8", "replace")
        try:
            write_json(self.att.path(STATUS), self.status, sync=True, spare=self.att.path(STATUS_SPARE))
        except OSError:
            log_exception()  # the agent proper is told anyway
        crash_point("status_written")
        self._tell({"m": "ended", "status": self.status})

    def _agent_ended(self, status: int) -> None:
        self.agent_pid = 0
        if self.link is not None:
            self._unwatch(self.link.fileno())
            self.link.close()
            self.link = None
        if os.WIFEXITED(status) and os.WEXITSTATUS(status) == 0:
            self.done = True
            return
        now = time.monotonic()
        if now - self.agent_since > 60:
            self.backoff = 0.1
        self.respawn_at = now + self.backoff
        self.backoff = min(self.backoff * 2, 5.0)

    def _mind_agent(self) -> None:
        """Replace an agent proper that stands still.
        It may be killed at any moment, so this loses nothing."""
        p = proc(self.agent_pid)
        if p is None or p.dead:
            ended, status = os.waitpid(self.agent_pid, os.WNOHANG)
            # not ours to know while a debugger has not waited for it
            self._agent_ended(status if ended else signal.SIGKILL)
        elif self.agent_stillness.look():
            append_line(
                self.att.path(EVENTS), {"at": time.time(), "event": "agent_frozen", "pid": self.agent_pid}
            )
            self.frozen += 1
            os.kill(self.agent_pid, signal.SIGKILL)

    def _fork_agent(self) -> None:
        self.respawn_at = time.monotonic() + 1.0  # should no socket or process be to be had now
        try:
            ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        except OSError:
            return
        try:
            pid = os.fork()
        except OSError:
            ours.close()
            theirs.close()
            return
        if pid == 0:
            code = 1
            try:
                signal.set_wakeup_fd(-1)
                signal.signal(signal.SIGCHLD, signal.SIG_DFL)
                close_inherited(
                    {theirs.fileno(), self.att.fd, *held_leases}.union(
                        *(o.descriptors() for o in self.outlets)
                    )
                )
                name_process("stoker-agent")
                if self.agents:
                    forget_crash_points()
                Agent(self, theirs).live()
                code = 0
            except BaseException:
                log_exception()
            finally:
                os._exit(code)
        self.respawn_at = 0.0
        theirs.close()
        ours.setblocking(False)
        self.agents += 1
        self.agent_pid, self.link, self.agent_since = pid, ours, time.monotonic()
        self.agent_stillness = Stillness(who(pid))
        self.next_tick = self.agent_since + TICK_S
        self._watch(ours.fileno(), select.POLLIN, lambda _events: self._agent_says())
        self._record({"agent": who(pid)})

    def _record(self, changes: dict) -> None:
        try:
            record = self.record = dict(self.record or agent_record(self.att), **changes)
            room = (len(json.dumps(record)) + 768) // 512 * 512  # so that it can be rewritten on a full disk
            write_json(self.att.path(AGENT), record, pad=room)
        except OSError:
            log_exception()

    def _tell(self, message: dict) -> None:
        """To the agent proper. It looks at the folder too, so a message that does not fit may be lost."""
        if self.link is not None:
            try:
                self.link.send(json.dumps(message).encode())
            except OSError:
                pass

    def _agent_says(self) -> None:
        try:
            data = self.link.recv(65536) if self.link is not None else b""
        except OSError:
            data = b""
        if not data:
            if self.link is not None:
                self._unwatch(self.link.fileno())
            return
        message = json.loads(data.decode())
        if message["m"] == "signal":
            self._signal(message["signal"])
        elif message["m"] == "record":
            self._record({})
        elif message["m"] == "drain":
            while self.master >= 0 and self._pump():
                pass
            for outlet in self.outlets:
                self._unwatch(outlet.source)
                outlet.finish()
            for writer in self.writers:
                writer.mind_cut()
            self._tell({"m": "drained", "gaps": self.gaps, "lost": sum(w.lost for w in self.writers)})

    # -- the run

    def _spawn(self) -> None:
        att, spec = self.att, self.spec
        argv = [encode(a) for a in (spec.get("argv") or spec.get("command") or [])]
        cwd = os.path.join(att.run_dir, WORK) if spec.get("copy") else (spec.get("folder") or "/")
        env = run_environment(att, spec, cwd, self.gpus)
        self.started_at, self.started_mono = time.time(), time.monotonic()
        group = memory_group(att, int(number(spec.get("memory_bytes"))))
        self._record(
            {
                "memory_group": group,
                "started_at": self.started_at,
                "started_mono": self.started_mono,
                "tty": bool(spec.get("tty")),
                "argv": spec.get("argv") or spec.get("command"),
                "cwd": cwd,
                "log_before": oom_counters(),
            }
        )
        try:
            if att.json(EXIT) or not argv:
                raise Problem(
                    "start_failed",
                    "there is no command in spec.json"
                    if not argv
                    else "the attempt was ended before its command started",
                )
            stdio = self._open_stdio()
            report, self.exec_fd = os.pipe()
            report, self.exec_fd = self.exec_fd, report
            pid = os.fork()
        except (OSError, Broken, Problem) as e:
            self._not_started(str(e))
            return
        if pid == 0:
            become_run(argv, env, encode(cwd), stdio=stdio, slave=self.slave, mask=self.mask, report=report,
                       inherit=spec.get("inherit") or {}, group=group)
        os.close(report)
        for fd in set(stdio) - {self.slave}:
            os.close(fd)
        p = proc(pid)
        self.run_pid = pid
        self.run = {"pid": pid, "start": p.start if p else None, "sid": pid}
        self._watch(self.exec_fd, select.POLLIN, self._exec_news)
        crash_point("spawned")

    def _not_started(self, detail: str) -> None:
        self.failure = detail.encode("utf-8", "replace")
        self.status = {
            "status": None,
            "ended_mono": self.started_mono,
            "ended_at": self.started_at,
            "used_s": 0.0,
            "start_failed": detail,
        }
        try:
            write_json(self.att.path(STATUS), self.status, sync=True, spare=self.att.path(STATUS_SPARE))
        except OSError:
            log_exception()
        self._ready(b"failed " + self.failure)

    def _open_stdio(self) -> list[int]:
        """Descriptors for 0, 1, 2 of the run; opens the pty master or the pipes on our side."""
        att, spec = self.att, self.spec
        self.writers = [LogWriter(att, OUT, self._gap)]
        kind = spec.get("stdin") or "none"
        source = -1
        if kind == "none":
            source = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
        elif kind == "file":
            source = open_regular(os.path.join(att.run_dir, STDIN))
        if spec.get("tty"):
            self.master, self.slave = open_pty(spec.get("inherit") or {})
            os.set_blocking(self.master, False)
            self._watch(self.master, select.POLLIN, self._master_ready)
            if kind == "attached":
                self.feed_fd = self.master
            return [self.slave if source < 0 else source, self.slave, self.slave]
        if source < 0:
            source, self.feed_fd = os.pipe()
            os.set_blocking(self.feed_fd, False)
        if spec.get("split_stderr"):
            self.writers.append(LogWriter(att, ERR, self._gap))
        targets, moves = [], Moves(att)
        turns = Turns(att, self.writers) if len(self.writers) > 1 else None
        for writer in self.writers:
            outlet, target = open_outlet(writer, moves, turns)
            self.outlets.append(outlet)
            targets.append(target)
            self._outlet_ready(outlet)
        return [source, targets[0], targets[-1]]

    def _exec_news(self, _events: int) -> None:
        """The exec pipe closed (the command runs) or carries why it does not."""
        if self.exec_fd < 0:
            return
        data = os.read(self.exec_fd, 4096)
        if data:
            self.failure += data
            return
        self._unwatch(self.exec_fd)
        os.close(self.exec_fd)
        self.exec_fd = -1
        if self.failure:
            self._ready(b"failed " + self.failure)
            return
        self._record({"run": self.run})
        self._ready(b"spawned")
        self._tell({"m": "started", "run": self.run})

    def _ready(self, word: bytes) -> None:
        """To whoever started us, if they still wait."""
        if self.tell_fd < 0:
            return
        try:
            os.write(self.tell_fd, word)
        except OSError:
            pass
        os.close(self.tell_fd)
        self.tell_fd = -1

    def _signal(self, sig: int) -> None:
        """To the foreground process group, as a terminal would;
        what only asks, to the first process, as `kill` would."""
        if not self.run_pid:
            return
        if sig in ASKING:
            os.kill(self.run_pid, sig)
            return
        group = self.run_pid
        if self.master >= 0:
            try:
                group = os.tcgetpgrp(self.master) or self.run_pid
            except OSError:
                pass
        for target in (group, self.run_pid):
            try:
                os.killpg(target, sig)
                return
            except OSError:
                continue

    # -- output of a pty

    def _master_ready(self, _events: int) -> None:
        """While much is coming, wait half a millisecond for more:
        the kernel hands out 4 KB a read, and waking up for each of them would cost more than moving it."""
        if self.flows:
            time.sleep(0.0005)
        self.flows = self._pump() >= 4095

    def _pump(self) -> int:
        """Move what the pty holds, up to 256 KB, to the log. Gives its size."""
        chunks, size = [], 0
        while size < 262144:
            try:
                data = os.read(self.master, 65536)
            except BlockingIOError:
                break
            except OSError:  # EIO: no slave is open any more. We hold one, so this is the end.
                self._unwatch(self.master)
                break
            if not data:
                break
            chunks.append(data)
            size += len(data)
        if chunks:
            self.writers[0].write(b"".join(chunks))
        return size

    # -- output of pipes

    def _outlet_ready(self, outlet: Outlet) -> None:
        size = outlet.move()
        if size is None:
            self._unwatch(outlet.source)
            outlet.close()
        elif outlet.rest(size):
            self._unwatch(outlet.source)
        elif outlet.source not in self.on:
            self._watch(outlet.source, select.POLLIN, lambda _events: self._outlet_ready(outlet))

    def _gap(self, gap: dict) -> None:
        self.gaps = self.gaps[1 - GAPS_MAX:] + [gap]
        self._tell({"m": "gap", "gap": gap})


def verb_hold(args: list[str]) -> None:
    """_hold RUN_DIR N READY_FD UMASK GPUS: what `start` detaches."""
    run_dir, n, tell, mask, gpus = args
    name_process("stoker-holder")
    lower_oom_score()
    held_leases[:] = [int(fd) for fd in os.environ.pop("STOKER_LEASES", "").split(",") if fd]
    for fd in (int(tell), *held_leases):
        os.set_inheritable(fd, False)
    for sig in (
        signal.SIGHUP,
        signal.SIGINT,
        signal.SIGQUIT,
        signal.SIGTERM,
        signal.SIGPIPE,
        signal.SIGTSTP,
        signal.SIGTTIN,
        signal.SIGTTOU,
        signal.SIGUSR1,
        signal.SIGUSR2,
        signal.SIGALRM,
        signal.SIGXFSZ,
    ):
        signal.signal(sig, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_SETMASK, [])
    att = Attempt(run_dir, int(n))
    att.hold()
    Holder(att, gpus, int(tell), int(mask)).live()
