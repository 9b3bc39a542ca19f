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
from typing import BinaryIO

from stoker.base.errors import TargetError

TAIL_BYTES = 64 * 1024  # of stderr is kept of a stream
ANSWER_MAX = 32 << 20  # bytes that a command may answer with; whoever says more is cut off
# of starting a program here: this machine's trouble, and it passes
SCARCE = (errno.EAGAIN, errno.ENOMEM, errno.EMFILE, errno.ENFILE)
KILL_AFTER_S = 2.0  # from SIGTERM to SIGKILL when a stream is closed

Progress = Callable[[int, int], None]


def silent(sent: int, whole: int) -> None:
    """Tell nobody."""


@dataclass(frozen=True)
class Finished:
    """A command that ended. `code` is as a shell tells it:
    128 + n after signal n, 127 no such program, 126 not executable."""

    code: int
    out: bytes
    err: bytes

    @property
    def message(self) -> str:
        """The last line of stderr, for a sentence."""
        lines = self.err.decode("utf-8", "replace").strip().splitlines()
        return lines[-1] if lines else f"exit code {self.code}"


class Host(ABC):
    """A machine on which we may run programs as one user.

    Every method may be called from any thread, and again after any failure:
    a lost connection is made anew by the next call.
    Commands are lists of words and reach the program unchanged, whatever bytes they hold (NUL excepted);
    no shell reads them.
    They start in `home()`; relative paths count from there.
    A machine that cannot be reached raises TargetError(retry=True);
    one that refuses us, or answers with nonsense, TargetError(retry=False).
    That a command itself fails is no error here.
    """

    name: str
    few_streams = False  # whether only a few commands may be open at once, as sshd's MaxSessions says

    @abstractmethod
    def run(self, argv: Sequence[str], *, stdin: bytes = b"", timeout_s: float = 60) -> Finished:
        """Run a command to its end, with all its output in memory:
        at most ANSWER_MAX, else TargetError(retry=False), and it is killed.

        After `timeout_s` TargetError(retry=True) is raised;
        the command itself is then killed, on a far machine by its own clock and a few seconds later, with
        what it started in its process group. Whoever leaves the group (a daemon) is left alone.
        """

    @abstractmethod
    def open(self, argv: Sequence[str]) -> Stream:
        """Start a command and talk to it. What is opened must end by itself when its stdin ends or its stdout
        breaks: nobody can kill it on a machine that is out of reach.
        Raises TargetError when the machine cannot be reached now."""

    @abstractmethod
    def put(self, source: Path, target: str) -> None:
        """Copy a file or folder to the machine, under exactly that name; missing parents are made.

        Whole or absent: written beside the target, then renamed;
        when interrupted nothing is left, and what a power cut left is removed by the next put to that target.
        A file replaces a file; a folder never replaces anything. Kept:
        permission bits, modification times to the nanosecond, symlinks as they are (the named source itself
        is followed), empty folders, any name. Hard links become separate files;
        sockets, pipes and devices are left out. Raises NotFound (no source), TargetError.
        """

    @abstractmethod
    def get(self, source: str, target: Path, limit: int | None = None) -> None:
        """The same from the machine to here. Nothing is written outside `target`, whatever the machine sends;
        with a `limit` nothing of more than so many bytes (TargetError)."""

    def give(self, source: Path, target: str) -> None:
        """`put` of something the caller has no more use for:
        it may be moved instead of copied, and may or may not be gone afterwards."""
        self.put(source, target)

    def deliver(self, source: Path, target: str, *, shared: str, cache: str, leave: Container[str] = (),
                tell: Progress = silent) -> None:
        """`give` of a folder whose inner folder `shared` holds what is sent again and again:
        content that came to the folder `cache` there once is not sent a second time, and a transfer that was
        cut goes on where it was. `leave`: paths that need not go, and may vanish meanwhile.
        tell(bytes sent, bytes in all) may end it by an error of its own."""
        self.give(source, target)

    def missing(self, entries: Sequence[list], cache: str) -> list[list]:
        """[sha256, bytes of it that came already] of the files of a
        parcel whose content `deliver` would send."""
        return []

    def keep_data(
        self, source: Path, data: str, hash_of: Callable, tell: Progress = silent, expected: str = ""
    ) -> tuple[str, str]:
        """See that the folder `source` lies below the folder `data` there, read-only and as it is here now;
        its parcel's name and where it lies. Content that came there is not sent again, and a copy that
        changed there is not used. hash_of(path, lstat) -> sha256.
        expected: the name that it must have; while it lies there, nothing is read here.
        Raises TargetError, NotFound."""
        raise NotImplementedError

    def ask_parcels(self, verb: str, folder: str, *words: str) -> dict:
        """The answer of a verb of parcel.py that takes nothing from here."""
        raise NotImplementedError

    @abstractmethod
    def forward(self, port_or_socket: str) -> AbstractContextManager[Path]:
        """A unix socket here that reaches a TCP port of the machine's own loopback ("8888"), or a unix socket
        there ("/path")."""

    @abstractmethod
    def python(self) -> str:
        """The absolute path of an interpreter >= 3.8 there, found once.
        Raises TargetError(retry=False) where there is none."""

    @abstractmethod
    def home(self) -> str:
        """The absolute home folder of our user there."""

    @abstractmethod
    def close(self) -> None:
        """End what this object itself opened. Twice is harmless; a later call opens it again."""


