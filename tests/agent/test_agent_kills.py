"""Caretakers killed: the run goes on without the agent proper, ends without the holder, and every end is told rightly."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import time

import pytest
from agentkit import alive, children_of, kill, pythons, wait_for

PY = sys.executable
COUNTER = "import sys, time\nfor i in range(int(sys.argv[1])):\n print('line', i, flush=True)\n time.sleep(0.005)\nsys.exit(7)"


def lines(n: int) -> bytes:
    return b"".join(b"line %d\n" % i for i in range(n))


@pytest.mark.parametrize("tty", [False, True], ids=["file", "pty"])
@pytest.mark.parametrize("python", pythons()[:1] + pythons()[-1:])
def test_the_log_is_whole_when_the_agent_is_killed_at_random_moments(new_run, python, tty):
    run = new_run([PY, "-c", COUNTER, "600"], tty=tty, stdin="attached" if tty else "none", python=python)
    run.start()
    dice = random.Random(7)
    killed = set()
    while run.run_pid() and alive(run.run_pid()) and len(killed) < 12:
        pid = run.agent()
        if alive(pid):
            killed.add(pid)
            kill(pid)
        time.sleep(dice.uniform(0.0, 0.4))
    end = run.end()
    assert run.out() == lines(600)
    assert (end["code"], end["reason"]) == (7, "nonzero_exit") and len(killed) >= 3
    wait_for(lambda: not run.processes(), "the caretakers leave")


def test_a_new_agent_still_holds_the_limit(new_run):
    run = new_run(["sleep", "100"], time_s=3)
    run.start()
    kill(run.agent())
    end = run.end()
    assert end["reason"] == "limit_time" and end["evidence"]["limit"] == "3s" and 2.9 <= end["used_s"] < 20
    assert "agent_restarted" in [e["event"] for e in run.events()]


def test_an_agent_killed_within_the_ladder_goes_on_with_it(new_run):
    body = "import signal, time\nfor s in (2, 15): signal.signal(s, signal.SIG_IGN)\nprint('up', flush=True); time.sleep(100)"
    run = new_run([PY, "-c", body], grace_s=[1, 1])
    run.start()
    run.wait_out(b"up")
    run.stop()
    wait_for(lambda: any(e["event"] == "ladder" for e in run.events()), "the ladder")
    kill(run.agent())
    end = run.end()
    assert end["reason"] == "stopped_by_user" and end["signal_name"] == "SIGKILL"


def test_a_limit_that_had_struck_keeps_its_reason_over_an_agents_death(new_run):
    body = "import signal, time\nsignal.signal(2, signal.SIG_IGN)\nprint('up', flush=True); time.sleep(100)"
    run = new_run([PY, "-c", body], grace_s=[2, 2], time_s=1)
    run.start()
    wait_for(lambda: any(e["event"] == "ladder" for e in run.events()), "the ladder")
    kill(run.agent())
    assert run.end()["reason"] == "limit_time"


@pytest.mark.parametrize("tty", [False, True], ids=["file", "pty"])
def test_without_the_holder_the_agent_ends_the_tree(new_run, tty):
    body = "import signal, time\nfor s in (1, 2): signal.signal(s, signal.SIG_IGN)\nprint('up', flush=True); time.sleep(100)"
    run = new_run(["sh", "-c", f'{PY} -c "$0" & wait', body], tty=tty, grace_s=[1, 1])
    run.start()
    run.wait_out(b"up")
    inside = children_of(run.holder()) - {run.agent()}
    kill(run.holder())
    end = run.end()
    assert end["reason"] == "agent_lost" and end["code"] is None
    wait_for(lambda: not run.processes() and not any(alive(p) for p in inside), "the tree is gone")
    assert run.phase() == "ended"


def test_both_killed_is_abandoned_and_one_stop_settles_it(new_run):
    run = new_run(["sh", "-c", "sleep 300 & setsid sleep 301 & echo up; wait"])
    run.start()
    run.wait_out(b"up")
    run.kill_caretakers()
    run.wait_phase("abandoned")
    began = time.monotonic()
    assert run.stop()["phase"] == "ended"
    assert time.monotonic() - began < 10
    end = run.end()
    assert end["reason"] == "agent_lost" and len(end["leftovers"]["found"]) == 3 and end["leftovers"]["survivors"] == []
    assert not run.processes()
    assert run.stop()["phase"] == "ended"


def test_many_stops_at_once_settle_once(new_run):
    run = new_run(["sleep", "300"])
    run.start()
    run.kill_caretakers()
    run.wait_phase("abandoned")
    racers = [subprocess.Popen(run.argv("stop", run.dir), stdout=subprocess.PIPE) for _ in range(5)]
    assert all(json.loads(p.communicate(timeout=40)[0])["phase"] == "ended" for p in racers)
    assert run.end()["reason"] == "agent_lost"


def test_everything_killed_and_another_boot_is_rebooted(new_run):
    run = new_run(["sleep", "300"])
    run.start()
    wait_for((run.attempt() / "heartbeat").exists, "a heartbeat")
    for pid in (run.holder(), run.agent(), run.run_pid()):
        kill(pid)
    other = json.dumps({"hostname": "box", "boot_id": "another", "init_start": 1})
    assert run.poll(STOKER_IDENTITY=other)["phase"] == "abandoned"
    run.stop(STOKER_IDENTITY=other)
    end = run.end()
    assert end["reason"] == "rebooted" and end["ended_at"] >= end["started_at"]
    assert run.start(2, STOKER_IDENTITY=other)["claimed"] is True
    assert run.phase(STOKER_IDENTITY=other) in ("claimed", "running")


def test_pids_of_another_boot_are_never_touched(new_run, tmp_path):
    """A record from before a reboot names pids that are somebody else's now."""
    run = new_run(["sleep", "300"])
    run.start(STOKER_IDENTITY="before")
    for pid in (run.holder(), run.agent(), run.run_pid()):
        kill(pid)
    with subprocess.Popen(["sleep", "300"], start_new_session=True) as stranger:
        record = run.record()
        start = int(open(f"/proc/{stranger.pid}/stat").read().rpartition(")")[2].split()[19])  # noqa: SIM115
        for who in ("holder", "agent", "run"):
            record[who] = {"pid": stranger.pid, "start": start, "sid": stranger.pid}
        (run.attempt() / "agent.json").write_text(json.dumps(record))
        assert run.poll()["phase"] == "abandoned"
        run.stop()
        assert run.end()["reason"] == "rebooted" and alive(stranger.pid)
        stranger.kill()


