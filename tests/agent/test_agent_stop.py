"""Ending a run: the ladder over the whole tree, whatever its members do to hide; and who is spared."""

from __future__ import annotations

import shutil
import signal
import subprocess
import sys
import time

import pytest
from agentkit import alive, children_of, door, kill, wait_for

PY = sys.executable

HIDING = {
    "ignores SIGINT": "import signal, time; signal.signal(signal.SIGINT, signal.SIG_IGN); print('up', flush=True); time.sleep(100)",
    "ignores SIGINT and SIGTERM": "import signal, time\nfor s in (2, 15): signal.signal(s, signal.SIG_IGN)\nprint('up', flush=True); time.sleep(100)",
    "closes its output": "import os, time; print('up', flush=True); os.close(1); os.close(2); time.sleep(100)",
    "renames itself": "import time; open('/proc/self/comm', 'w').write('kworker/0:1'); print('up', flush=True); time.sleep(100)",
    "is suspended": "import os, time; print('up', flush=True); os.kill(os.getpid(), 19); time.sleep(100)",
    "has a daemon": ("import os, time\nif os.fork() == 0:\n os.setsid()\n if os.fork(): os._exit(0)\n os.execvp('sleep', ['sleep', '100'])\n"
                     "time.sleep(0.3); print('up', flush=True); time.sleep(100)"),
    "has a daemon without the mark": ("import os, time\nif os.fork() == 0:\n os.setsid()\n if os.fork(): os._exit(0)\n os.execve('/bin/sleep', ['sleep', '100'], {})\n"
                                      "time.sleep(0.3); print('up', flush=True); time.sleep(100)"),
}


@pytest.mark.parametrize("what", HIDING)
def test_the_ladder_ends_a_run_that(new_run, what):
    run = new_run([PY, "-c", HIDING[what]], grace_s=[0.5, 0.5])
    run.start()
    run.wait_out(b"up")
    inside = children_of(run.holder()) - {run.agent()}
    assert inside
    run.stop()
    end = run.end()
    assert end["reason"] == "stopped_by_user" and end["leftovers"]["survivors"] == []
    wait_for(lambda: not any(alive(p) for p in inside) and not run.processes(), "nothing is left")


def test_the_stages_of_the_ladder_come_in_order(new_run):
    body = "import os, signal, time\nfor s in (2, 15): signal.signal(s, lambda s, f: os.write(1, b'got %d\\n' % s))\nprint('up', flush=True)\nwhile True: time.sleep(0.05)"
    run = new_run([PY, "-c", body], grace_s=[0.3, 0.3], stop_signal="INT")
    run.start()
    run.wait_out(b"up")
    run.stop()
    end = run.end()
    assert run.out() == b"up\ngot 2\ngot 15\n" and end["signal_name"] == "SIGKILL" and end["reason"] == "stopped_by_user"
    assert [e["stage"] for e in run.events() if e["event"] == "ladder"] == ["INT", "TERM", "KILL"]


def test_a_run_that_saves_within_its_grace_is_left_to_finish(new_run):
    body = "import time\ntry: print('up', flush=True); time.sleep(100)\nexcept KeyboardInterrupt:\n time.sleep(1); print('saved')"
    run = new_run([PY, "-c", body], grace_s=[20, 20])
    run.start()
    run.wait_out(b"up")
    run.stop()
    end = run.end()
    assert run.out() == b"up\nsaved\n" and end["code"] == 0 and end["reason"] == "stopped_by_user" and end["used_s"] < 15


def test_a_second_stop_can_be_shorter(new_run):
    run = new_run([PY, "-c", HIDING["ignores SIGINT and SIGTERM"]], grace_s=[100, 100])
    run.start()
    run.wait_out(b"up")
    run.stop()
    wait_for(lambda: any(e["event"] == "ladder" for e in run.events()), "the ladder")
    assert alive(run.run_pid()) and run.phase() == "stopping"
    run.stop("--grace", 0, 0, "--reason", "limit_budget")
    end = run.end()
    assert end["signal_name"] == "SIGKILL" and end["reason"] == "stopped_by_user"  # the first reason stands


def test_stop_carries_the_reason_it_was_given(new_run):
    run = new_run(["sleep", "100"])
    run.start()
    run.stop("--reason", "limit_idle")
    assert run.end()["reason"] == "limit_idle"
    assert run.stop() == {"attempt": 1, "phase": "ended"}


