"""The child that audits exact resume beside a run.

Every 2 s it looks for a room, a folder of an audit. The child is the program of the process `pid` of
order.json: its /proc/PID/exe, arguments and environment, without the marks of the run, with
STOKER_AUDIT=child, STOKER_RESUME_DIR=<room>, STOKER_HOOKS=<room>/hooks and CUDA_VISIBLE_DEVICES= (empty).
It has a session of its own, the idle class, and the CPUs of the run; the kernel kills it first if memory
runs out. It is killed after `limit_s`, and before the run is told to end. audits.json: `{"audits":
[{"attempt", "image", "step", "from_step", the fields of verdict.json, "spare_core"}]}`, the last 100.
"""

from __future__ import annotations

import os
import signal
import time

from .machine import cpu_quota, memory_bytes
from .processes import close_inherited
from .reading import read_bytes, read_json, read_tail
from .spawning import default_signals, open_pty, take_over
from .words import (
    AUDIT, AUDITS, AUDITS_KEPT, AUDIT_SPARE, ERR, HOOKS, ORDER, RESUME, RUN_DIR_MARK, RUN_MARK, VERDICT,
    Problem, encode, format_duration, number, signal_name,
)
from .writing import WRITE, log_exception, remove, write_json

TYPE_CHECKING = False
if TYPE_CHECKING:
    from .attempts import Attempt


class Auditor:
    """Starts the child that audits exact resume where the hooks have made a room for it, one at a time and
    in the idle class; ends it in time, and writes down what came of it.
    It dies with us, and before the run is told to end."""

    def __init__(self, att: Attempt, spec: dict) -> None:
        self.att, self.tty, self.inherit = att, bool(spec.get("tty")), spec.get("inherit") or {}
        self.on = bool(spec.get("audit"))
        self.rooms = os.path.join(att.run_dir, RESUME, AUDIT)
        self.pid, self.room = 0, ""
        self.order: dict = {}
        self.terminal = -1
        self.until = 0.0
        self.spare = True  # was there a core for it?
        if self.on:
            self._remove()  # of an agent before us, whose child died with it

    def look(self, used: dict) -> bool:
        """Each 2 seconds. `used`: the newest telemetry. True when there is something new to tell."""
        if not self.on:
            return False
        if self.pid:
            return self._has_ended()
        try:
            fd = self.att.open_folder(RESUME, AUDIT)
        except OSError:
            return False
        try:
            with os.scandir(fd) as entries:
                rooms = sorted(entry.name for entry in entries if entry.is_dir(follow_symlinks=False))
        finally:
            os.close(fd)
        for name in rooms:
            order = read_json(os.path.join(self.rooms, name, ORDER))
            if order is not None:
                self.room, self.order = os.path.join(self.rooms, name), order
                return self._begin(used)
        return False

    def stop(self) -> None:
        """No audit from here on; the one that is at work is killed. Does not wait."""
        self.on = False
        if self.pid:
            self._kill()

    def close(self) -> None:
        """What is left of it is gone."""
        if self.pid:
            deadline = time.monotonic() + 2.0
            while not self._reaped()[0] and time.monotonic() < deadline:
                time.sleep(0.01)
            self._sweep()

    # -- its life

    def _begin(self, used: dict) -> bool:
        pid = int(number(self.order.get("pid")))
        try:
            argv = read_bytes("/proc/%d/cmdline" % pid).split(b"\0")[:-1]
            env = dict(
                pair.split(b"=", 1)
                for pair in read_bytes("/proc/%d/environ" % pid).split(b"\0")
                if b"=" in pair[1:]
            )
            cpus = os.sched_getaffinity(pid)
        except OSError:
            argv, env, cpus = [], {}, set()
        if not argv or env.get(RUN_DIR_MARK.encode()) != encode(self.att.run_dir):  # it has gone since
            self._sweep()
            return False
        hooks = os.fsdecode(env.get(b"PYTHONPATH", b"").split(b":")[0])
        # now, in older hooks
        auditors = ("stoker_hooks/resume/audit/auditor.py", "stoker_hooks/ghost/auditor.py")
        there = [os.path.isfile(os.path.join(hooks, name)) for name in ("sitecustomize.py",) + auditors]
        if not there[0] or not any(there[1:]):
            # without them it would train for real
            return self._tell({"why": "Stoker's hooks are missing in the folder %s" % hooks})
        free, needed = memory_bytes()[1], number(used.get("rss_bytes")) * 1.2 + AUDIT_SPARE
        if free is not None and free < needed:
            return self._tell(
                {
                    "why": "an audit needs memory for a second training (%d MB are free, %d MB are needed)"
                    % (free >> 20, int(needed) >> 20)
                }
            )
        self.spare = min(len(cpus), cpu_quota() or 1e9) - number(used.get("cpu_percent")) / 100 >= 0.9
        for name in (RUN_MARK, RUN_DIR_MARK, "STOKER_RESUME_TRIES", "STOKER_DIGEST", "STOKER_DIGEST_AT"):
            env.pop(name.encode(), None)
        env.update(
            {
                b"STOKER_AUDIT": b"child",
                b"STOKER_RESUME_DIR": encode(self.room),
                b"CUDA_VISIBLE_DEVICES": b"",
                b"STOKER_HOOKS": encode(os.path.join(self.room, HOOKS)),
            }
        )
        try:
            self._fork(pid, argv, env, cpus)
        except (OSError, Problem) as e:
            return self._tell({"why": "the audit could not start: %s" % e})
        self.until = time.monotonic() + number(self.order.get("limit_s"), 600.0)
        return False

    def _fork(self, pid: int, argv: list[bytes], env: dict[bytes, bytes], cpus: set[int]) -> None:
        master, slave = open_pty(self.inherit) if self.tty else (-1, -1)
        parent = os.getpid()
        try:
            self.pid = os.fork()
            if self.pid == 0:
                become_audit(
                    pid,
                    argv,
                    env,
                    cpus=cpus,
                    parent=parent,
                    slave=slave,
                    room=self.room,
                    cwd=str(self.order.get("cwd") or "/"),
                    inherit=self.inherit,
                )
        finally:
            if slave >= 0:
                os.close(slave)
        if master >= 0:
            os.set_blocking(master, False)
        self.terminal = master

    def _has_ended(self) -> bool:
        self._read_terminal()
        ended, status = self._reaped()
        if ended:
            return self._tell(read_json(os.path.join(self.room, VERDICT)) or {"why": self._last_word(status)})
        if time.monotonic() < self.until:
            return False
        self._kill()
        self.close()
        return self._tell(
            {"why": "the audit did not finish within %s" % format_duration(number(self.order.get("limit_s")))}
        )

    def _reaped(self) -> tuple[bool, int]:
        try:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
        except ChildProcessError:
            return True, 0
        if pid:
            self._kill()  # its loader's workers
        return bool(pid), status

    def _last_word(self, status: int) -> str:
        lines = read_tail(os.path.join(self.room, ERR), 4096).decode("utf-8", "replace").split("\n")
        said = next((": " + line.strip()[:200] for line in reversed(lines) if line.strip()), "")
        if os.WIFSIGNALED(status):
            return "the process of the audit was killed by %s" % signal_name(os.WTERMSIG(status))
        return "the process of the audit exited early%s" % said

    def _kill(self) -> None:
        try:
            os.killpg(self.pid, signal.SIGKILL)
        except OSError:
            pass

    def _read_terminal(self) -> None:
        """Nothing of it is kept: what the script prints is held back in an audit."""
        try:
            while self.terminal >= 0 and os.read(self.terminal, 65536):
                pass
        except OSError:
            pass

    def _tell(self, told: dict) -> bool:
        """Into audits.json, whose one writer we are; True."""
        entry = {name: self.order.get(name) for name in ("attempt", "image", "step", "from_step")}
        entry.update(
            {"verdict": "not audited", "why": "", "at": time.time(), "spare_core": self.spare}, **told
        )
        try:
            resume = self.att.open_folder(RESUME)
        except OSError:
            log_exception()
        else:
            path = "/proc/self/fd/%d/%s" % (resume, AUDITS)
            try:
                write_json(
                    path,
                    {"audits": [*((read_json(path) or {}).get("audits") or [])[1 - AUDITS_KEPT :], entry]},
                )
            except OSError:
                log_exception()
            os.close(resume)
        self._sweep()
        return True

    def _sweep(self) -> None:
        if self.terminal >= 0:
            os.close(self.terminal)
        if self.room:
            self._remove(os.path.basename(self.room))
        self.pid, self.room, self.order, self.terminal = 0, "", {}, -1

    def _remove(self, *names: str) -> None:
        try:
            remove(*self.att.below(RESUME, AUDIT, *names))
        except OSError:
            log_exception()


