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
CAUSES = {
    "sample_work": "the work of one sample, in Python or a decoder, takes longer than the step",
    "repeated_work": "the same sample is worked out anew in each epoch, though nothing in it is random",
    "collate": "putting the samples of a batch together takes longer than making them",
    "storage": "reading waits for the storage, not for a core",
    "slow_sample": "a few samples are far slower than the rest, and the batch waits for them",
    "worker_lock": "the workers wait for each other",
    "too_many_workers": "more workers than cores: starting them and switching between them costs more than they bring",
    "worker_start": "the workers are started anew in each epoch",
    "duplicates": "every worker yields the whole stream, so that an epoch holds each sample several times",
    "unshuffled": "one branch trains on unshuffled data",
    "threads": "more threads than cores",
    "neighbour": "another process has the cores",
    "sync": "the host waits for the device in each step",
    "ping_pong": "tensors go from the device to the host and back inside the step",
    "cleanup": "memory is swept in each step",
    "logging": "printing or logging in each step",
    "checkpoint": "saving in each step",
    "validation": "validation inside the training loop, far too often",
    "tiny_batch": "the batch is so small that the fixed cost of a step rules",
    "precision": "float32 where a shorter format is faster on this machine",
    "double": "float64 by accident",
    "memory_format": "convolutions on NCHW where channels_last is faster on this machine",
    "layout": "tensors are copied into another layout again and again",
    "graph_kept": "the graph of earlier steps is kept: memory and time grow",
    "per_parameter": "a Python loop over the parameters in each step",
    "optimizer": "the optimizer goes through very many small parameters one by one",
    "zero_grad": "gradients are filled with zeros instead of being dropped",
    "time_loop": "a Python loop over time steps where one call does",
    "padding": "long and short samples share a batch, and most of it is padding",
    "replicas": "the model is copied and its outputs gathered in each step",
    "anomaly": "a debugging mode was left on",
    "memory_jump": "memory jumps behind the first backward, when the optimizer makes its state",
}
REASONS = {
    "own_iter": "the loader has an __iter__ of its own",
    "order_matters": "the stream has to come in its order, from one reader",
    "random_samples": "samples are drawn anew each time",
    "dataset_changes": "the dataset is changed between epochs",
    "precision_sensitive": "the training fails in a shorter format",
    "needs_stdin": "it asks at the terminal",
    "fails_itself": "it ends with an error of its own",
    "too_short": "fewer than 30 steps",
    "no_loader": "it has no DataLoader",
    "several_optimizers": "several optimizers take turns",
    "distributed": "several ranks wait for each other",
    "network_writes": "it writes to somebody's server",
    "not_replayable": "its data cannot be read twice",
    "batch_is_maths": "the loss depends on which samples share a batch",
}


@dataclass(frozen=True)
class Case:
    """One script and the truth about it. Lists of words are alternatives, the first is the best."""

    name: str
    half: str
    kind: str
    cause: str = ""  # of CAUSES; only for faults
    accept: list[str] = field(default_factory=list)  # causes that count as right beside it
    helps: list[str] = field(default_factory=list)  # actions
    cure: str = ""  # of CURES
    risk: str = ""  # of RISKS: class of the best action
    refuse: list[str] = field(default_factory=list)  # actions that must not be applied; "all" = no tuning at all
    reason: str = ""  # why not: of REASONS
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
