"""Limits over attempts, keep, automatic restarts with backoff, and a stop that calls one off."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time

import pytest
from agentkit import kill, wait_for

from stoker.base.state import sentence

PY = sys.executable
FAILS = ["sh", "-c", "echo try $STOKER_ATTEMPT; exit 3"]


def set_limits(run, seq: int, time_s: float | None) -> None:
    temp = run.dir / "limits.tmp"
    temp.write_text(json.dumps({"seq": seq, "time_s": time_s}))
    temp.replace(run.dir / "limits.json")


def test_the_time_limit_ends_a_run_and_says_which(new_run):
    run = new_run(["sleep", "100"], time_s=1.0)
    run.start()
    end = run.end()
    assert end["reason"] == "limit_time" and end["evidence"]["limit"] == "1s" and 1.0 <= end["used_s"] < 10


def test_the_limit_spans_attempts(new_run):
    run = new_run(["sleep", "100"], time_s=4.0)
    run.start()
    wait_for(lambda: run.poll()["used_s"] > 1.5, "some use")
    run.stop("--grace", 0, 0)
    first = run.end()["used_s"]
    began = time.monotonic()
    run.start(2)
    end = run.end(2)
    assert end["reason"] == "limit_time" and first + end["used_s"] >= 4.0 and time.monotonic() - began < 4.0
    assert abs(run.poll()["used_s"] - first - end["used_s"]) < 0.01


def test_new_limits_are_taken_and_their_number_echoed(new_run):
    run = new_run(["sleep", "100"], time_s=3.0)
    run.start()
    wait_for(lambda: run.poll()["limits_seq"] == 1, "the first limits")
    set_limits(run, 2, 60)
    wait_for(lambda: run.poll()["limits_seq"] == 2, "the second limits")
    time.sleep(3)
    assert run.phase() == "running"
    set_limits(run, 3, 1)
    assert run.end()["reason"] == "limit_time"


def test_a_keep_typed_on_the_machine_holds_until_newer_limits(new_run):
    run = new_run(["sleep", "100"], time_s=3.0)
    run.start()
    (run.dir / "keep.json").write_text(json.dumps({"time_s": 60, "seq": 1, "at": 0}))
    wait_for(lambda: run.poll()["used_s"] > 4, "it outlives its first limit")
    assert run.poll()["keep"]["time_s"] == 60
    set_limits(run, 2, 5)
    assert run.end()["reason"] == "limit_time"


def test_a_reason_worth_it_is_tried_again_as_often_as_allowed(new_run):
    run = new_run(FAILS, restarts=2, retry_reasons=["nonzero_exit"], backoff_s=0.2)
    run.start()
    run.end(3)
    ends = [run.end(n) for n in (1, 2, 3)]
    assert [e["restart"] and e["restart"]["attempt"] for e in ends] == [2, 3, None]
    assert [run.out(n) for n in (1, 2, 3)] == [b"try 1\n", b"try 2\n", b"try 3\n"]
    seen = run.wait_phase("ended")
    assert seen["attempts"] == [1, 2, 3]
    waits = [e["restart"]["at"] - e["ended_at"] for e in ends[:2]]
    assert waits[0] >= 0.2 and waits[1] >= 0.4
    wait_for(lambda: not run.processes(), "all caretakers leave")
    assert run.start(4)["claimed"] is True  # by hand: a new row of restarts
    assert run.end(4)["restart"]["attempt"] == 5


def test_other_reasons_and_success_are_not_tried_again(new_run):
    run = new_run(FAILS, restarts=2, retry_reasons=["killed"])
    run.start()
    assert run.end()["restart"] is None
    fine = new_run(["true"], restarts=2, retry_reasons=["nonzero_exit"])
    fine.start()
    assert fine.end()["restart"] is None


def test_an_end_that_comes_again_each_time_is_not_retried(new_run):
    run = new_run([sys.executable, "-c", "import no_such_module"], restarts=2, retry_reasons=["nonzero_exit"])
    run.start()
    end = run.end()
    assert end["reason"] == "nonzero_exit" and end["restart"] is None and end["evidence"]["not_restarted"]


@pytest.mark.parametrize("after", ["os.kill(os.getpid(), 9)", "print('no network', file=sys.stderr); sys.exit(1)"])
def test_an_error_that_was_caught_before_another_end_does_not_stop_the_retries(new_run, after):
    code = f"import os, sys, traceback\ntry:\n    import no_such_module\nexcept ImportError:\n    traceback.print_exc()\n{after}"
    run = new_run([sys.executable, "-u", "-c", code], restarts=1, retry_reasons=["nonzero_exit", "killed"], backoff_s=0.1)
    run.start()
    assert run.end(1)["restart"]["attempt"] == 2
    run.end(2)


def test_waiting_is_seen_and_a_stop_calls_the_restart_off(new_run):
    run = new_run(FAILS, restarts=3, retry_reasons=["nonzero_exit"], backoff_s=60)
    run.start()
    seen = run.wait_phase("waiting")
    assert seen["exit"]["restart"]["attempt"] == 2
    run.stop()
    seen = run.wait_phase("ended")
    assert seen["exit"]["restart"] is None and seen["exit"]["reason"] == "nonzero_exit" and seen["attempts"] == [1]
    wait_for(lambda: not run.processes(), "the caretakers leave")


def test_a_start_by_hand_while_it_waits_takes_the_place_of_the_restart(new_run):
    run = new_run(["sh", "-c", "test $STOKER_ATTEMPT = 2 && exec sleep 100; exit 3"], restarts=3, retry_reasons=["nonzero_exit"], backoff_s=3)
    run.start()
    run.wait_phase("waiting")
    assert run.start(2)["claimed"] is True
    run.wait_phase("running")
    wait_for(lambda: not any("_hold" in line and line.split("\0")[6] == "1" for line in cmdlines(run)), "the first caretakers leave")
    assert run.phase() == "running" and run.poll()["attempts"] == [1, 2]
    run.stop("--grace", 0, 0)
    assert run.end(2)["restart"] is None


def cmdlines(run) -> list[str]:
    found = []
    for pid in run.processes():
        try:
            with open(f"/proc/{pid}/cmdline") as f:
                found.append(f.read())
        except OSError:
            pass
    return found


@pytest.mark.parametrize("who", ["agent", "both"])
def test_caretakers_killed_while_a_restart_waits(new_run, who):
    run = new_run(FAILS, restarts=1, retry_reasons=["nonzero_exit"], backoff_s=4)
    run.start()
    run.wait_phase("waiting")
    kill(run.agent())
    if who == "agent":
        run.end(2)
        assert run.wait_phase("ended")["attempts"] == [1, 2]
        return
    kill(run.holder())
    run.wait_phase("abandoned")
    run.stop()
    seen = run.poll()
    assert seen["phase"] == "ended" and seen["exit"]["restart"] is None


def test_an_agent_killed_right_after_claiming_the_next_attempt_starts_it_all_the_same(new_run):
    run = new_run(FAILS, restarts=1, retry_reasons=["nonzero_exit"], backoff_s=0.2)
    run.start(STOKER_CRASH_AT="restart_claimed")
    assert run.end(2)["reason"] == "nonzero_exit"
    assert run.wait_phase("ended")["attempts"] == [1, 2]
    wait_for(lambda: not run.processes(), "the caretakers leave")


def test_a_lost_holder_is_followed_by_a_restart_too(new_run):
    run = new_run(["sh", "-c", "test $STOKER_ATTEMPT = 2 && exit 0; exec sleep 100"], restarts=1, retry_reasons=["agent_lost"])
    run.start()
    kill(run.holder())
    assert run.end(1)["reason"] == "agent_lost"
    assert run.end(2)["reason"] == "exited"


def test_no_restart_beyond_the_time_limit(new_run):
    run = new_run(["sh", "-c", "sleep 1.2; exit 3"], restarts=5, retry_reasons=["nonzero_exit"], time_s=2.0, backoff_s=0.1)
    run.start()
    wait_for(lambda: run.poll()["phase"] == "ended", "the end")
    assert run.poll()["attempts"] == [1, 2] and run.end(2)["reason"] == "limit_time"


def test_a_clock_set_back_does_not_move_the_end_before_the_start(new_run, tmp_path):
    """The agent's own clock jumps an hour back while it runs (a library that overrides time(2) for it alone)."""
    if not shutil.which("cc"):
        pytest.skip("there is no C compiler to make a jumping clock with")
    import subprocess
    source = tmp_path / "clock.c"
    source.write_text("""
        #define _GNU_SOURCE
        #include <time.h>
        #include <unistd.h>
        #include <sys/syscall.h>
        int clock_gettime(clockid_t id, struct timespec *ts) {
            int rc = syscall(SYS_clock_gettime, id, ts);
            if (rc == 0 && id == CLOCK_REALTIME && access(FLAG, F_OK) == 0) ts->tv_sec -= 3600;
            return rc;
        }
        """)
    flag = tmp_path / "back"
    subprocess.run(["cc", "-shared", "-fPIC", f'-DFLAG="{flag}"', "-o", str(tmp_path / "clock.so"), str(source)], check=True)
    run = new_run(["sleep", "100"], time_s=3.0)
    run.start(LD_PRELOAD=str(tmp_path / "clock.so"))
    flag.touch()
    end = run.end()
    assert end["reason"] == "limit_time" and end["ended_at"] - end["started_at"] == pytest.approx(end["used_s"], abs=0.01)
    times = [e["at"] for e in run.events()]
    assert times[-1] < times[0] - 3000, "the clock did jump"


