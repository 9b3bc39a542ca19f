"""The attempts of a run: where their files are, which were claimed, which is the newest.

An attempt writes its files in this order: the folder attempts/N (mkdir) · agent.json (holder, identity) ·
the command is spawned · agent.json (pid of the run) · status.json (raw wait status, by the holder, at once)
· the stop ladder for what is left · exit.json (by the agent proper, last).
"""

from __future__ import annotations

import os
import time

from .processes import machine_identity
from .reading import read_json
from .words import (
    AGENT, ATTEMPTS, EXIT, EXIT_SPARE, HEARTBEAT, STATUS_SPARE, STOP_SPARE, VERSION, Problem, is_attempt,
    number, valid_id, whole_number,
)
from .writing import FOLDER, open_folder, remove_at, unlink


class Attempt:
    """The paths of attempt n of the run in run_dir."""

    def __init__(self, run_dir: str, n: int) -> None:
        self.run_dir = os.path.abspath(run_dir)
        self.n = n
        self.id = os.path.basename(self.run_dir)
        self.root = os.path.dirname(os.path.dirname(self.run_dir))
        self.folder = os.path.join(self.run_dir, ATTEMPTS, str(n))
        self.fd = -1

    def hold(self) -> None:
        """For its caretakers: from here on `path` leads into the folder that is here now, whatever comes to
        stand in its place. Raises
        OSError."""
        self.fd = self.open_folder(ATTEMPTS, str(self.n))

    def path(self, name: str) -> str:
        """Of a file in the attempt's folder; only for this process."""
        if self.fd < 0:
            return os.path.join(self.folder, name)
        if not self._is_there():
            try:
                fd = self.open_folder(ATTEMPTS, str(self.n))  # deleted; a copy may have been put back
                os.dup2(fd, self.fd, inheritable=False)
                os.close(fd)
            except OSError:
                pass
        return "/proc/self/fd/%d/%s" % (self.fd, name)

    def _is_there(self) -> bool:
        try:
            return os.fstat(self.fd).st_nlink > 0
        except OSError:
            return False

    def json(self, name: str) -> dict | None:
        return read_json(self.path(name))

    def sibling(self, n: int) -> Attempt:
        return Attempt(self.run_dir, n)

    def below(self, *names: str) -> tuple[str, ...]:
        """A path in the run folder as `open_folder` and `remove` take it:
        the state folder, then names that may not be links."""
        return (self.root, os.path.basename(os.path.dirname(self.run_dir)), self.id, *names)

    def open_folder(self, *names: str) -> int:
        """A descriptor of a folder in the run folder, which no link leads to. Raises OSError."""
        return open_folder(*self.below(*names))

    def made_folder(self, *names: str) -> int:
        """As `open_folder`; it is made where it is not, and what stands in its place and is no folder goes.
        Raises OSError."""
        parent = self.open_folder(*names[:-1])
        try:
            try:
                return os.open(names[-1], FOLDER, dir_fd=parent)
            except (FileNotFoundError, NotADirectoryError):
                remove_at(parent, names[-1])
            os.mkdir(names[-1], 0o700, dir_fd=parent)
            return os.open(names[-1], FOLDER, dir_fd=parent)
        finally:
            os.close(parent)


def attempt_numbers(run_dir: str) -> list[int]:
    """The attempts that were claimed, in order."""
    try:
        return sorted(int(name) for name in os.listdir(os.path.join(run_dir, ATTEMPTS)) if is_attempt(name))
    except OSError:
        return []


def newest_attempt(run_dir: str) -> Attempt | None:
    """The newest attempt that was claimed, or None."""
    numbers = attempt_numbers(run_dir)
    return Attempt(run_dir, numbers[-1]) if numbers else None


def agent_record(att: Attempt, **known: object) -> dict:
    """agent.json, or its beginning. Only the holder writes it.

    `{"version", "attempt", "machine": {"hostname", "boot_id", "init_start", "pid_ns"}, "holder": {"pid",
    "start"}, "agent": {"pid", "start"}, "run": {"pid", "start", "sid"} or null, "started_at",
    "started_mono", "tty", "argv", "cwd", "memory_group": path or "", "log_before": {...}}`. `start` of a
    process is field 22 of /proc/PID/stat. Only one process can make the first agent.json of an attempt: of
    two holders, the later one exits.
    """
    record = {
        "version": VERSION,
        "attempt": att.n,
        "machine": machine_identity(),
        "holder": None,
        "agent": None,
        "run": None,
    }
    return att.json(AGENT) or dict(record, **known)


def drop_spares(att: Attempt) -> None:
    for name in (STATUS_SPARE, STOP_SPARE, EXIT_SPARE):
        unlink(att.path(name))


def used_by(att: Attempt) -> float:
    """Running seconds of an earlier attempt."""
    return number((att.json(EXIT) or att.json(HEARTBEAT) or {}).get("used_s"))


def folder_age(att: Attempt) -> float:
    """Seconds since the folder was claimed; very old when the clock makes no sense."""
    try:
        age = time.time() - os.stat(att.folder).st_ctime
    except OSError:
        return 1e9
    return age if age >= 0 else 1e9


def run_ids(root: str) -> list[str]:
    try:
        return sorted(
            e.name for e in os.scandir(os.path.join(root, "runs")) if valid_id(e.name) and e.is_dir()
        )
    except OSError:
        return []


def existing_attempt(run_dir: str, n: str) -> Attempt:
    """The attempt of that number. Raises Problem when it was never claimed."""
    att = Attempt(run_dir, whole_number(n))
    try:
        os.close(att.open_folder(ATTEMPTS, str(att.n)))
    except OSError:
        raise Problem("absent", "%s has no attempt %d" % (att.id, att.n)) from None
    return att
