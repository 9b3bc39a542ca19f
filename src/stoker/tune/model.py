"""Small models behind the forecasts: a loader by workers, a step and its memory by batch, ratios of paired
windows. Pure arithmetic."""

from __future__ import annotations

import math
import random
import statistics
from collections.abc import Sequence
from dataclasses import dataclass, replace

from stoker.tune.findings import Range

SEED = 20  # of the bootstrap: the same facts give the same interval
DRAWS = 400
HANDOVER_S = 0.0003  # what a batch from a worker costs the main process, at least
_WIDE = (0.90, 1.10)  # what one pair alone may be wrong by


# --- ratios
# ------------------------------------------------------------------------------------------------------------

def paired(windows: Sequence[dict], phase: str, against: str) -> Range | None:
    """Step time in `phase` over that in `against`, evaluation left out: neighbours in time make pairs;
    90 % bootstrap over pairs."""
    pairs = _pairs(windows, phase, against)
    return interval(pairs) if pairs else None


def _pairs(windows: Sequence[dict], phase: str, against: str) -> list[tuple[float, float]]:
    """Seconds a step (in `phase`, `against` beside it). Windows stand in their order, as A B B A:
    the first B goes with the A before it."""
    usable = [w for w in windows if w.get("steps") and w.get("wall_s") and w["phase"] in (phase, against)]
    pairs, run = [], []
    before: dict | None = None
    for w in [*usable, None]:
        if w is not None and w["phase"] == phase:
            run.append(w)
            continue
        for i, ours in enumerate(run):
            first = i < (len(run) + 1) // 2
            other = (before or w) if first else (w or before)
            if other is not None:
                pairs.append((seconds(ours), seconds(other)))
        before, run = w, []
    return pairs


def seconds(window: dict) -> float:
    """A step of a window, evaluation left out."""
    within = 0.0 if "evaluation_s" in window else (window.get("ms") or {}).get("evaluation", 0.0) / 1e3
    return max(1e-9, window["wall_s"] - within) / window["steps"]


