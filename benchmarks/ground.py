"""A throwaway state folder with its own server, and the command line on it. For tests/e2e and the benchmarks.

Everything goes through the `stoker` program, the run folder and /proc: nothing here imports a room of Stoker.
"""

from __future__ import annotations

import errno
import fcntl
import json
import os
import pty
import select
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import termios
import time
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

REPO = Path(__file__).resolve().parents[1]
BIN = Path(sys.executable).parent  # the environment that Stoker is installed in
STOKER = str(BIN / "stoker")
FINAL = ("done", "failed", "stopped")
T = TypeVar("T")

# Prints numbered lines: argv = count, seconds between lines, a file that gets a line at each start. Says
# nothing when it is interrupted.
NUMBERED = """
import os, signal, sys, time
signal.signal(signal.SIGINT, signal.SIG_DFL)
count, pause = int(sys.argv[1]), float(sys.argv[2])
with open(sys.argv[3], "ab", 0) as f: f.write(b"%d\\n" % os.getpid())
for i in range(count):
    os.write(1, b"line %d\\n" % i)
    time.sleep(pause)
"""


def numbered(count: int) -> bytes:
    """What NUMBERED prints when nobody ends it."""
    return b"".join(b"line %d\n" % i for i in range(count))


def until(condition: Callable[[], T], timeout_s: float = 20, what: str = "") -> T:
    """The first true value of `condition`. AssertionError when there is none in time."""
    deadline = time.monotonic() + timeout_s
    pause = 0.01
    while True:
        value = condition()
        if value:
            return value
        if time.monotonic() > deadline:
            raise AssertionError(f"waited {timeout_s} s in vain for {what or condition}; last: {value!r}")
        time.sleep(pause)
        pause = min(0.1, pause * 1.3)


@dataclass
class Done:
    """A command that has ended: exit code and what it printed."""

    args: list[str]
    code: int
    stdout: bytes
    stderr: bytes

    @property
    def out(self) -> str:
        return self.stdout.decode("utf-8", "replace")

    @property
    def err(self) -> str:
        return self.stderr.decode("utf-8", "replace")

    def ok(self) -> Done:
        """Self, if the exit code is 0."""
        assert self.code == 0, (
            f"{self.args} ended with {self.code}\n--- stdout\n{self.out}\n--- stderr\n{self.err}"
        )
        return self

    def json(self) -> dict | list:
        return json.loads(self.ok().stdout)


