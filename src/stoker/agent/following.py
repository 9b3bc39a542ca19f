"""The verbs `attach`, `read` and `send`: the logs of an attempt, as they are and as they grow,
and files of its copy.

- `attach`: the frames of door.py, from these two offsets. It ends after the exit frame.
- `read`: raw bytes. `--follow` ends when the attempt has ended and all was sent. `both`: the two logs as
  one text of whole lines, ordered by the file `turns`.
- `send`: frames h `{"path", "size", "offset", "mode", "mtime_ns"}`, d bytes, e `{"sha256", "whole"}` or
  `{"error"}` for each file. No link is opened.
"""

from __future__ import annotations

import errno
import json
import os
import select
import stat
import struct
import sys
import time

from .attempts import existing_attempt, folder_age
from .observing import caretakers, open_door
from .reading import Broken, open_regular, read_bytes, read_json, size_of
from .words import (
    AGENT, CLAIM_S, ERR, EXIT, FEED_MAX, LINE_MAX, OUT, PIECE, SPEC, STATUS, TURNS, WORK, Problem, arguments,
    encode, whole_number,
)
from .writing import open_folder, write_all

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

    from .attempts import Attempt


class Changes:
    """Wakes when something in a folder changes: by inotify where there is one, else by looking often."""

    def __init__(self, folder: str) -> None:
        self.fd = -1
        try:
            import ctypes
            libc = ctypes.CDLL(None, use_errno=True)
            fd = libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
            # modify, moved to, create
            if fd >= 0 and libc.inotify_add_watch(fd, encode(folder), 0x2 | 0x80 | 0x100) >= 0:
                self.fd = fd
        except Exception:
            pass
        self.timeout_s = 0.5 if self.fd >= 0 else 0.03

    def clear(self) -> None:
        if self.fd >= 0:
            try:
                while os.read(self.fd, 65536):
                    pass
            except OSError:
                pass


class Log:
    """One log file, read from an offset on."""

    def __init__(self, path: str, offset: int) -> None:
        self.path = path
        self.fd = -1
        size = size_of(path)
        self.offset = max(0, size + offset) if offset < 0 else min(offset, size)

    def read(self, limit: int) -> bytes:
        """At most `limit` bytes from where the last call ended; empty when there is nothing new."""
        if self.fd < 0:
            try:
                self.fd = open_regular(self.path)
            except (OSError, Broken):
                return b""
        data = os.pread(self.fd, limit, self.offset)
        if not data and os.fstat(self.fd).st_size < self.offset:  # somebody cut it: what is in it now is new
            self.offset = 0
            data = os.pread(self.fd, limit, 0)
        self.offset += len(data)
        return data


class Following:
    """Is the attempt over? Asks cheaply: for exit.json each time, for the caretakers each 2 seconds."""

    def __init__(self, att: Attempt) -> None:
        self.att = att
        self.next_look = 0.0
        self.missing = 0

    def over(self) -> bool:
        """Has the attempt ended, or is nobody left who could say so? Looks at the processes each 2 s."""
        if os.path.exists(self.att.path(EXIT)):
            return True
        now = time.monotonic()
        if now >= self.next_look:
            self.next_look = now + 2.0
            record = self.att.json(AGENT)
            dead = caretakers(self.att, record, {}) == "dead" if record else folder_age(self.att) >= CLAIM_S
            self.missing = self.missing + 1 if dead else 0
        return self.missing >= 2


