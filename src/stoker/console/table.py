"""All runs of the server, kept up to date at the price of the newest and the active ones:
with thousands of runs, a list of all of them is asked for once and then now and then.
What pages share is asked once for all of them."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from stoker.base.errors import NotFound
from stoker.base.state import State
from stoker.client import Client

NEWEST = 100  # runs that are asked for at each look, beside the active ones
ALL_RUNS = 1_000_000
WHOLE_S = 60.0  # then all are asked for again: a tag of an old run may have changed, an old run may be gone
ONE_BY_ONE = 40  # runs that have ended since the last look and are asked for by name


class Table:
    """The list of runs. Any thread may use it; one thread at a time asks the server."""

    def __init__(self, client: Client, clock: Callable[[], float] = time.monotonic) -> None:
        self._client, self._clock = client, clock
        self._lock = threading.Lock()
        self._known: dict[str, dict] = {}
        self._active: set[str] = set()
        self._whole_at: float | None = None

    def look(self) -> list[dict]:
        """All runs now: active runs first, then the newest. Raises ServerError."""
        with self._lock:
            told = self._client.runs(all=True, limit=NEWEST, active=True)
            if len(told) < NEWEST:
                self._known = {run["id"]: run for run in told}
                self._whole_at = None
            elif self._whole_at is None or self._clock() - self._whole_at > WHOLE_S:
                self._whole()
            else:
                self._part(told)
            self._active = {run_id for run_id, run in self._known.items() if not _final(run)}
            return sorted(
                self._known.values(), key=lambda run: (not _final(run), run["created_at"]), reverse=True
            )

    def forget(self) -> None:
        """Ask for all runs again at the next call."""
        with self._lock:
            self._whole_at = None

    def _whole(self) -> None:
        self._known = {run["id"]: run for run in self._client.runs(all=True, limit=ALL_RUNS)}
        self._whole_at = self._clock()

    def _part(self, told: list[dict]) -> None:
        """told: the newest runs, then the active ones that are older."""
        found = {run["id"]: run for run in told}
        oldest = min(run["created_at"] for run in told[:NEWEST])
        gone = [
            run_id
            for run_id, run in self._known.items()
            if run["created_at"] > oldest and run_id not in found
        ]
        ended = [run_id for run_id in self._active if run_id not in found]
        if len(ended) > ONE_BY_ONE:
            self._whole()
            return
        for run_id in gone:
            self._known.pop(run_id, None)
        self._known |= found
        for run_id in ended:
            try:
                self._known[run_id] = self._client.run(run_id)
            except NotFound:
                self._known.pop(run_id, None)


def _final(run: dict) -> bool:
    return State(run["state"]).final