def interval(pairs: Sequence[tuple[float, float]]) -> Range:
    """Ratio of the sums with a 90 % interval by seeded bootstrap;
    of one or two pairs at least what a single one may be wrong by.

    Sums and not medians: a slow sample now and then is a part of the time.
    """
    value = _ratio(pairs)
    if len(pairs) < 3:
        each = [a / b for a, b in pairs]
        return Range(value, min(*each, value * _WIDE[0]), max(*each, value * _WIDE[1]))
    draw = random.Random(SEED)
    found = sorted(_ratio(draw.choices(pairs, k=len(pairs))) for _ in range(DRAWS))
    return Range(value, found[DRAWS // 20], found[-DRAWS // 20 - 1])


def _ratio(pairs: Sequence[tuple[float, float]]) -> float:
    return sum(a for a, _ in pairs) / sum(b for _, b in pairs)


# --- the loader
# ------------------------------------------------------------------------------------------------------------

@dataclass(frozen=True)
class LoaderModel:
    """Samples a second of a DataLoader by its workers.

    work_s: CPU of one sample (c). wait_s: its waiting (w). collate_s: of one batch (g). copy_s: a batch's
        way out of a worker.
    cores: that workers may have. lock, cross: the retrograde term 1 + lock(n-1) + cross n(n-1) (Gunther's
        scalability law).
    """

    work_s: float
    wait_s: float
    collate_s: float
    batch: float
    cores: float
    copy_s: float = HANDOVER_S
    lock: float = 0.0
    cross: float = 0.0

    def batch_s(self) -> float:
        """Seconds to make one batch in one process."""
        return (self.work_s + self.wait_s) * self.batch + self.collate_s

    def cpu_s(self) -> float:
        """CPU seconds of one batch."""
        return self.work_s * self.batch + self.collate_s

    def rate(self, workers: int, cores: float | None = None) -> float:
        """Samples a second of the loader alone. 0 workers: made by the main process."""
        whole = max(self.batch_s(), 1e-9)
        if workers <= 0:
            return self.batch / whole
        free = max(cores if cores is not None else self.cores, 0.25)
        each = min(workers / whole, free / max(self.cpu_s(), 1e-9), 1 / self.copy_s)
        slower = 1 + self.lock * (workers - 1) + self.cross * workers * (workers - 1)
        return self.batch * each / slower

    def step_s(self, workers: int, compute_s: float, compute_cpu_s: float | None = None) -> float:
        """Seconds of a training step whose batches come from so many workers, beside a computation that has
        the same cores."""
        if workers <= 0:
            return self.batch_s() + compute_s
        busy = compute_s if compute_cpu_s is None else compute_cpu_s
        together = (self.cpu_s() + busy + self.copy_s) / max(self.cores, 1)  # no core can do more
        return max(compute_s + self.copy_s, self.batch / self.rate(workers), together)

    def advised(
        self, compute_s: float, compute_cpu_s: float | None = None, most: int = 16, start_s: float = 0.0
    ) -> int:
        """The fewest workers within 2 % of the best step. start_s: what it takes to start one, a step."""
        times = {n: self.step_s(n, compute_s, compute_cpu_s) + n * start_s for n in range(most + 1)}
        best = min(times.values())
        return next(n for n, t in times.items() if t <= best * 1.02)


def corrected(model: LoaderModel, dots: Sequence[tuple[int, float]]) -> LoaderModel:
    """The model with the retrograde term that fits the measured rates best (log error, on a grid), and its
    scale set by one worker."""
    alone = next((rate for n, rate in dots if n == 1), None)
    if alone and alone < model.rate(1):  # a worker is slower than the direct calls were: its wait is longer
        longer = (model.batch / alone - model.batch_s()) / model.batch
        model = replace(
            model, wait_s=model.wait_s + max(0.0, min(longer, 10 * (model.batch_s() / model.batch) + 1e-3))
        )
    many = [(n, rate) for n, rate in dots if n > 1]
    if not many:
        return model
    grid = [0.0, 0.01, 0.02, 0.05, 0.1, 0.2, 0.35, 0.5, 0.7, 0.85, 1.0]

    def error(trial: LoaderModel) -> float:
        return sum((_log(trial.rate(n)) - _log(rate)) ** 2 for n, rate in many)

    return min(
        (replace(model, lock=lock, cross=cross) for lock in grid for cross in (0.0, 0.002, 0.01, 0.03, 0.1)),
        key=error,
    )


def _log(value: float) -> float:
    return math.log(max(value, 1e-9))


# --- the step and its memory
# -------------------------------------------------------------------------------------------------

@dataclass(frozen=True)
class StepModel:
    """Seconds of a step by its batch: fixed_s + sample_s * B."""

    fixed_s: float
    sample_s: float

    def at(self, batch: float) -> float:
        return self.fixed_s + self.sample_s * batch

    def fixed_share(self, batch: float) -> float:
        """Part of a step that a larger batch would not pay again."""
        whole = self.at(batch)
        return self.fixed_s / whole if whole else 0.0

    def knee(self, share: float = 0.2) -> float:
        """The batch from which the fixed part is at most this share of the step."""
        return self.fixed_s * (1 - share) / (share * self.sample_s) if self.sample_s > 0 else float("inf")


def fit_step(dots: Sequence[tuple[float, float]]) -> StepModel | None:
    """(batch, seconds) of at least two different batches; least squares, neither part below zero."""
    if len({b for b, _ in dots}) < 2:
        return None
    slope, fixed = statistics.linear_regression([b for b, _ in dots], [s for _, s in dots])
    if slope <= 0:
        return StepModel(statistics.fmean(s for _, s in dots), 0.0)
    if fixed < 0:
        return StepModel(0.0, sum(b * s for b, s in dots) / sum(b * b for b, _ in dots))
    return StepModel(fixed, slope)