class Attachment:
    """The framed stream of one attempt: logs to stdout, frames from stdin to the holder's door."""

    def __init__(self, att: Attempt, out: int, err: int, takes_input: bool) -> None:
        self.att = att
        self.logs = [(b"o", Log(att.path(OUT), out)), (b"r", Log(att.path(ERR), err))]
        self.changes = Changes(att.folder)
        self.following = Following(att)
        self.waiting = bytearray()  # for stdout
        self.typed = bytearray()  # for the door, whole frames or the beginning of one
        self.input_open = takes_input
        self.door = open_door(att) if takes_input else None
        self.ending = False

    def frame(self, kind: bytes, payload: bytes) -> None:
        self.waiting += struct.pack(">cI", kind, len(payload)) + payload

    def live(self) -> None:
        """Until the exit frame is sent, or nobody listens any more."""
        os.set_blocking(0, False)
        os.set_blocking(1, False)
        tty = bool((read_json(os.path.join(self.att.run_dir, SPEC)) or {}).get("tty"))
        offsets = [log.offset for _, log in self.logs]
        self.frame(
            b"m",
            json.dumps({"attempt": self.att.n, "tty": tty, "out": offsets[0], "err": offsets[1]}).encode(),
        )
        while True:
            over = self.following.over()
            more = self._collect()
            if over and not more and not self.ending:
                self.ending = True
                ended = self.att.json(EXIT)
                if ended is not None:
                    self.frame(b"x", json.dumps(ended).encode())
            if not self._write():
                return
            if self.ending and not self.waiting:
                return
            if not (more and len(self.waiting) < 262144):
                self._wait()
            self._read()

    def _collect(self) -> bool:
        """Take from the logs what stdout can use; True when there may be more."""
        more = False
        for kind, log in self.logs:
            if len(self.waiting) >= 262144:
                return True
            data = log.read(65536)
            if data:
                self.frame(kind, data)
                more = True
        return more

    def _write(self) -> bool:
        """False when nobody listens any more."""
        while self.waiting:
            try:
                del self.waiting[:os.write(1, memoryview(self.waiting)[:65536].tobytes())]
            except BlockingIOError:
                return True
            except OSError:
                return False
        return True

    def _wait(self) -> None:
        poller = select.poll()
        poller.register(1, select.POLLOUT if self.waiting else 0)  # an error there means: the reader has gone
        if self.input_open and len(self.typed) < FEED_MAX:
            poller.register(0, select.POLLIN)
        if self.typed and self.door is not None:
            poller.register(self.door.fileno(), select.POLLOUT)
        if self.changes.fd >= 0 and not self.waiting:
            poller.register(self.changes.fd, select.POLLIN)
        for fd, events in poller.poll(self.changes.timeout_s * 1000):
            if fd == 1 and events & (select.POLLERR | select.POLLHUP | select.POLLNVAL):
                os._exit(0)
        self.changes.clear()

    def _read(self) -> None:
        if self.input_open and len(self.typed) < FEED_MAX:
            try:
                data = os.read(0, 65536)
                # end of our stdin is not end of the run's input: that is the frame "e"
                self.input_open = bool(data)
                self.typed += data
            except BlockingIOError:
                pass
            except OSError:
                self.input_open = False
        if not self.typed:
            return
        if self.door is None:
            self.door = open_door(self.att)
            if self.door is None:
                if self.following.att.json(STATUS) or self.ending:
                    self.typed.clear()
                return
        try:
            del self.typed[:self.door.send(bytes(self.typed[:65536]))]
        except BlockingIOError:
            pass
        except OSError:
            self.door.close()
            self.door = None
            self.typed.clear()


def verb_attach(args: list[str]) -> None:
    """attach RUN_DIR N [--out OFF] [--err OFF] [--no-input]"""
    (run_dir, n), options = arguments(args, 2, {"--out": 1, "--err": 1, "--no-input": 0})
    offsets = [whole_number(options.get(o, ["0"])[0]) for o in ("--out", "--err")]
    Attachment(existing_attempt(run_dir, n), offsets[0], offsets[1], "--no-input" not in options).live()


def verb_read(args: list[str]) -> None:
    """read RUN_DIR N out|err|both OFFSET [--limit BYTES] [--follow] [--tail LINES] [--from OUT ERR]"""
    (run_dir, n, which, offset), options = arguments(
        args, 4, {"--limit": 1, "--follow": 0, "--tail": 1, "--from": 2}
    )
    if which not in ("out", "err", "both"):
        raise Problem("usage", verb_read.__doc__ or "")
    att = existing_attempt(run_dir, n)
    if which == "both":
        begins = [whole_number(each) for each in options.get("--from", ("0", "0"))]
        tail = whole_number(options["--tail"][0]) if "--tail" in options else None
        read_both(att, begins, whole_number(offset), tail, "--follow" in options)
        return
    log = Log(att.path(OUT if which == "out" else ERR), whole_number(offset))
    left = whole_number(options["--limit"][0]) if "--limit" in options else -1
    follow = "--follow" in options
    changes = Changes(att.folder) if follow else None
    following = Following(att)
    while left:
        over = not follow or following.over()
        data = log.read(min(65536, left) if left > 0 else 65536)
        if data:
            write_all(1, data)
            left -= len(data) if left > 0 else 0
        elif over or changes is None or wait_for(changes):
            return


def read_both(att: Attempt, begins: list[int], skip: int, tail: int | None, follow: bool) -> None:
    """Standard output and error of an attempt as one text:
    without its first `skip` bytes, or from `tail` lines before its end on."""
    changes = Changes(att.folder) if follow else None
    following = Following(att)
    text = Both(att, begins)
    if tail is not None:
        over = not follow or following.over()
        text, lines = last_of_both(att, tail, over)
        write_all(1, b"".join(lines))
    while True:
        over = not follow or following.over()
        written = False
        for piece in text.pieces(over):
            rest, skip = piece[skip:], max(0, skip - len(piece))
            write_all(1, rest)
            written = True
        if over or (not written and (changes is None or wait_for(changes))):
            return


def last_of_both(att: Attempt, lines: int, over: bool) -> tuple[Both, list[bytes]]:
    """The last lines of both logs as one text, and what reads on from there.
    Looks back 1 MiB at first, 64 MiB at most."""
    from collections import deque
    back = max(1 << 20, lines * 4096)
    while True:
        begins = [max(0, size_of(att.path(name)) - back) for name in (OUT, ERR)]
        text = Both(att, begins)
        found: deque[bytes] = deque((), lines)
        for piece in text.pieces(over):
            found.extend(split_lines(piece))
        if len(found) == lines or not any(begins) or back >= 1 << 26:
            return text, list(found)
        back *= 8


