"""Durable copies of files, for whoever must put one back as it was:
blocks are shared where the file system can, holes stay holes."""

from __future__ import annotations

import errno
import os

from . import pathways

_open = os.open


def copy(source: str, target: str, begin_at: int = 0, end: int | None = None) -> None:
    """A durable copy, of a part if wanted; by sharing blocks where the file system can, and with the holes
    that the file has."""
    fd_in = _open(source, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        fd_out = _open(target, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        try:
            end = os.fstat(fd_in).st_size if end is None else end
            if not begin_at and _cloned(fd_in, fd_out):
                os.ftruncate(fd_out, end)
            else:
                _pour(fd_in, begin_at, end - begin_at, fd_out, 0)
            os.fsync(fd_out)
        finally:
            os.close(fd_out)
    finally:
        os.close(fd_in)
    sync_folder(os.path.dirname(target))


def join(parts: list, target: str) -> None:
    """A durable file of the first bytes of others: [(file, how many)]."""
    if len(parts) == 1:
        copy(parts[0][0], target, 0, parts[0][1])
        return
    size = 0
    cut(target, 0)
    for source, count in parts:
        put_behind(target, size, source, count)
        size += count


def cut(path: str, size: int) -> None:
    """The first `size` bytes of a file, durably."""
    fd = _open(path, os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        os.ftruncate(fd, size)
        os.fsync(fd)
    finally:
        os.close(fd)


def put_behind(path: str, size: int, source: str, more: int) -> None:
    """The file `path` cut to `size` bytes, and behind them the first `more` of `source`;
    durable, and harmless twice."""
    fd_out = _open(path, os.O_WRONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        os.ftruncate(fd_out, size)
        fd_in = _open(source, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
        try:
            _pour(fd_in, 0, more, fd_out, size)
        finally:
            os.close(fd_in)
        os.fsync(fd_out)
    finally:
        os.close(fd_out)


def _pour(fd_in: int, at: int, count: int, fd_out: int, to: int) -> None:
    """`count` bytes from one place to another; holes stay holes."""
    end, shift = at + count, to - at
    while at < end:
        try:
            at = os.lseek(fd_in, at, os.SEEK_DATA)
            hole = min(end, os.lseek(fd_in, at, os.SEEK_HOLE))
        except OSError as e:
            if e.errno == errno.ENXIO:  # nothing but a hole up to the end
                break
            hole = end
        os.lseek(fd_in, at, os.SEEK_SET)
        os.lseek(fd_out, at + shift, os.SEEK_SET)
        while at < hole:
            data = pathways.real_read(fd_in, min(1 << 20, hole - at))
            if not data:
                break
            at += len(data)
            left = memoryview(data)
            while left:
                left = left[pathways.real_write(fd_out, left):]
        if at < hole:  # shorter than it was
            break
    os.ftruncate(fd_out, to + count)


def _cloned(fd_in: int, fd_out: int) -> bool:
    import fcntl

    try:
        fcntl.ioctl(fd_out, 0x40049409, fd_in)  # FICLONE
    except OSError:
        return False
    return True


def make_alike(source: str, target: str) -> None:
    """Mode, times and extended attributes."""
    import shutil

    shutil.copystat(source, target)


def sync_folder(path: str) -> None:
    """The names in it are on the disk."""
    fd = _open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
