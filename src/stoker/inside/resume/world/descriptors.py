"""Writes that go past Python's file objects:
os.write and its like on a number, syncs, and maps of files. What they change is kept first;
a file that is written both ways at once is refused, since a ghost could not tell where it stands."""

from __future__ import annotations

import os
import stat

from ..core import early_log, pathways, phases, words
from . import audit_hook, journal, opening, streams

WRITES = {
    "write": 0,
    "pwrite": 0,
    "writev": 0,
    "pwritev": 0,
    "posix_fallocate": 0,
    "sendfile": 0,
    "copy_file_range": 1,
    "splice": 1,
}
SYNCS = ("fsync", "fdatasync")
READS = ("read", "pread", "readv", "preadv")
_READ_ONLY = (1, 3)  # mmap.ACCESS_READ, mmap.ACCESS_COPY
_fstat, _readlink = os.fstat, os.readlink


def install_early() -> None:
    """Before anybody can take them by name."""
    of_os = early_log.Of("os")
    for name in (*WRITES, *READS):
        if hasattr(os, name):
            early_log.replace(os, name, _watched(name, getattr(os, name)), of_os)
    for name in SYNCS:
        if hasattr(os, name):
            early_log.replace(os, name, _synced(getattr(os, name)), of_os)


def install() -> None:
    audit_hook.listen("mmap.__new__", _maps, lasting=True)
    audit_hook.on_cut.append(cut)


def cut(fd: int) -> None:
    """Before os.ftruncate."""
    _before("ftruncate", fd, True)


def _watched(name: str, old: object) -> object:
    which, writes = WRITES.get(name, 0), name in WRITES

    def call(_of: object, *args: object, **kwargs: object) -> object:
        if not (phases.phase or journal.epoch or early_log.early):
            return old(*args, **kwargs)
        fd = args[which] if len(args) > which else -1
        if (
            name in ("write", "writev")
            and fd in (1, 2)
            and not phases.depth
            and (phases.phase or early_log.early)
        ):
            data = bytes(args[1]) if name == "write" else b"".join(args[1])
            if streams.swallowed(fd - 1, data, lambda what: old(fd, what if name == "write" else [what])):
                return len(data)
        _before(name, fd, writes)
        return old(*args, **kwargs)

    return call


def _synced(old: object) -> object:
    def sync(_of: object, *args: object, **kwargs: object) -> None:
        try:
            return old(*args, **kwargs)
        except OSError:
            fd = args[0] if args else kwargs["fd"]
            number = fd if type(fd) is int else fd.fileno()
            if phases.phase == phases.GHOST and stat.S_ISCHR(_fstat(number).st_mode):
                return None  # what a ghost writes goes nowhere, which no disk can be asked to keep
            raise

    return sync


def _before(name: str, fd: object, writes: bool) -> None:
    """The journal hears of a change; a file that a file object of the script's has open for writing is not to
    be touched past it."""
    if type(fd) is not int or fd < 3 or phases.leaving or not (phases.phase or journal.epoch):
        return
    try:
        if not stat.S_ISREG(_fstat(fd).st_mode):
            if writes and not phases.depth and streams.leads_to(fd):
                streams.another_door()
            return
        path = _readlink(f"/proc/self/fd/{fd}")
        if pathways.ours(path):
            return
        if writes and not audit_hook.quiet():
            _keep(name, fd, path)
        if phases.phase == phases.RECORD and opening.handles is not None and opening.handles.writes_to(fd):
            from ..core import outcome

            outcome.refuse(words.PAST_FILE.format(path=path, name=name))
    except OSError:
        pass  # the call itself says so
    except Exception as e:
        from ..core import outcome

        outcome.broke(e)


def _keep(name: str, fd: int, path: str) -> None:
    import fcntl

    if name in ("write", "writev") and fcntl.fcntl(fd, fcntl.F_GETFL) & os.O_APPEND:
        journal.touch(path, journal.APPEND)
    else:
        journal.change(fd)


def _maps(args: tuple) -> None:
    """A file that was opened before the image may be written through a
    map that is gone again before the next."""
    fd, access = args[0], args[2]
    if fd >= 0 and access not in _READ_ONLY:
        import fcntl

        if fcntl.fcntl(fd, fcntl.F_GETFL) & os.O_ACCMODE == os.O_RDWR:
            _before("mmap", fd, True)
