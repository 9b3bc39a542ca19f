"""Where the descriptors stand that we hold open in a script's process."""

from __future__ import annotations

import os

LEAST = 200


def aside(fd: int) -> int:
    """The same open file under a high number. What we hold open is not the same in each life, and a script
    may keep the number of a file of its own (`fd, name = mkstemp()`), which is the lowest that is free."""
    import fcntl
    try:
        high = fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, LEAST)
    except OSError:  # so many are not allowed here
        return fd
    os.close(fd)
    return high
