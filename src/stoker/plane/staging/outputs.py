"""Files that a run made or changed, as they arrive on this machine:
what they may replace, and how each comes whole or not at all.

Lists, names and sizes come from another machine: nothing of them is trusted.
What was sent there is known from a record here.

- A file in the user's folder is replaced only if it has the size and time that were sent to the run, or if
  its content (SHA-256) was sent, or is in pulled.jsonl. All others go to runs/ID/outputs.
- A file is first written in runs/ID/partial, then checked, synced and renamed.
- What was sent is read from runs/ID/manifest.json on this machine, never from the other one.
- A path that contains `..`, leads through a link, or has a name such as `.git` is refused.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
import shutil
import stat
import struct
import time
from collections import deque
from collections.abc import Generator, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import BinaryIO

from stoker.base import rundir
from stoker.base.errors import NotFound, StateError, TargetError
from stoker.base.reading import JUNK
from stoker.base.units import format_size
from stoker.plane.homecoming import is_meant

FRAME_MAX = 16 << 20
SPARE_BYTES = 64 << 20  # of the disk that stay free
PIECE = 1 << 20
PUT, REPLACE, KEEP, HERE = "put", "replace", "keep", "here"  # verdicts
COMING, FAILED = "coming", "failed"  # the other words of `receive`
LOCK_PAUSE_S = 0.05
LANDING_MAX = 8  # files that have come and are not on disk yet
# of the record of what was brought, and of one file in it once it is shortened
LINES_MAX, VERSIONS_KEPT = 2000, 2
_JUNK = frozenset(name.casefold() for name in JUNK)


def chosen(files: Sequence[dict], patterns: Sequence[str], name: str) -> list[dict]:
    """Files that match the patterns: a path, a folder, or a shell pattern; all files without patterns.
    Raises NotFound."""
    if not patterns:
        return list(files)
    taken: dict[str, dict] = {}
    for pattern in patterns:
        clean = os.path.normpath(pattern)
        meant = [f for f in files if is_meant(f["path"], clean)]
        if not meant:
            raise NotFound(
                f"{name} did not make or change a file '{pattern}'.",
                hint="To list the files of the run: stoker show RUN",
            )
        taken.update((f["path"], f) for f in meant)
    return list(taken.values())


def is_sound(file: object) -> bool:
    """Whether an entry of a list from another machine is safe: its path stays in the folder, and is not
    one that other programs trust (.git and similar)."""
    if not isinstance(file, dict):
        return False
    if not all(
        isinstance(file.get(name), int) and 0 <= file[name] < 1 << 63 for name in ("size", "mtime_ns")
    ):
        return False
    path, sent = file.get("path"), file.get("sent")
    parts = path.split("/") if isinstance(path, str) and "\0" not in path else [""]
    names = {part.casefold() for part in parts}
    return (
        {"", ".", "..", *_JUNK}.isdisjoint(names)
        and isinstance(sent, dict | None)
        and file.get("kind") in ("new", "changed")
    )


class Ground:
    """Where the files of one run go: `folder`, where the command was typed, or the outputs in `record`,
    its folder in the state folder."""

    def __init__(self, folder: Path, record: Path, umask: int = 0o022) -> None:
        self.folder, self.outputs, self._record, self._umask = folder, record / rundir.OUTPUTS, record, umask
        self._brought: dict[str, list[dict]] = {}
        with contextlib.suppress(OSError), open(record / rundir.PULLED, "rb") as f:
            for line in f:
                with contextlib.suppress(ValueError, KeyError, TypeError):
                    self._remember(json.loads(line))

    @contextlib.contextmanager
    def locked(self, wait_s: float = 0.0) -> Iterator[None]:
        """Context with exclusive access. Raises StateError while another process copies files of the run."""
        self._record.mkdir(mode=0o700, parents=True, exist_ok=True)
        deadline = time.monotonic() + wait_s
        with open(self._record / "pull.lock", "w", encoding="ascii") as lock:
            while True:
                try:
                    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    break
                except BlockingIOError:
                    if time.monotonic() >= deadline:
                        raise StateError(
                            "Another stoker pull of this run is active.",
                            hint="Wait until that pull has ended, then try again."
                        ) from None
                    time.sleep(LOCK_PAUSE_S)
            yield

    def verdict(self, file: dict) -> str:
        """PUT if nothing is there, REPLACE if the content is what was sent to the run or copied from it,
        HERE if the file is already here, KEEP if other content or no regular file is at its place."""
        target = self.folder / file["path"]
        if (
            not self.folder.is_dir()
            or not _plain_parents(self.folder, file["path"])
            or self._is_setting(file["path"])
        ):
            return KEEP
        try:
            info = target.lstat()
        except FileNotFoundError:
            return PUT
        except OSError:
            return KEEP
        if not stat.S_ISREG(info.st_mode):
            return KEEP
        if (info.st_size, info.st_mtime_ns) == (file["size"], file["mtime_ns"]):
            return HERE
        sent = file.get("sent") or {}
        if (info.st_size, info.st_mtime_ns) == (sent.get("size"), sent.get("mtime_ns")):
            return REPLACE
        known = {
            line["sha256"] for line in self._brought.get(file["path"], ()) if line["size"] == info.st_size
        }
        known |= {sent["sha256"]} if sent.get("sha256") and sent.get("size") == info.st_size else set()
        return REPLACE if known and digest_of(target) in known else KEEP

    def kept(self, file: dict) -> Path | None:
        """Path of the stored copy of this version, if there is one."""
        place = self.outputs / file["path"]
        with contextlib.suppress(OSError):
            info = place.lstat()
            if stat.S_ISREG(info.st_mode) and (info.st_size, info.st_mtime_ns) == (
                file["size"],
                file["mtime_ns"],
            ):
                return place
        return None

    def _is_setting(self, path: str) -> bool:
        """Whether it would be a hidden file of the user's home folder, as .bashrc and .ssh are:
        no machine may put one there."""
        return path.startswith(".") and os.path.realpath(self.folder) == os.path.realpath(
            os.path.expanduser("~")
        )

    def place(self, file: dict) -> str:
        """Where this version of the file is: "here" (copied, or at its place), "outputs", or "there": only
        on its machine."""
        if self.kept(file):
            return "outputs"
        version = (file["size"], file["mtime_ns"])
        come = any(
            (line["size"], line["mtime_ns"]) == version for line in self._brought.get(file["path"], ())
        )
        with contextlib.suppress(OSError):
            info = (self.folder / file["path"]).lstat()
            come = come or (info.st_size, info.st_mtime_ns) == version
        return "here" if come else "there"

    def tidy(self, files: Iterable[dict]) -> None:
        """Delete partial copies of versions that are not among these files, and shorten a long record."""
        wanted = {self.part(file).name for file in files}
        folder = self._record / rundir.PARTIAL
        with contextlib.suppress(OSError):
            for name in set(os.listdir(folder)) - wanted:
                (folder / name).unlink()
        if sum(map(len, self._brought.values())) > LINES_MAX + VERSIONS_KEPT * len(self._brought):
            self._brought = {path: lines[-VERSIONS_KEPT:] for path, lines in self._brought.items()}
            text = "".join(json.dumps(line) + "\n" for lines in self._brought.values() for line in lines)
            rundir.write_whole(self._record / rundir.PULLED, text.encode("ascii"), 0o600)

    def part(self, file: dict) -> Path:
        """Path of the growing partial copy of this version."""
        folder = self._record / rundir.PARTIAL
        with contextlib.suppress(OSError):
            folder.mkdir(mode=0o700, exist_ok=True)
        name = hashlib.sha256(os.fsencode(file["path"])).hexdigest()[:32]
        return folder / f"{name}-{file['size']}-{file['mtime_ns']}"

    def settle(self, file: dict, part: Path, mode: int, digest: str) -> tuple[str, Path]:
        """Move a complete file to its place; returns (verdict, path). Checks the place again, because the
        transfer took time."""
        os.utime(part, ns=(file["mtime_ns"], file["mtime_ns"]))
        os.chmod(part, (mode & 0o777 & ~self._umask) | 0o600)
        target, told = self.folder / file["path"], self.verdict(file)
        if told == KEEP and _same_content(target, file["size"], digest):
            told = HERE
        if told == KEEP:
            target = self.outputs / file["path"]
            target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            _move(part, target, over=True)
            return KEEP, target
        self._note(file, digest)
        if told == HERE:
            part.unlink()
            return HERE, target
        target.parent.mkdir(parents=True, exist_ok=True)
        try:
            _move(part, target, over=told == REPLACE)
        except FileExistsError:  # made a moment ago by somebody else
            return self.settle(file, part, mode, digest)
        return told, target

    def _note(self, file: dict, digest: str) -> None:
        """Remember that this content is the run's: a later version may replace it."""
        line = {"path": file["path"], "size": file["size"], "mtime_ns": file["mtime_ns"], "sha256": digest}
        self._remember(line)
        with open(self._record / rundir.PULLED, "a", encoding="ascii") as f:
            f.write(json.dumps(line) + "\n")

    def _remember(self, line: dict) -> None:
        self._brought.setdefault(line["path"], []).append(
            {name: line[name] for name in ("path", "size", "mtime_ns", "sha256")}
        )


