"""What writes to files without asking us: descriptors and maps that no hook knows, and writers that work in
threads of their own."""

from __future__ import annotations

import os
import threading
import time

from ..core import pathways, phases, words
from . import opening
from .journal import Impossible

DRAIN_S = 10.0
QUEUES = {"_AsyncWriterThread": "_queue", "_EventLoggerThread": "_queue"}  # of TensorBoard and tensorboardX
WRITERS = ("_record_writer", "_writer")
NO_FILES = ("socket:", "pipe:", "anon_inode:", "/memfd:", "/dev/", "/proc/", "/sys/", "/dmabuf:")


def drain_writers() -> None:
    """What TensorBoard's thread still has in its queue is in the file."""
    for thread in threading.enumerate():
        name = QUEUES.get(type(thread).__name__)
        queue = getattr(thread, name, None) if name else None
        if queue is None or not hasattr(queue, "all_tasks_done"):
            continue
        until = time.monotonic() + DRAIN_S
        with queue.all_tasks_done:
            while queue.unfinished_tasks:
                left = until - time.monotonic()
                if left <= 0 or not thread.is_alive():
                    raise Impossible(words.WRITER_STUCK.format(name=type(thread).__name__))
                queue.all_tasks_done.wait(min(left, 0.2))
        writer = next((getattr(thread, each) for each in WRITERS if hasattr(thread, each)), None)
        if writer is not None:
            writer.flush()


def unknown_writers(known: set) -> None:
    """Impossible for a file that is open for writing, or mapped writable,
    by something that we do not know."""
    standard = {_link(fd) for fd in (0, 1, 2)}
    for name in os.listdir("/proc/self/fd"):
        fd = int(name)
        if fd < 3 or fd in known:
            continue
        path = _link(fd)
        if (
            path is None
            or path in standard
            or path.startswith(NO_FILES)
            or pathways.ours(path)
            or path in opening.of_libraries
        ):
            continue
        if not path.endswith("/lock.mdb") and _writes(fd):  # LMDB locks while it reads
            raise Impossible(words.UNKNOWN_WRITER.format(path=path))
    for path in _mapped():
        raise Impossible(words.UNKNOWN_MAP.format(path=path))


def out_bytes() -> int:
    """How much stands in the file that standard output goes to; 0 if that is no file."""
    import stat

    try:
        out = os.fstat(1)
    except OSError:
        return 0
    return out.st_size if stat.S_ISREG(out.st_mode) else 0


def _link(fd: int) -> str | None:
    try:
        return os.readlink(f"/proc/self/fd/{fd}")
    except OSError:
        return None


def _writes(fd: int) -> bool:
    try:
        with open(f"/proc/self/fdinfo/{fd}", encoding="ascii") as f:
            for line in f:
                if line.startswith("flags:"):
                    return int(line.split()[1], 8) & os.O_ACCMODE != os.O_RDONLY
    except OSError:
        pass
    return False


def _mapped() -> list[str]:
    """Files that are mapped shared and writable, other than memory that processes share."""
    found = []
    with open("/proc/self/maps", "rb") as maps:
        for line in maps:
            if b"s " in line[:60] and line.split(b" ", 2)[1][1:] in (b"w-s", b"wxs"):
                path = os.fsdecode(line.split(b" ", 5)[5].strip())
                if (
                    path.startswith("/")
                    and not path.startswith((*NO_FILES, "/SYSV", "/i915", "/drm"))
                    and not (phases.folder and pathways.ours(path))
                ):
                    found.append(path)
    return found
