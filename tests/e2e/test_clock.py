"""The clock on the wall is set back by an hour while runs live: nothing is lost, limits and durations stay right."""

from __future__ import annotations

import shutil
import subprocess

import pytest
from benchmarks.ground import NUMBERED, Ground, numbered, until
from benchmarks.wall_clock import settable
from parts import missing


@pytest.fixture
def clock(ground: Ground):
    """A function that sets the wall clock of everything on this ground, in seconds from the true time."""
    if not shutil.which("gcc"):
        missing("gcc")
    return settable(ground)


def test_the_clock_of_the_tests_works(ground: Ground, clock):
    clock(3600)
    out = subprocess.run(["python", "-c", "import time; print(time.time(), time.monotonic())"], env=ground.env, capture_output=True, check=True).stdout.split()
    clock(0)
    true = subprocess.run(["python", "-c", "import time; print(time.time(), time.monotonic())"], env=ground.env, capture_output=True, check=True).stdout.split()
    assert 3500 < float(out[0]) - float(true[0]) < 3700
    assert 0 < float(true[1]) - float(out[1]) < 100


@pytest.mark.parametrize("jump", [-3600, 3600])
def test_the_clock_jumps_by_an_hour_while_runs_live(ground: Ground, clock, jump: int):
    ground.script("count.py", NUMBERED)
    ground.script("sleeper.py", "import time\nprint('begun', flush=True)\ntime.sleep(600)\n")
    counted = ground.detach("count.py", "80", "0.05", str(ground.root / "s"))
    limited = ground.detach("--time", "4s", "sleeper.py")
    lasting = ground.detach("--time", "20m", "sleeper.py")
    for run in (limited, lasting):
        ground.until_log(run["id"], b"begun")
    clock(jump)
    ended = ground.wait_state(counted["id"])
    assert (ended["state"], ended["attempts"]) == ("done", 1)
    assert ground.log(counted["id"]) == numbered(80)
    assert 0 < ended["used_s"] < 60
    assert ended["ended_at"] >= ended["started_at"]
    stopped = ground.wait_state(limited["id"], timeout_s=40)
    assert (stopped["state"], stopped["reason"]) == ("stopped", "limit_time")
    assert 3 <= stopped["used_s"] < 30
    later = ground.detach("--name", "later", "--", "echo", "hello")
    assert ground.wait_state(later["id"])["state"] == "done"
    alive = ground.show(lasting["id"])
    assert (alive["state"], alive["reachability"]) == ("running", "ok"), "a jump of the clock is not a reason to doubt a run"
    for verb in (["ps", "-a"], ["show", lasting["id"]], ["logs", lasting["id"]]):
        done = ground.stoker(*verb).ok()
        assert "Traceback" not in done.err
    ground.kill_server()
    assert ground.show(lasting["id"])["state"] == "running"
    ground.stoker("stop", lasting["id"]).ok()
    assert ground.wait_state(lasting["id"])["state"] == "stopped"


def test_logs_since_and_waiting_go_on_after_a_jump(ground: Ground, clock):
    ground.script("train.py", "import time\nfor i in range(600): print('tick', i, flush=True); time.sleep(0.1)\n")
    run = ground.detach("train.py")
    ground.until_log(run["id"], b"tick 3\n")
    clock(-3600)
    size = len(ground.log(run["id"]))
    until(lambda: len(ground.log(run["id"])) > size, 10, "more output")
    assert ground.stoker("logs", "--since", "1h", run["id"]).ok().stdout.startswith(b"tick 0\n")
