"""Output without a terminal: opened again by name, killed caretakers, a full disk, a cut log, a pipe that somebody keeps open."""

from __future__ import annotations

import contextlib
import hashlib
import os
import stat
import subprocess
import sys
import time
from pathlib import Path

import pytest
from agentkit import alive, kill, pythons, wait_for

PY = sys.executable

FLOOD = """
import os, sys
block = b"".join(b"epoch %06d loss 0.12345\\n" % i for i in range(2700))[:65536]
left = int(sys.argv[1])
while left:
    left -= os.write(1, block[:left])
"""


def flooded(size: int) -> str:
    block = b"".join(b"epoch %06d loss 0.12345\n" % i for i in range(2700))[:65536]
    digest = hashlib.sha256()
    while size:
        digest.update(block[:size])
        size -= min(size, len(block))
    return digest.hexdigest()


def digest_of(path: Path) -> str:
    with open(path, "rb") as f:
        digest = hashlib.sha256()
        while block := f.read(1 << 20):
            digest.update(block)
        return digest.hexdigest()


@pytest.mark.parametrize("split", [False, True], ids=["joined", "split"])
@pytest.mark.parametrize(("script", "out", "err"), [
    ("echo one; echo two > /dev/stderr; echo three > /dev/stdout; echo four", b"one\nthree\nfour\n", b"two\n"),
    ("echo one; echo two | tee /dev/stderr; echo three >> /dev/stderr; echo four", b"one\ntwo\nfour\n", b"two\nthree\n"),
    ("echo one; echo two | tee /proc/self/fd/2 > /dev/null; echo three > /dev/fd/1", b"one\nthree\n", b"two\n"),
], ids=["redirected", "tee", "fd"])
def test_a_script_may_open_its_output_by_name(new_run, script, out, err, split):
    run = new_run(["bash", "-c", script], split_stderr=split)
    run.start()
    end = run.end()
    assert (end["code"], end["gaps"]) == (0, [])
    if split:
        assert (run.out(), run.err()) == (out, err)
        assert (end["out_bytes"], end["err_bytes"]) == (len(out), len(err))
    else:
        assert sorted(run.out().splitlines()) == sorted((out + err).splitlines())
        assert run.out().startswith(b"one\n")


@pytest.mark.parametrize("python", pythons())
def test_python_may_open_its_output_by_name_and_finds_a_pipe(new_run, python):
    body = ("import os, stat, sys\nprint('one', flush=True)\n"
            "with open('/dev/stdout', 'w') as f: f.write('two\\n')\n"
            "with open('/dev/stderr', 'w') as f: f.write('three\\n')\n"
            "print(stat.S_ISFIFO(os.fstat(1).st_mode), sys.stdout.seekable(), os.isatty(1))")
    run = new_run([PY, "-c", body], python=python)
    run.start()
    assert run.end()["code"] == 0
    assert run.out() == b"one\ntwo\nthree\nTrue False False\n"


def test_what_was_printed_before_and_long_after_an_opening_by_name_stays(new_run, tmp_path):
    """A follower and a later reader see all of it, in order."""
    go = tmp_path / "go"
    run = new_run(["bash", "-c", f"echo one; until [ -e {go} ]; do sleep 0.05; done; echo two > /dev/stderr; sleep 0.2; echo four"])
    run.start()
    attached = run.attach(1)
    assert attached.until(b"one\n") == b"one\n"
    go.touch()
    rest = attached.rest()
    attached.leave()
    assert rest[b"o"] == b"two\nfour\n" == run.out()[4:]
    late = run.attach(1, "--out", 4)
    assert late.rest()[b"o"] == b"two\nfour\n"
    late.leave()


@pytest.mark.parametrize("python", pythons()[:1] + pythons()[-1:])  # with and without splice
def test_the_log_of_a_flood_is_whole_though_the_agent_is_killed_all_the_time(new_run, python):
    size = 200_000_000
    run = new_run([PY, "-c", FLOOD, str(size)], python=python)
    run.start()
    killed = set()
    while not (run.attempt() / "status.json").exists():
        pid = run.agent()
        if alive(pid):
            killed.add(pid)
            kill(pid)
        time.sleep(0.02)
    end = run.end()
    assert (end["code"], end["out_bytes"], end["gaps"]) == (0, size, []) and killed
    assert digest_of(run.attempt() / "out.log") == flooded(size)


