"""Times of a machine whose clock is wrong, by the clock here."""

from __future__ import annotations

from stoker.backends.base import Observation
from stoker.plane.clocks import by_ours, offset_of, settled


def seen(**more: object) -> Observation:
    return Observation(**{"id": "r", "phase": "running", "heartbeat_at": 4000.0, "heartbeat_age_s": 1.0, **more})


def test_the_difference_is_known_from_a_quick_answer_only():
    assert offset_of(seen(), 400.0, 400.2) == 4001.0 - 400.1
    assert offset_of(seen(), 400.0, 410.0) is offset_of(seen(), 410.0, 400.0) is offset_of(seen(phase="ended"), 400.0, 400.1) is None
    assert offset_of(seen(heartbeat_at=None), 400.0, 400.1) is offset_of(seen(heartbeat_age_s="1"), 400.0, 400.1) is None


def test_it_stays_what_it_is_until_it_is_clearly_another():
    assert settled(0.0, 1.5) == 0.0 and settled(0.0, -3600.2) == -3600.2
    assert settled(-3600.2, -3601.0) == -3600.2 and settled(-3600.2, -0.5) == 0.0


def test_all_times_of_an_observation_are_shifted():
    told = seen(started_at=3700.0, stalled={"since": 3990.0, "text": "a"},
                exit={"started_at": 3700.0, "ended_at": 3999.0, "code": 1, "restart": {"at": 4010.0}})
    ours = by_ours(told, 3600.0)
    assert (ours.started_at, ours.heartbeat_at, ours.heartbeat_age_s, ours.stalled) == (100.0, 400.0, 1.0, {"since": 390.0, "text": "a"})
    assert ours.exit == {"started_at": 100.0, "ended_at": 399.0, "code": 1, "restart": {"at": 410.0}}
    assert by_ours(told, 0.0) is told and by_ours(seen(exit={"code": 0}), 5.0).exit == {"code": 0, "restart": None}
