"""Brings files that a run made or changed to this machine: what they may replace here, and how each arrives whole or not at all."""

from __future__ import annotations

import contextlib
import fcntl
import fnmatch
import hashlib
import json
import os
import shutil
import stat
import struct
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path

from stoker.base import rundir
from stoker.base.errors import InvalidSpec, NotFound, StateError, TargetError
from stoker.base.reading import JUNK
from stoker.base.units import format_size

FRAME_MAX = 16 << 20
SPARE_BYTES = 64 << 20  # of the disk that stay free
PIECE = 1 << 20
PUT, REPLACE, KEEP, HERE = "put", "replace", "keep", "here"


def chosen(files: Sequence[dict], patterns: Sequence[str], name: str) -> list[dict]:
    """The files that the patterns mean: a path, a folder, or a pattern of the shell's; all of them without any. Raises NotFound."""
    if not patterns:
        return list(files)
    taken: dict[str, dict] = {}
    for pattern in patterns:
        clean = os.path.normpath(pattern)
        meant = [f for f in files if fnmatch.fnmatchcase(f["path"], clean) or f["path"].startswith(f"{clean}/") or clean == "."]
        if not meant:
            raise NotFound(f"{name} did not make or change a file '{pattern}'.", hint="See its files: stoker show RUN")
        taken.update((f["path"], f) for f in meant)
    return list(taken.values())


def is_sound(file: object) -> bool:
    """Whether a line of a list from another machine can be used: its path stays in the folder, and is none that other programs trust (.git
    and the like)."""
    if not isinstance(file, dict):
        return False
    if not all(isinstance(file.get(name), int) and 0 <= file[name] < 1 << 63 for name in ("size", "mtime_ns")):
        return False
    path, sent = file.get("path"), file.get("sent")
    parts = path.split("/") if isinstance(path, str) and "\0" not in path else [""]
    return {"", ".", "..", *JUNK}.isdisjoint(parts) and isinstance(sent, dict | None) and file.get("kind") in ("new", "changed")


class Ground:
    """Where the files of one run go: `folder`, where it was typed in, or the outputs in `record`, its folder in the state folder."""

    def __init__(self, folder: Path, record: Path) -> None:
        self.folder, self.outputs, self._record = folder, record / rundir.OUTPUTS, record
        self._brought: dict[str, set[tuple[int, str]]] = {}
        with contextlib.suppress(OSError), open(record / rundir.PULLED, "rb") as f:
            for line in f:
                with contextlib.suppress(ValueError, KeyError, TypeError):
                    told = json.loads(line)
                    self._brought.setdefault(told["path"], set()).add((told["size"], told["sha256"]))

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        """Alone with it. Raises StateError while another pull of the run is at work."""
        self._record.mkdir(mode=0o700, parents=True, exist_ok=True)
        with open(self._record / "pull.lock", "w", encoding="ascii") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise StateError("Another stoker pull of this run is active.", hint="Wait for it, then try again.") from None
            yield

    def verdict(self, file: dict) -> str:
        """PUT where nothing is, REPLACE where the content is what the run was sent or has brought, HERE where the file is here already,
        KEEP where another content or no plain file is in its place."""
        target = self.folder / file["path"]
        if not self.folder.is_dir() or not _plain_parents(self.folder, file["path"]):
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
        known = {digest for size, digest in self._brought.get(file["path"], ()) if size == info.st_size}
        known |= {sent["sha256"]} if sent.get("sha256") and sent.get("size") == info.st_size else set()
        return REPLACE if known and digest_of(target) in known else KEEP

    def kept(self, file: dict) -> Path | None:
        """Where this version of the file is kept, if it is."""
        place = self.outputs / file["path"]
        with contextlib.suppress(OSError):
            info = place.lstat()
            if stat.S_ISREG(info.st_mode) and (info.st_size, info.st_mtime_ns) == (file["size"], file["mtime_ns"]):
                return place
        return None

    def part(self, file: dict) -> Path:
        """Where this version of the file grows."""
        folder = self._record / rundir.PARTIAL
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        name = hashlib.sha256(os.fsencode(file["path"])).hexdigest()[:32]
        return folder / f"{name}-{file['size']}-{file['mtime_ns']}"

    def settle(self, file: dict, part: Path, mode: int, digest: str) -> tuple[str, Path]:
        """Give a whole file its place: (verdict, path). What is here is looked at again, since the transfer took its time."""
        os.utime(part, ns=(file["mtime_ns"], file["mtime_ns"]))
        os.chmod(part, (mode & 0o777 & ~_umask()) | 0o600)
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
        line = {"path": file["path"], "size": file["size"], "sha256": digest}
        self._brought.setdefault(file["path"], set()).add((file["size"], digest))
        with open(self._record / rundir.PULLED, "a", encoding="ascii") as f:
            f.write(json.dumps(line) + "\n")


