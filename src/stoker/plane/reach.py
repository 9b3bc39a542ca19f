"""Failures in a row, and the growing pauses after them;
which machines are silent, since when, and when each is asked next."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType

RETRY_FIRST_S, RETRY_MAX_S = 1.0, 60.0
JITTER = 0.2  # of a pause: machines that went together are not all asked at the same moment


@dataclass(frozen=True)
class Silence:
    """A machine that does not answer. Times are Unix seconds."""

    since: float
    next_at: float
    why: str = ""


class Reach:
    """Records failed and successful contacts. Any thread may use it. A key is a machine, a run or the queue;
    only machines have a silence.
    `before`: machine -> since when, for machines that did not answer the previous server. `changed` is
    called with a machine that begins or stops to be silent."""

    def __init__(
        self,
        now: Callable[[], float] = time.time,
        chance: Callable[[], float] = random.random,
        before: Mapping[str, float] = MappingProxyType({}),
        changed: Callable[[str], object] = bool,
    ) -> None:
        self._now, self._chance, self._before, self._changed = now, chance, dict(before), changed
        self._lock = threading.Lock()
        self._fails: dict[str, int] = {}
        self._silent: dict[str, Silence] = {}

    def pause(self, key: str) -> float:
        """Record a failure; returns the seconds until the next try."""
        with self._lock:
            fails = self._fails[key] = self._fails.get(key, 0) + 1
        whole = min(RETRY_MAX_S, RETRY_FIRST_S * 2 ** min(fails - 1, 10))
        return whole * (1 - JITTER * self._chance())

    def forget(self, key: str) -> None:
        """The contact succeeded, or the key no longer exists."""
        with self._lock:
            self._fails.pop(key, None)

    def failed(self, machine: str, why: str) -> float:
        """The machine did not answer; returns the seconds until the next try."""
        pause = self.pause(machine)
        with self._lock:
            now = self._now()
            known = self._silent.get(machine)
            since = known.since if known else self._before.pop(machine, now)
            self._silent[machine] = Silence(since, now + pause, why)
        if known is None:
            self._changed(machine)
        return pause

    def answered(self, machine: str) -> bool:
        """The machine answered; returns whether it had been silent."""
        with self._lock:
            self._fails.pop(machine, None)
            silent = self._silent.pop(machine, None) is not None
            news = self._before.pop(machine, None) is not None or silent
        if news:
            self._changed(machine)
        return silent

    def silence(self, machine: str) -> Silence | None:
        """The silence of a machine; None if it answered the last request, or was not asked."""
        with self._lock:
            return self._silent.get(machine)