def room_for(files: Iterable[dict], ground: Ground) -> None:
    """Raises TargetError if the disk has no space for the remaining files."""
    needed = sum(f["size"] - _size(ground.part(f)) for f in files)
    for place in {ground.part({"path": "", "size": 0, "mtime_ns": 0}).parent, ground.folder}:
        with contextlib.suppress(OSError):
            free = shutil.disk_usage(place).free - SPARE_BYTES
            if needed > free:
                raise TargetError(
                    (
                        f"The files need {format_size(needed)}, and {place} has "
                        f"{format_size(max(0, free))} free."
                    ),
                    retry=False,
                    hint="Free some space, or name the files that you need: stoker pull RUN FILES",
                )


def receive(
    pieces: Iterable[bytes], files: Sequence[dict], ground: Ground
) -> Iterator[tuple[dict, str, object]]:
    """Yield (file, COMING, bytes of it) during a transfer; then (file, verdict, path) or (file, FAILED, why)
    once the file is on disk, in the requested order. The next file is transferred meanwhile.
    If the stream breaks, the partial file stays, and the next call continues it. Raises TargetError."""
    coming = frames(pieces)
    with _Landing(ground) as landing:
        try:
            for file in files:
                kind, body = next(coming, (b"", b""))
                if kind == b"e":
                    landing.refuse(file, str(_object(body).get("error") or "unreadable"))
                elif kind == b"h":
                    yield from _one(coming, file, _object(body), ground, landing)
                else:
                    break
                yield from landing.landed(LANDING_MAX)
        except TargetError:
            yield from landing.landed(0)
            raise
        yield from landing.landed(0)


