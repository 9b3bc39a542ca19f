"""The course of a measurement: which window comes when. Each `yield` is one step of the script's training.

First the script as it is against batches from memory;
then where its time goes, line by line, and the data by itself;
then what could be changed, what is most likely to help first; and the same again while there is time.
"""

from __future__ import annotations

import math
import os
import sys
import threading
import time

from ..clock import marks
from ..entry.processes import now
from . import feed, look, order, windows
from .changes import Change, computing, feeding, wanted

WARM_STEPS, WARM_S = 4, 0.1
WINDOW_S, WINDOW_STEPS = 0.25, 5
BRIEF_S = 0.1  # of the first windows: a short script is soon over
MANY_STEPS, MANY_S = 40, 0.05  # so many steps are a window too
HOPELESS = 1.4  # a change that makes a step so many times longer is not tried again
LONG_S = 1.0  # a window whose steps take this much longer than expected ends early
SLOW = 0.06  # a block that takes more of the time than this comes once before the changes
SETTLE_S = 1.0  # at most, for workers that fill their queue
BLOCKS_MAX = 4
SAMPLED_S = 0.4, 0.8  # two times
SAMPLES_S, ALONE_S = 2.4, 0.4
_monotonic = time.monotonic


class Course:
    """What is done to one training, from its first step until the time is used."""

    def __init__(self, seconds: float) -> None:
        self.until = _monotonic() + seconds
        self.seconds = seconds
        self.step_s = 0.0  # of the script as it is
        self.number = 0  # of the last block
        self.window_s = BRIEF_S
        self.proven = False
        self.again = True  # the data can be read beside the script
        self.open: tuple | None = None  # the window that goes on
        order.collect.append(self.cut)
        self.told: list = order.facts.setdefault("windows", [])

    def run(self) -> object:
        """The whole course, as a generator that is moved on once a step."""
        if _several_ranks():
            self.over()
            return
        yield from self.warm_up()
        yield from self.collect()
        self.data()
        self.built()
        yield from self.settle()
        for seconds, sampled in zip((BRIEF_S, WINDOW_S), SAMPLED_S):  # noqa: B905
            self.window_s = seconds
            if not self.told or self.cost() < SLOW * self.seconds:
                yield from self.block("R1", against="R0") if self.has_ring() else self.alone()
            yield from self.sampled(sampled)
        yield from self.changes()

    def over(self) -> None:
        """Several processes train: nothing more is to be measured."""
        self.until = _monotonic()

    def left(self) -> float:
        """Seconds that there still are."""
        return self.until - _monotonic()

    # ---- before anything is timed

    def warm_up(self) -> object:
        """The first steps, and as many as a queue that was filled before them."""
        began, steps, since = now(), 0, now()
        while True:
            yield
            steps += 1
            if steps == 2:
                since = now()
            queued = max((line.queue() for line in feed.training()), default=0)
            if steps >= WARM_STEPS + queued and now() - began > WARM_S * 1e9:
                break
            if now() - began > 0.15 * self.seconds * 1e9 and steps >= 3:
                break
        self.step_s = (now() - since) / 1e9 / (steps - 2)

    def collect(self) -> object:
        """Keep some batches of each loader that is trained on."""
        lines, began = feed.training(), _monotonic()
        for line in lines:
            line.collecting = True
        while (
            lines and not all(line.ring.full for line in lines) and _monotonic() - began < 0.2 * self.seconds
        ):
            yield
        if lines:
            yield  # the last one is looked at again
        for line in lines:
            line.collecting = False
            line.ring.look_back()

    def has_ring(self) -> bool:
        """Whether all that is trained on can come from memory."""
        lines = feed.training()
        return bool(lines) and all(line.ring.usable for line in lines)

    # ---- blocks

    def alone(self) -> object:
        """Four windows of the script as it is."""
        block = self.begin_block("R0")
        for _ in range(4):
            yield from self.window("R0", block)

    def block(self, phase: str, against: str = "R0", change: Change | None = None) -> object:
        """A B B A: as it is (or from memory), changed, changed, as it was."""
        why = change.fits() if change is not None else ""
        if why:
            order.facts.setdefault("left", {})[phase] = why
            return
        block = self.begin_block(phase)
        beside = against == "R1"
        if beside:
            self.turn("R1", lambda: _feed_from(feed.RING))
            yield from self.settle()
        yield from self.window(against, block)
        why = self.turn(phase, change.on if change else lambda: _feed_from(feed.RING))
        self.proof(phase, why)
        if why:
            order.facts.setdefault("left", {})[phase] = why
        else:
            yield from self.settle()
            yield from self.window(phase, block)
            if not self.hopeless(phase):
                yield from self.window(phase, block)
        self.back(change, feed.RING if beside else feed.REAL)
        yield from self.settle()
        if not why:
            yield from self.window(against, block)
        if beside:
            self.back(None, feed.REAL)
            yield from self.settle()

    def proof(self, phase: str, why: str) -> None:
        """A feed has proven itself, or told why not, before it was tried."""
        line = feed.main()
        if phase in ("batched", "cache") and line is not None:
            self.more(line).setdefault("proof", {})[phase] = why or True

    def begin_block(self, phase: str) -> int:
        """Its number: all windows that stand beside each other have the same."""
        self.number += 1
        order.progress(phase, marks.steps)
        return self.number

    def turn(self, phase: str, on: object) -> str:
        """From the next step on the script has what `phase` says. "" or why not."""
        order.facts["trying"] = phase
        with windows.Pause():
            return on() or ""

    def back(self, change: Change | None, source: str) -> None:
        """From the next step on all is as the script has it."""
        with windows.Pause():
            if change is not None:
                change.off()
            _feed_from(source)
        order.facts.pop("trying", None)

    def settle(self) -> object:
        """Steps that are not counted: until what lay ready before the change is used up,
        and queues that fill are full."""
        yield  # workers come up in it
        most = now() + int(max(SETTLE_S, 0.06 * self.seconds) * 1e9)
        for _ in range(2 + max((line.queue() for line in feed.training()), default=0)):
            yield
            if now() > most:
                break
        if any(line.source == feed.RING and line.workers for line in feed.training()):
            yield from self.quiet(most)

    def quiet(self, most: int) -> object:
        """Until the workers have nothing to do."""
        pids = look.workers()
        moment, cpu = now(), sum(look.cpu_of(pid) for pid in pids)
        while pids and now() < most:
            yield
            if now() - moment < 60_000_000:
                continue
            used = sum(look.cpu_of(pid) for pid in pids)
            if used - cpu < 0.15 * (now() - moment) / 1e9:
                return
            moment, cpu = now(), used

    def window(self, phase: str, block: int, seconds: float = 0.0, **more: object) -> object:
        """One window; its facts are told."""
        steps, least = self.sizes()
        least = max(least, int(seconds * 1e9))
        window = windows.Window()
        self.open = window, phase, block, more
        while True:
            yield
            took = window.step()
            if window.steps >= steps and (
                took >= least or (not seconds and window.steps >= MANY_STEPS and took >= MANY_S * 1e9)
            ):
                break
            if window.steps >= 2 and took > least + (LONG_S + 3 * steps * self.step_s) * 1e9:
                break
        self.open = None
        self.told.append(window.end(phase, block, **more))
        if os.path.exists(os.path.join(order.room, "enough")):  # who waits has been told to stop
            order.finish("enough")

    def cut(self, facts: dict) -> None:
        """The script has come to its end within a window: what there is of it."""
        from . import stacks
        stacks.end()
        if self.open is not None:
            window, phase, block, more = self.open
            self.open = None
            if window.steps >= WINDOW_STEPS:
                self.told.append(window.cut(phase, block, **more))
        if self.left() > 0.1 * self.seconds and threading.current_thread() is threading.main_thread():
            self.data()
            self.proofs()

    def sizes(self) -> tuple:
        """(steps, ns) that a window has at least:
        fewer steps where one takes so long that the time would not do."""
        fitting = int(self.seconds / 40 / self.step_s) if self.step_s else WINDOW_STEPS
        return max(2, min(WINDOW_STEPS, fitting)), int(self.window_s * 1e9)

    def cost(self) -> float:
        """Seconds that a block takes."""
        steps, least = self.sizes()
        queue = max((line.queue() for line in feed.training()), default=0)
        return 4 * max(least / 1e9, steps * self.step_s) + 2 * min(SETTLE_S, (2 + queue) * self.step_s) + 0.1

    # ---- where the time goes

    def sampled(self, seconds: float) -> object:
        """A window in which a thread looks where the training is."""
        from . import stacks
        if stacks.facts not in order.collect:
            order.collect.append(stacks.facts)
        block = self.begin_block("stacks")
        seconds = min(seconds, 0.1 * self.seconds)
        stacks.begin()
        yield from self.window("R0", block, seconds, sampled=True)
        stacks.end()

    def data(self) -> None:
        """Single samples, and two processes beside each other: between two steps."""
        line = feed.main()
        loader = line.loader() if line is not None else None
        seconds = min(SAMPLES_S, 0.15 * self.seconds, 0.5 * self.left())
        if loader is None or seconds < 0.05 or "samples" in order.facts:
            return
        order.progress("samples", marks.steps)
        try:
            with windows.Pause():
                self.look_at(line, loader, seconds)
        except Exception as e:
            order.fault("the samples", e)

    def look_at(self, line: object, loader: object, seconds: float) -> None:
        """Facts about single samples of a loader."""
        from . import samples
        told, more = samples.measure(loader, seconds)
        order.facts["samples"] = told
        self.again = not isinstance(more.get("replay"), str)
        labels = more.pop("labels", [])
        if labels:
            more["labels_sorted"] = _sorted(labels)
        self.more(line).update(more)

    def more(self, line: object) -> dict:
        """What is known of a loader beside what it says itself."""
        return order.facts.setdefault("loaders_more", {}).setdefault(line.about.get("id", ""), {})

    def built(self) -> None:
        """What the script has built by now: at its end it may be gone."""
        from . import statics
        try:
            with windows.Pause():
                statics.keep()
        except Exception as e:
            order.fault("the model", e)

    def rates(self) -> None:
        """The loader by itself, with a few numbers of workers."""
        from . import alone
        line = feed.main()
        loader = line.loader() if line is not None else None
        if loader is None or not self.again:
            return
        told = order.facts.setdefault("alone", [])
        for workers in dict.fromkeys((line.workers, 1, look.cores())):
            if self.left() < 3 * ALONE_S:
                break
            order.progress("alone", marks.steps, f"{workers} workers")
            try:
                with windows.Pause():
                    found = alone.rate(loader, workers, ALONE_S)
            except Exception as e:
                order.fault(f"the loader with {workers} workers", e)
                found = None
            if found:
                told.append(found)

    def proofs(self) -> None:
        """Once: whether other ways to make a batch give the same, item by item."""
        line = feed.main()
        loader = line.loader() if line is not None else None
        seconds = min(2.0, 0.1 * self.seconds, 0.3 * self.left())
        if (
            loader is None
            or self.proven
            or not self.again
            or seconds < 0.2
            or not (wanted("batched") or wanted("cache"))
        ):
            return
        self.proven = True
        order.progress("proof", marks.steps)
        try:
            from ..settings import feeds
            with windows.Pause():
                self.more(line)["proof"] = feeds.proofs(loader, n=1000, seconds=seconds)
        except Exception as e:
            order.fault("the proofs", e)

    # ---- what could be changed

    def changes(self) -> object:
        """Each change beside the script as it is, the most promising first; then all of it again."""
        stall = self.stall()
        if stall > 0.1:
            self.proofs()
            yield from self.settle()
        queue = self.queue(stall)
        did: dict = {}
        for _ in range(BLOCKS_MAX):
            for change in queue:
                if change is None:
                    if not order.facts.get("alone") and self.left() > 4 * ALONE_S:
                        self.rates()
                        yield from self.settle()
                    continue
                if (
                    change.phase in order.facts.get("left", {})
                    or did.get(change.phase, 0) >= BLOCKS_MAX
                    or self.hopeless(change.phase)
                ):
                    continue
                if self.left() < self.cost():
                    return
                did[change.phase] = did.get(change.phase, 0) + 1
                yield from self.block(change.phase, change.against, change)
            self.proofs()
            yield from self.settle()
            if self.has_ring() and self.left() > self.cost():
                yield from self.block("R1", against="R0")
            elif self.left() > self.cost():
                yield from self.alone()

    def hopeless(self, phase: str) -> bool:
        """Whether it was far slower than the script as it is."""
        return not phase.startswith(("batch=", "R")) and self.mean(phase) > HOPELESS * self.mean("R0") > 0

    def queue(self, stall: float) -> list:
        """Changes in the order in which they come; None: the loader's rates."""
        first, second = feeding(stall, self.compute_s()) if self.again else [], computing(self.has_ring())
        busy = [change for change in first if change.phase == "R4"]
        rest = [change for change in first if change.phase != "R4"]
        if stall > 0.1:
            return [*rest[:3], *second[:1], *rest[3:4], None, *busy, *second[1:], *rest[4:]]
        return [*second, *busy, *rest[:1], None, *rest[1:2]]

    def stall(self) -> float:
        """The part of the step that goes with the input, by what was measured so far."""
        whole, memory = (self.mean(phase) for phase in ("R0", "R1"))
        return max(0.0, 1 - memory / whole) if whole and memory else 0.0

    def compute_s(self) -> float:
        """Seconds of a step from memory."""
        return self.mean("R1") or self.step_s

    def mean(self, phase: str) -> float:
        """Seconds a step of all windows of this phase."""
        found = [each for each in self.told if each["phase"] == phase and not each.get("sampled")]
        steps = sum(each["steps"] for each in found)
        return sum(each["wall_s"] for each in found) / steps if steps else 0.0


def _feed_from(source: str) -> None:
    for line in feed.training():
        line.source = source if source == feed.REAL or line.ring.usable else feed.REAL


def _sorted(labels: list) -> bool:
    """Whether the classes come one after the other, in the order of the data."""
    known = [label for _, label in sorted(labels) if label is not None]
    kinds = len(set(known))
    changes = sum(a != b for a, b in zip(known, known[1:]))  # noqa: B905, RUF007  # as Python 3.9 has it
    return len(known) >= 12 and 1 < kinds <= math.ceil(len(known) / 3) and changes == kinds - 1


def _several_ranks() -> bool:
    torch = sys.modules["torch"]
    distributed = getattr(torch, "distributed", None)
    if distributed is not None and distributed.is_available() and distributed.is_initialized():
        return True
    return os.environ.get("WORLD_SIZE", "1") not in ("", "1")
