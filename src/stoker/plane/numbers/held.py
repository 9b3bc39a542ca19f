"""What was read of runs on this machine, held until their files change: many pages ask for the same."""

from __future__ import annotations

import os
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

from stoker.base import rundir
from stoker.plane import resume
from stoker.plane.numbers.reader import NUMBERS, Numbers, Reader, latest

HELD = 256  # runs whose numbers are held
POINTS_HELD = 2_000_000  # of all of them together; the newest is always held
LISTED = 1024  # runs whose last values are held
FILES = (rundir.OUT, rundir.ERR, rundir.METRICS, f"{rundir.HOOKS}/{NUMBERS}")
T = TypeVar("T")


class Held:
    """The numbers of one run."""

    def __init__(self, folder: Path) -> None:
        self.reader = Reader(folder)
        self.lock = threading.Lock()
        self.points = 0
        self._folder = folder
        self._numbers = Numbers()
        self._files: tuple = ()
        self._clock: tuple = ()
        self._timed = False
        self._made: dict[str, object] = {}

    def read(self, attempts: Sequence[int]) -> Numbers:
        """All numbers of these attempts, which nobody may change. The caller holds `lock`."""
        # looked at before they are read: what is written meanwhile is read next time
        files = look(self._folder, [resume.STATE, *_of(attempts, (*FILES, rundir.EXIT))])
        clock = () if self._timed else look(self._folder, _of(attempts[-1:], (rundir.TELEMETRY,)))
        if files != self._files or clock != self._clock:
            self._numbers, self._made = self.reader.read(attempts), {}
            self._files, self._clock = files, clock
            self._timed = all(curve.ends() is not None for curve in self._numbers.curves)
            self.points = sum(map(len, self._numbers.curves))
        return self._numbers

    def made(self, name: str, make: Callable[[Numbers], T]) -> T:
        """What `make` makes of the numbers that were read last, made once. The caller holds `lock`."""
        if name not in self._made:
            self._made[name] = make(self._numbers)
        return self._made[name]  # type: ignore[return-value]  # of this name it is always the same kind


class Readers:
    """The numbers of the runs that were asked for last. Several threads may use them."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._held: OrderedDict[str, Held] = OrderedDict()
        self._lasts: OrderedDict[str, tuple[tuple, object]] = OrderedDict()

    @contextmanager
    def of(self, run_id: str, folder: Path) -> Iterator[Held]:
        """The numbers of a run, for one thread at a time."""
        with self._lock:
            held = self._held.pop(run_id) if run_id in self._held else Held(folder)
            self._held[run_id] = held
        with held.lock:
            yield held
        with self._lock:
            while len(self._held) > 1 and (
                len(self._held) > HELD or sum(each.points for each in self._held.values()) > POINTS_HELD
            ):
                self._held.popitem(last=False)

    def last(self, run_id: str, folder: Path, attempt: int, make: Callable[[Numbers], T]) -> T:
        """What `make` makes of the numbers at the ends of an attempt's files (see `reader.latest`)."""
        files = look(folder, _of([attempt], FILES))
        with self._lock:
            known = self._lasts.pop(run_id, None)
        if known is None or known[0] != files:
            known = files, make(latest(folder, attempt))
        with self._lock:
            self._lasts[run_id] = known
            if len(self._lasts) > LISTED:
                self._lasts.popitem(last=False)
        return known[1]  # type: ignore[return-value]  # one caller, one kind


def _of(attempts: Iterable[int], names: Iterable[str]) -> list[str]:
    return [f"{rundir.ATTEMPTS}/{number}/{name}" for number in attempts for name in names]


def look(folder: Path, names: Sequence[str]) -> tuple:
    """Equal to what it was as long as none of these files has changed."""
    return tuple(_stat(f"{folder}/{name}") for name in names)


def _stat(path: str) -> tuple[int, int, int] | None:
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_ino, found.st_size, found.st_mtime_ns
