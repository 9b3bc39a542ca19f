"""Finds what a run of the suite left behind: processes, threads, files, environment variables. Looks, and touches nothing."""

from __future__ import annotations

import os
import subprocess
import tempfile
import threading
import time
import uuid
from pathlib import Path

REPO = Path(__file__).resolve().parents[2]
MARK = "HOUSE_TEST_MARK"  # inherited by everything a test starts, our daemons included; not STOKER_*: those do not reach runs
QUIET_S = 5.0  # what is on its way out gets this long
WRITTEN_BY_PEOPLE = (".py", ".md", ".toml", ".txt")  # somebody may be editing while the suite runs


class Leaks:
    """A picture of the world at birth; `look` compares and fills `found` with one line a leak."""

    def __init__(self) -> None:
        self.mark = uuid.uuid4().hex
        os.environ[MARK] = self.mark
        os.environ["PATH"] = f"{os.environ.get('PATH', os.defpath)}:/nonexistent/{self.mark}"  # the agent keeps little else of its environment
        self.pid = os.getpid()
        self.environ = dict(os.environ)
        self.files = _files()
        self.found: list[str] = []

    def look(self) -> None:
        """Compare with the picture; waits a moment for what is on its way out."""
        if os.getpid() != self.pid:
            return
        deadline = time.monotonic() + QUIET_S
        while (found := self._living()) and time.monotonic() < deadline:
            time.sleep(0.1)
        found += [f"file {name}" for name in sorted(_files() - self.files)]
        found += self._changed_environment()
        self.found = found

    def _living(self) -> list[str]:
        processes = [f"process {pid}: {words}" for pid, words in marked_processes(self.mark) if pid != self.pid]
        threads = [t for t in threading.enumerate() if t is not threading.main_thread() and not t.daemon and t.is_alive()]
        return processes + [f"thread {t.name}" for t in threads]

    def _changed_environment(self) -> list[str]:
        now = {k: v for k, v in os.environ.items() if k != "PYTEST_CURRENT_TEST"}
        before = {k: v for k, v in self.environ.items() if k != "PYTEST_CURRENT_TEST"}
        return [f"environment variable {k}" for k in sorted(now.keys() | before.keys()) if now.get(k) != before.get(k)]


def marked_processes(mark: str) -> list[tuple[int, str]]:
    """(pid, command line) of every living process that inherited the mark."""
    wanted = mark.encode()
    seen = []
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            if wanted not in (entry / "environ").read_bytes():
                continue
            words = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode("utf-8", "replace").strip()
        except OSError:  # it ended, or is not ours
            continue
        if words:  # empty: a zombie, which its parent will collect
            seen.append((int(entry.name), words[:200]))
    return seen


def _files() -> set[str]:
    """Untracked files of the checkout that no editor wrote, the user's own state folder, and our private folder for sockets.

    Only in the gate: elsewhere another suite, or the user's own Stoker, may be at work at the same time.
    """
    names: set[str] = set()
    if not os.environ.get("STOKER_REQUIRE_REAL"):
        return names
    if (REPO / ".git").exists():
        done = subprocess.run(["git", "-C", str(REPO), "ls-files", "-o", "--exclude-standard", "-z"], capture_output=True, check=False)
        names |= {n for n in done.stdout.decode("utf-8", "surrogateescape").split("\0") if n and not n.endswith(WRITTEN_BY_PEOPLE)}
    for folder in (Path.home() / ".stoker" / "runs", Path(tempfile.gettempdir()) / f"stoker-{os.getuid()}"):
        if folder.is_dir():
            names |= {str(p) for p in folder.iterdir()}
    return names