def _one(frames: Iterator[tuple[bytes, bytes]], file: dict, head: dict, ground: Ground,
         landing: _Landing) -> Iterator[tuple[dict, str, object]]:
    part = ground.part(file)
    offset, mode = head.get("offset"), head.get("mode")
    if type(offset) is not int or type(mode) is not int or not 0 <= offset <= offset_of(file, ground):
        raise _nonsense()
    try:
        digest, end = yield from _grow(part, frames, file, offset)
    except OSError as e:
        raise _cannot_write(part, e) from e
    changed = (head.get("size"), head.get("mtime_ns")) != (file["size"], file["mtime_ns"]) or not end.get(
        "whole"
    )
    if changed or end.get("sha256") != digest:
        part.unlink(missing_ok=True)
        landing.refuse(
            file,
            "the run wrote to the file during the copy"
            if changed
            else "the checksum of the copy does not match",
        )
        return
    landing.land(file, part, mode, digest)


def _grow(part: Path, frames: Iterator[tuple[bytes, bytes]], file: dict,
          offset: int) -> Generator[tuple[dict, str, int], None, tuple[str, dict]]:
    """Write what comes of a file behind what is there of it: its checksum, and what the last frame says."""
    digest, count = hashlib.sha256(), offset
    with open(part, "r+b" if part.exists() else "w+b") as f:
        _feed(digest, f, offset)
        f.truncate(offset)
        f.seek(offset)
        for kind, body in frames:
            if kind == b"e":
                return digest.hexdigest(), _object(body)
            count += len(body)
            if kind != b"d" or count > file["size"]:
                raise _nonsense()
            f.write(body)
            digest.update(body)
            yield file, COMING, count
    raise TargetError("The connection was lost.")


