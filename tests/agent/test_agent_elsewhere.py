"""A run that is looked at from another PID namespace: pids say nothing there, and what is not known is no reason to end anything."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from agentkit import Running, kill, wait_for

UNSHARE = ["unshare", "-r", "-p", "-f", "--mount-proc", "--kill-child"]


@pytest.fixture(scope="module", autouse=True)
def _namespaces() -> None:
    if subprocess.run([*UNSHARE, "true"], capture_output=True, check=False).returncode:
        pytest.skip("this machine lets nobody make a PID namespace")


@contextmanager
def started_elsewhere(run: Running) -> Iterator[subprocess.Popen]:
    """Attempt 1 in a PID namespace of its own; killing the process ends the namespace and all that is in it."""
    script = " ".join(run.argv("start", run.dir, 1)) + "; exec sleep 600"
    with subprocess.Popen([*UNSHARE, "sh", "-c", script], env=run.env, stdout=subprocess.PIPE) as namespace:
        try:
            assert json.loads(namespace.stdout.readline())["claimed"] is True
            yield namespace
        finally:
            namespace.kill()


def caretakers(run: Running) -> list[int]:
    return [pid for pid in run.processes() if b"_hold" in open(f"/proc/{pid}/cmdline", "rb").read()]


def beats(run: Running, n: int) -> None:
    """Wait until n further heartbeats were written."""
    for _ in range(n):
        before = (run.attempt() / "heartbeat").read_bytes()
        wait_for(lambda before=before: (run.attempt() / "heartbeat").read_bytes() != before, "a heartbeat")


def test_a_healthy_run_of_another_namespace_is_running_and_no_word_about_lost_caretakers_ends_it(new_run):
    run = new_run(["sh", "-c", "echo up; sleep 300"])
    with started_elsewhere(run):
        run.wait_out(b"up")
        wait_for((run.attempt() / "heartbeat").exists, "a heartbeat")
        assert run.phase() == "running"
        assert run.stop("--reason", "agent_lost")["phase"] == "running"
        beats(run, 2)
        assert not (run.attempt() / "stop.json").exists() and not (run.attempt() / "exit.json").exists()
        assert run.call("start", run.dir, 2, check=False)[0]["error"] == "state"
        run.stop()  # a wish is a wish, wherever it is typed
        assert run.end()["reason"] == "stopped_by_user"


def test_a_run_of_this_namespace_is_running_for_somebody_in_another(new_run):
    run = new_run(["sleep", "300"])
    run.start()
    wait_for((run.attempt() / "heartbeat").exists, "a heartbeat")
    for words in (("poll", run.root, run.id), ("stop", run.dir, "--reason", "agent_lost")):
        told = subprocess.run([*UNSHARE, *run.argv(*words)], env=run.env, capture_output=True, check=True)
        assert json.loads(told.stdout)["phase"] == "running"
    assert not (run.attempt() / "stop.json").exists()


def test_a_namespace_that_ended_has_abandoned_its_runs_and_they_are_settled(new_run):
    run = new_run(["sh", "-c", "echo up; sleep 300"])
    with started_elsewhere(run) as namespace:
        run.wait_out(b"up")
        namespace.kill()
        namespace.wait()
        wait_for(lambda: not run.processes(), "the end of the namespace")
        assert run.phase() == "abandoned"
        run.stop("--reason", "agent_lost")
    assert run.end()["reason"] == "rebooted"


def test_what_gives_no_sign_of_life_is_unseen_and_ended_only_on_a_word_that_it_is_gone(new_run):
    """Its caretakers are paused, as in a paused container, and its socket is gone."""
    run = new_run(["sh", "-c", "echo up; sleep 300"])
    with started_elsewhere(run):
        run.wait_out(b"up")
        wait_for((run.attempt() / "heartbeat").exists, "a heartbeat")
        paused = caretakers(run)
        for pid in paused:
            kill(pid, signal.SIGSTOP)
        assert run.phase() == "running"  # somebody holds its socket
        os.unlink(run.attempt() / "sock")
        asked = [("poll", run.root, run.id), ("stop", run.dir, "--reason", "agent_lost"), ("start", run.dir, 2), ("rm", run.dir)]
        told = [subprocess.Popen(run.argv(*words), env=run.env, stdout=subprocess.PIPE) for words in asked]
        seen, stopped, started, removed = (json.loads(p.communicate(timeout=60)[0]) for p in told)
        assert seen["phase"] == stopped["phase"] == "unseen"
        assert started["error"] == removed["error"] == "state"
        assert not (run.attempt() / "stop.json").exists()
        for pid in paused:
            kill(pid, signal.SIGCONT)
        beats(run, 1)
        assert run.phase() == "running"  # by its heartbeat
        for pid in caretakers(run):
            kill(pid, signal.SIGSTOP)
        assert run.stop("--gone", "--grace", 0, 0)["phase"] == "ended"
        assert run.end()["reason"] == "stopped_by_user"
        left = set(run.processes()) - set(caretakers(run))
        assert not left


def test_a_record_of_an_earlier_version_is_judged_as_before(new_run):
    run = new_run(["sleep", "300"])
    run.start()
    run.kill_caretakers()
    record = run.record()
    assert record["machine"].pop("pid_ns") > 0
    (run.attempt() / "agent.json").write_text(json.dumps(record))
    assert run.phase() == "abandoned"
    run.stop()
    assert run.end()["reason"] == "agent_lost"