def test_stop_without_an_attempt_is_harmless(new_run):
    run = new_run(["true"])
    assert run.stop() == {"attempt": None, "phase": "staged"}
    shutil.rmtree(run.dir)
    assert run.stop() == {"attempt": None, "phase": "absent"}


def test_what_a_run_leaves_behind_is_ended_and_named(new_run):
    run = new_run(["sh", "-c", "sleep 100 & setsid sleep 101 & exit 0"], grace_s=[1, 1])
    run.start()
    end = run.end()
    assert (end["reason"], end["code"]) == ("exited", 0) and end["leftovers"]["survivors"] == []
    assert [p["name"] for p in end["leftovers"]["found"]] == ["sleep", "sleep"]
    assert end["used_s"] < 5
    wait_for(lambda: not run.processes(), "nothing is left")


def test_a_child_that_ends_a_moment_later_is_no_leftover(new_run):
    run = new_run(["sh", "-c", "sleep 0.1 & exit 0"])
    run.start()
    assert run.end()["leftovers"]["found"] == []


HOPPER = """
import os, time
end = time.monotonic() + 60
print('up', flush=True)
while time.monotonic() < end:  # a new pid and a new session each 10 ms, and only one process of them at a time
    if os.fork():
        os._exit(0)
    os.setsid()
    time.sleep(0.01)
"""


def test_processes_that_fork_and_leave_all_the_time_are_caught(new_run):
    run = new_run(["sh", "-c", f'for i in 1 2 3; do {PY} -S -c "$0" & done; sleep 100', HOPPER], grace_s=[0, 0])
    run.start()
    wait_for(lambda: run.out().count(b"up") == 3, "three of them")
    run.stop("--grace", 0, 0)
    end = run.end(timeout=60)
    assert end["leftovers"]["survivors"] == [] and end["signal_name"] == "SIGKILL"
    wait_for(lambda: not run.processes(), "nothing is left")


DISGUISES = {
    "a variable": "STOKER_DAEMON=1 setsid sh -c 'echo $$ > {told}; exec sleep 300' &",
    "a record of another": "STOKER_DAEMON=$STOKER_RUN_DIR/attempts/1/agent.json setsid sh -c 'echo $$ > {told}; exec sleep 300' &",
    "a name": "setsid " + PY + " -c \"import os, time; open('/proc/self/comm', 'w').write('tmux: server'); "
              "open('{told}', 'w').write(str(os.getpid()) + chr(10)); time.sleep(300)\" &",
    "a program of that name": "cp /bin/sleep {tmp}/tmux; setsid sh -c 'echo $$ > {told}; exec {tmp}/tmux 300' &",
}


@pytest.mark.parametrize("stop", [False, True], ids=["by itself", "stopped"])
@pytest.mark.parametrize("disguise", DISGUISES)
def test_a_child_disguised_as_a_daemon_does_not_escape(new_run, tmp_path, disguise, stop):
    told = tmp_path / "pid"
    body = DISGUISES[disguise].format(told=told, tmp=tmp_path)
    run = new_run(["sh", "-c", f"{body} while ! test -s {told}; do sleep 0.02; done; echo up; {'sleep 300' if stop else ''}"], grace_s=[0.5, 0.5])
    run.start()
    run.wait_out(b"up")
    if stop:
        run.stop()
    end = run.end()
    assert not alive(int(told.read_text())) and end["leftovers"]["spared"] == []


@pytest.mark.real("tmux")
def test_a_tmux_server_started_in_a_run_survives_it(new_run, tmp_path):
    if not shutil.which("tmux"):
        pytest.skip("tmux is not installed")
    run = new_run(["sh", "-c", f"tmux -f /dev/null -S {tmp_path}/t new-session -d 'sleep 300'; sleep 0.3"], grace_s=[0.5, 0.5])
    run.start()
    try:
        end = run.end()
        assert end["leftovers"]["found"] == [] and "tmux: server" in [p["name"] for p in end["leftovers"]["spared"]]
        assert subprocess.run(["tmux", "-S", f"{tmp_path}/t", "ls"], capture_output=True, check=False).returncode == 0
    finally:
        subprocess.run(["tmux", "-S", f"{tmp_path}/t", "kill-server"], capture_output=True, check=False)


