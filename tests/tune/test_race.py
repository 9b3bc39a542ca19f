"""Trials that take turns: programs that write step times as the contract says, with known speeds, deaths, hangs and neighbours."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys

import pytest

from stoker.base.config import Home
from stoker.tune import procs, race, trial
from stoker.tune.race import Entry, Race, Window

# A training as the hooks tell of it: "threads" is the milliseconds that a step takes; it computes only where "fused" says so.
SCRIPT = """
import json, os, signal, sys, time
room = os.environ["STOKER_TUNE"]
settings = json.load(open(room + "/order.json"))["settings"]
ms, busy = settings.get("threads", 10), settings.get("fused")
dies, hangs, steps_in_all = ms == 7, ms == 9, settings.get("steps", 10**6)
if os.fork() == 0:  # as a loader's worker; it leaves the session
    os.setsid()
    time.sleep(1000)
steps = open(room + "/steps.bin", "ab", 0)
for n in range(steps_in_all):
    end = time.thread_time() + ms / 1000
    while busy and time.thread_time() < end:
        pass
    if not busy:
        time.sleep(ms / 1000)
    if dies and n > 15:
        os.kill(os.getpid(), signal.SIGSEGV)
    if hangs and n > 15:
        time.sleep(1000)
    steps.write(time.monotonic_ns().to_bytes(8, "little"))
