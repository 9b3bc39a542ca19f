"""How busy each core and GPU of this machine is, and was while somebody looked: a bounded list of samples."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable
from pathlib import Path

STEP_S = 2.0  # between two samples
KEPT = 300  # samples
STALE_S, MOMENT_S = 10.0, 0.2  # what changed in so long does not show what is now: then a moment is looked at
STAT = Path("/proc/stat")


def ticks() -> dict[int, tuple[int, int]]:
    """Core -> (busy, all) ticks since the machine started; empty if the kernel does not report them."""
    try:
        lines = STAT.read_text().splitlines()
    except OSError:
        return {}
    return counted(lines)


def counted(lines: list[str]) -> dict[int, tuple[int, int]]:
    """As `ticks`, from the lines of /proc/stat."""
    found = {}
    for line in lines:
        name, *numbers = line.split()
        if name.startswith("cpu") and name[3:].isdigit():
            values = [int(number) for number in numbers[:8]]
            found[int(name[3:])] = (sum(values) - values[3] - values[4], sum(values))
    return found


class Watch:
    """Samples the cores when a page asks. Any thread may ask."""

    def __init__(
        self,
        read: Callable[[], dict[int, tuple[int, int]]] = ticks,
        clock: Callable[[], float] = time.monotonic,
        pause: Callable[[float], None] = time.sleep,
    ) -> None:
        self._read, self._clock, self._pause = read, clock, pause
        self._lock = threading.Lock()
        self._before: dict[int, tuple[int, int]] = {}
        self._at: float | None = None
        self._samples: deque[dict[str, float]] = deque(maxlen=KEPT)

    def look(self, gpus: dict[str, float]) -> list[dict]:
        """`[{"name", "now", "history"}]` in percent, for each core and each of `gpus` (name -> busy
        percent now). The first call takes a moment."""
        with self._lock:
            now = self._clock()
            if self._at is None or now - self._at >= STEP_S:
                if self._at is None or now - self._at > STALE_S:
                    self._before = self._read()
                    self._pause(MOMENT_S)
                seen = self._read()
                sample = {
                    f"CPU {core}": 100.0 * (busy - was[0]) / (whole - was[1])
                    for core, (busy, whole) in seen.items()
                    if (was := self._before.get(core)) and whole > was[1]
                }
                self._samples.append({**sample, **gpus})
                self._before, self._at = seen, now
            names = self._samples[-1] if self._samples else {}
            return [
                {"name": name, "now": names[name], "history": [each.get(name) for each in self._samples]}
                for name in names
            ]
