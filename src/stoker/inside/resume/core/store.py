"""Images on disk: `images/<n>/` holds `data` (raw memory), `meta` (what and where, marshal of plain values)
and `manifest.json`.

An image is whole or absent: written beside, flushed to the disk, renamed.
CRC-32 and lengths tell a torn or damaged file;
they are to find accidents, not attackers (the folder is private to the user), and cost a fifth of a
cryptographic hash on the way of training.
"""

from __future__ import annotations

import ctypes
import json
import marshal
import os
import zlib

from ...looks import isinstance
from . import own

FORMAT = 2
CHUNK = 8 << 20
KEEP = 2
SPARE = 64 << 20  # bytes that stay free on the disk, whatever an image needs
_open, _write, _fsync, _close, _rename, _read = os.open, os.write, os.fsync, os.close, os.rename, os.read


class Damaged(Exception):
    """An image that cannot be used; the text says why."""


def folder(root: str, n: int) -> str:
    return os.path.join(root, "images", str(n))


def numbers(root: str) -> list:
    """The images that are there, newest first, those marked bad included."""
    return sorted(
        (int(name) for name in own.folders(os.path.join(root, "images")) if name.isdigit()), reverse=True
    )


def memory(address: int, length: int):
    """The bytes at an address, not copied."""
    return memoryview((ctypes.c_char * length).from_address(address)).cast("B")


def checksum(view) -> int:
    value = 0
    for at in range(0, len(view), CHUNK):
        value = zlib.crc32(view[at : at + CHUNK], value)
    return value


def room(root: str, needed: int) -> str:
    """The sentence why the disk has no place for `needed` bytes, or nothing."""
    found = os.statvfs(root)
    free = found.f_bavail * found.f_frsize
    if free < needed + SPARE:
        return f"an image needs {_mib(needed)}, but the disk has only {_mib(free)} free"
    return ""


def write(root: str, n: int, data, meta: dict, facts: dict) -> int:
    """Write image `n` from a buffer and a dict of plain values; returns its size in bytes.
    Raises OSError; then nothing is left of it."""
    images = os.path.join(root, "images")
    beside = os.path.join(images, f"new-{n}")
    own.make(images)
    own.remove(beside)
    own.make(beside)
    try:
        with own.Folder(beside) as here:
            told = {"data": _write_file(f"{here}/data", data)}
            text = marshal.dumps(meta, 2)
            told["meta"] = _write_file(f"{here}/meta", memoryview(text))
            manifest = json.dumps({"format": FORMAT, "n": n, **facts, "files": told}).encode("ascii")
            _write_file(f"{here}/manifest.json", memoryview(manifest))
            sync_folder(here)
        if str(n) not in own.folders(images):
            own.remove(folder(root, n))  # whatever it is, it is no image
        with own.Folder(images) as here:
            _rename(f"{here}/new-{n}", f"{here}/{n}")
            sync_folder(here)
    except BaseException:
        own.remove(beside)
        raise
    return sum(size for size, _ in told.values())


def _write_file(path: str, view) -> list:
    value, size = 0, len(view)
    fd = _open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        for at in range(0, size, CHUNK):
            part = view[at : at + CHUNK]
            value = zlib.crc32(part, value)
            while len(part):
                part = part[_write(fd, part) :]
        _fsync(fd)
    finally:
        _close(fd)
    return [size, value]


def sync_folder(path: str) -> None:
    fd = _open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        _fsync(fd)
    finally:
        _close(fd)


def prune(root: str) -> None:
    """Keep the last two good images, and what is newer than them; leftovers of a killed writer go too."""
    images = os.path.join(root, "images")
    for name in own.folders(images):
        if name.startswith(("new-", "old-")):
            own.remove(os.path.join(images, name))
    good = [n for n in numbers(root) if not is_bad(root, n)]
    for n in numbers(root):
        if n not in good[:KEEP] and (len(good) >= KEEP and n < good[KEEP - 1]):
            aside = os.path.join(images, f"old-{n}")
            own.remove(aside)
            with own.Folder(images) as here:
                _rename(f"{here}/{n}", f"{here}/old-{n}")  # never a half removed image under its number
            own.remove(aside)


def is_bad(root: str, n: int) -> bool:
    return own.lies(os.path.join(folder(root, n), "bad"))


def mark_bad(root: str, n: int, why: str) -> None:
    """Image `n` is not used again."""
    own.write(os.path.join(folder(root, n), "bad"), why.encode(errors="replace"))


def manifest(root: str, n: int) -> dict:
    """What an image says about itself; raises Damaged."""
    try:
        found = json.loads(_read_file(os.path.join(folder(root, n), "manifest.json")))
    except (OSError, ValueError) as e:
        raise Damaged(f"image {n} has no readable manifest ({type(e).__name__})") from e
    if not isinstance(found, dict) or not isinstance(found.get("files"), dict):
        raise Damaged(f"the manifest of image {n} is not valid")
    if found.get("format") != FORMAT:
        raise Damaged(
            f"a different version of Stoker wrote image {n} (format {found.get('format')}, this version "
            f"reads only format {FORMAT})"
        )
    return found


def verified(root: str, n: int) -> tuple:
    """(manifest, meta, the bytes of data) of image `n`, each checked against its length and checksum;
    raises Damaged."""
    told, unpacked = meta(root, n)
    return told, unpacked, _checked(root, n, told, "data")


def meta(root: str, n: int) -> tuple:
    """(manifest, meta) of image `n`, as `verified`."""
    told = manifest(root, n)
    packed = _checked(root, n, told, "meta")
    try:
        return told, marshal.loads(packed)
    except (EOFError, ValueError, TypeError) as e:
        raise Damaged(f"the metadata of image {n} is not valid") from e


def _checked(root: str, n: int, told: dict, name: str):
    try:
        size, value = told["files"][name]
        data = _read_file(os.path.join(folder(root, n), name))
    except (OSError, KeyError, TypeError, ValueError) as e:
        raise Damaged(f"{name} of image {n} cannot be read ({type(e).__name__})") from e
    if len(data) != size:
        raise Damaged(f"{name} of image {n} has {len(data)} bytes instead of {size}")
    if checksum(memoryview(data)) != value:
        raise Damaged(f"{name} of image {n} is damaged: the checksum differs")
    return data


def _read_file(path: str) -> bytearray:
    fd = own.open_file(path, os.O_RDONLY)
    try:
        data = bytearray(os.fstat(fd).st_size)
        view, at = memoryview(data), 0
        while at < len(data):
            part = _read(fd, min(CHUNK, len(data) - at))
            if not part:
                break
            view[at : at + len(part)] = part
            at += len(part)
        return data if at == len(data) else data[:at]
    finally:
        _close(fd)


def _mib(size: int) -> str:
    return f"{size / (1 << 20):.0f} MiB"