def become_audit(
    run: int,
    argv: list[bytes],
    env: dict[bytes, bytes],
    *,
    cpus: set[int],
    parent: int,
    slave: int,
    room: str,
    cwd: str,
    inherit: dict,
) -> None:
    """In the forked child: the program that trains once more, as an audit;
    of all processes the first to be without a core or memory.
    Never returns."""
    try:
        os.setsid()
        import ctypes
        ctypes.CDLL(None).prctl(1, signal.SIGKILL, 0, 0, 0)  # die with the agent
        if os.getppid() != parent:
            os._exit(1)
        default_signals()
        if inherit.get("host") == os.uname().nodename:
            take_over(inherit)
        os.sched_setaffinity(0, cpus)
        os.nice(19)
        os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))
        with open("/proc/self/oom_score_adj", "w") as f:
            f.write("1000")
        os.chdir(encode(cwd))
        null = os.open(os.devnull, os.O_RDWR)
        err = slave if slave >= 0 else os.open(os.path.join(room, ERR), WRITE | os.O_TRUNC, 0o600)
        for target, fd in enumerate((slave, slave, slave) if slave >= 0 else (null, null, err)):
            os.dup2(fd, target)
        close_inherited(set())
        os.execve("/proc/%d/exe" % run, argv, env)
    except BaseException:
        log_exception()
    finally:
        os._exit(127)
