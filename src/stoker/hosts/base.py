"""What every host promises: run a program there, talk to one, carry files both ways.
How, is the leaf's business."""

from __future__ import annotations

import contextlib
import errno
import os
import re
import select
import selectors
import signal
import subprocess
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Container, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, cast

from stoker.base.errors import TargetError
from stoker.hosts import parcel

TAIL_BYTES = 64 * 1024  # of stderr is kept of a stream
ANSWER_MAX = 32 << 20  # bytes that a command may answer with; whoever says more is cut off
# of starting a program here: this machine's trouble, and it passes
SCARCE = (errno.EAGAIN, errno.ENOMEM, errno.EMFILE, errno.ENFILE)
KILL_AFTER_S = 2.0  # from SIGTERM to SIGKILL when a stream is closed

Progress = Callable[[int, int], None]
HashOf = Callable[[bytes, os.stat_result], str]


def silent(sent: int, whole: int) -> None:
    """A callback that ignores its arguments."""


@dataclass(frozen=True)
class Finished:
    """Result of a command. `code` is the exit code as a shell reports it: 128 + n after signal n, 127 if
    the program does not exist, 126 if it is not executable."""

    code: int
    out: bytes
    err: bytes

    @property
    def message(self) -> str:
        """The last line of stderr, for use in a sentence."""
        lines = self.err.decode("utf-8", "replace").strip().splitlines()
        return lines[-1] if lines else f"exit code {self.code}"


class Host(ABC):
    """A machine on which Stoker runs programs as one user.
    Any thread may call any method, and may repeat it after any failure: the next call opens a lost
    connection again. Commands are lists of arguments and reach the program unchanged (NUL excepted); no
    shell reads them. Commands start in `home()`, and relative paths are relative to it. If a machine
    cannot be reached, methods raise TargetError(retry=True); if it refuses the login or sends an invalid
    answer, TargetError(retry=False). A failed command raises no error."""

    name: str
    few_streams = False  # whether only a few commands may be open at once, as sshd's MaxSessions says

    @abstractmethod
    def run(self, argv: Sequence[str], *, stdin: bytes = b"", timeout_s: float = 60) -> Finished:
        """Run a command to its end and return all its output: at most ANSWER_MAX, else the command is killed
        and TargetError(retry=False) is raised.
        After `timeout_s`, raises TargetError(retry=True) and kills the command with its process group; on
        a remote machine, a timer there does this a few seconds later. Daemons that left the process group
        continue."""

    @abstractmethod
    def open(self, argv: Sequence[str]) -> Stream:
        """Start a command and return its streams. The command must end if its stdin ends or its stdout
        breaks, because Stoker cannot kill it while its machine cannot be reached. Raises TargetError if
        the machine cannot be reached."""

    @abstractmethod
    def put(self, source: Path, target: str) -> None:
        """Copy a file or folder to the machine under exactly this name; missing parents are created.
        The target is complete or absent: it is written next to the target and then renamed. After an
        interruption nothing is left; the next put removes the remains of a power cut. A file replaces a
        file; a folder never replaces anything. Keeps permission bits, modification times in nanoseconds,
        symlinks (but follows the source itself), empty folders and all names. Hard links become separate
        files; sockets, pipes and devices are skipped. Raises NotFound (no source), TargetError."""

    @abstractmethod
    def get(self, source: str, target: Path, limit: int | None = None) -> None:
        """As `put`, from the machine to here. Never writes outside of `target`. Raises TargetError for
        more than `limit` bytes."""

    def give(self, source: Path, target: str) -> None:
        """As `put`, for a source that the caller no longer needs: it may be moved instead of copied."""
        self.put(source, target)

    def deliver(self, source: Path, target: str, *, shared: str, cache: str, leave: Container[str] = (),
                tell: Progress = silent, hash_of: HashOf = parcel.hash_file) -> None:
        """As `give`, for a folder whose inner folder `shared` holds content that is sent repeatedly.
        Content that is already in the folder `cache` on the machine is not sent again, and an interrupted
        transfer continues. `leave`: paths that are not sent and may disappear meanwhile. An exception from
        tell(bytes sent, bytes in all) ends the transfer. hash_of(path, lstat) -> sha256 of a file in
        `shared`."""
        self.give(source, target)

    def missing(self, entries: Sequence[list], cache: str) -> list[list]:
        """[sha256, bytes of it already there] of the files of a parcel whose content `deliver` would send."""
        return []

    def keep_data(
        self, source: Path, data: str, hash_of: Callable, tell: Progress = silent, expected: str = ""
    ) -> tuple[str, str]:
        """Copy the folder `source`, as it is here now, into the folder `data` on the machine, read-only.
        Returns the name of the parcel and its path. Content that is already there is not sent again; a copy
        that changed there is not used. hash_of(path, lstat) -> sha256.
        expected: the name that the parcel must have; if it exists there, nothing is read here. Raises
        TargetError, NotFound."""
        raise NotImplementedError

    def ask_parcels(self, verb: str, folder: str, *words: str) -> dict:
        """Return the answer of a verb of parcel.py that needs no files from here."""
        raise NotImplementedError

    @abstractmethod
    def forward(self, port_or_socket: str) -> AbstractContextManager[Path]:
        """A unix socket here that connects to a TCP port of the machine's loopback interface ("8888") or
        to a unix socket there ("/path")."""

    @abstractmethod
    def python(self) -> str:
        """Absolute path of an interpreter >= 3.8 on the machine, found once. Raises
        TargetError(retry=False) if there is none."""

    @abstractmethod
    def home(self) -> str:
        """Absolute path of the user's home folder on the machine."""

    @abstractmethod
    def close(self) -> None:
        """Close what this object opened. Can be repeated; a later call opens it again."""


