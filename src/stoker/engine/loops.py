"""The two loops of a training: `engine.epochs` and `engine.batches`.
They track their position, and where a resumed run continues. The key of a loop is its path:
the number of the loop inside the element of the outer loop.
The key is the same in every start of a script, and random numbers are derived from it.
A resumed script runs the code before its position again;
the changes of this code are overwritten when the position is reached.
"""

from __future__ import annotations

import dis
import sys
import weakref
from collections import Counter
from collections.abc import Iterator
from time import perf_counter
from types import FrameType
from typing import TYPE_CHECKING, Self

from stoker.engine import seeds
from stoker.engine.data import Feed, Micro, micros
from stoker.engine.errors import StateError

if TYPE_CHECKING:
    from stoker.engine.core import Core

DONE = "done"
# instructions that let go of an iterator
DROPS = {"POP_TOP", "POP_ITER", "END_FOR", "DELETE_FAST", "DELETE_NAME", "STORE_FAST", "STORE_NAME"}


class Spot:
    """The position of an open loop. The list of open loops holds positions, not loops, so that Python deletes
    an abandoned loop at once."""

    def __init__(self, key: str, loop: Loop) -> None:
        self.key = key
        self.item = 0
        self.micro: Micro | None = None  # of a loop over batches
        self.loop = weakref.ref(loop)


class Position:
    """The open loops, from outer to inner, and the finished loops of the current elements."""

    def __init__(self, saved: dict[str, int | str] | None, at: str | None) -> None:
        """saved: key -> element to begin with, or "done". at: the loop in which the save was made."""
        self.saved = saved or {}
        self.at = at
        self.open: list[Spot] = []
        self.done: set[str] = set()
        self.failed: set[str] = set()  # left because an exception passed through
        self._counts: Counter[str] = Counter()

    def key(self, kind: str, name: str | None) -> str:
        """The key for a new loop."""
        scope = f"{self.open[-1].key}/{self.open[-1].item}." if self.open else ""
        if name is not None:
            return f"{scope}{kind}={name}"
        self._counts[f"{scope}{kind}"] += 1
        return f"{scope}{kind}{self._counts[f'{scope}{kind}']}"

    def enter(self, loop: Loop) -> None:
        """The loop yields its first element."""
        self.open.append(loop.spot)

    def advance(self, loop: Loop) -> None:
        """The loop moves to its next element: forget the loops inside the previous element."""
        self.leave_within(loop)
        inside = f"{loop.key}/"
        self.done = {key for key in self.done if not key.startswith(inside)}
        self._counts = Counter({key: n for key, n in self._counts.items() if not key.startswith(inside)})

    def leave_within(self, loop: Loop) -> None:
        """Close inner loops that were abandoned without a notice."""
        while self.open and self.open[-1] is not loop.spot:
            spot = self.open.pop()
            self.done.add(spot.key)
            inner = spot.loop()
            if inner is not None:
                inner.left()

    def close(self, loop: Loop) -> None:
        """The loop ended, or was left by break."""
        if loop.spot in self.open:
            self.leave_within(loop)
            self.open.pop()
        self.done.add(loop.key)

    def to_save(self, at: Loop, following: int | str) -> dict[str, int | str]:
        """key -> element, for a save in loop `at`, whose next element is `following`."""
        body: dict[str, int | str] = dict.fromkeys(sorted(self.done), DONE)
        body.update({spot.key: spot.item for spot in self.open})
        return {**body, at.key: following}


class Loop:
    """The base of both loops: the key, the current element, and whether the saved position is inside."""

    kind = "?"

    def __init__(self, engine: Core, name: str | None = None) -> None:
        self.engine = engine
        self.key = engine.position.key(self.kind, name)
        self.place = seeds.key(engine.config.seed, self.key)
        self.spot = Spot(self.key, self)
        self.begun = False
        self.over = False

    def __iter__(self) -> Self:
        return self

    def _begin(self) -> int | str:
        """The first element, or "done"."""
        self.begun = True
        position = self.engine.position
        start = position.saved.get(self.key, 0) if self.engine.resuming else 0
        position.enter(self)
        self.spot.item = start if isinstance(start, int) else 0
        if self.engine.resuming and position.at == self.key:
            self.engine.arrive()
        return start

    def _end(self) -> None:
        """Gone through."""
        self.over = True
        self.engine.position.close(self)
        self._leave()

    def left(self) -> None:
        """The loop was left by break, return or an exception; an outer loop noticed it."""
        if not self.over:
            self.over = True
            self.engine.position.done.add(self.key)
            self._leave()

    def _leave(self) -> None:
        """The random numbers after a loop depend on nothing that happened in it."""
        self.engine.back_in(self)
        self.engine.seed_all(seeds.mix(self.place, -2))

    def _was_broken(self) -> None:
        """Left by break or return."""

    def __del__(self) -> None:
        if not self.begun or self.over or sys.is_finalizing():
            return
        broke = _by_break(sys._getframe(1))
        self.left()
        self.engine.position.close(self)
        if broke:
            self._was_broken()
        else:
            self.engine.position.failed.add(self.key)


