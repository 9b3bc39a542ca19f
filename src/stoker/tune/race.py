"""Live trials side by side: one process group runs at a time, the others stand still,
and neighbours in time are compared.

What the machine does to one window it does to the next as well, so only ratios within pairs count.
A trial that dies or hangs is a result about its settings.
"""

from __future__ import annotations

import itertools
import os
import random
import signal
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from stoker.tune import procs
from stoker.tune.trial import Command, Trial

WINDOW_STEPS, WINDOW_MIN_S, WINDOW_MAX_S = 12, 0.4, 4.0
WARM_STEPS, WARM_MAX_S = 4, 6.0
PAIRS_MIN, PAIRS_ENOUGH = 4, 8
FEW_PAIRS = 6  # with fewer the interval also spans what single pairs said
PAIRS_LOUD, LOUD = 2, 0.7  # so few are enough where each of them says that it takes less than that
DRAWS = 800
LOST, LOST_AT_MOST = 0.8, 0.9  # of a window: counted out, it leaves too little to be sure of
# so much more of one window of a pair was lost to others than of the other one
UNEVEN, UNEVEN_AT_MOST = 0.35, 0.6
RARE = 3.0  # a step that lasted so many medians is an event, and is counted even where it spans a stop
HANGS_S = 15.0
LOOK_S = 0.1  # so often a running trial is looked at
START_S = 60.0
LONGER = 2.0  # times what was asked for, where there are too few pairs to say anything
# different samples that a kept feed is asked for in a race:
# it would be warm in the second epoch only, which no race reaches
POOL = 256
ENDS = 8  # so often a script that is over is started again: a short training is no fault of its settings
OUT_OF_IT = 0.99  # a ratio above this is no gain


@dataclass(frozen=True)
class Entry:
    """What runs: a name and the settings it runs with ({}: as the script has it)."""

    name: str
    settings: Mapping


@dataclass(frozen=True)
class Interval:
    """A ratio of step times, new/old, with its 90 % interval."""

    value: float
    low: float
    high: float


@dataclass
class Window:
    """What one live trial did while it had the machine. seconds:
    of its steps, less what others held it up."""

    steps: int
    seconds: float
    load: procs.Load

    @property
    def taken(self) -> float:
        """The share of the machine that others used, where they were in our way:
        nothing while cores stood idle."""
        whole = max(1e-9, self.load.wall_s * (os.cpu_count() or 1))
        foreign = self.load.foreign_s + self.load.steal_s
        full = (self.load.own_s + foreign) / whole
        return min(1.0, max(0.0, full - 0.9) / 0.1) * min(1.0, foreign / whole)


@dataclass
class Result:
    """One entry against the first one. ratio: None where too few pairs were comparable. died:
    why it did not come to the end."""

    name: str
    ratio: Interval | None = None
    pairs: int = 0
    dropped: int = 0  # pairs in which others were in the way of one side only
    step_s: float = 0.0  # its own, over all its windows
    steps: int = 0
    died: str = ""
    out: bool = False  # it was taken out early
    applied: dict = field(default_factory=dict)  # what the hooks say of its settings
    windows: list[list[float]] = field(default_factory=list)  # [steps, seconds, share lost to others] of each


@dataclass
class Outcome:
    """results: of all entries, the first is what the others are compared with. who:
    [name, cores] of others that were busy."""

    results: list[Result]
    seconds: float
    who: list[tuple[str, float]]
    taken: float = 0.0  # the share of the machine that others had, on the whole

    def of(self, name: str) -> Result:
        return next(r for r in self.results if r.name == name)

    @property
    def noisy(self) -> bool:
        """Too few pairs were comparable, though the trials lived."""
        return any(not r.died and not r.out and r.ratio is None for r in self.results[1:])


