"""The switchboard: which part of Stoker works in a Python process, switched on by which variable,
and in which order.

Each row names a file and a function of it, which is called with the Process.
A script that never imports torch pays for this file and the two early parts of exact resume, less than 3 ms.
What any part may use (`record`, `now`) is in processes.py.
"""

from __future__ import annotations

import os
import sys
import time

from . import imports, processes

ALL = ("script", "worker", "service", "tool")  # processes.role
SCRIPT, TRAINS = ("script",), ("script", "worker")

# (variable, roles, file, function). Variable: "" always, "A" set, "A=b" set to b, "A|B" one of both set. A
# function that gives False takes its file out of this process: no later row of that file is called.
AT_START = (
    # the first process becomes the conductor, and does not come back from here
    ("STOKER_REHEARSE", ALL, "rehearse", "begin"),
    ("", ALL, "unseen", "leave_stacks"),
    # before all that writes: an audit writes into its room only
    ("STOKER_AUDIT=child", ALL, "resume.audit.auditor", "begin"),
    ("STOKER_RESUME=auto", SCRIPT, "resume", "begin"),
    ("STOKER_TUNE", ALL, "measure", "begin"),
    ("", ALL, "entry.handlers", "install"),
    ("", SCRIPT, "entry.uncaught", "install"),
    ("", SCRIPT, "numbers", "begin"),
    ("", SCRIPT, "entry.others", "install"),
)

# The same, once torch is imported, and what is recorded if that row fails (None: the script goes on without
# all that follows).
WITH_TORCH = (
    # first of all: for the clock and for exact resume what settings change is as the script had it
    (
        "STOKER_SETTINGS|STOKER_TUNE",
        TRAINS,
        "settings",
        "install",
        lambda error: {"settings": {"applied": [], "left": {"all": error}}},
    ),
    # within the clock: what is measured is what loaders hand out
    ("STOKER_TUNE", TRAINS, "measure", "torch_is_here", lambda error: {"probe": f"not started: {error}"}),
    ("", TRAINS, "entry.stacks", "install", lambda error: {"stacks": {}, "no_stacks": error}),
    # its marks go in before those of exact resume, which stands around them: a ghost never comes to them
    ("", TRAINS, "clock", "install", lambda error: {"clock": f"not started: {error}"}),
    ("", TRAINS, "entry.joins", "clock_and_children", lambda error: {"clock": f"not started: {error}"}),
    ("STOKER_TUNE", TRAINS, "measure", "clock_is_here", lambda error: {"clock": f"not started: {error}"}),
    ("STOKER_RESUME=auto", SCRIPT, "resume", "torch_is_here", None),
    ("STOKER_RESUME=auto", SCRIPT, "entry.joins", "clock_and_resume", None),
    ("STOKER_RESUME=auto", SCRIPT, "entry.joins", "numbers_and_resume", None),
    ("STOKER_DIGEST", SCRIPT, "resume.compute.digest", "install", None),
)


class Process:
    """The process that is switched on: the words it was started with, its role,
    and which files take no part."""

    def __init__(self) -> None:
        self.words = processes.command_line()
        self.role = processes.role(self.words)
        self.out: set = set()  # files that gave False
        self.rehearsed = self.resumes = self.clock = False  # said by the files that do it
        self.torch: object = None
        self.said: dict = {}  # for the line about torch

    def call(self, variable: str, roles: tuple, file: str, function: str) -> None:
        """One row."""
        if self.role not in roles or file in self.out or not _is_on(variable):
            return
        part = __import__(f"{__name__.rpartition('.')[0]}.{file}", fromlist=("",))
        if getattr(part, function)(self) is False:
            self.out.add(file)


def begin() -> None:
    """Hook this process: called once, by sitecustomize, before the script."""
    process = Process()
    for row in AT_START:
        process.call(*row)
    imports.after("torch", lambda torch: _torch_is_here(process, torch))
    processes.record(role=process.role, argv=process.words[:64], python=sys.version.split()[0])


def _torch_is_here(process: Process, torch: object) -> None:
    process.torch = torch
    for *row, fault in () if process.rehearsed else WITH_TORCH:
        try:
            process.call(*row)
        except Exception as e:
            if fault is None:
                raise
            processes.record(**fault(f"{type(e).__name__}: {e}"))
    after_s = round(time.monotonic() - processes.START, 3)
    processes.record(torch=str(getattr(torch, "__version__", "")), after_s=after_s, **process.said)


def _is_on(variable: str) -> bool:
    if not variable:
        return True
    name, equal, value = variable.partition("=")
    if equal:
        return os.environ.get(name) == value
    return any(os.environ.get(each) for each in name.split("|"))
