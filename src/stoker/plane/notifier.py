"""Tells whoever waits that runs have changed: waiters for one run, and subscribers to all."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator

BEAT_S = 15.0  # a subscriber hears at least this often, if only that there is nothing new


class Hub:
    """Hands the ids of changed runs on. Nobody who is slow holds anybody up:
    a subscriber has at most one entry for each run."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._waiters: dict[str, list[threading.Event]] = {}
        self._subscribers: set[Subscription] = set()
        self._closed = False

    def publish(self, ids: Iterable[str]) -> None:
        """These runs have changed, or are gone."""
        ids = list(ids)
        with self._lock:
            waiting = [event for run_id in ids for event in self._waiters.get(run_id, ())]
            subscribers = list(self._subscribers)
        for event in waiting:
            event.set()
        for subscriber in subscribers:
            subscriber.push(ids)

    def wait_until(
        self, run_id: str, done: Callable[[], bool], timeout_s: float, clock: Callable[[], float]
    ) -> bool:
        """Whether `done()` became true within the time; it is asked again at each change of the run."""
        event = threading.Event()
        with self._lock:
            self._waiters.setdefault(run_id, []).append(event)
        try:
            deadline = clock() + timeout_s
            while not done():
                left = deadline - clock()
                if left <= 0 or self._closed or not event.wait(left):
                    return False
                event.clear()
            return True
        finally:
            with self._lock:
                self._waiters[run_id].remove(event)
                if not self._waiters[run_id]:
                    del self._waiters[run_id]

    def subscribe(self) -> Subscription:
        """All changes from now on."""
        subscription = Subscription(self._leave)
        with self._lock:
            self._subscribers.add(subscription)
        return subscription

    def _leave(self, subscription: Subscription) -> None:
        with self._lock:
            self._subscribers.discard(subscription)

    def close(self) -> None:
        """Everybody who waits goes home."""
        with self._lock:
            self._closed = True
            waiting = [event for events in self._waiters.values() for event in events]
            subscribers = list(self._subscribers)
        for event in waiting:
            event.set()
        for subscriber in subscribers:
            subscriber.close()


class Subscription:
    """Iterates over ids of changed runs; None now and then when nothing happens.
    `close` ends it, from any thread."""

    def __init__(self, leave: Callable[[Subscription], None]) -> None:
        self._leave = leave
        self._condition = threading.Condition()
        self._ids: dict[str, None] = {}
        self._closed = False

    def push(self, ids: Iterable[str]) -> None:
        """More changes."""
        with self._condition:
            self._ids.update(dict.fromkeys(ids))
            self._condition.notify()

    def __iter__(self) -> Iterator[str | None]:
        return self

    def __next__(self) -> str | None:
        with self._condition:
            if not self._ids and not self._closed:
                self._condition.wait(BEAT_S)
            if self._closed:
                raise StopIteration
            if not self._ids:
                return None
            first = next(iter(self._ids))
            del self._ids[first]
            return first

    def close(self) -> None:
        """No more."""
        with self._condition:
            self._closed = True
            self._condition.notify_all()
        self._leave(self)


class Events:
    """An endless iterator of changes."""

    def __init__(self, changed: Callable[[str | None], dict], subscription: Subscription) -> None:
        self._changed, self._subscription = changed, subscription

    def __iter__(self) -> Events:
        return self

    def __next__(self) -> dict:
        return self._changed(next(self._subscription))

    def close(self) -> None:
        """End it, from any thread."""
        self._subscription.close()