def room_for(files: Iterable[dict], ground: Ground) -> None:
    """Raises TargetError where the disk has no room for what is still to come."""
    needed = sum(f["size"] - _size(ground.part(f)) for f in files)
    for place in {ground.part({"path": "", "size": 0, "mtime_ns": 0}).parent, ground.folder}:
        with contextlib.suppress(OSError):
            free = shutil.disk_usage(place).free - SPARE_BYTES
            if needed > free:
                raise TargetError(f"The files need {format_size(needed)}, and {place} has {format_size(max(0, free))} free.", retry=False,
                                  hint="Free some space, or name the files that you need: stoker pull RUN FILES")


def receive(pieces: Iterable[bytes], files: Sequence[dict], ground: Ground, progress: Callable[[dict, int], None]) -> Iterator[tuple]:
    """(file, verdict, path or why it failed) as each arrives, in the order in which they were asked for. `progress(file, bytes of it)`.

    What is there of a file when the stream breaks stays, and is continued by the next call.
    """
    coming = frames(pieces)
    for file in files:
        kind, body = next(coming, (b"", b""))
        if kind == b"e":
            yield file, "failed", json.loads(body).get("error") or "unreadable"
            continue
        if kind != b"h":
            return
        yield _one(coming, file, json.loads(body), ground, progress)


def _one(frames: Iterator[tuple[bytes, bytes]], file: dict, head: dict, ground: Ground, progress: Callable[[dict, int], None]) -> tuple:
    part = ground.part(file)
    try:
        digest, end = _grow(part, frames, file, head["offset"], progress)
    except OSError as e:
        raise TargetError(f"{part} cannot be written: {e.strerror}.", retry=False, hint="Free some space on this machine.") from e
    changed = (head["size"], head["mtime_ns"]) != (file["size"], file["mtime_ns"]) or not end.get("whole")
    if changed or end.get("sha256") != digest:
        part.unlink()
        return file, "failed", "the run wrote to it during the copy" if changed else "its checksum does not match"
    try:
        return (file, *ground.settle(file, part, head["mode"], digest))
    except OSError as e:
        return file, "failed", f"{e.filename2 or e.filename}: {e.strerror}"


def _grow(part: Path, frames: Iterator[tuple[bytes, bytes]], file: dict, offset: int,
          progress: Callable[[dict, int], None]) -> tuple[str, dict]:
    """Write what comes of a file behind what is there of it: its checksum, and what the last frame says."""
    digest, count = hashlib.sha256(), offset
    with open(part, "r+b" if part.exists() else "w+b") as f:
        _feed(digest, f, offset)
        f.truncate(offset)
        f.seek(offset)
        for kind, body in frames:
            if kind == b"e":
                f.flush()
                os.fsync(f.fileno())
                return digest.hexdigest(), json.loads(body)
            count += len(body)
            if count > file["size"]:
                break
            f.write(body)
            digest.update(body)
            progress(file, count)
    raise TargetError("The connection was lost.")


def frames(pieces: Iterable[bytes]) -> Iterator[tuple[bytes, bytes]]:
    """(kind, payload) of each whole frame."""
    buffer = bytearray()
    for piece in pieces:
        buffer += piece
        while len(buffer) >= 5:
            kind, size = struct.unpack(">cI", bytes(buffer[:5]))
            if size > FRAME_MAX:
                raise TargetError("The machine sent an answer that Stoker cannot read.", retry=False)
            if len(buffer) < 5 + size:
                break
            yield kind, bytes(buffer[5:5 + size])
            del buffer[:5 + size]


def offset_of(file: dict, ground: Ground) -> int:
    """How much of this version is here already."""
    return min(_size(ground.part(file)), file["size"])


def check_made(made: dict) -> None:
    """Raises InvalidSpec for a run that works in the user's folder: its files are there."""
    if made["in_place"]:
        raise InvalidSpec(f"{made['name']} works in {made['folder']} itself, so its files are there already.",
                          hint=f"See them: stoker show {made['name']}")


def digest_of(path: Path) -> str:
    """The SHA-256 of a file; "" where it cannot be read."""
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


def _feed(digest: object, f: object, count: int) -> None:
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


def _umask() -> int:
    mask = os.umask(0o022)
    os.umask(mask)
    return mask