def split_lines(text: bytes) -> list[bytes]:
    """The lines of a text, each with its newline; nothing else ends a line."""
    parts = text.split(b"\n")
    return [part + b"\n" for part in parts[:-1]] + ([parts[-1]] if parts[-1] else [])


class Both:
    """Standard output and error of an attempt as one text, in whole lines, in the order in which they were
    read from the run."""

    def __init__(self, att: Attempt, begins: list[int]) -> None:
        self.att, self.at = att, list(begins)
        self.fds, self.rest = [-1, -1], [b"", b""]
        self.now = self.turns = 0  # whose bytes come next, and how many changes were followed

    def pieces(self, over: bool) -> Iterator[bytes]:
        """What has come since the last call. `over`:
        nothing comes after it, so a line without an end is a line."""
        # before the changes: those up to there are written by now
        sizes = [size_of(self.att.path(name)) for name in (OUT, ERR)]
        try:
            changes = read_bytes(self.att.path(TURNS))[8 * self.turns:]
        except OSError:
            changes = b""
        for (word,) in struct.iter_unpack("<Q", changes[:len(changes) // 8 * 8]):
            which, end = word % 2, word // 2
            if end > sizes[which] and not over:
                return
            yield from self._lines(which, min(end, sizes[which]))
            self.now, self.turns = 1 - which, self.turns + 1
        for which in (self.now, 1 - self.now) if over else (self.now,):
            yield from self._lines(which, sizes[which])
        if over:
            rests = [self.rest[self.now], self.rest[1 - self.now]]
            yield b"\n".join(filter(None, rests))
            self.rest = [b"", b""]

    def _lines(self, which: int, end: int) -> Iterator[bytes]:
        """The whole lines of one log before `end`; what is left of the last one is kept."""
        if self.fds[which] < 0:
            try:
                self.fds[which] = os.open(self.att.path((OUT, ERR)[which]), os.O_RDONLY | os.O_CLOEXEC)
            except OSError:
                return
        while self.at[which] < end:
            data = os.pread(self.fds[which], min(PIECE, end - self.at[which]), self.at[which])
            if not data:
                return
            self.at[which] += len(data)
            text = self.rest[which] + data
            whole = len(text) if len(text) > LINE_MAX else text.rfind(b"\n") + 1
            self.rest[which] = text[whole:]
            if whole:
                yield text[:whole]


def wait_for(changes: Changes) -> bool:
    """Until something changes; True when nobody reads our stdout any more."""
    poller = select.poll()
    poller.register(1, 0)
    if changes.fd >= 0:
        poller.register(changes.fd, select.POLLIN)
    gone = any(fd == 1 for fd, _ in poller.poll(changes.timeout_s * 1000))
    changes.clear()
    return gone


def verb_send(args: list[str]) -> None:
    """send RUN_DIR, with [[PATH, OFFSET], ...] as a line on stdin:
    the files of its copy, each as a frame h, frames d, a frame e"""
    (run_dir,), _ = arguments(args, 1, {})
    try:
        wanted = [
            (str(path), int(offset)) for path, offset in json.loads(sys.stdin.buffer.readline().decode())
        ]
    except (ValueError, TypeError):
        raise Problem("usage", verb_send.__doc__ or "") from None
    for path, offset in wanted:
        try:
            send_file(run_dir, path, offset)
        except BrokenPipeError:
            raise
        except OSError as e:
            send_frame(b"e", {"error": e.strerror or str(e)})


def send_file(run_dir: str, path: str, offset: int) -> None:
    """One file from `offset` on; the checksum at its end is of the whole.
    `whole` is false where it was written to meanwhile."""
    from hashlib import sha256
    *folders, name = path.split("/")
    if not {"", ".", ".."}.isdisjoint((*folders, name)):
        raise OSError(errno.EINVAL, "the path is not inside the copy of the folder")
    parent = open_folder(run_dir, WORK, *folders)
    try:
        fd = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=parent)
    finally:
        os.close(parent)
    with open(fd, "rb") as f:
        before = os.fstat(fd)
        if not stat.S_ISREG(before.st_mode):
            raise OSError(errno.EINVAL, "not a regular file")
        digest, left, skip = sha256(), before.st_size, offset if 0 <= offset <= before.st_size else 0
        send_frame(b"h", {"path": path, "size": left, "offset": skip, "mode": stat.S_IMODE(before.st_mode),
                          "mtime_ns": before.st_mtime_ns})
        while left > 0:
            data = f.read(min(PIECE, skip or left))
            if not data:
                break
            digest.update(data)
            left -= len(data)
            if skip:
                skip -= len(data)
            else:
                write_all(1, struct.pack(">cI", b"d", len(data)) + data)
        after = os.fstat(fd)
        same = (after.st_size, after.st_mtime_ns) == (before.st_size, before.st_mtime_ns)
        send_frame(b"e", {"sha256": digest.hexdigest(), "whole": same and not left})


def send_frame(kind: bytes, body: dict) -> None:
    """One frame to whoever asked: kind, length, JSON."""
    payload = json.dumps(body).encode("ascii")
    write_all(1, struct.pack(">cI", kind, len(payload)) + payload)
