"""Caretakers that stand still, by SIGSTOP or in a debugger's hands: the run goes on, its limits hold, it can be stopped."""

from __future__ import annotations

import contextlib
import json
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import agentkit
import pytest
from agentkit import Running, alive, kill, wait_for

PY = sys.executable
HOLD = """
import ctypes, errno, os, sys
libc = ctypes.CDLL(None, use_errno=True)
libc.ptrace.argtypes = [ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p]
SEIZE, INTERRUPT = 0x4206, 0x4207
if libc.ptrace(SEIZE, int(sys.argv[1]), None, None) or libc.ptrace(INTERRUPT, int(sys.argv[1]), None, None):
    sys.exit(0 if ctypes.get_errno() == errno.ESRCH else os.strerror(ctypes.get_errno()))
print("held", flush=True)
sys.stdin.read()
"""
COUNTER = "import sys, time\nfor i in range(int(sys.argv[1])):\n print('line', i, flush=True)\n time.sleep(0.01)\nsys.exit(7)"


@pytest.fixture(autouse=True)
def quick(tmp_path, monkeypatch) -> None:
    """The agent with ten times as many ticks a second: what is judged is a number of ticks."""
    copy = agentkit.changed_agent(tmp_path, ("TICK_S = 2.0 ", "TICK_S = 0.2 "), ("FORCE_S = 5.0 ", "FORCE_S = 1.0 "))
    monkeypatch.setattr(agentkit, "AGENT", copy)