class _Landing:
    """Whole files on their way to the disk: a thread of its own waits for that,
    then each gets its place, in order."""

    def __init__(self, ground: Ground) -> None:
        self._ground = ground
        self._waiting: deque[tuple[dict, Future[None] | None, tuple]] = deque()
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="landing")

    def __enter__(self) -> _Landing:
        return self

    def __exit__(self, *exc: object) -> None:
        self._thread.shutdown(cancel_futures=True)

    def land(self, file: dict, part: Path, mode: int, digest: str) -> None:
        """A file that has come whole."""
        self._waiting.append((file, self._thread.submit(_sync, part), (part, mode, digest)))

    def refuse(self, file: dict, why: str) -> None:
        """A file that did not come."""
        self._waiting.append((file, None, (why,)))

    def landed(self, most: int) -> Iterator[tuple[dict, str, object]]:
        """Those that are on disk now; waits until no more than `most` are not. Raises TargetError."""
        while self._waiting:
            file, synced, rest = self._waiting[0]
            if synced is not None and not synced.done() and len(self._waiting) <= most:
                return
            self._waiting.popleft()
            if synced is None:
                yield file, FAILED, rest[0]
                continue
            try:
                synced.result()
            except OSError as e:
                raise _cannot_write(rest[0], e) from e
            try:
                yield (file, *self._ground.settle(file, *rest))
            except OSError as e:
                yield file, FAILED, f"{e.filename2 or e.filename}: {e.strerror}"


def _sync(part: Path) -> None:
    with open(part, "rb") as f:
        os.fsync(f.fileno())


def _cannot_write(part: Path, error: OSError) -> TargetError:
    return TargetError(
        f"{part} cannot be written: {error.strerror}.", retry=False, hint="Free some space on this machine."
    )


def _object(body: bytes) -> dict:
    """The JSON object in a frame. Raises TargetError."""
    try:
        told = json.loads(body)
    except (ValueError, RecursionError):
        told = None
    if not isinstance(told, dict):
        raise _nonsense()
    return told


def _nonsense() -> TargetError:
    return TargetError("The machine sent an answer that is not valid.", retry=False)


def frames(pieces: Iterable[bytes]) -> Iterator[tuple[bytes, bytes]]:
    """Iterate over (kind, payload) of each complete frame."""
    buffer = bytearray()
    for piece in pieces:
        buffer += piece
        while len(buffer) >= 5:
            kind, size = struct.unpack(">cI", bytes(buffer[:5]))
            if size > FRAME_MAX:
                raise _nonsense()
            if len(buffer) < 5 + size:
                break
            yield kind, bytes(buffer[5:5 + size])
            del buffer[:5 + size]


def offset_of(file: dict, ground: Ground) -> int:
    """Bytes of this version that are already here."""
    return min(_size(ground.part(file)), file["size"])


def digest_of(path: Path) -> str:
    """SHA-256 of a file; "" if it cannot be read."""
    try:
        with open(path, "rb") as f:
            return hashlib.file_digest(f, "sha256").hexdigest()
    except OSError:
        return ""


def _same_content(path: Path, size: int, digest: str) -> bool:
    with contextlib.suppress(OSError):
        info = path.lstat()
        return stat.S_ISREG(info.st_mode) and info.st_size == size and digest_of(path) == digest
    return False


def _plain_parents(folder: Path, path: str) -> bool:
    """Whether no link and no file stands on the way to a path in the folder."""
    place = folder
    for name in path.split("/")[:-1]:
        place /= name
        try:
            if not stat.S_ISDIR(place.lstat().st_mode):
                return False
        except FileNotFoundError:
            return True
        except OSError:
            return False
    return True


def _feed(digest: hashlib._Hash, f: BinaryIO, count: int) -> None:
    """Put the first `count` bytes of a file into a checksum; it stands behind them then."""
    while count > 0 and (data := f.read(min(PIECE, count))):
        digest.update(data)
        count -= len(data)


def _move(part: Path, target: Path, *, over: bool) -> None:
    """Give a file its name, whole. Raises FileExistsError where the name is taken and `over` is False."""
    beside = target.parent / f".{target.name[:100]}.stoker-{os.getpid()}"
    try:
        try:
            os.rename(part, beside)
        except OSError:  # another file system
            shutil.copy2(part, beside)
            with open(beside, "rb") as f:
                os.fsync(f.fileno())
        if over:
            os.replace(beside, target)
        else:
            _take_free_name(beside, target)
    except OSError:
        with contextlib.suppress(OSError):
            if not part.exists():
                os.rename(beside, part)
        raise
    finally:
        with contextlib.suppress(OSError):
            beside.unlink()
    with contextlib.suppress(OSError):
        part.unlink()


def _take_free_name(beside: Path, target: Path) -> None:
    try:
        os.link(beside, target)
    except FileExistsError:
        raise
    except OSError:  # a file system without hard links
        if os.path.lexists(target):
            raise FileExistsError(target) from None
        os.rename(beside, target)


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0
