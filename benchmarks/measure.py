"""How we measure: two things side by side in one run, ABBA order, medians, an interval by bootstrap.
And what a row of the table is."""

from __future__ import annotations

import random
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass


@dataclass(frozen=True, kw_only=True)
class Row:
    """One number against its target. `best` says which side of the target is good;
    `value` may be a ratio or a quantity."""

    name: str
    value: float
    target: float | None  # None: the number is told, nothing is promised
    unit: str  # "x" for ratios
    best: str = "low"  # "low": value <= target holds; "high": value >= target
    low: float | None = None  # 95 % interval of the value
    high: float | None = None
    n: int = 1
    detail: str = ""  # the measured sides of a ratio, sizes, what was counted

    @property
    def met(self) -> bool:
        if self.target is None:
            return True
        return self.value <= self.target if self.best == "low" else self.value >= self.target

    def to_json(self) -> dict:
        return {**asdict(self), "met": self.met}

    def line(self) -> str:
        """The row as it is printed: name, value with its interval, target, verdict, detail."""
        sign = "<=" if self.best == "low" else ">="
        spread = (
            f" [{number(self.low)} to {number(self.high)}]"
            if self.low is not None and self.high is not None
            else ""
        )
        verdict = "met" if self.met else "MISSED"
        target = (
            "no target"
            if self.target is None
            else f"target {sign} {number(self.target)}{_unit(self.unit)}: {verdict}"
        )
        detail = f"   ({self.detail})" if self.detail else ""
        return f"{self.name}: {number(self.value)}{_unit(self.unit)}{spread}, {target}{detail}"


def number(value: float | None) -> str:
    """Three significant digits, no exponent."""
    if value is None:
        return "-"
    if value == int(value) and abs(value) < 1e6:
        return str(int(value))
    digits = 0 if abs(value) >= 100 else 1 if abs(value) >= 10 else 2 if abs(value) >= 1 else 3
    return f"{value:.{digits}f}"


def _unit(unit: str) -> str:
    return unit if unit in ("x", "%") else f" {unit}" if unit else ""


def seconds(action: Callable[[], object]) -> float:
    """How long one call takes."""
    began = time.perf_counter()
    action()
    return time.perf_counter() - began


def abba(a: Callable[[], float], b: Callable[[], float], pairs: int) -> tuple[list[float], list[float]]:
    """Values of a and b in the order A B B A A B B A: what drifts, drifts for both.
    One unmeasured call of each comes first."""
    a()
    b()
    of_a: list[float] = []
    of_b: list[float] = []
    for i in range(pairs):
        for which in ((a, of_a), (b, of_b)) if i % 2 == 0 else ((b, of_b), (a, of_a)):
            which[1].append(which[0]())
    return of_a, of_b


def interval(statistic: Callable[[Sequence[int]], float], n: int, rounds: int = 1000) -> tuple[float, float]:
    """The 95 % interval of a statistic of n pairs,
    given as a function of the chosen indices, by bootstrap."""
    chance = random.Random(1)
    values = sorted(statistic([chance.randrange(n) for _ in range(n)]) for _ in range(rounds))
    return values[int(0.025 * rounds)], values[int(0.975 * rounds) - 1]


def ratio(a: Sequence[float], b: Sequence[float]) -> tuple[float, float, float]:
    """median(a) / median(b) with its interval."""
    def of(chosen: Sequence[int]) -> float:
        return statistics.median(a[i] for i in chosen) / statistics.median(b[i] for i in chosen)
    return (of(range(len(a))), *interval(of, len(a)))


def difference(a: Sequence[float], b: Sequence[float]) -> tuple[float, float, float]:
    """median(a) - median(b) with its interval."""
    def of(chosen: Sequence[int]) -> float:
        return statistics.median(a[i] for i in chosen) - statistics.median(b[i] for i in chosen)
    return (of(range(len(a))), *interval(of, len(a)))


def paired(values: Sequence[float]) -> tuple[float, float, float]:
    """Median of what was compared in pairs (differences, ratios), with its interval."""
    def of(chosen: Sequence[int]) -> float:
        return statistics.median(values[i] for i in chosen)
    return (of(range(len(values))), *interval(of, len(values)))


def milliseconds(values: Sequence[float]) -> str:
    return f"{statistics.median(values) * 1000:.0f} ms"