def test_a_reused_pid_is_not_the_run(new_run):
    run = new_run(["sleep", "300"])
    run.start()
    for pid in (run.holder(), run.agent(), run.run_pid()):
        kill(pid)
    with subprocess.Popen(["sleep", "300"], start_new_session=True) as stranger:
        record = run.record()
        for who in ("holder", "agent", "run"):
            record[who] = {"pid": stranger.pid, "start": 5, "sid": stranger.pid}
        (run.attempt() / "agent.json").write_text(json.dumps(record))
        run.stop()
        assert run.end()["reason"] == "agent_lost" and alive(stranger.pid)
        stranger.kill()


@pytest.mark.parametrize(("point", "code", "reason"), [
    ("ladder_done", 5, "nonzero_exit"), ("before_exit", 5, "nonzero_exit"), ("exit_written", 5, "nonzero_exit"), ("status_written", 5, "nonzero_exit")])
def test_killed_at_a_named_point_after_the_end_the_true_end_is_told(new_run, point, code, reason):
    run = new_run(["sh", "-c", f"sleep 0.3; exit {code}"])
    run.start(STOKER_CRASH_AT=point)
    end = run.end()
    assert (end["code"], end["reason"]) == (code, reason)
    wait_for(lambda: not run.processes(), "the caretakers leave")
    assert run.phase() == "ended"


def test_killed_between_spawn_and_agent_nothing_is_left_after_a_stop(new_run, tmp_path):
    run = new_run(["sh", "-c", f"echo $$ >> {tmp_path}/pids; sleep 300"])
    run.start(STOKER_CRASH_AT="spawned")
    run.wait_phase("abandoned")
    run.stop()
    assert run.end()["reason"] == "agent_lost"
    wait_for(lambda: not run.processes(), "nothing is left")


def test_everything_killed_after_the_status_was_written_still_tells_the_true_end(new_run):
    run = new_run(["sh", "-c", "sleep 0.2; exit 9"])
    run.start(STOKER_CRASH_AT="ladder_done")
    wait_for((run.attempt() / "status.json").exists, "status.json")
    deadline = time.monotonic() + 20
    while (run.processes() and not (run.attempt() / "exit.json").exists()) and time.monotonic() < deadline:
        for pid in run.processes():
            kill(pid)
    if not (run.attempt() / "exit.json").exists():
        run.wait_phase("abandoned")
        run.stop()
    end = run.end()
    assert (end["code"], end["reason"]) == (9, "nonzero_exit")


@pytest.mark.slow
def test_holder_and_agent_killed_at_random_moments_always_settle(new_run):
    dice = random.Random(11)
    for i in range(12):
        run = new_run(["sh", "-c", "for i in 1 2 3 4 5 6; do echo $i; sleep 0.05; done; exit 4"], id=f"r{i}")
        run.start()
        time.sleep(dice.uniform(0, 0.5))
        record = run.record()
        for who in dice.sample(["holder", "agent"], dice.choice([1, 2])):
            if record.get(who):
                kill(record[who]["pid"])
        phase = run.wait_phase("abandoned", "ended")["phase"]
        if phase == "abandoned":
            run.stop()
        end = run.end()
        assert end["reason"] in ("agent_lost", "nonzero_exit", "hangup") and end["code"] in (None, 4)
        assert os.path.getsize(run.attempt() / "out.log") <= 12
        wait_for(lambda run=run: not run.processes(), "nothing is left")