class Ground:
    """A state folder, a working folder and an environment of their own.
    `close` ends all and tells what was left."""

    def __init__(self, home: Path | None = None) -> None:
        self.root = Path(tempfile.mkdtemp(prefix="sk-", dir="/tmp"))
        self.home = home or self.root / "h"
        self.work = self.root / "w"
        self.user = self.root / "u"  # HOME
        self.work.mkdir()
        self.user.mkdir()
        self.token = uuid.uuid4().hex
        kept = {
            k: v
            for k, v in os.environ.items()
            if not k.startswith(("STOKER", "PYTHON", "VIRTUAL_ENV", "PYENV", "CONDA"))
        }
        self.env = {
            **kept,
            "PATH": f"{BIN}:/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin",
            "HOME": str(self.user),
            "STOKER_HOME": str(self.home),
            "GROUND_TOKEN": self.token,
            "LC_ALL": "C.UTF-8",
            "TERM": "xterm",
        }
        self._children: list[subprocess.Popen] = []

    # ---- the command line

    def stoker(self, *args: str, cwd: Path | None = None, stdin: bytes = b"", timeout_s: float = 60,
               env: dict[str, str] | None = None) -> Done:
        """Run `stoker ARGS` with pipes for all three streams."""
        proc = subprocess.run(
            [STOKER, *args],
            cwd=cwd or self.work,
            input=stdin,
            capture_output=True,
            timeout=timeout_s,
            env={**self.env, **(env or {})},
            check=False,
        )
        return Done(list(args), proc.returncode, proc.stdout, proc.stderr)

    def start_stoker(
        self, *args: str, cwd: Path | None = None, env: dict[str, str] | None = None, **kwargs: object
    ) -> subprocess.Popen:
        """`stoker ARGS` in the background; ended by `close`."""
        proc = subprocess.Popen(
            [STOKER, *args], cwd=cwd or self.work, env={**self.env, **(env or {})}, **kwargs
        )
        self._children.append(proc)
        return proc

    def keep(self, proc: subprocess.Popen) -> None:
        """`close` ends this process too."""
        self._children.append(proc)

    def terminal(
        self,
        *args: str,
        cwd: Path | None = None,
        env: dict[str, str] | None = None,
        argv: list[str] | None = None,
    ) -> Terminal:
        """`stoker ARGS` on a terminal of its own."""
        term = Terminal(argv or [STOKER, *args], cwd or self.work, {**self.env, **(env or {})})
        self._children.append(term.proc)
        return term

    def detach(
        self, *args: str, cwd: Path | None = None, env: dict[str, str] | None = None, timeout_s: float = 60
    ) -> dict:
        """`stoker run -d --json ARGS`: the run object."""
        return self.stoker("run", "-d", "--json", *args, cwd=cwd, env=env, timeout_s=timeout_s).json()

    def show(self, ref: str) -> dict:
        return self.stoker("show", ref, "--json").json()

    def runs(self) -> list[dict]:
        return self.stoker("ps", "-a", "--json").json()

    def wait_state(self, ref: str, *states: str, timeout_s: float = 40) -> dict:
        """The run object, once it is in one of the states (default: any final one)."""
        states = states or FINAL
        seen: dict = {}

        def look() -> dict | None:
            seen.update(self.show(ref))
            return seen if seen["state"] in states else None
        try:
            return dict(until(look, timeout_s, f"{ref} in {states}"))
        except AssertionError as e:
            raise AssertionError(f"{e}\n{json.dumps(seen, indent=1)}\n{self.server_log()}") from None

    def script(self, name: str, text: str, mode: int = 0o644, folder: Path | None = None) -> Path:
        """A file in the working folder."""
        path = (folder or self.work) / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        path.chmod(mode)
        return path

    # ---- the run folder

    def folder(self, ref: str) -> Path:
        return self.home / "runs" / ref

    def attempt_file(self, run_id: str, attempt: int, name: str) -> Path:
        return self.folder(run_id) / "attempts" / str(attempt) / name

    def json_file(self, run_id: str, attempt: int, name: str) -> dict | None:
        try:
            return json.loads(self.attempt_file(run_id, attempt, name).read_bytes())
        except (FileNotFoundError, ValueError):
            return None

    def log(self, run_id: str, attempt: int = 1, name: str = "out.log") -> bytes:
        try:
            return self.attempt_file(run_id, attempt, name).read_bytes()
        except FileNotFoundError:
            return b""

    def until_log(self, run_id: str, text: bytes, attempt: int = 1, timeout_s: float = 20) -> bytes:
        """The log, once it holds `text`."""
        def look() -> bytes | None:
            log = self.log(run_id, attempt)
            return log if text in log else None
        return until(look, timeout_s, f"{text!r} in the log of {run_id}")

    def caretakers(self, run_id: str, attempt: int = 1) -> tuple[int, int]:
        """Process ids of the holder and of the agent proper."""
        def look() -> tuple[int, int] | None:
            body = self.json_file(run_id, attempt, "agent.json") or {}
            pids = ((body.get("holder") or {}).get("pid"), (body.get("agent") or {}).get("pid"))
            return pids if all(pids) and all(alive(p) for p in pids) else None
        return until(look, 15, f"living caretakers of {run_id}")

    def run_pid(self, run_id: str, attempt: int = 1) -> int:
        def look() -> int | None:
            body = self.json_file(run_id, attempt, "agent.json") or {}
            return (body.get("run") or {}).get("pid")
        return until(look, 15, f"the process of {run_id}")

    # ---- the server

    def server_pids(self) -> list[int]:
        return [p for p in self.processes() if "stoker.server" in cmdline(p) and not zombie(p)]

    def server_pid(self) -> int:
        """The one server of this ground; there must be one within a few seconds."""
        return until(
            lambda: (pids := self.server_pids()) and len(pids) == 1 and pids[0], 15, "exactly one server"
        )

    def kill_server(self) -> None:
        """SIGKILL, and wait until it is gone."""
        for pid in self.server_pids():
            kill(pid)
            until(lambda p=pid: not alive(p), 10, "the death of the server")

    def server_log(self) -> str:
        try:
            return "--- server log\n" + (self.home / "server" / "log").read_text(errors="replace")[-4000:]
        except OSError:
            return "--- no server log"

    # ---- processes

    def processes(self) -> list[int]:
        """All processes of this ground: by the token in their environment, or the state folder in their
        command line."""
        marks = (f"GROUND_TOKEN={self.token}".encode(), os.fsencode(self.root) + b"/")
        found = []
        for entry in os.scandir("/proc"):
            if not entry.name.isdigit() or int(entry.name) == os.getpid():
                continue
            try:
                text = Path(entry.path, "cmdline").read_bytes() + Path(entry.path, "environ").read_bytes()
            except OSError:
                continue
            if any(m in text for m in marks):
                found.append(int(entry.name))
        return found

    def end_runs(self) -> None:
        """Stop what still runs, without patience."""
        listed = self.stoker("ps", "-a", "--json", timeout_s=30)
        if listed.code != 0:
            return
        live = [r["id"] for r in json.loads(listed.stdout) if r["state"] not in FINAL]
        with ThreadPoolExecutor(4) as pool:
            list(pool.map(lambda run_id: self.stoker("stop", "--force", run_id, timeout_s=60), live))

    def close(self) -> list[str]:
        """End all, remove the folders.
        The command lines of processes that had to be killed because they were left."""
        for proc in self._children:
            if proc.poll() is None:
                proc.kill()
            proc.wait()
            for stream in (proc.stdin, proc.stdout, proc.stderr):
                if stream:
                    stream.close()
        try:
            if self.server_pids() or any((self.home / "runs").glob("*")):
                self.end_runs()
                self.stoker("server", "stop", timeout_s=30)
        except (OSError, subprocess.TimeoutExpired):
            pass
        deadline = time.monotonic() + 20
        while (left := self.processes()) and time.monotonic() < deadline:
            time.sleep(0.05)
        names = [f"{p}: {cmdline(p)}" for p in left]
        for pid in left:
            kill(pid)
        shutil.rmtree(self.root, ignore_errors=True)
        return names


