"""Progress output: a bar on a terminal, otherwise a line per epoch.
Also stores the progress, so that it is known after a kill."""

from __future__ import annotations

import mmap
import os
import struct
import sys
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter, time

TERMINAL_S = 0.2
PULSE = "pulse"  # step, samples, time of the last step; survives SIGKILL, as its pages belong to the kernel
_FORM = struct.Struct("<qqd")


@dataclass
class Spent:
    """Seconds by activity; computing is the rest of the wall time."""

    data: float = 0.0
    exchange: float = 0.0
    save: float = 0.0
    evaluation: float = 0.0

    def total(self) -> float:
        return self.data + self.exchange + self.save + self.evaluation

    def since(self, other: Spent) -> Spent:
        """The difference to `other`."""
        return Spent(
            self.data - other.data,
            self.exchange - other.exchange,
            self.save - other.save,
            self.evaluation - other.evaluation,
        )

    def copy(self) -> Spent:
        return Spent(self.data, self.exchange, self.save, self.evaluation)


class Pulse:
    """The progress of the training, in a file of 24 bytes that remains after a kill."""

    def __init__(self, root: Path) -> None:
        fd = os.open(root / PULSE, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            os.ftruncate(fd, _FORM.size)
            self._memory = mmap.mmap(fd, _FORM.size)
        finally:
            os.close(fd)
        self.step, self.samples, self.at = _FORM.unpack(self._memory[:])

    def beat(self, step: int, samples: int) -> None:
        """Count a step."""
        _FORM.pack_into(self._memory, 0, step, samples, time())


def say(text: str) -> None:
    """Print a line from Stoker on stderr."""
    print(f"stoker: {text}", file=sys.stderr, flush=True)


class Progress:
    """The bar and the lines. Only rank 0 prints."""

    def __init__(self, speaks: bool) -> None:
        self.speaks = speaks
        self.terminal = speaks and sys.stderr.isatty()
        self._drawn = 0.0
        self._shown = False
        self._began = perf_counter()
        self._samples = 0
        self._spent = Spent()

    def epoch_begins(self, samples: int, spent: Spent) -> None:
        """Start counting."""
        self._began, self._samples, self._spent = perf_counter(), samples, spent.copy()

    def step(self, where: str, done: int, total: int | None, samples: int, loss: float | None) -> None:
        """Redraw the bar on a terminal, at most five times per second."""
        now = perf_counter()
        if not self.terminal or now - self._drawn < TERMINAL_S:
            return
        self._drawn = now
        rate = (samples - self._samples) / max(now - self._began, 1e-9)
        left = f", {clock((now - self._began) * (total - done) / done)} left" if total and done else ""
        of = f"{done:,}/{total:,}" if total else f"{done:,}"
        text = f"{where}: {of}, {rate:,.0f} samples/s{left}{'' if loss is None else f', loss {loss:.4g}'}"
        sys.stderr.write(f"\r\x1b[K{text}")
        sys.stderr.flush()
        self._shown = True

    def clear(self) -> None:
        """Clear the bar."""
        if self._shown:
            sys.stderr.write("\r\x1b[K")
            self._shown = False

    def epoch_ends(self, where: str, samples: int, spent: Spent, loss: float | None) -> None:
        """Print one line with the rate and the share of each activity."""
        if not self.speaks:
            return
        self.clear()
        wall = max(perf_counter() - self._began, 1e-9)
        parts = spent.since(self._spent)
        shares = {
            "data": parts.data,
            "compute": wall - parts.total(),
            "exchange": parts.exchange,
            "save": parts.save,
            "evaluation": parts.evaluation,
        }
        split = ", ".join(f"{name} {100 * s / wall:.0f} %" for name, s in shares.items() if s / wall >= 0.005)
        rate = (samples - self._samples) / wall
        say(
            f"{where}: {wall:.1f} s, {rate:,.0f} samples/s{'' if loss is None else f', loss {loss:.4g}'} "
            f"({split})"
        )


def clock(seconds: float) -> str:
    """"3:07", "1:02:33"."""
    minutes, rest = divmod(int(seconds), 60)
    return f"{minutes // 60}:{minutes % 60:02d}:{rest:02d}" if minutes >= 60 else f"{minutes}:{rest:02d}"
