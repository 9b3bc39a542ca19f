"""What the tests of the server share: waiting for a condition, finding its processes, ending them."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Callable
from pathlib import Path

from stoker.base.config import Home
from stoker.client import Client


def until(condition: Callable[[], object], what: str, timeout_s: float = 15.0):
    """Wait for a condition; its value."""
    deadline = time.monotonic() + timeout_s
    while not (found := condition()):
        assert time.monotonic() < deadline, f"waited {timeout_s} s in vain: {what}"
        time.sleep(0.02)
    return found


def servers_of(home: Home) -> list[int]:
    """The processes that are servers of this folder."""
    found = []
    for entry in Path("/proc").iterdir():
        with contextlib.suppress(OSError):
            if entry.name.isdigit() and b"stoker.server" in (entry / "cmdline").read_bytes():
                environ = (entry / "environ").read_bytes().split(b"\0")
                if b"STOKER_HOME=" + os.fsencode(home.path) in environ:
                    found.append(int(entry.name))
    return found


def kill(pid: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)
    until(lambda: not Path(f"/proc/{pid}").exists(), f"process {pid} is gone")


def submit(client: Client, folder: Path, *command: str, env: dict | None = None, **spec: object) -> dict:
    """Submit a command with this environment and PATH."""
    body = {"command": list(command), "folder": str(folder), **spec}
    return client.submit(body, {}, {"PATH": os.environ["PATH"], **(env or {})})


def children_of(pid: int) -> str:
    """The command lines of the child processes, one a line."""
    found = []
    for entry in Path("/proc").iterdir():
        with contextlib.suppress(OSError, IndexError):
            if entry.name.isdigit() and (entry / "stat").read_text().rsplit(")", 1)[1].split()[1] == str(pid):
                found.append((entry / "cmdline").read_bytes().replace(b"\0", b" ").decode("utf-8", "replace"))
    return "\n".join(found)


def rss_bytes(pid: int) -> int:
    """What the process holds in memory now."""
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def peak_bytes(pid: int) -> int:
    """The most that the process ever held in memory."""
    line = next(line for line in Path(f"/proc/{pid}/status").read_text().splitlines() if line.startswith("VmHWM"))
    return int(line.split()[1]) * 1024