def throwaway() -> Iterator[Ground]:
    """One ground, for a fixture. Closed at the end; AssertionError if processes were left behind."""
    ground = Ground()
    try:
        yield ground
    finally:
        left = ground.close()
    assert not left, "processes were left behind: " + "; ".join(left)


class Terminal:
    """A program on a pseudo-terminal that we hold the other end of."""

    def __init__(
        self, argv: list[str], cwd: Path, env: dict[str, str], rows: int = 24, columns: int = 80
    ) -> None:
        self.fd, slave = pty.openpty()
        self.resize(rows, columns)
        self.initial = termios.tcgetattr(slave)
        self._slave = slave  # kept open: the settings can be read after the program is gone
        self.proc = subprocess.Popen(
            argv,
            cwd=cwd,
            env=env,
            stdin=slave,
            stdout=slave,
            stderr=slave,
            start_new_session=True,
            preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),  # noqa: PLW1509
        )
        self.seen = bytearray()

    def resize(self, rows: int, columns: int) -> None:
        fcntl.ioctl(self.fd, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def send(self, data: bytes) -> None:
        os.write(self.fd, data)

    def pump(self, timeout_s: float = 0.05) -> None:
        """Take in what is there and what comes, until nothing came for `timeout_s`,
        for at most half a second."""
        deadline = time.monotonic() + 0.5
        while select.select([self.fd], [], [], timeout_s)[0]:
            try:
                data = os.read(self.fd, 1 << 20)
            except OSError as e:
                if e.errno == errno.EIO:
                    return
                raise
            if not data:
                return
            self.seen += data
            if time.monotonic() > deadline:
                return

    def expect(self, text: bytes, timeout_s: float = 20) -> bytearray:
        """All that was seen, once `text` is in it."""
        def look() -> bool:
            self.pump()
            return text in self.seen
        until(look, timeout_s, f"{text!r} on the terminal, seen {self.seen[-600:]!r}")
        return self.seen

    def wait(self, timeout_s: float = 20) -> int:
        """The exit code; what is printed meanwhile is taken in."""
        def look() -> bool:
            self.pump()
            return self.proc.poll() is not None
        until(look, timeout_s, f"the end of the program, seen {self.seen[-600:]!r}")
        self.pump()
        return self.proc.returncode

    def settings(self) -> list:
        return termios.tcgetattr(self._slave)

    def close(self) -> None:
        """Hang up."""
        for fd in (self._slave, self.fd):
            try:
                os.close(fd)
            except OSError:
                pass


# ---- processes, by /proc

def stat_fields(pid: int) -> list[str]:
    """The fields of /proc/PID/stat after the name: [0] is the state. Empty when the process is gone."""
    try:
        return Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()
    except OSError:
        return []


def alive(pid: int) -> bool:
    """True while the process is there and is not a zombie."""
    fields = stat_fields(pid)
    return bool(fields) and fields[0] not in ("Z", "X")


def zombie(pid: int) -> bool:
    return stat_fields(pid)[:1] == ["Z"]


def kill(pid: int, sig: int = signal.SIGKILL) -> None:
    try:
        os.kill(pid, sig)
    except ProcessLookupError:
        pass


def cmdline(pid: int) -> str:
    try:
        return (
            Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode("utf-8", "replace").strip()
        )
    except OSError:
        return ""


def cpu_seconds(pid: int) -> float:
    """User and system time of a process, without its children."""
    fields = stat_fields(pid)
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK") if fields else 0.0


def memory_bytes(pid: int, field: str = "VmRSS") -> int:
    """A memory field of /proc/PID/status in bytes; 0 when the process is gone."""
    try:
        for line in Path(f"/proc/{pid}/status").read_text().splitlines():
            if line.startswith(field + ":"):
                return int(line.split()[1]) * 1024
    except OSError:
        pass
    return 0


def children(pid: int) -> Iterator[int]:
    """All descendants of a process that are there now."""
    try:
        direct = [
            int(c)
            for task in Path(f"/proc/{pid}/task").iterdir()
            for c in (task / "children").read_text().split()
        ]
    except OSError:
        return
    for child in direct:
        yield child
        yield from children(child)
