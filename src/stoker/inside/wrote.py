"""Which files the script writes: a line for each path, in this attempt's folder.
`show` tells by it whose a file is."""

from __future__ import annotations

import os
from _json import encode_basestring_ascii as _text

from .looks import isinstance

FILE = "written.jsonl"
PATHS_MAX = 1 << 14  # of a process
BYTES_MAX = 1 << 20  # of the file, which all processes of the attempt share
NOT_FILES = ("/dev/", "/proc/", "/sys/")
# function of `os` -> which argument it writes
BY_NAME = {"rename": 1, "replace": 1, "link": 1, "symlink": 1, "truncate": 0, "utime": 0}
# the real ones: exact resume puts others in their place
_open, _write, _fstat, _close = os.open, os.write, os.fstat, os.close
_told: set = set()


def note(path: object) -> None:
    """The script opens this path to write, or gives a file this name. A descriptor is none."""
    if isinstance(path, int) or len(_told) >= PATHS_MAX:
        return
    try:
        path = os.path.abspath(os.fsdecode(path))
        if path in _told or path.startswith(NOT_FILES):
            return
        _told.add(path)
        _append('{"path": ' + _text(path) + "}\n")
    except (OSError, TypeError, ValueError):
        # what cannot be noted is left out; what cannot be opened is for open() to say
        return


def _append(line: str) -> None:
    folder = os.environ.get("STOKER_HOOKS")
    if not folder:
        return
    fd = _open(
        os.path.join(folder, FILE),
        os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC,
        0o600,
    )
    try:
        if _fstat(fd).st_size < BYTES_MAX:
            _write(fd, line.encode())  # O_APPEND: lines of processes side by side do not mix
    finally:
        _close(fd)
