"""Asks git about a folder, without changing anything in it and never for longer than it is given."""

from __future__ import annotations

import os
import selectors
import signal
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path
from typing import IO

# The user is about to run this code, so a repository of another owner is no surprise;
# a file watcher would outlive us.
_SAFE = ("-c", "safe.directory=*", "-c", "core.fsmonitor=false", "-c", "core.quotepath=off")


@dataclass
class Asked:
    """A running git command; several may run at once. `answer` returns its output."""

    child: subprocess.Popen[bytes]
    out: bytes = b""
    cut: str = ""  # why the answer is not whole: "time" or "size"

    def answer(self, deadline: float, cap: int | None = None) -> bytes:
        """Standard output, until `deadline` (time.monotonic) and at most `cap` bytes; then git is killed
        and `cut` has the reason."""
        pipe = self._pipe()
        with selectors.DefaultSelector() as ready:
            ready.register(pipe, selectors.EVENT_READ)
            parts, size = [], 0
            while True:
                if not ready.select(max(0.0, deadline - time.monotonic())):
                    self.cut = "time"
                    break
                part = os.read(pipe.fileno(), 1 << 18)
                if not part:
                    break
                parts.append(part)
                size += len(part)
                if cap is not None and size > cap:
                    self.cut = "size"
                    break
        self.out = b"".join(parts)[:cap]
        self._end()
        return self.out

    @property
    def ok(self) -> bool:
        """True if git succeeded and the output is complete."""
        return not self.cut and self.child.returncode == 0

    def _pipe(self) -> IO[bytes]:
        assert self.child.stdout is not None  # `ask` wants it
        return self.child.stdout

    def _end(self) -> None:
        self._pipe().close()
        if self.cut:
            try:
                os.killpg(self.child.pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
        self.child.wait()


def ask(folder: Path, *args: str, stderr: int = subprocess.DEVNULL) -> Asked | None:
    """Start `git -C folder args`; None if git is not installed."""
    env = {k: v for k, v in os.environ.items() if not k.startswith("GIT_")}
    env |= {"GIT_OPTIONAL_LOCKS": "0", "GIT_TERMINAL_PROMPT": "0", "LC_ALL": "C"}
    try:
        return Asked(
            subprocess.Popen(
                ["git", *_SAFE, "-C", os.fspath(folder), *args],
                env=env,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=stderr,
                start_new_session=True,
            )
        )
    except (FileNotFoundError, PermissionError):
        return None


def paths(raw: bytes) -> list[str]:
    """The names in a NUL-separated output."""
    return [os.fsdecode(p) for p in raw.split(b"\0") if p]


def in_repository(folder: Path) -> bool:
    """True if `folder` or a parent folder has a .git. Only looks at the disk."""
    at = Path(os.path.abspath(folder))
    return any(os.path.lexists(above / ".git") for above in (at, *at.parents))
