"""What is due and when, apart from the threads that do it: time is passed in."""

from __future__ import annotations


class Again:
    """What could not be done and is tried again after a pause."""

    def __init__(self, pause_s: float) -> None:
        self._pause_s = pause_s
        self._at: dict[str, float] = {}

    def add(self, what: str, now: float) -> None:
        """It failed now. What is in already keeps its time."""
        self._at.setdefault(what, now + self._pause_s)

    def moments(self) -> list[float]:
        """When each of them is due."""
        return list(self._at.values())

    def take(self, now: float) -> list[str]:
        """Those that are due, which are no longer in."""
        due = [what for what, at in self._at.items() if at <= now]
        for what in due:
            del self._at[what]
        return due
