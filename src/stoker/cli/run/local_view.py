"""What a client on the same machine can see of a run by itself:
how the run's terminal takes keys, and what it left behind.

Read from the run folder and /proc when it is asked for; where something cannot be known, the answer is None.
"""

from __future__ import annotations

import os
import stat
import termios
from pathlib import Path

from stoker.base import rundir
from stoker.base.config import DAEMON_MARK
from stoker.base.rundir import RunDir

PPID, TTY, START = 1, 4, 19  # fields of /proc/PID/stat after the name; 0 is the state
SIGNAL_KEYS = (termios.VINTR, termios.VQUIT, termios.VSUSP)
# as in agent/words.py
MULTIPLEXERS = ("tmux", "screen", "SCREEN", "zellij", "dtach", "abduco", "byobu", "shpool")
SYSTEM_FOLDERS = ("/bin/", "/usr/", "/opt/", "/snap/", "/nix/store/", "/gnu/store/", "/home/linuxbrew/")
EVENTS_TAIL = 4096


class Beside:
    """An attempt of a run on this machine."""

    def __init__(self, folder: str, attempt: int) -> None:
        self._run, self._attempt = RunDir(Path(folder)), attempt
        self._folder = self._run.attempt(attempt)

    @classmethod
    def of(cls, run: dict, attempt: int) -> Beside | None:
        """The attempt of a run on this machine; None for a run on another machine."""
        return cls(run["folder"], attempt) if run.get("target") == "local" and run.get("folder") else None

    def makes_signal(self, key: int) -> bool | None:
        """True if the run's terminal turns this key into a signal, as by default; False if the program
        handles the key itself."""
        try:
            fd = self._terminal()
        except OSError:
            return None
        if fd is None:
            return None
        try:
            settings = termios.tcgetattr(fd)
        except termios.error:
            return None
        finally:
            os.close(fd)
        return bool(settings[3] & termios.ISIG) and bytes([key]) in [settings[6][i] for i in SIGNAL_KEYS]

    def waits_for_input(self) -> bool:
        """True if the run sleeps in a read of its stdin, as the agent saw it last."""
        return bool((rundir.read_json(self._folder / rundir.HEARTBEAT) or {}).get("waits_for_input"))

    def resuming(self) -> str | None:
        """Progress of the attempt towards an image; None if it does not resume."""
        from stoker.base import reading
        from stoker.base.state import resuming

        state = reading.read_json(self._run.path / rundir.RESUME / "state.json") or {}
        return resuming(state.get("back"), self._attempt)

    def left_behind(self) -> list[str] | None:
        """Names of the processes that are being ended after the first process has ended; None at other
        times."""
        if (
            not (self._folder / rundir.STATUS).exists()
            or (self._folder / rundir.EXIT).exists()
            or not self._ladder()
        ):
            return None
        holder, agent = self._pid("holder"), self._pid("agent")
        if not holder:
            return None
        below: dict[int, list[int]] = {}
        for entry in os.scandir("/proc"):
            if entry.name.isdigit() and (fields := _stat(int(entry.name))) and fields[0] not in "ZX":
                below.setdefault(int(fields[PPID]), []).append(int(entry.name))
        found, todo = [], [pid for pid in below.get(holder, ()) if pid != agent]
        while todo:
            pid = todo.pop(0)
            name = _name(pid)
            if name and not _outlives(pid):
                found.append(name)
                todo += below.get(pid, ())
        return found

    def _ladder(self) -> bool:
        """Has the agent begun to end what was left?"""
        try:
            with open(self._folder / rundir.EVENTS, "rb") as f:
                f.seek(max(0, os.fstat(f.fileno()).st_size - EVENTS_TAIL))
                return b'"ladder"' in f.read()
        except OSError:
            return False

    def _terminal(self) -> int | None:
        """The run's terminal, opened without becoming ours. Raises OSError."""
        pid = self._pid("run")
        fields = _stat(pid) if pid else []
        device = int(fields[TTY]) if fields else 0
        for number in range(3):
            path = f"/proc/{pid}/fd/{number}"
            seen = os.stat(path) if device else None
            if seen and stat.S_ISCHR(seen.st_mode) and seen.st_rdev == device:
                return os.open(path, os.O_RDONLY | os.O_NOCTTY | os.O_NONBLOCK | os.O_CLOEXEC)
        return None

    def _pid(self, who: str) -> int:
        """The process id of "run", "holder" or "agent"; 0 when that process is gone."""
        known = (rundir.read_json(self._folder / rundir.AGENT) or {}).get(who) or {}
        fields = _stat(known.get("pid") or 0)
        return known["pid"] if fields and fields[START] == str(known.get("start")) else 0


def _stat(pid: int) -> list[str]:
    """The fields of /proc/PID/stat after the name; empty when it is gone."""
    try:
        return Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()
    except OSError:
        return []


def _name(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/comm").read_text(errors="replace").strip()
    except OSError:
        return ""


def _outlives(pid: int) -> bool:
    """As the agent decides: a terminal multiplexer by its executable, or a daemon of Stoker by the record
    that it names."""
    try:
        program = os.readlink(f"/proc/{pid}/exe").removesuffix(" (deleted)")
        if Path(program).name.split("-")[0] in MULTIPLEXERS and program.startswith(SYSTEM_FOLDERS):
            return True
        environ = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    except OSError:
        return False
    mark = os.fsencode(DAEMON_MARK) + b"=/"
    named = next((item[len(mark) - 1:] for item in environ if item.startswith(mark)), b"")
    record = rundir.read_json(Path(os.fsdecode(named))) if named else None
    return any(known == {"pid": pid, "start": int(_stat(pid)[START])} for known in (record or {}).values())