class Stream:
    """A running command: `.stdin` and `.stdout` are raw binary files, `.pid` is the local process.
    With a `mark`, the command runs on a remote machine and reports its exit code as the last line of
    stderr. So a command that ended differs from a lost connection."""

    def __init__(
        self, process: subprocess.Popen[bytes], what: str, mark: bytes = b"", patience_s: float = KILL_AFTER_S
    ) -> None:
        self._process = process
        self._patience_s = patience_s
        self._what = what
        self._end = re.compile(rb"\n?" + re.escape(mark) + rb" (\d+)\n") if mark else None
        self._tail = b""
        self._closed = False
        self.pid = process.pid
        self.stdin, self.stdout, self._stderr = pipes_of(process)
        self._reader = threading.Thread(target=self._drain, name=f"stderr-{process.pid}", daemon=True)
        self._reader.start()

    def _drain(self) -> None:
        with self._stderr as pipe:
            while data := pipe.read(TAIL_BYTES):
                self._tail = (self._tail + data)[-TAIL_BYTES:]

    def stderr_tail(self) -> str:
        """The end of the command's stderr, at most 64 KiB."""
        tail = self._end.sub(b"", self._tail) if self._end else self._tail
        return tail.decode("utf-8", "replace")

    def wait(self, timeout_s: float | None = None) -> int | None:
        """Exit code as a shell reports it; None if the command still runs after `timeout_s`. Raises
        TargetError(retry=True) if the connection was cut."""
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        try:
            code = self._process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            return None
        self._reader.join(None if deadline is None else max(0.1, deadline - time.monotonic()))
        if self._end is None or self._closed:
            return shell_code(code)
        found = self._end.findall(self._tail)
        if not found:
            raise TargetError(f"The connection to {self._what} was cut.",
                              hint="Try again; runs on that machine are not affected.", retry=True)
        return int(found[-1])

    def said(self, timeout_s: float) -> int | None:
        """Exit code of the local process, after all its stderr was read; None if it still runs after
        `timeout_s`.
        For a process whose stdout has ended, because its stderr may arrive later."""
        deadline = time.monotonic() + timeout_s
        try:
            code = self._process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            return None
        self._reader.join(max(0.1, deadline - time.monotonic()))
        return shell_code(code)

    def close(self) -> None:
        """End the command and wait: TERM, then KILL to its process group. Can be repeated. A read or write
        that blocks in another thread returns, because the pipes are closed only after the process has
        ended."""
        self._closed = True
        if self._process.poll() is None:
            end_group(self._process, self._patience_s)
        for pipe in (self.stdin, self.stdout):
            with contextlib.suppress(OSError):
                pipe.close()
        self._reader.join(KILL_AFTER_S)

    def __enter__(self) -> Stream:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()


