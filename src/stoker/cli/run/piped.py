"""Data on stdin that a run in the background does not get."""

from __future__ import annotations

import array
import fcntl
import os
import stat
import termios
from collections.abc import Mapping, Sequence
from typing import Any

from stoker.cli import output


def tell(command: Sequence[str], options: Mapping[str, Any]) -> None:
    """Say that the run does not get the data on stdin, and what to type instead."""
    if options["detach"] and not options["stdin_file"] and unread():
        output.say("the run is in the background, so it does not get the data on stdin. Save the data in "
                   f"a file, then type: stoker run -d --stdin FILE {output.command_line(command)}")


def unread() -> bool:
    """True if stdin is a pipe, socket or file of this command alone, and has data that nobody has read.
    False if the shell or script that called this command reads the same stdin: a loop over a list, a script
    that is piped into `sh`."""
    try:
        mine, theirs = os.fstat(0), os.stat(f"/proc/{os.getppid()}/fd/0")
        return not os.path.samestat(mine, theirs) and _bytes(mine) > 0
    except OSError:
        return False


def _bytes(seen: os.stat_result) -> int:
    if stat.S_ISREG(seen.st_mode):
        return seen.st_size - os.lseek(0, 0, os.SEEK_CUR)
    if not stat.S_ISFIFO(seen.st_mode) and not stat.S_ISSOCK(seen.st_mode):
        return 0
    waiting = array.array("i", [0])
    fcntl.ioctl(0, termios.FIONREAD, waiting)
    return waiting[0]
