"""One start of a command under the hooks: how each kind of end is told, that nothing of it stays, and what its environment is."""

from __future__ import annotations

import json
import os
import sys
import time

import pytest

from stoker.base.config import Home
from stoker.base.errors import Denied, InvalidSpec
from stoker.tune import procs, trial
from stoker.tune.trial import Trial

ORDER = {"mode": "probe", "seconds": 5, "steps": 0, "seed": None, "settings": {}, "try": [], "network": False}
TELL = """
import json, os, sys, time
room = os.environ["STOKER_TUNE"]
def facts(**more):
    with open(room + "/facts.part", "w") as f:
        json.dump({"version": 1, "ended": "enough", **more}, f)
    os.rename(room + "/facts.part", room + "/facts.json")
def progress(**more):
    with open(room + "/progress.jsonl", "a") as f:
        f.write(json.dumps({"at": time.time(), **more}) + chr(10))
"""


@pytest.fixture
def parent(tmp_path):
    return trial.rooms(Home(tmp_path / "home"))


@pytest.fixture
def run(tmp_path, parent):
    """Run a script to its end; everything it left must be gone."""
    def go(code: str, *options: str, limit_s: float = 20.0, order: dict = ORDER, **wait) -> trial.Ended:
        (tmp_path / "train.py").write_text(TELL + code)
        made = Trial(trial.read([sys.executable, *options, "train.py"], tmp_path, dict(os.environ)), order, parent).start()
        ended = made.wait(limit_s, **wait)
        assert made.members() == [] and not made.alive
        made.clear()
        assert not made.room.exists()
        return ended
    return go


def test_facts(run):
    heard = []
    ended = run('progress(phase="R0", steps=3)\nprogress(phase="R1", steps=9)\nfacts(steps_seen=9)', hear=heard.append)
    assert ended.how == "facts" and ended.facts["steps_seen"] == 9 and ended.code == 0
    assert [told["phase"] for told in heard] == ["R0", "R1"]
    assert ended.processes[0]["role"] == "script"


def test_a_trial_ends_before_the_disk_is_full(run, monkeypatch):
    monkeypatch.setattr(procs, "FREE_DISK", 1 << 60)
    ended = run("time.sleep(100)")
    assert (ended.how, ended.why) == ("full", "the disk is nearly full")


def test_facts_of_a_script_that_does_not_end(run):
    began = time.monotonic()
    assert run("facts()\ntime.sleep(100)").how == "facts"
    assert time.monotonic() - began < 15


def test_an_error_of_its_own_is_told_as_such(run):
    ended = run("def deep():\n    raise ValueError('the data is not here')\ndeep()")
    assert ended.how == "error" and ended.why == "the script fails: ValueError: the data is not here (train.py:12)"
    assert ended.lines[-1] == "ValueError: the data is not here" and any("in deep" in line for line in ended.lines)


def test_an_error_that_the_facts_tell(run):
    ended = run('facts(ended="error", error={"type": "KeyError", "message": "x", "file": "/a/b/train.py", "line": 7})\nsys.exit(1)')
    assert ended.how == "error" and ended.why.endswith("KeyError: x (train.py:7)")


def test_a_question_at_the_terminal(run):
    assert run("input('how many? ')").how == "stdin"
    assert run('facts(ended="error", side_effects={"stdin": True})').how == "stdin"


def test_the_network_is_told_unless_it_is_allowed(run):
    told = 'facts(side_effects={"network": ["example.com:443"]})'
    assert run(told).how == "network"
    assert run(told, order={**ORDER, "network": True}).how == "facts"


def test_a_signal(run):
    ended = run("import signal; os.kill(os.getpid(), signal.SIGSEGV)")
    assert (ended.how, ended.why, ended.signal) == ("killed", "killed by SIGSEGV", 11)


def test_no_torch_no_step_no_hooks(run):
    assert run("print(1)").how == "no_torch"
    hooks = 'open(os.environ["STOKER_HOOKS"] + "/processes.jsonl", "a").write(json.dumps({"pid": 1, "torch": "2"}) + chr(10))'
    assert run(hooks).how == "no_step"
    assert run("import os", "-E", limit_s=5).how == "unhooked"


@pytest.mark.slow
def test_a_hang(run, monkeypatch):
    monkeypatch.setattr(trial, "IDLE_S", 1.5)
    ended = run("time.sleep(100)")
    assert ended.how == "hang" and "no activity" in ended.why


