"""Tools for tests of the agent: a root folder with runs, the agent's verbs as processes, and waiting with a deadline."""

from __future__ import annotations

import glob
import json
import os
import shutil
import signal
import socket
import struct
import subprocess
import sys
import time
from pathlib import Path

AGENT = Path(__file__).resolve().parents[2] / "src" / "stoker" / "agent"
DEADLINE_S = 40.0
SUPPORTED = ("3.8", "3.9", "3.10", "3.11", "3.12", "3.13")


def pythons() -> list[str]:
    """One interpreter of each supported version that this machine has; the one that runs the tests first."""
    found = {f"{sys.version_info[0]}.{sys.version_info[1]}": sys.executable}
    for path in sorted(glob.glob(os.path.expanduser("~/.pyenv/versions/*/bin/python"))):
        version = ".".join(Path(path).parts[-3].split(".")[:2])
        if version in SUPPORTED:
            found.setdefault(version, path)
    for version in SUPPORTED:
        if version not in found and os.path.exists(f"/usr/bin/python{version}"):
            found[version] = f"/usr/bin/python{version}"
    return list(found.values())


def changed_agent(parent: Path, *changes: tuple[str, str]) -> Path:
    """A copy of the agent in which these lines, each of which it has once, are others."""
    copy = shutil.copytree(AGENT, parent / "agent", ignore=shutil.ignore_patterns("__pycache__"))
    for old, new in changes:
        holders = [path for path in copy.glob("*.py") if old in path.read_text("utf-8")]
        assert len(holders) == 1 and holders[0].read_text("utf-8").count(old) == 1, old
        holders[0].write_text(holders[0].read_text("utf-8").replace(old, new), "utf-8")
    return copy


class Running:
    """One run in a root. Every process that belongs to it is killed by `clean`."""

    def __init__(self, root: Path, run_id: str, python: str, env: dict[str, str]) -> None:
        self.root, self.id, self.python, self.env = root, run_id, python, env
        self.dir = root / "runs" / run_id

    def attempt(self, n: int = 1) -> Path:
        return self.dir / "attempts" / str(n)

    def call(self, *args: object, env: dict[str, str] | None = None, check: bool = True, timeout: float = DEADLINE_S) -> list[dict]:
        """A verb; its JSON lines."""
        done = subprocess.run(self.argv(*args), env={**self.env, **(env or {})}, stdin=subprocess.DEVNULL, capture_output=True, timeout=timeout, check=False)
        if check:
            assert done.returncode == 0, (args, done.stdout, done.stderr)
        return [json.loads(line) for line in done.stdout.splitlines()]

    def argv(self, *args: object) -> list[str]:
        return [self.python, "-I", "-S", str(AGENT / "__main__.py"), *(str(a) for a in args)]

    def start(self, n: int = 1, **env: str) -> dict:
        return self.call("start", self.dir, n, env=env)[0]

    def stop(self, *options: object, **env: str) -> dict:
        return self.call("stop", self.dir, *options, env=env)[0]

    def poll(self, **env: str) -> dict:
        return self.call("poll", self.root, self.id, env=env)[0]

    def phase(self, **env: str) -> str:
        return self.poll(**env)["phase"]

    def wait_phase(self, *phases: str, timeout: float = DEADLINE_S) -> dict:
        seen: dict = {}

        def there() -> bool:
            seen.update(self.poll())
            return seen["phase"] in phases
        wait_for(there, f"phase {phases}, last {seen.get('phase')}", timeout, pause=0.1)
        return seen

    def end(self, n: int = 1, timeout: float = DEADLINE_S) -> dict:
        """exit.json of the attempt, once it is there."""
        path = self.attempt(n) / "exit.json"
        wait_for(path.exists, f"{path}: {self.whole_story(n)}", timeout)
        return json.loads(path.read_text())

    def whole_story(self, n: int = 1) -> str:
        parts = []
        for name in ("caretaker.log", "events.jsonl"):
            path = self.attempt(n) / name
            parts.append(f"{name}: {path.read_text() if path.exists() else 'none'}")
        return "\n".join(parts)

    def record(self, n: int = 1) -> dict:
        return json.loads((self.attempt(n) / "agent.json").read_text())

    def out(self, n: int = 1) -> bytes:
        return (self.attempt(n) / "out.log").read_bytes()

    def err(self, n: int = 1) -> bytes:
        return (self.attempt(n) / "err.log").read_bytes()

    def events(self, n: int = 1) -> list[dict]:
        path = self.attempt(n) / "events.jsonl"
        return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []

    def wait_out(self, text: bytes, n: int = 1, timeout: float = DEADLINE_S) -> None:
        path = self.attempt(n) / "out.log"
        wait_for(lambda: path.exists() and text in path.read_bytes(), f"{text!r} in {path}", timeout)

    def holder(self, n: int = 1) -> int:
        return self.record(n)["holder"]["pid"]

    def agent(self, n: int = 1) -> int:
        return self.record(n)["agent"]["pid"]

    def kill_caretakers(self, n: int = 1) -> None:
        """SIGKILL for both, in one moment as it were: an agent that saw the holder die would begin to end the tree."""
        agent, holder = self.agent(n), self.holder(n)
        kill(agent, signal.SIGSTOP)
        kill(holder)
        kill(agent)

    def run_pid(self, n: int = 1) -> int:
        wait_for(lambda: self.record(n)["run"], "the run's pid")
        return self.record(n)["run"]["pid"]

    def attach(self, n: int = 1, *options: object) -> Attached:
        return Attached(self, n, *options)

    def processes(self) -> list[int]:
        """Everything that carries the run's mark, and its caretakers."""
        mark = b"\0STOKER_RUN_DIR=" + os.fsencode(self.dir) + b"\0"
        found = []
        for name in os.listdir("/proc"):
            if not name.isdigit() or int(name) == os.getpid():
                continue
            try:
                env = b"\0" + Path(f"/proc/{name}/environ").read_bytes()
                line = Path(f"/proc/{name}/cmdline").read_bytes()
                state = Path(f"/proc/{name}/stat").read_text().rpartition(")")[2].split()[0]
            except OSError:
                continue
            if state != "Z" and (mark in env or (b"_hold" in line and os.fsencode(self.dir) in line)):
                found.append(int(name))
        return found

    def clean(self) -> None:
        deadline = time.monotonic() + 20
        while time.monotonic() < deadline:
            left = self.processes()
            if not left:
                return
            for pid in left:
                kill(pid)
            time.sleep(0.02)


