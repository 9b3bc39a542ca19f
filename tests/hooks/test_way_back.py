"""How long the way back would take, from given clocks."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from stoker.inside.resume.core import phases, resume_cost


class Script:
    """A training that is recorded; its clocks go on when it is told so."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 100.0
        monkeypatch.setattr(resume_cost, "_clock", lambda: self.now)
        self.sleep = resume_cost.skipped(self.own)
        for name, value in {"_gone": (0, 0.0, 0.0), "_begun": 0.0, "_own_s": 0.0, "_timed_s": 0.0, "_open": False, "left": None}.items():
            monkeypatch.setattr(resume_cost, name, value)
        for name, value in {"log": SimpleNamespace(n=0), "steps": 0, "phase": phases.RECORD, "depth": 0, "on_enter": [], "on_leave": [],
                            "look": tuple, "seen": ()}.items():
            monkeypatch.setattr(phases, name, value)
        resume_cost.begin(100.0, 8.0, (0, 0.0, 0.0))

    def own(self, seconds: float) -> None:
        self.now += seconds

    def shielded(self, seconds: float, step: bool = False, look: bool = False) -> None:
        phases.enter()
        self.own(seconds)
        phases.log.n += 1
        phases.steps += step
        if look:
            resume_cost.look()
        phases.leave()

    def train(self, steps: int, look: bool = False) -> None:
        """A step: 2 ms of the script's own and 20 ms of sleep, 100 ms in a model, 3 ms of its own, 50 ms in an optimizer."""
        for i in range(steps):
            self.own(0.002)
            self.sleep(0.02)
            self.shielded(0.1, look=look and not i)
            self.own(0.003)
            self.shielded(0.05, step=True)


def test_nothing_is_foretold_before_anything_was_timed(monkeypatch):
    script = Script(monkeypatch)
    script.train(3)
    assert resume_cost.foretell(6, 0.5) == {}


def test_what_a_script_does_itself_is_done_again(monkeypatch):
    script = Script(monkeypatch)
    script.train(10, look=True)
    assert not resume_cost._open and not phases.on_enter and not phases.on_leave  # the moment is over, and costs nothing any more
    script.train(90)
    script.own(0.5)  # an image is taken
    told = resume_cost.foretell(200, 0.5)
    assert told["back_s"] == pytest.approx(100 * 0.005 + 200 * resume_cost.EVENT_S + 0.5, abs=0.001)
    assert told["setup_s"] == 8.0 and told["trained_s"] == pytest.approx(100 * 0.175 + 0.5, abs=0.1)


def test_whole_rounds_are_timed_even_when_they_are_long(monkeypatch):
    script = Script(monkeypatch)
    for _ in range(5):
        script.train(4, look=True)  # it always begins behind the model
    assert resume_cost._own_s / resume_cost._timed_s == pytest.approx(0.005 / 0.175)


def test_a_script_without_steps_is_timed_too(monkeypatch):
    script = Script(monkeypatch)
    resume_cost.look()
    for _ in range(4 * resume_cost.EVENTS):
        script.own(0.001)
        script.shielded(0.01)
    assert resume_cost._own_s / resume_cost._timed_s == pytest.approx(0.001 / 0.011)


def test_what_a_ghost_skips_outside_of_shields_is_left_out(monkeypatch):
    script = Script(monkeypatch)
    value = resume_cost.skipped(lambda: script.own(0.4) or 5)
    resume_cost.look()
    while resume_cost._open:
        script.own(0.002)
        assert value() == 5
        script.shielded(0.1, step=True)
    assert resume_cost._own_s / resume_cost._timed_s == pytest.approx(0.002 / 0.502)


def test_what_was_really_gone_replaces_what_was_foretold(monkeypatch):
    script = Script(monkeypatch)
    resume_cost.begin(100.0, 8.0, (1000, 30.0, 600.0))
    script.train(10, look=True)
    told = resume_cost.foretell(1020, 0.0)
    assert told["back_s"] == pytest.approx(30.0 + 10 * 0.005 + 20 * resume_cost.EVENT_S, abs=0.001)
    assert told["trained_s"] == pytest.approx(601.8, abs=0.1)