def test_the_agent_writes_the_log_on_when_the_holder_is_killed_in_a_flood(new_run, tmp_path):
    """What was printed before the tree is ended is in the log, without a hole where the holder died."""
    count = "import os, signal\nsignal.signal(1, signal.SIG_IGN)\nfor i in range(10**9): os.write(1, b'%09d\\n' % i)"
    run = new_run([PY, "-c", count], grace_s=[1, 1])
    run.start()
    path = run.attempt() / "out.log"
    wait_for(lambda: path.exists() and path.stat().st_size > 100_000, "much output")
    kill(run.holder())
    end = run.end()
    assert end["reason"] == "agent_lost" and end["gaps"] == []
    wait_for(lambda: not run.processes(), "the tree is gone")
    lines = run.out().split(b"\n")
    assert lines[:-1] == [b"%09d" % i for i in range(len(lines) - 1)]


def test_last_words_after_the_holders_death_are_in_the_log(new_run):
    body = ("import os, signal, sys, time\ndef leave(*_): os.write(1, b'saved\\n'); sys.exit(0)\n"
            "signal.signal(15, leave)\nprint('up', flush=True); time.sleep(100)")
    run = new_run([PY, "-c", body], grace_s=[5, 5])
    run.start()
    run.wait_out(b"up")
    kill(run.holder())
    assert run.end()["reason"] == "agent_lost"
    assert run.out() == b"up\nsaved\n"


def test_a_run_without_caretakers_ends_at_its_next_word_and_is_settled(new_run, tmp_path):
    body = "for ((;;)); do echo word || exit 3; sleep 0.05; done"
    run = new_run(["bash", "-c", body])
    run.start()
    run.wait_out(b"word")
    pid = run.run_pid()
    for caretaker in (run.holder(), run.agent()):
        kill(caretaker)
    wait_for(lambda: not alive(pid), "a run that nobody reads ends")
    run.wait_phase("abandoned")
    run.stop()
    assert run.end()["reason"] == "agent_lost"


def test_a_process_left_behind_that_keeps_the_pipe_open_holds_up_nothing(new_run):
    run = new_run(["bash", "-c", "(trap '' INT TERM; for ((;;)); do echo noise; sleep 0.01; done) & echo done; exit 5"], grace_s=[1, 1])
    run.start()
    end = run.end(timeout=30)
    assert (end["code"], end["reason"], end["leftovers"]["survivors"]) == (5, "nonzero_exit", []) and end["leftovers"]["found"]
    size = (run.attempt() / "out.log").stat().st_size
    assert b"done\n" in run.out() and end["out_bytes"] == size
    wait_for(lambda: not run.processes(), "everybody leaves")
    assert (run.attempt() / "out.log").stat().st_size == size


DAEMON = """
import json, os
start = int(open("/proc/self/stat").read().split()[21])
with open(os.environ["STOKER_DAEMON"] + "~", "w") as f:
    json.dump({"it": {"pid": os.getpid(), "start": start}}, f)
os.rename(os.environ["STOKER_DAEMON"] + "~", os.environ["STOKER_DAEMON"])
os.execvp("yes", ["yes"])
"""


def test_somebody_elses_daemon_that_prints_for_ever_does_not_keep_the_run_from_ending(new_run, tmp_path):
    """It names a record that says so, as a daemon of Stoker does, so it is spared; its end of the pipe stays open, and full."""
    told, record = tmp_path / "daemon", tmp_path / "record"
    (tmp_path / "daemon.py").write_text(DAEMON)
    run = new_run(["bash", "-c", f"STOKER_DAEMON={record} setsid {PY} daemon.py & echo $! > {told}; echo mine; while ! test -s {record}; do sleep 0.02; done"])
    run.start()
    try:
        end = run.end(timeout=30)
        assert (end["code"], end["reason"]) == (0, "exited")
        assert b"mine\n" in run.out() and end["out_bytes"] == (run.attempt() / "out.log").stat().st_size
        wait_for(lambda: not alive(run.holder()), "the caretakers leave")
    finally:
        with contextlib.suppress(OSError, ValueError):
            kill(int(told.read_text()))


def test_outputs_that_are_closed_end_nothing_and_cost_nothing(new_run):
    run = new_run(["bash", "-c", "echo one; exec >&- 2>&-; sleep 2.5; exit 4"], split_stderr=True)
    run.start()
    run.wait_out(b"one")
    before = cpu_ticks(run.holder())
    end = run.end()
    assert (end["code"], run.out(), run.err()) == (4, b"one\n", b"") and before < 100


COUNTS = """
import fcntl, os, sys, termios, time
folder, total, wrong, known = os.path.join(os.environ["STOKER_RUN_DIR"], "attempts", "1"), 0, 0, 0

def moves():
    with open(os.path.join(folder, "moves"), "rb") as f:
        return int.from_bytes(f.read(), "little")

for i in range(3000):
    total += os.write(1, b"x" * (i * 7919 % 4000) + b"\\n")
    if i % 16 == 0:
        time.sleep(0.001)
    before = moves()
    waiting = int.from_bytes(fcntl.ioctl(1, termios.FIONREAD, bytes(4)), "little")
    found = waiting + os.stat(os.path.join(folder, "out.log")).st_size
    if not before % 2 and moves() == before:
        known += 1
        wrong += found != total
sys.exit(0 if known > 100 and not wrong else f"{wrong} of {known} wrong")
"""