@pytest.fixture
def freeze() -> Iterator[Callable[[int, str], None]]:
    """freeze(pid, "signal" or "debugger"); all are let go after the test."""
    debuggers: list[subprocess.Popen] = []
    stopped: list[int] = []

    def make(pid: int, how: str) -> None:
        if how == "signal":
            stopped.append(pid)
            kill(pid, signal.SIGSTOP)
            return
        debuggers.append(subprocess.Popen([PY, "-c", HOLD, str(pid)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE))
        if debuggers[-1].stdout.readline() != b"held\n" and debuggers[-1].wait() and alive(pid):  # not one that has just ended
            pytest.skip(f"this machine lets nobody trace: {debuggers[-1].stderr.read().decode().strip()}")

    yield make
    for pid in stopped:
        with contextlib.suppress(ProcessLookupError):
            kill(pid, signal.SIGCONT)
    for each in debuggers:
        each.communicate()


def events(run: Running) -> list[str]:
    return [e["event"] for e in run.events()]


HOW = pytest.mark.parametrize("how", ["signal", "debugger"])


@HOW
def test_a_frozen_agent_is_replaced_and_the_limit_holds(new_run, freeze, how):
    run = new_run(["sleep", "100"], time_s=3)
    run.start()
    wait_for((run.attempt() / "heartbeat").exists, "the first tick")
    before = run.agent()
    freeze(before, how)
    end = run.end()
    assert end["reason"] == "limit_time" and {"agent_frozen", "agent_restarted"} <= set(events(run)) and run.agent() != before
    assert alive(before) is False


@HOW
def test_agents_that_are_frozen_one_after_the_other_do_not_keep_a_run_alive(new_run, freeze, how):
    run = new_run([PY, "-c", "import signal, time\nfor s in (2, 15): signal.signal(s, signal.SIG_IGN)\nprint('up', flush=True); time.sleep(100)"], grace_s=[60, 60])
    run.start()
    run.wait_out(b"up")
    run.stop()
    for n in range(1, 4):
        before = run.agent()
        freeze(before, how)
        wait_for(lambda n=n: events(run).count("agent_frozen") >= n or (run.attempt() / "exit.json").exists(), "it is replaced")
        wait_for(lambda before=before: run.agent() != before or (run.attempt() / "exit.json").exists(), "by another, which the record names")
        if (run.attempt() / "exit.json").exists():
            break
    end = run.end()
    assert (end["reason"], end["signal_name"]) == ("stopped_by_user", "SIGKILL")


def test_a_holder_frozen_by_a_signal_is_woken(new_run, freeze):
    run = new_run([PY, "-c", COUNTER, "300"])
    run.start()
    run.wait_out(b"line 20\n")
    holder = run.holder()
    freeze(holder, "signal")
    end = run.end()
    assert (end["code"], end["reason"]) == (7, "nonzero_exit") and run.holder() == holder and "holder_frozen" in events(run)
    assert run.out() == b"".join(b"line %d\n" % i for i in range(300))


def test_under_a_holder_in_a_debugger_the_limit_holds(new_run, freeze):
    run = new_run(["sh", "-c", "sleep 100 & sleep 100"], time_s=2, grace_s=[1, 1])
    run.start()
    run.run_pid()
    holder = run.holder()
    freeze(holder, "debugger")
    end = run.end()
    assert (end["reason"], end["signal_name"], end["leftovers"]["survivors"]) == ("limit_time", "SIGINT", [])
    assert alive(holder)


def test_under_a_holder_in_a_debugger_a_run_can_be_stopped(new_run, freeze):
    run = new_run(["sleep", "100"], grace_s=[10, 10])
    run.start()
    run.run_pid()
    freeze(run.holder(), "debugger")
    run.stop()
    end = run.end()
    assert (end["reason"], end["signal_name"]) == ("stopped_by_user", "SIGINT")


def test_under_a_holder_in_a_debugger_a_run_that_ends_by_itself_has_its_code_and_its_last_words(new_run, freeze):
    run = new_run([PY, "-c", COUNTER, "60"])
    run.start()
    run.wait_out(b"line 20\n")
    freeze(run.holder(), "debugger")
    end = run.end()
    assert (end["code"], end["reason"]) == (7, "nonzero_exit")
    assert run.out() == b"".join(b"line %d\n" % i for i in range(60))


@HOW
def test_with_both_frozen_a_stop_without_grace_ends_it_all(new_run, freeze, how, tmp_path):
    body = f"env -i setsid sleep 300 & echo $! > {tmp_path}/daemon; echo up; exec sleep 300"
    run = new_run(["sh", "-c", body])
    run.start()
    run.wait_out(b"up")
    caretakers = [run.holder(), run.agent()]
    for pid in caretakers:
        freeze(pid, how)
    run.stop("--grace", 0, 0)
    end = run.end()
    assert end["reason"] == "stopped_by_user"
    wait_for(lambda: not any(map(alive, [*caretakers, run.run_pid(), int((tmp_path / "daemon").read_text())])), "everybody is gone")
    assert run.phase() == "ended"


def test_a_forged_record_does_not_turn_force_against_a_stranger(new_run, freeze):
    stranger = subprocess.Popen(["sleep", "100"])
    try:
        run = new_run(["sleep", "100"])
        run.start()
        run.run_pid()
        for pid in (run.holder(), run.agent()):
            freeze(pid, "signal")
        body = run.record()
        start = int(Path(f"/proc/{stranger.pid}/stat").read_text().split()[21])
        forged = {**body, "holder": {"pid": stranger.pid, "start": start}, "agent": {"pid": stranger.pid, "start": start}}
        (run.attempt() / "agent.json").write_text(json.dumps(forged))
        run.stop("--grace", 0, 0)
        assert run.end()["reason"] == "stopped_by_user" and stranger.poll() is None and not alive(body["run"]["pid"])
    finally:
        stranger.kill()
        stranger.wait()


def test_caretakers_that_were_frozen_before_their_first_heartbeat_are_silent_since_the_start(new_run, freeze):
    run = new_run(["sleep", "100"])
    run.start()
    run.run_pid()
    for pid in (run.holder(), run.agent()):
        freeze(pid, "signal")
    (run.attempt() / "heartbeat").unlink(missing_ok=True)
    wait_for(lambda: run.poll()["heartbeat_age_s"] > 1, "it is told")


def test_both_frozen_for_a_while_and_let_go_is_no_case(new_run, freeze):
    """A suspended laptop, a paused container: nobody has ticked meanwhile."""
    run = new_run(["sleep", "100"], time_s=3)
    run.start()
    wait_for((run.attempt() / "heartbeat").exists, "the first tick")
    agent, holder = run.agent(), run.holder()
    for pid in (holder, agent):
        kill(pid, signal.SIGSTOP)
    wait_for(lambda: run.poll()["heartbeat_age_s"] > 1, "the heartbeat stands still")
    for pid in (holder, agent):
        kill(pid, signal.SIGCONT)
    assert run.end()["reason"] == "limit_time"
    assert run.agent() == agent and not {"agent_frozen", "holder_frozen"} & set(events(run))