GROWS = "import time\nprint('up', flush=True)\nx = bytearray(1 << 20)\nwhile True:\n    x += b'x' * (4 << 20)\n    time.sleep(0.02)"


@pytest.mark.parametrize("cgroup", [True, False])
def test_a_memory_limit_ends_a_run_and_says_which(new_run, cgroup):
    """False: no cgroup may be made, so its use is watched."""
    run = new_run([PY, "-c", GROWS], memory_bytes=100_000_000)
    if cgroup:
        run.start()
        if not run.record()["memory_group"]:
            run.stop("--grace", 0, 0)
            pytest.skip("no memory cgroup can be made here")
    else:
        begin_without_cgroups(run)
        assert not run.record()["memory_group"]
    end = run.end()
    evidence = end["evidence"]
    assert end["reason"] == "host_oom" and evidence["kind"] == "memory" and evidence["limit_bytes"] == 100_000_000
    assert evidence["used_bytes"] >= 99_000_000 and "of memory (limit: --memory 100 MB)" in sentence(end["reason"], evidence)
    group = run.record()["memory_group"]
    assert not group or not os.path.exists(group)


def begin_without_cgroups(run) -> None:
    """In a namespace of its own, where none are mounted."""
    argv = ["unshare", "-m", "sh", "-c", 'mount -t tmpfs none /sys/fs/cgroup && exec "$@"', "sh", *run.argv("start", run.dir, 1)]
    if subprocess.run(argv, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False).returncode:
        pytest.skip("a mount namespace needs root")


def test_shared_memory_counts_once(new_run):
    """Four processes that share 60 MB use 60 MB, not 240."""
    body = ("import mmap, os, time\nm = mmap.mmap(-1, 60 << 20)\nm.write(b'x' * (60 << 20))\n"
            "for i in range(3):\n    if os.fork() == 0: break\nsum(m[i] for i in range(0, 60 << 20, 4096))\ntime.sleep(5)")
    run = new_run([PY, "-c", body], memory_bytes=150_000_000)
    begin_without_cgroups(run)
    assert run.end()["reason"] == "exited"
