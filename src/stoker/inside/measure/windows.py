"""One window of the training: some steps, timed, with the clock's split and who had the processors.
All between the ends of two steps.

A window: `{"phase", "block", "steps", "samples", "wall_s", "cpu_s", "children_cpu_s", "stolen_s" (ready,
and others had the core), "ms": {kind: ms of the clock}, "step_ms": [...]}`.
- Phases: R0 the unchanged script · R1 batches from memory · R2 batches from the device · R4 batches from
  memory while the loader works · workers=N, threads=N, bf16, channels_last, fused, batched, cache,
  anomaly=off. Each alternates with R0 in the order A B B A; R2 and batch=2x alternate with R1. Windows of
  one `block` belong together.
- `logged`: in so many steps of `step_ms` the script printed or logged.
- `steps` and `wall_s` are without evaluation, which is `evaluation_s`.
- `sampled`: stacks were sampled, its times do not count. `cut`: the script ended in this window.
- `busy_s` and `foreign_cpu_s` are of the whole machine. `wait_s`: ready, but without a core.
"""

from __future__ import annotations

import sys

from ..clock import marks
from ..entry.processes import now
from . import feed, look

STEPS_MAX = 512  # single times that one window keeps

# ns since the beginning; marks.spent begins anew with each line of steps.jsonl
_total = [0] * len(marks.KINDS)
_base = [0] * len(marks.KINDS)


def watch_the_clock() -> None:
    """Add up what the clock tells before it writes and forgets it."""
    write = marks.write

    def told(moment: int) -> None:
        _gather()
        write(moment)
        _base[:] = marks.spent

    marks.write = told
    _base[:] = marks.spent


def _gather() -> None:
    spent = marks.spent
    for kind, ns in enumerate(spent):
        _total[kind] += ns - _base[kind]
    _base[:] = spent


def spent() -> list:
    """ns of each kind so far."""
    _gather()
    return _total[:]


def aside(since: int) -> None:
    """What happened since then between two steps was ours: it is in no step and in no kind."""
    from ..clock import book
    took = now() - since
    marks.last += took
    marks._step_from += took
    book._from += took


class Pause:
    """A `with` between two steps, around what is ours: the clock sees nothing of it."""

    def __enter__(self) -> None:
        self._since, self._was = now(), marks._inside
        marks._inside = True

    def __exit__(self, *_: object) -> None:
        marks._inside = self._was
        aside(self._since)


class Window:
    """Begins as it is made; `step()` at the end of each step; `end()` gives what it was."""

    def __init__(self) -> None:
        since = marks.last  # what came after the end of the last step was ours too
        _settle_device()
        self.times: list = []
        self._look = look.Look()
        self._samples = feed.samples
        self._spent = spent()
        self._evaluated = self._spent[marks.EVALUATION]
        self._log_ns = self._spent[marks.LOG]
        self.steps = self.logged = 0
        aside(since)
        self.began = self._last = now()

    def step(self) -> int:
        """ns since it began, evaluation left out."""
        moment = now()
        if self.steps < STEPS_MAX:
            _gather()
            evaluated = _total[marks.EVALUATION]
            self.times.append(moment - self._last - evaluated + self._evaluated)
            self._evaluated = evaluated
            self.logged += _total[marks.LOG] > self._log_ns
            self._log_ns = _total[marks.LOG]
        self._last = moment
        self.steps += 1
        return moment - self.began - self.evaluated()

    def evaluated(self) -> int:
        """ns of evaluation in it: of no step, and wherever it falls. Left out of `wall_s`."""
        return _total[marks.EVALUATION] - self._spent[marks.EVALUATION]

    def end(self, phase: str, block: int, **more: object) -> dict:
        """The window as facts know it."""
        since = now()
        _settle_device()
        _gather()
        whole = now() - self.began - self.evaluated()
        told = {"phase": phase, "block": block, "steps": self.steps, "samples": feed.samples - self._samples,
                "wall_s": round(whole / 1e9, 6)}
        told.update(look.between(self._look, look.Look()))
        kinds = [after - before for before, after in zip(self._spent, spent())]  # noqa: B905
        told["ms"] = {name: round(ns / 1e6, 3) for name, ns in zip(marks.KINDS, kinds) if ns > 0}  # noqa: B905
        told["evaluation_s"] = round(self.evaluated() / 1e9, 6)
        told["step_ms"] = [round(ns / 1e6, 4) for ns in self.times]
        told["logged"] = self.logged
        told.update(more)
        aside(since)
        return told

    def cut(self, phase: str, block: int, **more: object) -> dict:
        """As much of it as there was when the last step ended; what came after is not known apart."""
        return {
            "phase": phase,
            "block": block,
            "steps": self.steps,
            "samples": feed.samples - self._samples,
            "cut": True,
            "wall_s": round(
                (self._last - self.began - self._evaluated + self._spent[marks.EVALUATION]) / 1e9, 6
            ),
            "step_ms": [round(ns / 1e6, 4) for ns in self.times],
            **more,
        }


def _settle_device() -> None:
    """Only at a window's edge: within it the host may run ahead."""
    torch = sys.modules["torch"]
    if torch.cuda.is_available() and torch.cuda.is_initialized():
        torch.cuda.synchronize()