def test_a_run_renamed_like_a_multiplexer_is_stopped(new_run, tmp_path):
    run = new_run([PY, "-c", "import time; open('/proc/self/comm', 'w').write('screen'); print('up', flush=True); time.sleep(100)"], grace_s=[0.3, 0.3])
    run.start()
    run.wait_out(b"up")
    run.stop()
    assert run.end()["reason"] == "stopped_by_user"


def test_two_runs_with_one_id_in_two_roots_do_not_end_each_other(new_run, tmp_path):
    one = new_run(["sleep", "100"], id="same", root=tmp_path / "a")
    two = new_run(["sleep", "100"], id="same", root=tmp_path / "b")
    one.start()
    two.start()
    one.stop("--grace", 0, 0)
    one.end()
    assert alive(two.run_pid())


def test_killed_from_outside_and_hangup_and_crash(new_run):
    for sig, reason in ((signal.SIGKILL, "killed"), (signal.SIGTERM, "killed"), (signal.SIGHUP, "hangup"), (signal.SIGSEGV, "crashed"), (signal.SIGABRT, "crashed")):
        run = new_run(["sleep", "100"])
        run.start()
        kill(run.run_pid(), sig)
        end = run.end()
        assert (end["reason"], end["signal_name"], end["code"]) == (reason, sig.name, None)


def test_a_signal_sent_through_the_door_is_the_users(new_run):
    run = new_run(["sleep", "100"])
    run.start()
    attached = run.attach()
    attached.send(b"s", b"INT")
    assert attached.rest().keys() == {b"m", b"x"}
    attached.leave()
    end = run.end()
    assert end["reason"] == "stopped_by_user" and end["signal_name"] == "SIGINT" and end["evidence"]["interrupted"] == "SIGINT"


def test_k_ends_a_run_that_ignores_sigint(new_run):
    run = new_run([PY, "-c", HIDING["ignores SIGINT"]], grace_s=[100, 5])
    run.start()
    run.wait_out(b"up")
    attached = run.attach()
    attached.send(b"k")
    attached.rest()
    attached.leave()
    end = run.end()
    assert end["reason"] == "stopped_by_user" and end["signal_name"] == "SIGTERM"


def test_garbage_at_the_door_is_shown_out(new_run):
    run = new_run(["sleep", "100"])
    run.start()
    for data in (b"\xff" * 64, b"i\xff\xff\xff\xff", b"w\x00\x00\x00\x03{{{", b"s\x00\x00\x00\x04NOPE", b"z\x00\x00\x00\x00"):
        caller = door(run)
        caller.sendall(data)
        caller.close()
    time.sleep(0.2)
    assert run.phase() == "running" and (run.attempt() / "caretaker.log").read_text() == ""


def test_a_run_started_inside_a_run_outlives_it_and_both_end_alone(new_run):
    inner = new_run(["sh", "-c", "echo up; sleep 100"])
    outer = new_run(["sh", "-c", '"$@"; sleep 0.2', "sh", *inner.argv("start", inner.dir, 1)], grace_s=[0.5, 0.5])
    outer.start()
    end = outer.end()
    assert end["code"] == 0 and not end["leftovers"]["found"] and not end["leftovers"]["survivors"]
    assert {p["pid"] for p in end["leftovers"]["spared"]} >= {inner.holder(), inner.agent(), inner.run_pid()}
    inner.wait_out(b"up")
    wait_for(lambda: not outer.processes(), "the outer caretakers leave")
    assert inner.phase() == "running"
    inner.stop("--grace", 0, 0)
    assert inner.end()["reason"] == "stopped_by_user"


def test_stopping_the_outer_run_spares_the_inner_one(new_run):
    inner = new_run(["sh", "-c", "echo up; sleep 100"])
    outer = new_run(["sh", "-c", '"$@"; sleep 100', "sh", *inner.argv("start", inner.dir, 1)], grace_s=[0.5, 0.5])
    outer.start()
    inner_out = inner.attempt() / "out.log"
    wait_for(lambda: inner_out.exists() and b"up" in inner_out.read_bytes(), "the inner run")
    outer.stop("--grace", 0, 0)
    assert outer.end()["leftovers"]["survivors"] == []
    assert inner.phase() == "running" and alive(inner.run_pid())
