"""Tells machines that switch themselves off that runs wait for them here, and that none waits any more.

A machine keeps on for such a note at most for its `off_latest`, counted by itself, so a server that died
keeps no machine on for ever.
What was told last is a row of `meta` for each machine: the next server takes it back.
"""

from __future__ import annotations

import threading
import time

from stoker.base.errors import InvalidSpec
from stoker.plane.store.database import Store
from stoker.plane.targets import Targets

PREFIX = "queue-note/"


class QueueNotes:
    """Tells machines with an `off` command how many runs wait for them. Any thread may use it."""

    def __init__(self, store: Store, targets: Targets) -> None:
        self._store, self._targets = store, targets
        self._lock = threading.Lock()
        self._asked: set[str] = set()  # machines that are being told
        # machine that did not answer -> when it is told again (monotonic)
        self._pauses: dict[str, float] = {}

    def due(self) -> list[str]:
        """Machines whose known number of waiting runs is outdated. Each belongs to the caller until the
        caller has called `tell`."""
        with self._store.read() as q:
            told, waiting, coming = q.metas_under(PREFIX), q.waiting_for(), q.coming_to()
        known = {key.removeprefix(PREFIX): int(count) for key, count in told.items()}
        names = {name for name, count in waiting.items() if count > known.get(name, 0)}
        names |= {name for name in known if name not in waiting and name not in coming}
        now = time.monotonic()
        with self._lock:
            free = [
                name
                for name in names
                if name not in self._asked and self._pauses.get(name, 0.0) <= now and self._has_order(name)
            ]
            self._asked.update(free)
        return free

    def tell(self, name: str) -> None:
        """Report the number of waiting runs to the machine. Raises StokerError."""
        try:
            with self._store.read() as q:
                count = q.waiting_for().get(name, 0) or q.coming_to().get(name, 0)
            target = self._targets.get(name)
            if count:
                self._write(name, "0")  # first: what may have been told is taken back later
            target.backend.power("queue", {"owner": (target.owner or {}).get("id"), "count": count})
            self._write(name, str(count) if count else None)
        finally:
            with self._lock:
                self._asked.discard(name)

    def pause(self, name: str, seconds: float) -> None:
        """The machine did not answer: wait before the next report."""
        with self._lock:
            self._pauses[name] = time.monotonic() + seconds

    def _write(self, name: str, value: str | None) -> None:
        with self._store.write() as q:
            q.set_meta(f"{PREFIX}{name}", value)

    def _has_order(self, name: str) -> bool:
        try:
            return self._targets.get(name).order is not None
        except InvalidSpec:
            return False