def test_no_step_in_the_time_there_is(run):
    ended = run("while True: pass", start_s=2.0)
    assert ended.how == "slow_start" and ended.seconds < 10
    assert run("while True: pass", limit_s=0.5).how == "hang"


def test_whoever_left_the_session_is_ended_too(tmp_path, parent):
    (tmp_path / "train.py").write_text("import os, time\nif os.fork() == 0:\n    os.setsid()\n    if os.fork() == 0:\n        time.sleep(100)\n"
                                       "time.sleep(100)\n")
    made = Trial(trial.read([sys.executable, "train.py"], tmp_path, dict(os.environ)), ORDER, parent).start()
    deadline = time.monotonic() + 10
    while len(made.members()) < 3 and time.monotonic() < deadline:
        time.sleep(0.01)
    pids = made.members()
    assert len(pids) == 3
    made.end()
    assert made.members() == [] and not any(os.path.exists(f"/proc/{pid}/exe") for pid in pids)
    assert made.end().how == made.end().how  # again is harmless
    made.clear()


def test_the_environment_of_a_trial(run, monkeypatch):
    monkeypatch.setenv("STOKER_SETTINGS", "/somewhere")
    monkeypatch.setenv("HF_TOKEN", "secret")
    ended = run("facts(env=dict(os.environ), stdin=sys.stdin.read())")
    env = ended.facts["env"]
    assert env["WANDB_MODE"] == "offline" and env["MLFLOW_TRACKING_URI"].startswith("file:///") and env["PYTHONUNBUFFERED"] == "1"
    assert env["STOKER_RESUME"] == "off" and env["HF_TOKEN"] == "secret" and "STOKER_SETTINGS" not in env
    assert "hooks-" in env["PYTHONPATH"].split(":")[0] and ended.facts["stdin"] == ""


def test_the_order_and_the_room_are_private(tmp_path, parent):
    (tmp_path / "train.py").write_text("")
    made = Trial(trial.read([sys.executable, "train.py"], tmp_path, dict(os.environ)), ORDER, parent).start()
    assert made.room.stat().st_mode & 0o77 == 0 and json.loads((made.room / "order.json").read_text()) == ORDER
    made.end()
    made.clear()


def test_what_cannot_be_started_is_said_before(tmp_path):
    with pytest.raises(InvalidSpec):
        trial.read(["nowhere.py"], tmp_path, dict(os.environ))
    (tmp_path / "home").mkdir(mode=0o755)
    (tmp_path / "home" / "tune").mkdir(mode=0o777)
    (tmp_path / "home" / "tune").chmod(0o777)
    with pytest.raises(Denied):
        trial.rooms(Home(tmp_path / "home"))


def test_rooms_that_nobody_cleared_away_go(tmp_path):
    where = Home(tmp_path / "home")
    old, new = trial.rooms(where) / "trial-old", trial.rooms(where) / "trial-new"
    old.mkdir()
    new.mkdir()
    os.utime(old, (time.time() - 3 * 86400,) * 2)
    trial.rooms(where)
    assert new.exists() and not old.exists()


def test_it_does_not_outlive_us(tmp_path):
    """A stopped trial would stay for ever when the tuner is killed."""
    (tmp_path / "train.py").write_text("import time; time.sleep(100)")
    (tmp_path / "tuner.py").write_text(f"""
import os, signal, sys, time
from pathlib import Path
from stoker.base.config import Home
from stoker.tune import trial
where = Path({str(tmp_path)!r})
made = trial.Trial(trial.read([sys.executable, "train.py"], where, dict(os.environ)), {ORDER!r}, trial.rooms(Home(where / "home"))).start()
os.kill(made.pid, signal.SIGSTOP)
print(made.pid, flush=True)
os.kill(os.getpid(), signal.SIGKILL)
""")
    import subprocess

    done = subprocess.run([sys.executable, "tuner.py"], cwd=tmp_path, capture_output=True, text=True, timeout=30, check=False)
    pid = int(done.stdout)
    deadline = time.monotonic() + 10
    while procs._stat(pid) and procs._stat(pid)[0] not in "ZX" and time.monotonic() < deadline:
        time.sleep(0.01)
    assert procs._stat(pid) is None or procs._stat(pid)[0] in "ZX"
