"""Tells whoever waits that runs have changed: waiters for one run, and subscribers to all."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator

BEAT_S = 15.0  # a subscriber hears at least this often, if only that there is nothing new


class Hub:
    """Passes the ids of changed runs to subscribers. A slow subscriber does not delay others: it holds at
    most one entry per run."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._waiters: dict[str, list[threading.Event]] = {}
        self._subscribers: set[Subscription] = set()
        self._closed = False

    def publish(self, ids: Iterable[str]) -> None:
        """Report that these runs have changed or were removed."""
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
        """Wait until `done()` is true, at most this long; calls it again at each change of the run.
        Returns whether it became true."""
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
        """Receive all changes from now on."""
        subscription = Subscription(self._leave)
        with self._lock:
            self._subscribers.add(subscription)
        return subscription

    def _leave(self, subscription: Subscription) -> None:
        with self._lock:
            self._subscribers.discard(subscription)

    def close(self) -> None:
        """Wake all threads that wait."""
        with self._lock:
            self._closed = True
            waiting = [event for events in self._waiters.values() for event in events]
            subscribers = list(self._subscribers)
        for event in waiting:
            event.set()
        for subscriber in subscribers:
            subscriber.close()


class Subscription:
    """Iterates over ids of changed runs, and over None from time to time. Any thread may call `close`."""

    def __init__(self, leave: Callable[[Subscription], None]) -> None:
        self._leave = leave
        self._condition = threading.Condition()
        self._ids: dict[str, None] = {}
        self._closed = False

    def push(self, ids: Iterable[str]) -> None:
        """Add changes."""
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
        """End the iteration."""
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
        """End the iteration, from any thread."""
        self._subscription.close()
