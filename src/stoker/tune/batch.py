"""The batch size that trains most samples a second, and the largest that fits:
found by a few probes of the unmodified script, going up.

Every probe runs in a process of its own that may die:
out of memory, killed, hanging are facts about a size.
The process has a cap on its memory, so that nobody else on the machine pays for it.
Nothing is applied: another batch is another training.
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from stoker.base.units import format_size
from stoker.tune import reading, refusals
from stoker.tune.caps import Cap, available, resident
from stoker.tune.trial import Command, Ended, Trial

MOST = 6  # probes
USE = 0.92  # of the cap: what is taken for a size that fits
SHARE = 0.8  # of the memory that is free: the cap, when nobody names one
NEAR = 0.99  # of the best rate: the smallest size that comes so near is taken
KNEE = 24.0  # times a/b: at B = 24 a/b the rate B/(a + bB) is 96 % of what it can ever be
SLOWER = 0.97  # of the best rate: not noise any more
LEAP = 4  # a size is at most so many times the one before it
LEAST_STEPS = 8  # an epoch keeps at least so many steps
# a size that is not at least so much larger is not tried, for its rate or as the largest
GROWS, GROWS_LAST = 1.25, 1.05
LR_MOST = 4  # times the batch: beyond it no rule for the learning rate is known to hold
START_S, PROBE_S = 180.0, 90.0  # for the first step; for one size
LOOK_S = 0.5
BATCHES, SIZES = "batch.jsonl", "sizes"
_MEMORY = (
    "out of memory",
    "can't allocate memory",
    "cannot allocate memory",
    "bad_alloc",
    "could not create a memory object",
    "memoryerror",
    "outofmemoryerror",
)
_ADAMS = (
    "Adam",
    "AdamW",
    "NAdam",
    "RAdam",
    "Adamax",
    "Adafactor",
    "Lion",
    "RMSprop",
    "Adagrad",
    "Adadelta",
    "SparseAdam",
)


@dataclass(frozen=True)
class Point:
    """One probed size. `why` it did not run, or ""; ms of a batch, peak bytes of training and evaluation."""

    size: int
    ms: float = 0.0
    peak: int = 0
    why: str = ""
    memory: bool = False  # it did not run for want of memory

    @property
    def ok(self) -> bool:
        return not self.why

    @property
    def rate(self) -> float:
        """Samples a second."""
        return self.size * 1000.0 / self.ms if self.ms else 0.0


@dataclass
class Ladder:
    """Which size is probed next, from what is known:
    m(B) = m0 + m1 B from two sizes, t(B) = a + b B from all. Pure."""

    cap: int = 0  # bytes; 0: nobody limits it
    samples: int | None = None  # of the data; None: a stream
    most: int = MOST
    points: list[Point] = field(default_factory=list)

    @property
    def good(self) -> list[Point]:
        return sorted((p for p in self.points if p.ok), key=lambda p: p.size)

    def next(self) -> int | None:
        """A size, 0 for the script's own, or None: enough is known."""
        if not self.points:
            return 0
        if len(self.points) >= self.most:
            return None
        good = self.good
        if not good:
            return min(p.size for p in self.points) // 2 or None
        last, top = good[-1], self.top()
        want = min(self._wanted(), LEAP * last.size, top)
        if want < GROWS * last.size:
            return self._between() or self._largest(top)
        return nice(want)

    def _wanted(self) -> float:
        """Where the rate is as good as it gets, were there memory for it."""
        good = self.good
        if len(good) == 1:
            return 2.0 * good[0].size
        if good[-1].rate < SLOWER * self.fastest().rate:
            return 0.0  # it is already slower than smaller ones
        a, b = self.time()
        return math.inf if b <= 0 else KNEE * a / b

    def _between(self) -> int | None:
        """Between the fastest and the next larger one there may be a faster one still,
        if they lie far apart."""
        good, best = self.good, self.fastest()
        larger = [p.size for p in good if p.size > best.size]
        if not larger or larger[0] < LEAP * best.size:
            return None
        return nice(math.sqrt(best.size * larger[0]))

    def _largest(self, top: float) -> int | None:
        """The largest that should fit, to be seen once, where memory is what ends it."""
        last = self.good[-1]
        if (
            not self.bound_by_memory
            or top < GROWS_LAST * last.size
            or top > 16 * last.size
            or len(self.good) < 2
        ):
            return None
        a, b = self.time()
        return nice(top) if (a + b * top) / 1000 < PROBE_S / 15 else None

    def top(self) -> float:
        """The largest size that should fit, by memory, by what failed and by the data."""
        limits = [self._fits(), self._data()]
        bad = [p.size for p in self.points if not p.ok]
        if bad:
            last = self.good[-1].size if self.good else 1
            limits.append(math.sqrt(last * min(bad)) if min(bad) > last else last)
        return max(1.0, min(limits))

    def _data(self) -> float:
        own = self.points[0].size if self.points else 1
        return math.inf if self.samples is None else max(own, self.samples // LEAST_STEPS)

    def _fits(self) -> float:
        m0, m1 = self.memory()
        return (USE * self.cap - m0) / m1 if self.cap and m1 > 0 else math.inf

    @property
    def bound_by_memory(self) -> bool:
        return self._fits() < self._data() or any(p.memory for p in self.points)

    def memory(self) -> tuple[float, float]:
        """(m0, m1) of m(B) = m0 + m1 B, from the two largest sizes; (peak, 0) of one."""
        good = self.good
        if len(good) < 2:
            return (float(good[0].peak) if good else 0.0), 0.0
        p, q = good[-2:]
        m1 = max(0.0, (q.peak - p.peak) / (q.size - p.size))
        return q.peak - m1 * q.size, m1

    def time(self) -> tuple[float, float]:
        """(a, b) of t(B) = a + b B in ms, by least squares of the relative errors."""
        good = self.good
        weights = [1 / p.ms ** 2 for p in good]
        total = sum(weights)
        x = sum(w * p.size for w, p in zip(weights, good, strict=True)) / total
        y = sum(w * p.ms for w, p in zip(weights, good, strict=True)) / total
        spread = sum(w * (p.size - x) ** 2 for w, p in zip(weights, good, strict=True))
        b = (
            sum(w * (p.size - x) * (p.ms - y) for w, p in zip(weights, good, strict=True)) / spread
            if spread
            else 0.0
        )
        return max(0.0, y - b * x), b

    def fastest(self) -> Point:
        return max(self.good, key=lambda p: p.rate)

    def chosen(self) -> Point:
        """The smallest size whose rate is as good as the best one's;
        not one that leaves no memory to spare, if there are others."""
        fit = [p for p in self.good if not self.cap or p.peak <= USE * self.cap] or self.good[:1]
        best = max(p.rate for p in fit)
        return next(p for p in fit if p.rate >= NEAR * best)


def nice(size: float) -> int:
    """A size that people use, at most 5 % below: a multiple of 2, 4 or 8."""
    step = next((step for least, step in ((256, 8), (96, 4), (32, 2)) if size >= least), 1)
    return max(1, int(size) // step * step)


# ---- the answer

@dataclass
class Answer:
    """What `largest` found. `refused`: why nothing could be tried, else ""."""

    own: int = 0
    points: list[Point] = field(default_factory=list)
    chosen: Point | None = None
    largest: int = 0  # that fits by the memory model or was seen to fit
    seen: bool = False  # it was probed
    cap: int = 0
    samples: int | None = None
    bound_by_memory: bool = False
    floor: float = 0.0  # share of the own step that does not depend on the batch
    optimizer: str = ""
    momentum: float = 0.0
    lr: float | None = None
    accumulated: int = 1
    varied: bool = False
    pairs: bool = False  # the loss depends on which samples share a batch
    refused: str = ""
    seconds: float = 0.0


def answer(ladder: Ladder, told: dict[str, Any]) -> Answer:
    """What the points mean."""
    good = ladder.good
    out = Answer(points=list(ladder.points), cap=ladder.cap, samples=ladder.samples, **told)
    if not good:
        out.refused = (
            out.refused or f"no batch size worked: {ladder.points[-1].why}"
            if ladder.points
            else out.refused or "nothing was measured"
        )
        return out
    out.chosen = ladder.chosen()
    tight = [p.size for p in good if ladder.cap and p.peak > USE * ladder.cap]
    out.bound_by_memory = ladder.bound_by_memory
    top = ladder.top()
    roomy = max((p.size for p in good if p.size not in tight), default=good[0].size)
    out.largest = max(roomy, min(nice(top) if math.isfinite(top) else 0, min(tight, default=1 << 62)))
    out.seen = out.largest <= good[-1].size
    own = next((p for p in good if p.size == out.own), None)
    if own and len(good) > 1:
        out.floor = min(1.0, ladder.time()[0] / own.ms)
    return out


def rule(optimizer: str, momentum: float, lr: float | None, times: float) -> str:
    """How the learning rate goes with a batch `times` as large. Goyal et al.
    2017 for SGD, Malladi et al. 2022 for Adam."""
    if times <= 1:
        return ""
    at = "" if lr is None else f": {lr:g} -> {{:.3g}}"
    if optimizer == "SGD":
        scaled = at.format((lr or 0) * min(times, LR_MOST))
        text = (
            f"multiply the learning rate by {min(times, LR_MOST):.3g}{scaled}, with a warm-up over the first "
            "epochs (linear rule for SGD)"
        )
    elif optimizer in _ADAMS:
        scaled = at.format((lr or 0) * math.sqrt(min(times, LR_MOST)))
        text = (
            f"multiply the learning rate by {math.sqrt(min(times, LR_MOST)):.3g}{scaled} (square root rule "
            f"for {optimizer})"
        )
    else:
        return (
            f"no rule is known for the learning rate of {optimizer or 'this optimizer'}: tune the learning "
            "rate again"
        )
    if times > LR_MOST:
        text += f"; no rule is known for a batch more than {LR_MOST} times as large as yours"
    return text


def lines(out: Answer) -> list[str]:
    """The report, as it is printed: the verdict first."""
    if out.refused or out.chosen is None:
        return [f"Stoker tried no other batch size: {out.refused}"]
    chosen, own = out.chosen, next((p for p in out.points if p.size == out.own and p.ok), None)
    said = [_verdict(out, chosen, own), ""]
    said.append(f"  {'batch':>8}  {'samples/s':>10}  {'ms':>8}  {'memory':>9}")
    for p in sorted(out.points, key=lambda p: p.size):
        mark = " (yours)" if p.size == out.own else ""
        if p is chosen:
            mark = " <- smallest with almost the highest samples/s"
        row = f"{p.rate:>10,.0f}  {p.ms:>8.1f}  {format_size(p.peak):>9}" if p.ok else p.why
        said.append(f"  {p.size:>8}  {row}{mark}")
    said.append("")
    if out.bound_by_memory:
        how = "this size ran" if out.seen else "estimated from smaller batches, not tried"
        said.append(
            f"The largest batch that fits into {format_size(out.cap)} is about {out.largest} ({how})."
        )
    elif out.samples is not None and out.largest >= out.samples // LEAST_STEPS > 0:
        said.append(
            f"The size of the data set limits the batch size: with {out.largest} of {out.samples:,} "
            f"samples in each batch, an epoch has only {LEAST_STEPS} steps. Memory would allow a larger "
            "batch."
        )
    if out.varied:
        said.append("The samples differ in length. The memory in the table is for the longest samples "
                    "that Stoker saw.")
    if own and out.floor < 0.05 and chosen.size == own.size:
        said.append(
            f"Only {out.floor:.0%} of the step time is fixed; the rest of the time grows with the batch, "
            "so a larger batch does not help."
        )
    times = chosen.size / out.own if out.own else 1.0
    if times > 1:
        said += _about_training(out, times)
    return said


def _verdict(out: Answer, chosen: Point, own: Point | None) -> str:
    if own is None:
        return (
            f"Your batch size of {out.own} does not run here ({out.points[0].why}). "
            f"A batch size of {chosen.size} runs, with {chosen.rate:,.0f} samples/s."
        )
    if chosen.size == own.size:
        return (
            f"Keep your batch size of {own.size}: with larger batches, the number of samples per second "
            "is almost the same."
        )
    return (
        f"With batch size {chosen.size} instead of {own.size}, the training has "
        f"{chosen.rate / own.rate:.2f} times as many samples per second ({own.rate:,.0f} -> "
        f"{chosen.rate:,.0f}) and uses {format_size(chosen.peak)} of memory."
    )


def _about_training(out: Answer, times: float) -> list[str]:
    text = [
        (
            f"A larger batch changes the training: an epoch has {times:.3g} times fewer steps. "
            "Stoker changed nothing. If you use a larger batch:"
        ),
        f"  {rule(out.optimizer, out.momentum, out.lr, times)}",
    ]
    if times > LR_MOST:
        text.append(
            f"  start with a batch size of {nice(LR_MOST * out.own)} ({LR_MOST} times your batch size), and "
            "check the loss before you continue"
        )
    if out.pairs:
        text.append(
            "  the loss depends on which samples share a batch, so another batch size changes the loss"
        )
    text.append("  count schedules and warm-ups in samples, not in steps")
    size = out.chosen.size if out.chosen else 0
    if out.accumulated > 1:
        fewer = max(1, round(out.accumulated / times))
        text.append(
            f"  your script accumulates {out.accumulated} batches. To keep the effective batch and the "
            f"learning rate, accumulate {fewer} batch{'' if fewer == 1 else 'es'} of {size} samples "
            "(BatchNorm then computes over the larger batch)"
        )
    else:
        text.append(f"  the effective batch of one optimizer step would be {size}, not {out.own}")
    return text


def as_json(out: Answer) -> dict[str, Any]:
    """For `--json`."""
    return {
        "own": out.own,
        "chosen": out.chosen.size if out.chosen else None,
        "largest": out.largest,
        "largest_seen": out.seen,
        "bound_by_memory": out.bound_by_memory,
        "cap_bytes": out.cap,
        "refused": out.refused,
        "seconds": round(out.seconds, 1),
        "optimizer": out.optimizer,
        "lr": out.lr,
        "accumulated": out.accumulated,
        "lr_rule": rule(out.optimizer, out.momentum, out.lr, out.chosen.size / out.own)
        if out.chosen and out.own
        else "",
        "probes": [
            {"size": p.size, "ms": p.ms, "rate": p.rate, "peak_bytes": p.peak, "failed": p.why or None}
            for p in out.points
        ],
    }


# ---- probes

def largest(
    command: Command,
    *,
    parent: Path,
    cap_bytes: int = 0,
    most: int = MOST,
    settings: dict | None = None,
    say: Callable[[str], None] = lambda text: None,
) -> Answer:
    """Try sizes of the batch in the user's own script. The only entry for `stoker tune --batch`.

    cap_bytes: what the script may take; 0: a share of what is free. parent: folder for the rooms. Never
        raises for what the script does;
    KeyboardInterrupt goes through, with everything ended.
    """
    began = time.monotonic()
    text = reading.read(command.script) if command.script else None
    if text and (no := refusals.before(text)):
        return Answer(refused=no.text)
    ladder = Ladder(cap_bytes or int(SHARE * available()), most=most)
    probes = _Probes(command, parent, ladder, settings or {}, say)
    try:
        while (size := ladder.next()) is not None:
            point = probes.probe(size)
            if point is None:
                break
            ladder.points.append(point)
            say(
                f"batch of {point.size}: "
                f"{point.why or f'{point.rate:,.0f} samples/s, {format_size(point.peak)}'}"
            )
            if len(ladder.points) == 2 and not point.ok and not point.memory and ladder.good:
                probes.told["refused"] = f"the script does not run with another batch size: {point.why}"
                break
            if not ladder.good and not (point.memory and point.size):
                break
    finally:
        probes.end()
    out = answer(ladder, probes.told)
    out.pairs = bool(text and text.batch_pairs)
    out.seconds = time.monotonic() - began
    return out


class _Probes:
    """Starts processes and asks them for sizes; a new one after each that failed."""

    def __init__(
        self, command: Command, parent: Path, ladder: Ladder, settings: dict, say: Callable[[str], None]
    ) -> None:
        self._command, self._parent, self._ladder, self._settings, self._say = (
            command,
            parent,
            ladder,
            settings,
            say,
        )
        self._trial: Trial | None = None
        self._cap: Cap | None = None
        self._began = 0.0
        self._read = 0  # lines of batch.jsonl
        self._size = 0  # the last one that ran here
        self._looked = 0.0
        self._members: list[int] = []
        self._peak = 0  # of all its processes, seen from outside, in this size, from its first steps on
        self._over = False
        self.told: dict[str, Any] = {}

    def probe(self, size: int) -> Point | None:
        """What came of one size; None when the script cannot be tried at all (`told["refused"]`)."""
        grown = self._trial is not None and size > self._size
        point, heard = self._ask(size)
        # the script came to its end before this size
        over = point is not None and point.why == _OVER and not heard.get("began")
        # or what the last size held was still there
        if over or (point is not None and point.memory and grown):
            point, _ = self._ask(size)  # once more from its beginning
        return point

    def _running(self) -> Trial:
        """The trial that `_start` began."""
        assert self._trial is not None
        return self._trial

    def _ask(self, size: int) -> tuple[Point | None, dict]:
        self._over, self._peak = False, 0
        fresh = self._trial is None or size <= self._size
        if fresh:
            self._start(size)
        trial = self._running()
        if not fresh:
            with open(trial.room / SIZES, "a", encoding="utf-8") as f:
                f.write(f"{size}\n")
        heard: dict[str, Any] = {}
        limit = (
            time.monotonic() - self._began + PROBE_S + (START_S if fresh else 0) + 20 * self._expected(size)
        )
        ended = trial.wait(limit, start_s=START_S, until=lambda: self._hear(heard))
        point = self._point(size, heard, ended)
        if ended is not None or point is None or not point.ok:
            self.end()
        else:
            self._size = point.size
        return point, heard

    def _expected(self, size: int) -> float:
        return self._ladder.time()[1] * size / 1000 if len(self._ladder.good) > 1 else 0.0

    def _start(self, size: int) -> None:
        self.end()
        order = {
            "mode": "batch",
            "settings": self._settings,
            "batch": {"size": size, "cap_bytes": self._ladder.cap},
        }
        self._trial, self._began, self._read, self._looked = (
            Trial(self._command, order, self._parent),
            time.monotonic(),
            0,
            0.0,
        )
        self._trial.start()
        self._cap = Cap(self._trial.pid, int(self._ladder.cap * 1.05))

    def _hear(self, heard: dict) -> bool:
        """Read what it says of this size, and watch its memory. True: it is through."""
        trial = self._running()
        if look := time.monotonic() - self._looked > LOOK_S:
            self._looked = time.monotonic()
            self._members = trial.members()
        now = resident(self._members, 0 if look else self._ladder.cap)
        if look or len(self._members) < 2:
            self._peak = max(self._peak, now)
        if now > self._ladder.cap and not heard.get("cap"):
            self._over = True
            trial.end()
            return False
        for line in _json_lines(trial.room / BATCHES)[self._read:]:
            self._read += 1
            heard.update(line)
            if "warm" in line:
                self._peak = 0
        return "evaluated" in heard or any(word in heard for word in ("oom", "failed", "data"))

    def _point(self, size: int, heard: dict, ended: Ended | None) -> Point | None:
        self._hear_rest(heard)
        self._remember(heard)
        size = heard.get("size") or size or self.told.get("own") or 0
        if not size and heard.get("asked"):
            size = self.told["own"] = heard["asked"]
        if "ms" in heard and not self._over:
            peak = max(
                heard.get("peak", 0), heard.get("evaluated", 0), 0 if heard.get("cuda") else self._peak
            )
            if heard.get("retries"):
                return Point(
                    size,
                    why="too close to the memory limit: the allocator had to free memory and retry",
                    memory=True,
                )
            return Point(size, heard["ms"], peak)
        if "oom" in heard or self._over:
            return Point(size, why="out of memory", memory=True)
        if "data" in heard:
            return Point(size, why=f"the data set has only {heard['data']} samples")
        if "failed" in heard:
            return Point(size, why=heard["failed"])
        return self._how_it_ended(size, ended)

    def _hear_rest(self, heard: dict) -> None:
        for line in _json_lines(self._running().room / BATCHES)[self._read:]:
            self._read += 1
            heard.update(line)

    def _remember(self, heard: dict) -> None:
        for key in ("own", "optimizer", "lr", "accumulated", "momentum", "varied"):
            if heard.get(key) is not None:
                self.told[key] = heard[key]
        if "samples" in heard:
            self._ladder.samples = heard["samples"]
        if heard.get("cap"):
            self._ladder.cap = heard["cap"]

    def _how_it_ended(self, size: int, ended: Ended | None) -> Point | None:
        facts = (ended.facts if ended else None) or {}
        if ended and any(word in " ".join([ended.why, *ended.lines]).lower() for word in _MEMORY):
            return Point(size, why="out of memory", memory=True)
        if facts.get("refused"):
            self.told["refused"] = NO_LOADER if facts["refused"] == "no_loader" else facts["refused"]
            return None
        if ended and ended.how == "killed":
            return Point(size, why=f"the trial was killed ({ended.why})", memory=ended.signal == 9)
        if (ended and ended.how in ("ended", "stopped")) or facts.get("ended") == "script":
            return Point(size, why=_OVER)
        why = (ended.why or ended.how) if ended else "the trial did not answer"
        if facts.get("fault"):
            why = f"an internal error of the probe ({facts['fault']})"
        if not self._ladder.points:
            self.told["refused"] = why
            return None
        return Point(size, why=why)

    def end(self) -> None:
        """End what runs, and take away what was made for it."""
        if self._trial is not None:
            self._trial.end()
            self._trial.clear()
        if self._cap is not None:
            self._cap.clear()
        self._trial = self._cap = None


NO_LOADER = "the script has no DataLoader, so Stoker cannot change the batch size"
_OVER = "the script ended before Stoker measured this batch size"


def _json_lines(path: Path) -> Sequence[dict]:
    try:
        raw = path.read_bytes()
    except OSError:
        return []
    return [json.loads(line) for line in raw[:raw.rfind(b"\n") + 1].splitlines()]
