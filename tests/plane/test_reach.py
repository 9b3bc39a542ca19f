"""Machines that are silent: since when, when they are asked again, and what is said of their runs."""

from __future__ import annotations

import os
import threading

from stoker.base.errors import TargetError
from stoker.plane import present
from stoker.plane.control import watching
from stoker.plane.control.watching import Watch
from stoker.plane.reach import RETRY_MAX_S, Reach, Silence


def test_a_silence_begins_once_and_ends_with_an_answer():
    moments = iter([100.0, 101.0, 103.0, 900.0])
    reach = Reach(lambda: next(moments), lambda: 0.0)
    assert reach.silence("box") is None
    assert [reach.failed("box", f"why {n}") for n in range(3)] == [1.0, 2.0, 4.0]
    assert reach.silence("box") == Silence(100.0, 107.0, "why 2") and reach.silence("other") is None
    assert reach.answered("box") is True and reach.silence("box") is None and reach.answered("box") is False
    assert reach.failed("box", "again") == 1.0 and reach.silence("box").since == 900.0


def test_a_silence_that_the_last_server_knew_goes_on_and_its_begin_and_end_are_told():
    told: list[str] = []
    reach = Reach(lambda: 500.0, lambda: 0.0, {"box": 100.0, "old": 50.0}, told.append)
    assert reach.silence("box") is None and reach.failed("box", "why") == 1.0
    assert reach.silence("box") == Silence(100.0, 501.0, "why") and told == ["box"]
    reach.failed("box", "why")
    assert told == ["box"] and reach.answered("box") and told == ["box", "box"]
    assert not reach.answered("old") and told[2:] == ["old"]  # it answers at once: nothing is left to remember
    reach.failed("old", "why")
    assert reach.silence("old").since == 500.0


def test_pauses_grow_to_a_minute_and_differ_between_machines():
    reach = Reach()
    pauses = [reach.failed("box", "") for _ in range(12)]
    assert all(0.8 * whole <= pause <= whole for pause, whole in zip(pauses, [1, 2, 4, 8, 16, 32] + [RETRY_MAX_S] * 6, strict=True))
    assert len({reach.pause(str(n)) for n in range(20)}) > 10
    reach.forget("box")
    assert reach.pause("box") <= 1.0


class Ends:
    """A machine whose processes are ended as soon as they have said a line."""

    def __init__(self) -> None:
        self.begun = 0
        self.backend = self

    def get(self, name: str) -> Ends:
        return self

    def watch(self) -> Ends:
        self.begun += 1
        if self.begun > 3:
            raise TargetError("enough")
        self.said, tell = os.pipe()
        os.write(tell, b'{"id": "a", "phase": "running"}\n')
        os.close(tell)
        self.stdout = os.fdopen(self.said, "rb", 0)
        return self

    def stderr_tail(self) -> str:
        return "Killed"

    def close(self) -> None:
        self.stdout.close()


def test_a_machine_that_ends_each_watch_soon_is_asked_less_and_less_often(monkeypatch):
    """As login nodes do with long processes: what happens there is polled for."""
    ends, pauses, enough = Ends(), [], threading.Event()
    watch = Watch("box", ends, lambda name, seen: None)

    def wait(pause: float) -> bool:
        pauses.append(pause)
        if len(pauses) == 4:
            watch._closed.set()
            enough.set()
        return False
    monkeypatch.setattr(watch._hurry, "wait", wait)
    watch.start()
    assert enough.wait(60)
    watch.close()
    assert pauses == [1.0, 2.0, 4.0, 8.0]
    monkeypatch.setattr(watching, "STEADY_S", 0.0)
    ends, pauses[:] = Ends(), []
    steady = Watch("box", ends, lambda name, seen: None)
    monkeypatch.setattr(steady._hurry, "wait", lambda pause: pauses.append(pause) or (len(pauses) == 3 and steady._closed.set()))
    steady.start()
    steady._thread.join(60)
    assert pauses == [1.0, 1.0, 1.0]


def test_a_silent_machine_is_named_and_an_ended_run_is_not_silent():
    assert present._silence(None) is None
    told = present._silence(Silence(0.0, 20.0, "No route to host."))
    assert told == {"since": "1970-01-01T00:00:00.000Z", "next_at": "1970-01-01T00:00:20.000Z", "why": "No route to host."}
