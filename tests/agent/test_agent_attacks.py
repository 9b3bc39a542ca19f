"""What a hostile moment may not do: hurt strangers, lose a stop, blame the wrong one, refuse to end a run on a full disk."""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import agentkit
import pytest
from agentkit import kill, wait_for

from stoker.agent.attempts import Attempt
from stoker.agent.processes import who
from stoker.agent.tree import Tree

PY = sys.executable
PR_SET_CHILD_SUBREAPER = 36


@pytest.fixture
def slowed(tmp_path, monkeypatch):
    """slowed(line): the agent, with a pause before this line of it."""

    def make(line: str, pause: str) -> None:
        indent = line[:len(line) - len(line.lstrip())]
        monkeypatch.setattr(agentkit, "AGENT", agentkit.changed_agent(tmp_path, (line, f"{indent}{pause}\n{line}")))
    return make


@pytest.fixture
def subreaper() -> Iterator[None]:
    """Orphans become children of the test, as they become children of a user's service manager."""
    prctl = ctypes.CDLL(None).prctl
    prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    yield
    prctl(PR_SET_CHILD_SUBREAPER, 0, 0, 0, 0)
    with contextlib.suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG) != (0, 0):
            pass


@contextlib.contextmanager
def small_disk(where: Path, options: str) -> Iterator[Path]:
    where.mkdir(parents=True)
    made = subprocess.run(["mount", "-t", "tmpfs", "-o", options, "stoker-test", str(where)], capture_output=True, text=True, check=False)
    if made.returncode:
        pytest.skip(f"cannot mount a tmpfs: {made.stderr.strip()}")
    try:
        yield where
    finally:
        subprocess.run(["umount", "-l", str(where)], check=False)


def test_an_agent_whose_holder_died_while_it_was_born_leaves_the_children_of_others_alone(new_run, slowed, subreaper):
    slowed("                Agent(self, theirs).live()", "time.sleep(1)")
    stranger = subprocess.Popen(["sleep", "100"])
    try:
        run = new_run([PY, "-c", "import time; print('up', flush=True); time.sleep(100)"])
        run.start()
        run.wait_out(b"up")
        kill(run.holder())
        end = run.end()
        assert stranger.poll() is None and stranger.pid not in [p["pid"] for p in end["leftovers"]["found"]]
        assert end["reason"] == "agent_lost"
    finally:
        stranger.kill()
        stranger.wait()


def test_the_children_of_a_later_process_with_the_holders_number_are_not_the_runs(tmp_path):
    me = who(os.getpid())
    att = Attempt(str(tmp_path / "runs" / "r"), 1)
    stranger = subprocess.Popen(["sleep", "100"])
    try:
        assert stranger.pid in [p.pid for p in Tree(att, me, 0, None).look()]
        assert Tree(att, dict(me, start=me["start"] - 1), 0, None).look() == []
    finally:
        stranger.kill()
        stranger.wait()


def test_why_a_run_is_ended_is_on_disk_before_its_first_signal(new_run):
    body = """import json, os, signal, sys, time
def told(*_):
    sys.exit(7 if json.load(open(os.environ["STOKER_RUN_DIR"] + "/attempts/1/heartbeat"))["ladder"] == "limit_time" else 9)
signal.signal(2, told)
time.sleep(100)"""
    run = new_run([PY, "-c", body], grace_s=[20, 20], time_s=2)
    run.start()
    end = run.end()
    assert (end["code"], end["reason"]) == (7, "limit_time")


@pytest.mark.parametrize("how", ["stop", "limit"])
def test_who_ended_the_run_is_remembered_when_the_agent_dies_with_it(new_run, how):
    body = "import signal, sys, time\nsignal.signal(2, lambda *_: (time.sleep(0.03), sys.exit(7)))\nprint('up', flush=True); time.sleep(100)"
    run = new_run([PY, "-c", body], grace_s=[20, 20], time_s=2 if how == "limit" else None)
    run.start()
    run.wait_out(b"up")
    agent = run.agent()
    stop = subprocess.Popen(run.argv("stop", run.dir), stdout=subprocess.DEVNULL) if how == "stop" else None
    wait_for(lambda: any(e["event"] == "ladder" for e in run.events()), "the ladder", pause=0.001)
    kill(agent)
    end = run.end()
    assert (end["code"], end["reason"]) == (7, "stopped_by_user" if how == "stop" else "limit_time")
    if stop:
        stop.wait(20)


FOREGROUND = """
import os, signal, time
signal.signal(signal.SIGTTOU, signal.SIG_IGN)
pid = os.fork()
if pid == 0:
    signal.signal(2, lambda *_: (os.write(1, b"front\\n"), os._exit(0)))
    os.setpgid(0, 0)
    os.tcsetpgrp(0, os.getpid())
    os.write(1, b"up\\n")
    time.sleep(100)
signal.signal(2, lambda *_: os.write(1, b"back\\n"))
os.waitpid(pid, 0)
"""


def test_a_signal_goes_to_the_foreground_group_of_the_terminal(new_run):
    for _ in range(4):  # which of two numbers is met first in a set depends on the numbers
        run = new_run([PY, "-c", FOREGROUND], tty=True, stdin="attached")
        run.start()
        run.wait_out(b"up\n")
        attached = run.attach(1)
        attached.send(b"s", b"INT")
        run.end()
        attached.leave()
        assert run.out() == b"up\nfront\n"


