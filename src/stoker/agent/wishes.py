"""What a run is told while it runs, by files in its folder: limits, a longer life, an end.

- stop.json `{"reason", "grace_s": [after the first signal, after TERM], "at"}`: the newest one counts, so a
  second stop can be shorter.
- keep.json `{"time_s": number or null, "seq", "at"}`, typed on the machine: valid until limits.json has a
  `seq` larger than this one.
- Warning: `spec.warn_s` before the limit, processes with a handler for `spec.warn_signal` get it. If the
  run then exits with 0, with 128 + signal or by this signal, the reason is `limit_time`.
"""

from __future__ import annotations

import os
import time
from abc import ABC, abstractmethod

from .attempts import attempt_numbers, used_by
from .reading import read_json, stamp_of
from .words import KEEP_WISH, LIMITS, STOP, number
from .writing import write_json

TYPE_CHECKING = False
if TYPE_CHECKING:
    from .attempts import Attempt
    from .ladder import Ladder


class Wishes(ABC):
    """The side of the agent proper that reads what it is told:
    when the run has to end, and that it has to end now."""

    def __init__(self, att: Attempt, spec: dict) -> None:
        self.att, self.spec = att, spec
        self.used_before = sum(used_by(att.sibling(n)) for n in attempt_numbers(att.run_dir) if n < att.n)
        self.stamps: dict[str, tuple | None] = {}
        self.limits: dict = {}
        self.keep: dict = {}
        self.stop: dict | None = None
        self.status: dict | None = None
        self.ladder: Ladder | None = None
        self.chased = False  # somebody stops one agent after the other
        self.warned: float | None = None  # the limit that `--warn` was sent for
        self.next_tick = 0.0

    @abstractmethod
    def _end(self, reason: str, grace: tuple[float, float]) -> None:
        """Begin the stop ladder."""

    @abstractmethod
    def event(self, word: str, **facts: object) -> None:
        """Write down that something happened."""

    @abstractmethod
    def notify(self) -> None:
        """Tell those who watch that there is news."""

    def _changed(self, path: str) -> bool:
        stamp = stamp_of(path)
        if stamp == self.stamps.get(path):
            return False
        self.stamps[path] = stamp
        return True

    def _look(self) -> None:
        """Wishes in the folder: limits, keep, stop."""
        run_dir = self.att.run_dir
        if self._changed(os.path.join(run_dir, LIMITS)):
            seq = self.limits.get("seq")
            self.limits = read_json(os.path.join(run_dir, LIMITS)) or self.limits
            if seq is not None and seq != self.limits.get("seq"):
                self.next_tick = 0.0  # echo it at once
                self.event("limits", seq=self.limits.get("seq"))
        if self._changed(os.path.join(run_dir, KEEP_WISH)):
            self.keep = read_json(os.path.join(run_dir, KEEP_WISH)) or {}
            self.notify()
        if self._changed(self.att.path(STOP)):
            stop = self.att.json(STOP)
            if stop is not None:
                self._stop_asked(stop)

    def _stop_asked(self, stop: dict) -> None:
        self.stop = stop
        grace = self._grace(stop.get("grace_s"))
        self.event("stop_wish", reason=stop.get("reason"), grace_s=grace)
        if self.ladder is not None:
            self.ladder.hurry(grace)
        elif self.status is None:
            self._end(str(stop.get("reason") or "stopped_by_user"), grace)

    def _kill_asked(self) -> None:
        """TERM now. Written as a wish, so that a new agent proper knows of it."""
        try:
            write_json(
                self.att.path(STOP),
                {"reason": "stopped_by_user", "grace_s": [0, self._grace(None)[1]], "at": time.time()},
            )
        except OSError:
            self._stop_asked({"reason": "stopped_by_user", "grace_s": [0, self._grace(None)[1]]})
        self._look()

    def _grace(self, wished: object) -> tuple[float, float]:
        if self.chased:
            return (0.0, 0.0)
        pair = (
            wished
            if isinstance(wished, (list, tuple)) and len(wished) == 2
            else self.spec.get("grace_s") or (10.0, 10.0)
        )
        return (max(0.0, number(pair[0], 10.0)), max(0.0, number(pair[1], 10.0)))

    def _limit(self) -> float | None:
        """Running seconds over all attempts that are allowed;
        a `keep` typed here holds until a newer limit comes."""
        source = self.limits
        if "time_s" in self.keep and number(self.keep.get("seq"), -1) >= number(self.limits.get("seq"), 0):
            source = self.keep
        limit = source.get("time_s")
        return number(limit) if limit is not None else None

    def _limit_left(self) -> float:
        limit = self._limit()
        return float("inf") if limit is None else limit - self.used_before

    def _warn_left(self) -> float:
        """Running seconds of this attempt until the warning before the limit is due;
        infinite where none is, or it was given."""
        before = number(self.spec.get("warn_s"))
        return float("inf") if before <= 0 or self.warned == self._limit() else self._limit_left() - before