def _by_break(frame: FrameType) -> bool:
    """Is the loop's frame dropping the iterator by itself (break, return),
    not because an exception passes through?"""
    code = frame.f_code.co_code
    at = frame.f_lasti
    return 0 <= at < len(code) and dis.opname[code[at]] in DROPS


class Epochs(Loop):
    """`for epoch in engine.epochs(n)`: numbers from 0, or from the epoch that the run has reached."""

    kind = "epochs"

    def __init__(self, engine: Core, total: int, name: str | None) -> None:
        super().__init__(engine, name)
        self.total = total

    def __len__(self) -> int:
        return self.total

    def __next__(self) -> int:
        if self.over:
            raise StopIteration
        engine = self.engine
        if not self.begun:
            engine.before_loop(self)
            if self._begin() == DONE and not engine.extends(self):
                self._end()
                raise StopIteration
        else:
            engine.position.advance(self)
            if engine.resuming:
                raise StateError(
                    (
                        f"The checkpoint was made in loop {engine.position.at}, which this script does not "
                        "reach."
                    ),
                    hint="STOKER_FRESH=1 starts from scratch and renames the old folder.",
                )
            engine.end_of_epoch(self)
            self.spot.item += 1
        if self.spot.item >= self.total:
            self._end()
            engine.end_of_loop(self)
            raise StopIteration
        engine.begin_epoch(self)
        engine.seed_all(seeds.mix(self.place, self.spot.item))
        return self.spot.item


    def _was_broken(self) -> None:
        self.engine.end_of_loop(self)


class Batches(Loop):
    """`for batch in engine.batches(loader)`: this rank's micro-batches, on the device."""

    kind = "batches"

    def __init__(self, engine: Core, feed: Feed) -> None:
        super().__init__(engine)
        self.feed = feed
        self.micro: Micro | None = None
        self._source: Iterator[tuple[Micro, object]] | None = None
        self._models = seeds.mix(self.place, -1)

    def __len__(self) -> int:
        total = self.feed.length()
        if total is None:
            raise TypeError(f"{self.feed.name} does not report its number of batches")
        return (total + self.engine.world.size - 1) // self.engine.world.size

    def __next__(self) -> object:
        engine = self.engine
        source = self._source
        if source is None:
            source = self._open()
        elif self.micro is not None and self.micro.last:
            engine.boundary(self)
        before = perf_counter()
        found = next(source, None)
        if found is None:
            self._close()
            raise StopIteration
        self.micro, batch = found
        spot = self.spot
        spot.item = self.micro.number
        engine.micro = spot.micro = self.micro
        engine.spent.data += perf_counter() - before
        engine.seed_all(seeds.mix(self._models, self.micro.number))
        return batch

    def _open(self) -> Iterator[tuple[Micro, object]]:
        if self.over:
            raise StopIteration
        engine = self.engine
        engine.before_loop(self)
        start = self._begin()
        if isinstance(start, str):  # done
            self._end()
            raise StopIteration
        engine.drop_pending()
        window = engine.world.size if engine.evaluating else engine.window
        self.feed.begin(engine.epoch)
        items = self.feed.items(self.place, start)
        items = self.feed.agreed(items, engine.world) if engine.world.size > 1 else items
        shared = micros(
            items,
            self.feed.size,
            start,
            window,
            rank=engine.world.rank,
            ranks=engine.world.size,
            ghosts=not engine.evaluating,
        )
        source = engine.on_device(self.feed.batches(self.place, shared), self.feed.ahead())
        self._source = source
        engine.batches_begin()
        return source

    def _close(self) -> None:
        self.feed.end()
        self._end()
        self._was_broken()

    def _was_broken(self) -> None:
        if self.engine.trained and not self.engine.position.open:
            self.engine.end_of_loop(self)

    def left(self) -> None:
        if not self.over:
            self.feed.end()
        super().left()

    def _leave(self) -> None:
        self._source = iter(())
        super()._leave()

    def following(self, window: int) -> int:
        """The first micro-batch of the next optimizer step."""
        micro = self.micro
        assert micro is not None  # asked for after a micro-batch
        return (micro.number // window) * window + micro.slots