SECOND = "import os, sys, time\nif os.environ['STOKER_ATTEMPT'] == '1': sys.exit(3)\nprint('second', flush=True); time.sleep(100)"


def failing(new_run, **spec):
    return new_run([PY, "-c", SECOND], restarts=3, retry_reasons=["nonzero_exit"], **spec)


def test_a_stop_that_is_overtaken_by_an_automatic_restart_ends_the_new_attempt(new_run, slowed):
    slowed('    wish = {"reason": reason, "grace_s": grace, "at": time.time()}',
           'time.sleep(float(os.environ.get("TEST_PAUSE_S", "0")))')
    run = failing(new_run, backoff_s=1.0)
    run.start()
    run.wait_phase("waiting")
    assert run.stop("--grace", 0, 0, TEST_PAUSE_S="2")["attempt"] == 2
    assert run.end(2)["reason"] == "stopped_by_user"
    assert run.wait_phase("ended")["attempts"] == [1, 2]


def test_a_stop_typed_just_before_the_restart_is_claimed_is_heard(new_run, slowed):
    slowed("        if not claim(following):", "self.event('about_to_claim'); time.sleep(1.5)")
    run = failing(new_run, backoff_s=0.2)
    run.start()
    wait_for(lambda: any(e["event"] == "about_to_claim" for e in run.events()), "the restart")
    run.stop()
    end = run.end(2)
    assert end["reason"] == "stopped_by_user" and end["restart"] is None
    assert not (run.attempt(2) / "out.log").exists()  # it never began
    wait_for(lambda: not run.processes(), "the caretakers leave")


@pytest.mark.parametrize("full", ["blocks", "inodes"])
def test_a_run_on_a_full_disk_can_be_stopped_and_stopped_harder(new_run, tmp_path, full):
    body = "import signal, time\nfor s in (2, 15): signal.signal(s, signal.SIG_IGN)\nprint('up', flush=True); time.sleep(100)"
    with small_disk(tmp_path / "disk", "size=4m,nr_inodes=300") as disk:
        run = new_run([PY, "-c", body], root=disk / "root")
        run.start()
        run.wait_out(b"up")
        wait_for((run.attempt() / "heartbeat").exists, "the first heartbeat")
        fill(disk, full)
        assert run.stop("--grace", 60, 60)["phase"] == "stopping"
        wait_for(lambda: run.phase() == "stopping", "the ladder")
        run.stop("--grace", 0, 0)
        end = run.end()
        assert (end["reason"], end["signal_name"]) == ("stopped_by_user", "SIGKILL")
        wait_for(lambda: not run.processes(), "the caretakers leave")


def fill(disk: Path, what: str) -> None:
    with contextlib.suppress(OSError), open(disk / "filler", "wb", buffering=0) as f:
        for n in range(1 << 20):
            if what == "blocks":
                f.write(b"x" * 4096)
            else:
                (disk / f"i{n}").touch()


def test_a_restart_in_the_place_of_dead_caretakers_counts(new_run):
    run = new_run([PY, "-c", "import os, sys, time\nif os.environ['STOKER_ATTEMPT'] == '1': time.sleep(100)\nsys.exit(3)"],
                  restarts=2, retry_reasons=["nonzero_exit", "agent_lost"], backoff_s=0.1)
    run.start()
    run.run_pid()
    for pid in (run.holder(), run.agent()):
        kill(pid)
    run.wait_phase("abandoned")
    run.stop("--reason", "agent_lost")
    assert run.end()["reason"] == "agent_lost"
    run.call("start", run.dir, 2, "--again")
    seen = run.wait_phase("ended")
    assert seen["attempts"] == [1, 2, 3]  # the second restart was the agent's own
    assert json.loads((run.attempt() / "exit.json").read_text())["restart"]["attempt"] == 2


def test_a_removal_that_was_killed_in_the_middle_is_finished_by_the_next(new_run):
    run, other = new_run(["true"], id="gone"), new_run(["true"], id="gone-too")
    for each in (run, other):
        each.start()
        each.wait_phase("ended")
        wait_for(lambda each=each: not each.processes(), "the caretakers leave")
    os.rename(run.dir, run.root / "runs" / ".rm-gone-4711")
    os.rename(other.dir, other.root / "runs" / ".rm-gone-too-4711")
    assert run.call("rm", run.dir) == [{"removed": False}]
    assert os.listdir(run.root / "runs") == [".rm-gone-too-4711"]
    assert run.call("rm", other.dir) == [{"removed": False}]
    assert os.listdir(run.root / "runs") == []


@pytest.mark.skipif(os.getuid() == 0 and not shutil.which("setpriv"), reason="root may read everything, and there is no setpriv")
def test_a_folder_that_its_owner_cannot_read_is_removed(new_run):
    run = new_run(["true"])
    run.start()
    run.wait_phase("ended")
    wait_for(lambda: not run.processes(), "the caretakers leave")
    (run.dir / "work" / "shut" / "inner").mkdir(parents=True)
    (run.dir / "work" / "shut" / "inner" / "file").touch()
    for folder in (run.dir / "work" / "shut" / "inner", run.dir / "work" / "shut"):
        folder.chmod(0)
    plain = ["setpriv", "--bounding-set=-dac_override,-dac_read_search"] if os.getuid() == 0 else []
    done = subprocess.run([*plain, *run.argv("rm", run.dir)], capture_output=True, timeout=60, check=False)
    assert (done.returncode, json.loads(done.stdout)) == (0, {"removed": True}), done
    assert os.listdir(run.root / "runs") == []
