"""What was read of a large file of numbers, kept on disk:
the next server reads this and what was appended since, not the whole file.

Derived: it may be deleted at any time, and one that is torn, old, or of another file is not used.
One line of JSON (the header), then its arrays, one after the other.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import zlib
from array import array
from collections.abc import Iterator, Sequence
from pathlib import Path

from stoker.base import reading

VERSION = 1
PROBE = 64 << 10  # bytes at the begin and before the end of what was read, by which the file is known again
HEADER_MAX = 64 << 20
SIZE_MAX = 512 << 20


def save(path: Path, source: Path, offset: int, told: dict, arrays: Sequence[array]) -> None:
    """Store `told` (JSON) and arrays of doubles for the first `offset` bytes of `source`. If the disk has
    an error, nothing is stored and no error is raised."""
    with contextlib.suppress(OSError, reading.Broken):
        checksum = 0
        for each in arrays:
            checksum = zlib.crc32(memoryview(each).cast("B") if len(each) else b"", checksum)
        header = {
            "version": VERSION,
            "offset": offset,
            "probe": _probe(source, offset),
            "lengths": [len(each) for each in arrays],
            "checksum": checksum,
            "told": told,
        }
        line = json.dumps(header).encode("ascii")
        path.parent.mkdir(mode=0o700, exist_ok=True)
        beside = path.with_name(f"{path.name}.{os.getpid()}.tmp")
        try:
            with open(
                os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600),
                "wb",
            ) as f:
                f.write(b"%08x %s\n" % (zlib.crc32(line), line))
                for each in arrays:
                    each.tofile(f)
            beside.rename(path)
        except BaseException:
            beside.unlink(missing_ok=True)
            raise


def load(path: Path, source: Path) -> tuple[int, dict, Iterator[array]] | None:
    """(offset, told, arrays) as passed to `save`; None if no index fits the present file `source`."""
    try:
        with open(reading.open_regular(os.fspath(path)), "rb") as f:
            if os.fstat(f.fileno()).st_size > SIZE_MAX:
                return None
            found = _read(f, source)
    except (OSError, reading.Broken, ValueError, KeyError, TypeError, RecursionError):
        return None
    return found


def _read(f, source: Path) -> tuple[int, dict, Iterator[array]] | None:
    checksum, _, line = f.readline(HEADER_MAX).partition(b" ")
    if not line.endswith(b"\n") or int(checksum, 16) != zlib.crc32(line[:-1]):
        return None
    header = json.loads(line)
    if header["version"] != VERSION or header["probe"] != _probe(source, header["offset"]):
        return None
    body = f.read(SIZE_MAX)
    if len(body) != 8 * sum(header["lengths"]) or zlib.crc32(body) != header["checksum"]:
        return None
    return header["offset"], header["told"], _split(body, header["lengths"])


def _split(body: bytes, lengths: Sequence[int]) -> Iterator[array]:
    at = 0
    for length in lengths:
        own = array("d")
        own.frombytes(body[at:at + 8 * length])
        at += 8 * length
        yield own


def _probe(source: Path, offset: int) -> str | None:
    """A hash of the first bytes and of those before `offset`; None where the file is shorter."""
    with open(reading.open_regular(os.fspath(source)), "rb") as f:
        if os.fstat(f.fileno()).st_size < offset:
            return None
        found = hashlib.sha256(f.read(min(PROBE, offset)))
        f.seek(max(0, offset - PROBE))
        found.update(f.read(min(PROBE, offset)))
    return found.hexdigest()