@pytest.mark.parametrize("python", pythons())
def test_pipe_and_log_are_what_was_printed_whenever_nothing_moves(new_run, python):
    run = new_run([PY, "-c", COUNTS], python=python, split_stderr=True)
    run.start()
    assert (run.end()["code"], run.err()) == (0, b"")


def cpu_ticks(pid: int) -> int:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return int(fields[11]) + int(fields[12])


def test_a_quiet_run_wakes_its_holder_for_nothing(new_run):
    """No polling: between two looks the holder is not once put on a CPU."""
    run = new_run(["sleep", "100"])
    run.start()
    wait_for((run.attempt() / "heartbeat").exists, "the first heartbeat")

    def switches() -> int:
        text = Path(f"/proc/{run.holder()}/status").read_text()
        return sum(int(line.split()[1]) for line in text.splitlines() if "ctxt_switches" in line)
    quiet = []
    for _ in range(20):  # a moment without another beat, on a loaded machine too
        before = switches()
        time.sleep(0.2)
        quiet.append(switches() - before)
    assert quiet.count(0) >= 15


def test_a_log_that_somebody_cuts_goes_on_at_its_new_end_and_is_told_so(new_run, tmp_path):
    go, on = tmp_path / "go", tmp_path / "on"
    run = new_run(["bash", "-c", f"printf 'a line %s\\n' $(seq 500); until [ -e {go} ]; do sleep 0.05; done; echo new; "
                   f"until [ -e {on} ]; do sleep 0.05; done; echo end"])
    run.start()
    follower = run.attach(1)
    follower.until(b"a line 500\n")
    path = run.attempt() / "out.log"
    cut = path.stat().st_size
    with open(path, "wb"):
        pass
    go.touch()
    assert follower.until(b"new\n") == b"new\n"
    on.touch()
    assert follower.rest()[b"o"] == b"end\n"
    follower.leave()
    end = run.end()
    assert run.out() == b"new\nend\n" and end["code"] == 0
    assert [(g["log"], g["bytes"], g["offset"]) for g in end["gaps"]] == [("out.log", cut, 0)]
    assert [e["why"] for e in run.events() if e["event"] == "gap"] == ["another program truncated the log"]


def test_a_log_that_is_cut_after_the_last_word_is_told_so(new_run, tmp_path):
    go = tmp_path / "go"
    run = new_run(["bash", "-c", f"echo one; until [ -e {go} ]; do sleep 0.05; done"])
    run.start()
    run.wait_out(b"one")
    with open(run.attempt() / "out.log", "wb"):
        pass
    go.touch()
    assert [g["bytes"] for g in run.end()["gaps"]] == [4]


def test_the_pipe_belongs_to_the_run_alone(new_run):
    """No other descriptor of ours reaches the run, and what it makes of its own end does not touch ours."""
    body = ("import fcntl, os\nos.set_blocking(1, False)\nprint(sorted(map(int, os.listdir('/proc/self/fd')))[:4], fcntl.fcntl(1, fcntl.F_GETFL) & 3)")
    run = new_run([PY, "-c", body])
    run.start()
    assert run.end()["code"] == 0
    fds, _, mode = run.out().decode().rpartition(" ")
    assert fds == "[0, 1, 2, 3]" and mode == "1\n"  # 3 is the folder that was listed
    assert stat.S_ISREG(os.stat(run.attempt() / "out.log").st_mode)


def test_two_thousand_small_lines_by_two_writers_keep_their_order(new_run):
    """Out and err are one pipe unless they were asked for apart: their order is that of the writes."""
    run = new_run(["bash", "-c", "for i in $(seq 1000); do echo out $i; echo err $i >&2; done"])
    run.start()
    run.end()
    assert run.out() == b"".join(b"out %d\nerr %d\n" % (i, i) for i in range(1, 1001))


def test_a_reader_of_a_flood_gets_every_byte_while_it_comes(new_run):
    size = 30_000_000
    run = new_run([PY, "-c", FLOOD, str(size)])
    run.start()
    reader = subprocess.run(run.argv("read", run.dir, 1, "out", 0, "--follow"), capture_output=True, timeout=120, check=True)
    assert len(reader.stdout) == size and hashlib.sha256(reader.stdout).hexdigest() == flooded(size)