"""


@pytest.fixture
def parent(tmp_path):
    return trial.rooms(Home(tmp_path / "home"))


@pytest.fixture
def command(tmp_path):
    (tmp_path / "train.py").write_text(SCRIPT)
    return trial.read([sys.executable, "train.py"], tmp_path, dict(os.environ))


def left_of(parent) -> list[int]:
    mark = f"{procs.MARK}={parent}".encode()
    found = []
    for pid in procs._pids():
        if mark in b"\n".join(procs._environ(pid)):
            found.append(pid)
    return found


@pytest.mark.slow
def test_the_faster_is_found_and_nothing_stays(command, parent):
    outcome = Race(command, [Entry("now", {}), Entry("faster", {"threads": 6}), Entry("slower", {"threads": 16})], parent).run(4)
    faster, slower = outcome.of("faster"), outcome.of("slower")
    assert faster.ratio.high < 0.85 and faster.ratio.low < 0.65
    assert slower.ratio is None or slower.ratio.low > 1.1
    assert slower.out or slower.windows  # it lost, and was told so or kept its number
    assert left_of(parent) == [] and list(parent.iterdir()) == []


@pytest.mark.slow
def test_a_neighbour_does_not_turn_the_result(command, parent):
    busy = [subprocess.Popen([sys.executable, "-S", "-c", "while True: sum(range(10000))"]) for _ in os.sched_getaffinity(0)]
    try:
        outcome = Race(command, [Entry("now", {"fused": True}), Entry("faster", {"threads": 5, "fused": True})], parent).run(3)
    finally:
        for each in busy:
            each.kill()
            each.wait()
    faster = outcome.of("faster")
    assert faster.ratio is None or faster.ratio.high < 1.0
    assert outcome.taken > 0.2 and any(name.startswith("python") for name, _ in outcome.who)


@pytest.mark.slow
def test_a_short_training_is_started_again(command, parent):
    outcome = Race(command, [Entry("now", {}), Entry("short", {"threads": 5, "steps": 90})], parent).run(8)
    short = outcome.of("short")
    assert short.died == "" and short.pairs >= 4 and short.ratio.high < 0.9


@pytest.mark.slow
def test_death_in_the_race_is_a_result(command, parent):
    outcome = Race(command, [Entry("now", {}), Entry("dies", {"threads": 7})], parent).run(2)
    assert outcome.of("dies").died == "killed by SIGSEGV"
    assert outcome.of("now").died == ""
    assert left_of(parent) == []


@pytest.mark.slow
def test_a_hang_is_a_result(command, parent, monkeypatch):
    monkeypatch.setattr(race, "HANGS_S", 1.0)
    outcome = Race(command, [Entry("now", {}), Entry("hangs", {"threads": 9})], parent).run(2)
    assert "script hangs" in outcome.of("hangs").died
    assert left_of(parent) == []


@pytest.mark.slow
def test_ctrl_c_ends_all(command, parent):
    def interrupt(number, frame):
        raise KeyboardInterrupt
    before = signal.signal(signal.SIGALRM, interrupt)
    signal.setitimer(signal.ITIMER_REAL, 1.0)
    try:
        with pytest.raises(KeyboardInterrupt):
            Race(command, [Entry("now", {}), Entry("a", {"threads": 5})], parent).run(20)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    assert left_of(parent) == [] and list(parent.iterdir()) == []


def load(own: float, foreign: float) -> procs.Load:
    return procs.Load(wall_s=1.0, own_s=own, foreign_s=foreign)


def window(own: float, foreign: float) -> Window:
    return Window(10, 1.0, load(own, foreign))


def test_others_count_only_where_no_core_is_idle(monkeypatch):
    monkeypatch.setattr("os.cpu_count", lambda: 4)
    assert window(1.0, 2.0).taken == 0.0
    assert window(1.0, 3.0).taken == pytest.approx(0.75)


def test_pairs_with_uneven_neighbours_are_left_out():
    def pair(one: float, other: float) -> tuple[Window, Window]:
        return tuple(Window(10, 1.0, procs.Load(wall_s=1.0, lost_s=lost)) for lost in (one, other))
    even, uneven, worse, hopeless = pair(0.3, 0.4), pair(0.1, 0.5), pair(0.1, 0.8), pair(0.93, 0.94)
    assert race.even_pairs([even] * 4 + [uneven] * 3 + [hopeless]) == [even] * 4
    assert race.even_pairs([even, uneven, worse, hopeless]) == [even, uneven]  # too few good ones: the least uneven of the others too


def test_the_ratio_weighs_rare_slow_steps_as_they_are():
    quick, slow = (10, 0.1), (10, 1.1)
    pairs = [(quick, quick)] * 9 + [(slow, quick)]
    found = race.paired_ratio(pairs, random.Random(0))
    assert found.value == pytest.approx(0.5)
    assert found.low < 0.5 < found.high <= 1.0


def test_few_pairs_say_nothing_or_little():
    pairs = [((10, 1.0), (10, 0.5)), ((10, 1.0), (10, 0.6)), ((10, 1.0), (10, 0.55)), ((10, 1.0), (10, 0.9))]
    assert race.paired_ratio(pairs[:3], random.Random(0)) is None
    found = race.paired_ratio(pairs, random.Random(0))
    assert found.low <= 0.5 and found.high == pytest.approx(0.9)
    assert race.paired_ratio(pairs, random.Random(0)) == found  # the same each time


def test_two_pairs_are_enough_where_both_are_loud():
    old, fast, nearly, slow = (10, 1.0), (100, 1.0), (12, 1.0), (9, 1.0)
    assert race.told_ratio([(old, fast), (old, fast)], random.Random(0)).high < 0.2
    assert race.told_ratio([(old, fast)], random.Random(0)) is None
    for other in (nearly, slow):
        assert race.told_ratio([(old, fast), (old, other)], random.Random(0)) is None


def test_the_step_that_spans_a_stop():
    ms = 1_000_000
    ends = [110 * ms, 120 * ms, 130 * ms]
    assert race.count_steps(0, 5 * ms, 105 * ms, ends) == (2, 20 * ms)  # 5 before the stop, 5 behind it: usual, left out
    late = [160 * ms, 170 * ms, 180 * ms]
    assert race.count_steps(0, 25 * ms, 105 * ms, late) == (3, 20 * ms + 80 * ms)  # 80 ms of its own: an event, counted
    assert race.count_steps(0, 0, 0, [5]) == (0, 0)


def test_evaluation_is_left_out_wherever_it_falls():
    ms = 1_000_000
    assert race.count_steps(100 * ms, 100 * ms, 100 * ms, [110 * ms, 120 * ms, 230 * ms], {230 * ms: 100 * ms}) == (2, 20 * ms)
    # it began 3 ms before the stop of 100 ms, went on for 90 behind it, and the step took 5: no event
    spans = [200 * ms + 95 * ms, 305 * ms, 315 * ms]
    assert race.count_steps(95 * ms, 100 * ms, 200 * ms, spans, {spans[0]: 193 * ms}) == (2, 20 * ms)


def test_signals_reach_those_who_left_the_group(tmp_path):
    child = subprocess.Popen([sys.executable, "-S", "-c", "import time; time.sleep(100)"], start_new_session=True)
    try:
        procs.signal_all(os.getpid() + 10**6, signal.SIGKILL, [child.pid])
        assert child.wait(10) == -signal.SIGKILL
    finally:
        child.kill()
        child.wait()