def pipes_of(process: subprocess.Popen[bytes]) -> tuple[BinaryIO, BinaryIO, BinaryIO]:
    """Its stdin, stdout and stderr, which are all pipes."""
    assert process.stdin and process.stdout and process.stderr
    return cast("BinaryIO", process.stdin), cast("BinaryIO", process.stdout), cast("BinaryIO", process.stderr)


def spawn(argv: Sequence[str], *, cwd: str | None = None) -> subprocess.Popen[bytes]:
    """Start a child with three raw pipes in its own session, so that Ctrl-C in the terminal does not reach
    it. Raises OSError."""
    return subprocess.Popen(
        list(argv),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        bufsize=0,
        cwd=cwd,
        start_new_session=True,
    )


def converse(
    process: subprocess.Popen[bytes], stdin: bytes, timeout_s: float, what: str
) -> tuple[bytes, bytes]:
    """Return all of its stdout and stderr. Raises subprocess.TimeoutExpired, or TargetError for more than
    ANSWER_MAX; the process then still runs."""
    deadline = time.monotonic() + timeout_s
    asked, out, err = pipes_of(process)
    said = {out: bytearray(), err: bytearray()}
    rest = memoryview(stdin)
    with selectors.PollSelector() as selector:
        for pipe in said:
            selector.register(pipe, selectors.EVENT_READ)
        selector.register(asked, selectors.EVENT_WRITE)
        while selector.get_map():
            left = deadline - time.monotonic()
            if left <= 0:
                raise subprocess.TimeoutExpired(process.args, timeout_s)
            for key, _ in selector.select(left):
                pipe = cast("BinaryIO", key.fileobj)
                if pipe is asked:
                    rest = _write_some(key.fd, rest)
                elif data := os.read(key.fd, TAIL_BYTES):
                    said[pipe] += data
                    if sum(map(len, said.values())) > ANSWER_MAX:
                        raise too_much(what, ANSWER_MAX)
                    continue
                if pipe is not asked or not rest:
                    selector.unregister(pipe)
                    pipe.close()
    process.wait(max(0.0, deadline - time.monotonic()))
    return bytes(said[out]), bytes(said[err])


def _write_some(fd: int, rest: memoryview) -> memoryview:
    """What is left to be written, after as much as a pipe that is ready surely takes;
    nothing when nobody reads it."""
    try:
        return rest[os.write(fd, rest[:select.PIPE_BUF]):]
    except BrokenPipeError:
        return rest[:0]


def too_much(what: str, limit: int) -> TargetError:
    return TargetError(f"{what} sent more than {limit >> 20} MB; Stoker stopped reading.", retry=False,
                       hint="A login script on the machine may print endless output. Log in and check.")


def end_group(process: subprocess.Popen[bytes], patience_s: float = KILL_AFTER_S) -> None:
    """Send TERM, then KILL, to the process group of a child that leads one; returns when the child is
    reaped. Without patience, sends KILL at once."""
    if patience_s:
        _signal_group(process, signal.SIGTERM)
        try:
            process.wait(patience_s)
            return
        except subprocess.TimeoutExpired:
            pass
    _signal_group(process, signal.SIGKILL)
    process.wait()


def _signal_group(process: subprocess.Popen[bytes], number: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, number)


def shell_code(code: int) -> int:
    """Convert an exit code of `subprocess` to the exit code that a shell reports."""
    return 128 - code if code < 0 else code


def scarce(error: OSError) -> TargetError:
    return TargetError(f"This machine has reached a limit (processes, files or memory): {error.strerror}.",
                       hint="See the limits: ulimit -a   See the active runs: stoker top", retry=True)


def timed_out(argv: Sequence[str], host: str, timeout_s: float) -> TargetError:
    return TargetError(f"'{os.path.basename(argv[0])}' on {host} did not end within {timeout_s:g} s.",
                       hint="The machine may be overloaded or the connection may be stuck; try again.",
                       retry=True)