class Race:
    """Start all, warm them, let them take turns for so long, say who was how fast.
    Ends every trial, also on Ctrl-C."""

    def __init__(
        self,
        command: Command,
        entries: Sequence[Entry],
        parent: Path,
        *,
        seed: int = 0,
        network: bool = False,
        warm: int = WARM_STEPS,
        start_s: float = START_S,
        say: Callable[[str], None] = lambda text: None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._parent, self._warm, self._start_s, self._say, self._now = (
            parent,
            max(warm, WARM_STEPS),
            start_s,
            say,
            clock,
        )
        self._random = random.Random(seed)
        self._lanes = [
            _Lane(
                command,
                {
                    "mode": "trial",
                    "seconds": 0,
                    "steps": 0,
                    "seed": None,
                    "settings": dict(e.settings),
                    "try": [],
                    "network": network,
                    "pool": POOL,
                },
                parent,
                Result(e.name),
            )
            for e in entries
        ]
        self._halves: list[dict[str, Window]] = []
        self._who: dict[str, float] = {}
        self._wall = 0.0

    def run(self, seconds: float) -> Outcome:
        """Race for so long after the start, twice that where too few pairs could be compared.
        The trials are ended, also on Ctrl-C."""
        began = self._now()
        try:
            self._warm_up(self._lanes)
            self._turns(self._now() + seconds, self._now() + LONGER * seconds)
        finally:
            for lane in self._lanes:
                lane.finish()
        self._judge()
        others = sorted(
            ((name, s / max(1e-9, self._wall)) for name, s in self._who.items()), key=lambda each: -each[1]
        )
        windows = [w for half in self._halves for w in half.values()]
        taken = statistics.fmean(w.taken for w in windows) if windows else 0.0
        return Outcome(
            [lane.result for lane in self._lanes],
            self._now() - began,
            [w for w in others if w[1] > 0.05][:3],
            taken,
        )

    # -- the start
    # ----------------------------------------------------------------------------------------------------

    def _warm_up(self, lanes: list[_Lane]) -> None:
        """Start them, as many at once as there are cores; each stands still as soon as it is warm."""
        waiting = list(lanes)
        warming: list[_Lane] = []
        at_once = max(1, min(len(waiting), len(os.sched_getaffinity(0))))
        while waiting or warming:
            while waiting and len(warming) < at_once:
                warming.append(waiting.pop(0).start())
            for lane in list(warming):
                if lane.is_warm(self._warm, self._start_s):
                    warming.remove(lane)
                    if not lane.gone:
                        lane.halt()
            time.sleep(0.01)

    # -- turns
    # --------------------------------------------------------------------------------------------------------

    def _turns(self, deadline: float, latest: float) -> None:
        base, forward = self._lanes[0], True
        while not base.gone:
            rivals = [lane for lane in self._lanes[1:] if not lane.gone]
            if self._now() > (latest if any(lane.result.ratio is None for lane in rivals) else deadline):
                return
            if not rivals or self._decided(rivals):
                return
            order = [base, *rivals] if forward else [*reversed(rivals), base]
            half = {}
            window_s = self._window_s([base, *rivals])
            for lane in order:
                window = lane.turn(window_s)
                if lane.gone and lane.again():
                    self._warm_up([lane])
                if window is None:
                    continue
                half[lane.result.name] = window
                self._wall += window.load.wall_s
                for name, used in window.load.who.items():
                    self._who[name] = self._who.get(name, 0.0) + used
            self._halves.append(half)
            self._judge()
            if not forward:  # a whole round: everybody stood in each place
                self._take_out(rivals)
                self._rotate()
            forward = not forward

    def _window_s(self, lanes: list[_Lane]) -> float:
        slowest = max((lane.step_s for lane in lanes), default=0.1)
        return min(WINDOW_MAX_S, max(WINDOW_MIN_S, WINDOW_STEPS * slowest))

    def _rotate(self) -> None:
        self._lanes[1:] = [*self._lanes[2:], *self._lanes[1:2]]

    def _take_out(self, rivals: list[_Lane]) -> None:
        """Those that lost: surely slower than the best one, or surely no gain.
        The last one stays for its number."""
        known = [(lane, lane.result.ratio) for lane in rivals if lane.result.ratio]
        if len(known) < 2:
            return
        best, fastest = min(known, key=lambda pair: pair[1].value)
        for lane, ratio in known:
            if lane is not best and (
                ratio.low > fastest.high
                or (ratio.low > OUT_OF_IT and fastest.high < OUT_OF_IT)
            ):
                self._say(
                    f"{lane.result.name} is too slow, so Stoker ended the test of this setting early: a "
                    f"step takes {ratio.value:.2f} times as long as in the unchanged script"
                )
                lane.result.out = True
                lane.finish()

    def _decided(self, rivals: list[_Lane]) -> bool:
        """One is left and its number is known well enough."""
        if (
            len(rivals) > 1
            or (ratio := rivals[0].result.ratio) is None
            or rivals[0].result.pairs < PAIRS_ENOUGH
        ):
            return False
        return ratio.high - ratio.low < 0.06 * ratio.value

    # -- numbers
    # ------------------------------------------------------------------------------------------------------

    def _judge(self) -> None:
        base = self._lanes[0].result
        for lane in self._lanes:
            lane.tell()
        for lane in self._lanes[1:]:
            name = lane.result.name
            pairs = [
                (half[base.name], half[name]) for half in self._halves if base.name in half and name in half
            ]
            even = even_pairs(pairs)
            lane.result.pairs, lane.result.dropped = len(even), len(pairs) - len(even)
            lane.result.ratio = told_ratio(
                [((a.steps, a.seconds), (b.steps, b.seconds)) for a, b in even], self._random
            )


def even_pairs(pairs: list[tuple[Window, Window]]) -> list[tuple[Window, Window]]:
    """The pairs in which others held up the one about as much as the other.
    With too few of them, the least uneven ones."""
    def uneven(pair: tuple[Window, Window]) -> float:
        return abs(pair[0].load.lost - pair[1].load.lost)

    def most(pair: tuple[Window, Window]) -> float:
        return max(pair[0].load.lost, pair[1].load.lost)
    good = [pair for pair in pairs if uneven(pair) <= UNEVEN and most(pair) <= LOST]
    if len(good) >= PAIRS_MIN:
        return good
    return sorted(
        (pair for pair in pairs if uneven(pair) <= UNEVEN_AT_MOST and most(pair) <= LOST_AT_MOST), key=uneven
    )[:PAIRS_MIN]


def told_ratio(
    pairs: Sequence[tuple[tuple[int, float], tuple[int, float]]], chance: random.Random
) -> Interval | None:
    """As `paired_ratio`; a script whose every life is over in a window has few pairs,
    which may be loud enough."""
    ratio = paired_ratio(pairs, chance)
    if ratio is None and (loud := paired_ratio(pairs, chance, PAIRS_LOUD)) is not None and loud.high < LOUD:
        return loud
    return ratio


def paired_ratio(pairs: Sequence[tuple[tuple[int, float], tuple[int, float]]], chance: random.Random,
                 least: int = PAIRS_MIN) -> Interval | None:
    """Step time new/old over pairs ((steps, seconds) old, new):
    the whole time over all steps, so that rare slow steps count as they weigh;
    the interval by drawing pairs again. None with fewer than `least` pairs."""
    pairs = [(a, b) for a, b in pairs if a[0] > 0 and b[0] > 0 and a[1] > 0]
    if len(pairs) < max(1, least):
        return None

    def ratio(chosen: Sequence) -> float:
        (old_n, old_s), (new_n, new_s) = (
            map(sum, zip(*side, strict=True)) for side in zip(*chosen, strict=True)
        )
        return (new_s / new_n) / (old_s / old_n)
    value = ratio(pairs)
    drawn = sorted(ratio(chance.choices(pairs, k=len(pairs))) for _ in range(DRAWS))
    low, high = drawn[int(0.05 * DRAWS)], drawn[int(0.95 * DRAWS)]
    if len(pairs) < FEW_PAIRS:
        usual = statistics.median(min(a[0], b[0]) for a, b in pairs)
        # not of windows that were mostly evaluation
        single = [ratio([(a, b)]) for a, b in pairs if min(a[0], b[0]) >= usual / 2]
        low, high = min(low, *single), max(high, *single)
    return Interval(value, min(low, value), max(high, value))


class _Lane:
    """One live trial of a race; of a script that is soon over, one after the other."""

    def __init__(self, command: Command, order: dict, parent: Path, result: Result) -> None:
        self._command, self._order, self._parent = command, order, parent
        self.trial, self.result = Trial(command, order, parent), result
        self.gone = False
        self._ended = 0  # how often the script has come to its end
        self._began = 0.0
        self._first = 0.0  # when its first step was seen
        self._halted_ns = 0
        self._ends: list[int] = []  # step ends, CLOCK_MONOTONIC ns
        self._members: list[int] = []

    def start(self) -> _Lane:
        self._began = time.monotonic()
        self.trial.start()
        return self

    def is_warm(self, steps: int, start_s: float) -> bool:
        """Warm, or gone: then `result.died` says why."""
        if not self.trial.alive:
            self._die()
            return True
        spent, count = time.monotonic() - self._began, self.trial.count()
        if count and not self._first:
            self._first = time.monotonic()
        if not count and spent > start_s:
            self._die(f"no step within {start_s:.0f} s")
            return True
        return count >= steps or bool(count >= 2 and time.monotonic() - self._first > WARM_MAX_S)

    @property
    def step_s(self) -> float:
        """Its usual step, as far as is known."""
        ends = self._ends or self.trial.steps()
        recent = [b - a for a, b in zip(ends[-40:], ends[-39:], strict=False)]
        return statistics.median(recent) / 1e9 if recent else 0.1

    def halt(self) -> None:
        self._members = self.trial.members()
        procs.signal_all(self.trial.pid, signal.SIGSTOP, self._members)
        self._halted_ns = time.monotonic_ns()

    def turn(self, seconds: float) -> Window | None:
        """Let it run so long, and at least until three steps have ended.
        None when it died or hung meanwhile; of a script that came to its end, what it did until then."""
        self._ends = self.trial.steps()
        watch = procs.Watch(self._members or self.trial.members())
        went_ns = time.monotonic_ns()
        procs.signal_all(self.trial.pid, signal.SIGCONT, self._members)
        why = self._run_for(seconds, watch)
        if why is None:
            halted_before = self._halted_ns
            self.halt()
            return self._window(watch, halted_before, went_ns)
        window = self._window(watch, self._halted_ns, went_ns)
        self._die(why)
        return window if window.steps >= 2 and not self.result.died else None

    def _run_for(self, seconds: float, watch: procs.Watch) -> str | None:
        """None when the time is over; "" when it ended by itself; else why it cannot go on."""
        now, seen = time.monotonic(), len(self._ends)
        deadline, hung, looked = now + seconds, now + max(seconds, HANGS_S, 30 * self.step_s), now
        while now < deadline or self.trial.count() < seen + 3:
            if not self.trial.alive:
                return ""
            if now > looked + LOOK_S:
                looked = now
                watch.glance()
                if why := procs.tight(str(self.trial.room)):
                    return why
            if now > hung:
                return f"the script hangs: no step in {hung - deadline + seconds:.0f} s"
            time.sleep(min(0.02, max(0.001, deadline - now)) if now < deadline else 0.005)
            now = time.monotonic()
        return None

    def _window(self, watch: procs.Watch, halted_ns: int, went_ns: int) -> Window:
        load = watch.load(self._members)
        before, self._ends = self._ends, self.trial.steps()
        steps, nanoseconds = count_steps(
            before[-1] if before else halted_ns,
            halted_ns,
            went_ns,
            self._ends[len(before) :],
            self.trial.pauses(),
        )
        window = Window(steps, nanoseconds / 1e9 * (1 - load.lost), load)
        if steps:
            self.result.windows.append([steps, round(window.seconds, 6), round(load.lost, 3)])
        return window

    def tell(self) -> None:
        steps, seconds = (sum(w[n] for w in self.result.windows) for n in (0, 1))
        self.result.steps, self.result.step_s = int(steps), seconds / steps if steps else 0.0

    def again(self) -> bool:
        """After the script came to its end: a new one in its place."""
        if not self.gone or self.result.died or self._ended > ENDS:
            return False
        self.trial, self.gone, self._first, self._ends = (
            Trial(self._command, self._order, self._parent),
            False,
            0.0,
            [],
        )
        return True

    def _die(self, why: str = "") -> None:
        ended = self.trial.end()
        self.gone = True
        self.result.applied = ended.settings
        over = not why and ended.how in ("ended", "facts", "stopped") and self.trial.count() > 0
        self._ended += over
        self.result.died = "" if over else why or ended.why or ended.how
        self.trial.clear()

    def finish(self) -> None:
        if not self.gone:
            self.gone = True
            self.result.applied = self.trial.end().settings
            self.trial.clear()


def count_steps(last_ns: int, halted_ns: int, went_ns: int, ends: Sequence[int],
                pauses: Mapping[int, int] | None = None) -> tuple[int, int]:
    """(steps, ns) of a window, evaluation left out: it comes seldom, and to one of the two sides.

    The step that spans the stop before it is left out (a device or a disk may have worked on meanwhile),
    unless it is so long that it is an event of its own:
    leaving those out would hide them, since a stop hits long ones most. pauses:
    end of a step -> ns of evaluation before it; of one that spans a stop, the stop is in it.
    """
    if len(ends) < 2:
        return 0, 0
    pauses = pauses or {}
    steps, took = len(ends) - 1, ends[-1] - ends[0] - sum(pauses.get(end, 0) for end in ends[1:])
    spanning = (
        max(0, halted_ns - last_ns)
        + ends[0]
        - went_ns
        - max(0, pauses.get(ends[0], 0) - max(0, went_ns - halted_ns))
    )
    usual = statistics.median(b - a for a, b in itertools.pairwise(ends))
    return (steps + 1, took + spanning) if spanning > RARE * usual else (steps, took)