class Attached:
    """An `attach` process and its frames."""

    def __init__(self, run: Running, n: int, *options: object) -> None:
        self.process = subprocess.Popen(run.argv("attach", run.dir, n, *options), env=run.env, stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    def send(self, kind: bytes, payload: bytes = b"") -> None:
        self.process.stdin.write(struct.pack(">cI", kind, len(payload)) + payload)
        self.process.stdin.flush()

    def frame(self) -> tuple[bytes, bytes] | None:
        """The next frame; None at the end of the stream."""
        head = self.process.stdout.read(5)
        if len(head) < 5:
            return None
        kind, size = struct.unpack(">cI", head)
        return kind, self.process.stdout.read(size)

    def until(self, text: bytes) -> bytes:
        """Output up to and with this text."""
        seen = b""
        while text not in seen:
            got = self.frame()
            assert got is not None, seen
            if got[0] in b"or":
                seen += got[1]
        return seen

    def rest(self) -> dict[bytes, bytes]:
        """All frames to the end, joined by kind."""
        joined: dict[bytes, bytes] = {}
        while (got := self.frame()) is not None:
            joined[got[0]] = joined.get(got[0], b"") + got[1]
        return joined

    def leave(self) -> None:
        self.process.kill()
        self.process.wait()
        self.process.stdin.close()
        self.process.stdout.close()


def wait_for(condition, what: str, timeout: float = DEADLINE_S, pause: float = 0.03) -> None:
    deadline = time.monotonic() + timeout
    while not condition():
        assert time.monotonic() < deadline, f"not within {timeout:g} s: {what}"
        time.sleep(pause)


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


def kill(pid: int, sig: int = signal.SIGKILL) -> None:
    try:
        os.kill(pid, sig)
    except ProcessLookupError:
        pass


def children_of(pid: int) -> set[int]:
    found = set()
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                if int(Path(f"/proc/{name}/stat").read_text().rpartition(")")[2].split()[1]) == pid:
                    found.add(int(name))
            except OSError:
                pass
    return found


def door(run: Running, n: int = 1) -> socket.socket:
    """A raw connection to the holder's door."""
    s = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    fd = os.open(run.attempt(n), os.O_RDONLY)
    try:
        s.connect(f"/proc/self/fd/{fd}/sock")
    finally:
        os.close(fd)
    return s
