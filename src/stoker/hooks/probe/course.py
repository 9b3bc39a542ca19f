"""The course of a measurement: which window comes when. Each `yield` is one step of the script's training."""

from __future__ import annotations

import sys
import time

from ..clock import marks
from ..entry import now
from . import feed, look, order, windows

WARM_STEPS, WARM_S = 4, 0.1
WINDOW_S, WINDOW_STEPS = 0.25, 5
SETTLE_S = 1.0  # at most, for workers that fill their queue
BLOCKS = 2  # of R0 and R1 before anything else
_monotonic = time.monotonic


class Course:
    """What is done to one training, from its first step until the time is used."""

    def __init__(self, seconds: float) -> None:
        self.until = _monotonic() + seconds
        self.seconds = seconds
        self.step_s = 0.0  # of the script as it is
        self.blocks: dict = {}  # phase -> pairs so far
        self.told: list = order.facts.setdefault("windows", [])

    def run(self) -> object:
        """The whole course, as a generator that is moved on once a step."""
        yield from self.warm_up()
        if _several_ranks():
            return
        yield from self.collect()
        for _ in range(BLOCKS):
            yield from self.block("R1") if self.has_ring() else self.alone()

    def left(self) -> float:
        """Seconds that there still are."""
        return self.until - _monotonic()

    # ---- before anything is timed

    def warm_up(self) -> object:
        """The first steps, and as many as a queue that was filled before them."""
        began, steps = now(), 0
        while True:
            yield
            steps += 1
            queued = max((line.queue() for line in feed.training()), default=0)
            if steps >= WARM_STEPS + queued and now() - began > WARM_S * 1e9:
                break
            if now() - began > 0.15 * self.seconds * 1e9 and steps >= 2:
                break
        self.step_s = (now() - began) / 1e9 / steps

    def collect(self) -> object:
        """Keep some batches of each loader that is trained on."""
        lines, began = feed.training(), _monotonic()
        for line in lines:
            line.collecting = True
        while lines and not all(line.ring.full for line in lines) and _monotonic() - began < 0.2 * self.seconds:
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

    def block(self, phase: str, on: object = None, off: object = None) -> object:
        """A B B A: as it is, changed, changed, as it is."""
        block = self.begin_block(phase)
        yield from self.window("R0", block)
        self.change(phase, on)
        yield from self.settle()
        yield from self.window(phase, block)
        yield from self.window(phase, block)
        self.back(off)
        yield from self.settle()
        yield from self.window("R0", block)

    def begin_block(self, phase: str) -> int:
        """Its number, counted for each phase."""
        self.blocks[phase] = self.blocks.get(phase, 0) + 1
        order.progress(phase, marks.steps)
        return self.blocks[phase]

    def change(self, phase: str, on: object) -> None:
        """From the next step on the script has what `phase` says."""
        since = now()
        order.facts["trying"] = phase
        if on is not None:
            on()
        else:
            for line in feed.training():
                line.source = feed.RING
        windows.aside(since)

    def back(self, off: object) -> None:
        """From the next step on all is as the script has it."""
        since = now()
        order.facts.pop("trying", None)
        if off is not None:
            off()
        for line in feed.training():
            line.source = feed.REAL
        windows.aside(since)

    def settle(self) -> object:
        """Steps that are not counted: until what lay ready before the change is used up, and queues that fill are full."""
        most = now() + int(SETTLE_S * 1e9)
        for _ in range(2 + max((line.queue() for line in feed.training()), default=0)):
            yield
            if now() > 2 * most:
                return
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

    def window(self, phase: str, block: int, **more: object) -> object:
        """One window; its facts are told."""
        steps, least = self.sizes()
        window = windows.Window()
        while True:
            yield
            if window.step() >= least and window.steps >= steps:
                break
        self.told.append(window.end(phase, block, **more))

    def sizes(self) -> tuple:
        """(steps, ns) that a window has at least: fewer steps where one takes so long that the time would not do."""
        fitting = int(self.seconds / 16 / self.step_s) if self.step_s else WINDOW_STEPS
        return max(2, min(WINDOW_STEPS, fitting)), int(WINDOW_S * 1e9)


def _several_ranks() -> bool:
    import os
    torch = sys.modules["torch"]
    distributed = getattr(torch, "distributed", None)
    if distributed is not None and distributed.is_available() and distributed.is_initialized():
        return True
    return os.environ.get("WORLD_SIZE", "1") not in ("", "1")