class Stream:
    """A running command: `.stdin` and `.stdout` are raw binary files, `.pid` is the local process.

    With a `mark` the command runs on a far machine, and its exit code comes as a last line on stderr, so that
    "it ended" and "the connection was cut" are never confused.
    """

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
        self.stdin: BinaryIO = process.stdin
        self.stdout: BinaryIO = process.stdout
        self._reader = threading.Thread(target=self._drain, name=f"stderr-{process.pid}", daemon=True)
        self._reader.start()

    def _drain(self) -> None:
        with self._process.stderr as pipe:
            while data := pipe.read(TAIL_BYTES):
                self._tail = (self._tail + data)[-TAIL_BYTES:]

    def stderr_tail(self) -> str:
        """The last of what it wrote to stderr, at most 64 KiB."""
        tail = self._end.sub(b"", self._tail) if self._end else self._tail
        return tail.decode("utf-8", "replace")

    def wait(self, timeout_s: float | None = None) -> int | None:
        """The exit code as a shell tells it; None while it runs, after `timeout_s`.
        TargetError(retry=True) when the connection was cut."""
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
        """The exit code of the local process, once all that it wrote to stderr is read;
        None when it still runs after `timeout_s`.
        For a process whose stdout has ended: what it has to say may come later than that."""
        deadline = time.monotonic() + timeout_s
        try:
            code = self._process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            return None
        self._reader.join(max(0.1, deadline - time.monotonic()))
        return shell_code(code)

    def close(self) -> None:
        """End it and wait for that: TERM, then KILL to its process group. Twice is harmless;
        a read or write that blocks in another thread returns, since the pipes are closed only after their
        other end is gone."""
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


def spawn(argv: Sequence[str], *, cwd: str | None = None) -> subprocess.Popen[bytes]:
    """A child with three raw pipes in a session of its own, so that the terminal's Ctrl-C is not for it.
    Raises OSError."""
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
    """What it says on stdout and stderr, to the end.
    Raises subprocess.TimeoutExpired, and TargetError for more than ANSWER_MAX; then it is not ended yet."""
    deadline = time.monotonic() + timeout_s
    said = {process.stdout: bytearray(), process.stderr: bytearray()}
    rest = memoryview(stdin)
    with selectors.PollSelector() as selector:
        for pipe in said:
            selector.register(pipe, selectors.EVENT_READ)
        selector.register(process.stdin, selectors.EVENT_WRITE)
        while selector.get_map():
            left = deadline - time.monotonic()
            if left <= 0:
                raise subprocess.TimeoutExpired(process.args, timeout_s)
            for key, _ in selector.select(left):
                if key.fileobj is process.stdin:
                    rest = _write_some(key.fd, rest)
                elif data := os.read(key.fd, TAIL_BYTES):
                    said[key.fileobj] += data
                    if sum(map(len, said.values())) > ANSWER_MAX:
                        raise too_much(what, ANSWER_MAX)
                    continue
                if key.fileobj is not process.stdin or not rest:
                    selector.unregister(key.fileobj)
                    key.fileobj.close()
    process.wait(max(0.0, deadline - time.monotonic()))
    return bytes(said[process.stdout]), bytes(said[process.stderr])


def _write_some(fd: int, rest: memoryview) -> memoryview:
    """What is left to be written, after as much as a pipe that is ready surely takes;
    nothing when nobody reads it."""
    try:
        return rest[os.write(fd, rest[:select.PIPE_BUF]):]
    except BrokenPipeError:
        return rest[:0]


def too_much(what: str, limit: int) -> TargetError:
    return TargetError(f"{what} sent more than {limit >> 20} MB; Stoker stopped reading.", retry=False,
                       hint="Does a login script there print endless output? Log in and check.")


def end_group(process: subprocess.Popen[bytes], patience_s: float = KILL_AFTER_S) -> None:
    """TERM, then KILL, to the process group of a child that leads one;
    returns when the child is reaped. Without patience KILL at once."""
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
    """An exit code as a shell tells it, from one as `subprocess` tells it."""
    return 128 - code if code < 0 else code


def scarce(error: OSError) -> TargetError:
    return TargetError(f"This machine has no free processes, files or memory now: {error.strerror}.",
                       hint="See the limits with ulimit -a, and the active runs with stoker top.", retry=True)


def timed_out(argv: Sequence[str], host: str, timeout_s: float) -> TargetError:
    return TargetError(f"'{os.path.basename(argv[0])}' on {host} did not end within {timeout_s:g} s.",
                       hint="The machine may be overloaded or the connection stuck; try again.", retry=True)
