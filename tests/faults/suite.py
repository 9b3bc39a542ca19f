"""The planted-fault suite as data: which scripts there are, what is true of each, and its source with the fault repaired.

`cases("dev")` may be read while rules are written; `cases("sealed")` is for the one run at the end (README.md).
"""

from __future__ import annotations

import os
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

HERE = Path(__file__).resolve().parent
HALVES = ("dev", "sealed")
KINDS = ("fault", "optimal", "refuse")
RISKS = ("A", "B", "C")
CURES = {
    "setting": "a setting put in from outside, the script unchanged",
    "diff": "a change of the script, offered as a diff",
    "advice": "something outside the script: the machine, the data, another process",
}


@dataclass(frozen=True)
class Case:
    """One script and the truth about it. Lists of words are alternatives, the first is the best."""

    name: str
    half: str
    kind: str
    cause: str = ""  # of stoker.tune.causes.CAUSES; only for faults
    accept: list[str] = field(default_factory=list)  # causes that count as right beside it
    helps: list[str] = field(default_factory=list)  # actions
    cure: str = ""  # of CURES
    risk: str = ""  # of RISKS: class of the best action
    refuse: list[str] = field(default_factory=list)  # actions that must not be applied; "all" = no tuning at all
    reason: str = ""  # why not: of stoker.tune.refusals.REASONS
    about: str = ""  # a sentence on what costs, or why nothing does
    args: list[str] = field(default_factory=list)
    steps: int = 60  # optimizer steps that are measured, after the first ones
    warm: int = 3  # steps before them
    repaired_steps: int = 0  # steps of the repaired form that do the same work; 0: as many
    measure: str = "time"  # or "memory" (before the first step against later), "none" (nothing that a clock shows)
    crowd: bool = False  # the wait for a core is the fault itself, and is not taken out of the times
    neighbour: bool = False  # the suite keeps every core busy meanwhile
    stops: str = ""  # how a script ends that does not train: "stdin", "error", "elsewhere" (in other processes)
    repair: list[dict[str, str]] = field(default_factory=list)  # old -> new, each old exactly once in the source
    unsafe: list[dict[str, str]] = field(default_factory=list)  # the refused change made by hand: what the script prints must differ

    @property
    def path(self) -> Path:
        """The script."""
        return HERE / self.half / f"{self.name}.py"


def cases(half: str = "", kind: str = "") -> list[Case]:
    """The cases of one half and one kind; of all by default."""
    found = []
    for part in [half] if half else HALVES:
        table = tomllib.loads((HERE / part / "truth.toml").read_text("utf-8"))
        found += [Case(name=name, half=part, **facts) for name, facts in table.items()]
    return [case for case in found if kind in ("", case.kind)]


def measured(half: str) -> dict[str, dict]:
    """What measure.py wrote, by script name: ms_with, ms_without, share, low, high, runs."""
    path = HERE / half / "measured.toml"
    return tomllib.loads(path.read_text("utf-8")) if path.exists() else {}


def changed(case: Case, edits: list[dict[str, str]]) -> str:
    """The source of the script after these edits; ValueError when one of them does not fit exactly once."""
    source = case.path.read_text("utf-8")
    for edit in edits:
        if source.count(edit["old"]) != 1:
            raise ValueError(f"{case.name}: {edit['old']!r} stands {source.count(edit['old'])} times in the script")
        source = source.replace(edit["old"], edit["new"])
    return source


def lines(case: Case) -> list[int]:
    """Where in the script the repair begins, by line: what a lint may point at."""
    source = case.path.read_text("utf-8")
    return sorted(source[: source.index(edit["old"])].count("\n") + 1 for edit in case.repair)


@contextmanager
def neighbour(wanted: bool = True) -> Iterator[None]:
    """Keep every usable core busy with a process of somebody else's."""
    code = "while True:\n    sum(range(10000))\n"
    busy = [subprocess.Popen([sys.executable, "-S", "-c", code]) for _ in os.sched_getaffinity(0)] if wanted else []
    try:
        yield
    finally:
        for process in busy:
            process.kill()
            process.wait()
