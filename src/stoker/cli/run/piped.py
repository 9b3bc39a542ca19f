"""Whose data is on stdin: the run's, or that of the shell loop that calls this command."""

from __future__ import annotations

import array
import fcntl
import os
import re
import stat
import termios
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from stoker.cli import output

_READS_STDIN = re.compile(
    rb"\bstdin\b|\binput\s*\(|\bgetpass\b|\bfileinput\b|\bbreakpoint\s*\(|\bpdb\b|\bopen\(\s*0\b"
)


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
        return not _shared() and _bytes(os.fstat(0)) > 0
    except OSError:
        return False


def list_of_a_loop(command: Sequence[str]) -> bool:
    """True if stdin is probably the list of a shell loop (`cat list | while read ...`): a pipe that the
    calling shell reads too, and the command is a Python script whose text reads no stdin."""
    script = next((Path(word) for word in command if word.endswith(".py")), None)
    try:
        if script is None or not stat.S_ISFIFO(os.fstat(0).st_mode) or not _shared():
            return False
        return not _READS_STDIN.search(script.read_bytes())
    except OSError:
        return False


def _shared() -> bool:
    """True if the program that called this command has the same stdin. Raises OSError."""
    return os.path.samestat(os.fstat(0), os.stat(f"/proc/{os.getppid()}/fd/0"))


def _bytes(seen: os.stat_result) -> int:
    if stat.S_ISREG(seen.st_mode):
        return seen.st_size - os.lseek(0, 0, os.SEEK_CUR)
    if not stat.S_ISFIFO(seen.st_mode) and not stat.S_ISSOCK(seen.st_mode):
        return 0
    waiting = array.array("i", [0])
    fcntl.ioctl(0, termios.FIONREAD, waiting)
    return waiting[0]
