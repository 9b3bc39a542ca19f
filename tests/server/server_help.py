"""What the tests of the server share: waiting for a condition, finding its processes, ending them."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Callable
from pathlib import Path

from stoker.base.config import Home


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
