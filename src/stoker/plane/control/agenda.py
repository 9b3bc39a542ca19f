"""What is due and when, apart from the threads that do it: time is passed in."""

from __future__ import annotations


class Again:
    """Tasks that failed and are tried again after a pause."""

    def __init__(self, pause_s: float) -> None:
        self._pause_s = pause_s
        self._at: dict[str, float] = {}

    def add(self, what: str, now: float) -> None:
        """Record a failure. A task that is already in the list keeps its time."""
        self._at.setdefault(what, now + self._pause_s)

    def moments(self) -> list[float]:
        """The time at which each task is due."""
        return list(self._at.values())

    def take(self, now: float) -> list[str]:
        """Remove and return the tasks that are due."""
        due = [what for what, at in self._at.items() if at <= now]
        for what in due:
            del self._at[what]
        return due
