"""Starting a run: claim, detach, environment, standard streams, and what is said when it cannot be started."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from agentkit import AGENT, alive, kill, pythons, wait_for

PY = sys.executable


@pytest.mark.parametrize("python", pythons())
def test_a_run_from_start_to_exit_on_every_python(new_run, python):
    run = new_run([PY, "-c", "import sys; print('héllo'); print('bad', file=sys.stderr); sys.exit(3)"], python=python, split_stderr=True)
    assert run.poll()["phase"] == "staged"
    assert run.start() == {"claimed": True, "attempt": 1}
    end = run.end()
    assert (end["code"], end["signal"], end["reason"]) == (3, None, "nonzero_exit")
    assert run.out() == "héllo\n".encode() and run.err() == b"bad\n"
    assert (end["out_bytes"], end["err_bytes"]) == (7, 4)
    assert end["leftovers"] == {"found": [], "survivors": [], "spared": []} and end["restart"] is None
    seen = run.wait_phase("ended")
    assert seen["exit"] == end and seen["attempts"] == [1]
    assert (run.attempt() / "caretaker.log").read_text() == ""
    wait_for(lambda: not run.processes(), "the caretakers leave")
    assert {p.name for p in run.attempt().iterdir()} == {"agent.json", "heartbeat", "out.log", "err.log", "moves", "turns", "telemetry.jsonl",
                                                          "events.jsonl", "exit.json", "status.json", "caretaker.log"}


@pytest.mark.parametrize("python", pythons())
def test_stop_and_pty_on_every_python(new_run, python):
    run = new_run([PY, "-c", "import time; print('up', flush=True); time.sleep(100)"], python=python, tty=True, stdin="attached")
    run.start()
    run.wait_out(b"up\n")
    assert run.stop()["phase"] in ("stopping", "ended")
    end = run.end()
    assert end["reason"] == "stopped_by_user" and end["signal_name"] == "SIGINT"
    assert end["evidence"]["exception"]["type"] == "KeyboardInterrupt"


def test_the_loser_of_a_double_start_leaves(new_run, tmp_path):
    run = new_run(["sh", "-c", f"echo started >> {tmp_path}/count; sleep 1"])
    racers = [subprocess.Popen(run.argv("start", run.dir, 1), stdout=subprocess.PIPE) for _ in range(8)]
    answers = [json.loads(p.communicate(timeout=30)[0]) for p in racers]
    assert sorted(a["claimed"] for a in answers) == [False] * 7 + [True]
    assert all(p.returncode == 0 for p in racers)
    run.end()
    assert (tmp_path / "count").read_text() == "started\n"
    assert run.start()["claimed"] is False


def test_two_holders_for_one_attempt_become_one(new_run, tmp_path):
    """The folder is claimed once; whoever comes later with a holder of its own finds agent.json and leaves."""
    run = new_run(["sh", "-c", f"echo started >> {tmp_path}/count; sleep 1"])
    code = ("import sys; sys.path.insert(0, sys.argv[1]); from agent.attempts import Attempt; from agent.claiming import claim, launch;"
            "a = Attempt(sys.argv[2], 1); claim(a); launch(a, '', 10)")
    for p in [subprocess.Popen([PY, "-c", code, str(AGENT.parent), str(run.dir)]) for _ in range(3)]:
        assert p.wait(30) == 0
    run.end()
    assert (tmp_path / "count").read_text() == "started\n"


def test_an_older_attempt_and_a_living_one_are_refused(new_run):
    run = new_run(["sleep", "100"])
    run.start()
    answer = run.call("start", run.dir, 2, check=False)[0]
    assert answer["error"] == "state" and "running" in answer["detail"]
    run.stop("--grace", 0, 0)
    run.end()
    assert run.start(3) == {"claimed": True, "attempt": 3}
    assert run.call("start", run.dir, 2, check=False)[0]["error"] == "state"
    run.stop("--grace", 0, 0)
    run.end(3)


def test_no_spec_is_one_clear_line(new_run):
    run = new_run(["true"])
    (run.dir / "spec.json").unlink()
    assert run.call("start", run.dir, 1, check=False)[0]["error"] == "no_spec"
    assert not (run.dir / "attempts").exists()


def test_caretakers_survive_whoever_started_them(new_run):
    run = new_run(["sleep", "100"])
    starter = subprocess.Popen(["sh", "-c", 'exec "$@"', "sh", *run.argv("start", run.dir, 1)], stdout=subprocess.PIPE, start_new_session=True)
    starter.wait(30)
    starter.stdout.close()
    for pid in (run.holder(), run.agent()):
        for sig in (signal.SIGHUP, signal.SIGINT, signal.SIGTERM, signal.SIGQUIT, signal.SIGPIPE):
            kill(pid, sig)
        assert os.getsid(pid) != starter.pid and os.readlink(f"/proc/{pid}/cwd") == "/"
        assert [os.readlink(f"/proc/{pid}/fd/{fd}") for fd in (0, 1)] == ["/dev/null"] * 2
    time.sleep(0.2)
    assert run.phase() == "running"
    comm = [Path(f"/proc/{pid}/comm").read_text().strip() for pid in (run.holder(), run.agent())]
    assert comm == ["stoker-holder", "stoker-agent"]


def test_nothing_of_ours_is_open_in_the_run(new_run):
    run = new_run(["sh", "-c", "ls -l /proc/$$/fd; sleep 0.2"])
    inherited, other = os.pipe()
    os.set_inheritable(inherited, True)
    try:
        subprocess.run(run.argv("start", run.dir, 1), pass_fds=[inherited], check=True, stdout=subprocess.DEVNULL)
    finally:
        os.close(inherited)
        os.close(other)
    run.end()
    assert {line.split()[-3] for line in run.out().decode().splitlines() if "->" in line} <= {"0", "1", "2"}


def test_the_run_has_default_signals_its_umask_and_its_own_session(new_run):
    run = new_run(["sh", "-c", "grep -E '^Sig(Ign|Blk)' /proc/self/status; umask; ps -o sid= -p $$; echo $$"])
    subprocess.run(["sh", "-c", 'umask 027; trap "" PIPE HUP INT; exec "$@"', "sh", *run.argv("start", run.dir, 1)], check=True, stdout=subprocess.DEVNULL)
    run.end()
    lines = run.out().decode().split()
    libc_own = 0x180000000  # 32 and 33: ignored below every posix_spawn, `make` for one; libc sets them again when it needs them
    assert not int(lines[1], 16) and not int(lines[3], 16) & ~libc_own
    assert lines[4] == "0027" and lines[5] == lines[6]


def test_the_environment_of_the_run(new_run, tmp_path):
    run = new_run(["env", "-0"], env={"A": "1 2", "LONG": "é" * 3000, "STOKER_DAEMON": "1", "PWD": "/elsewhere", "CUDA_VISIBLE_DEVICES": "7"},
                  home=str(tmp_path / "h"), unbuffered=True)
    run.call("start", run.dir, 1, "--gpus", "GPU-1,GPU-2", env={"SECRET_OF_THE_SERVER": "x", "STOKER_RUN": "outer"})
    run.end()
    env = dict(item.split("=", 1) for item in run.out().decode().split("\0") if item)
    assert env["A"] == "1 2" and env["LONG"] == "é" * 3000 and env["HOME"] == str(tmp_path / "h") and env["PYTHONUNBUFFERED"] == "1"
    assert env["STOKER_RUN"] == run.id and env["STOKER_RUN_DIR"] == str(run.dir) and env["STOKER_ATTEMPT"] == "1"
    assert env["CUDA_VISIBLE_DEVICES"] == "GPU-1,GPU-2" and env["PWD"] == str(tmp_path)
    assert "SECRET_OF_THE_SERVER" not in env and "STOKER_DAEMON" not in env


def test_caretakers_carry_the_daemon_mark_and_no_mark_of_an_outer_run(new_run):
    run = new_run(["sleep", "100"])
    run.start(STOKER_RUN="outer", STOKER_RUN_DIR="/outer", SECRET="x")
    for pid in (run.holder(), run.agent()):
        env = Path(f"/proc/{pid}/environ").read_text().split("\0")
        assert f"STOKER_DAEMON={run.attempt()}/agent.json" in env and not any(e.startswith(("STOKER_RUN", "SECRET")) for e in env)


def test_arguments_arrive_byte_for_byte(new_run):
    odd = ["", "a b", "'", '"', "-rf", "中文", "🙂", "new\nline", "\udcff\udcfe", "$(echo no)"]
    run = new_run(["printf", "%s\\0", *odd])
    run.start(LC_ALL="C")
    run.end()
    assert run.out() == b"".join(a.encode("utf-8", "surrogateescape") + b"\0" for a in odd)


def test_working_folder_is_the_copy_when_there_is_one(new_run):
    run = new_run(["pwd"], copy=True)
    (run.dir / "work").mkdir()
    run.start()
    run.end()
    assert run.out().decode().strip() == str(run.dir / "work")


@pytest.mark.parametrize(("make", "words"), [
    (lambda p: ["/no/such/thing"], "/no/such/thing: no such file"),
    (lambda p: ["no-such-command-anywhere"], "no such command on PATH"),
    (lambda p: [script(p, "plain", "echo hi\n", 0o644)], "is not executable"),
    (lambda p: [script(p, "bare", "echo hi\n", 0o755)], "no #! line"),
    (lambda p: [script(p, "lost", "#!/no/interp -x\n", 0o755)], "interpreter /no/interp -x does not exist"),
    (lambda p: [str(p)], "is a folder"),
    (lambda p: [], "no command"),
])
def test_what_cannot_be_started_says_why(new_run, tmp_path, make, words):
    run = new_run(make(tmp_path))
    assert run.start()["claimed"] is True
    end = run.end()
    assert end["reason"] == "start_failed" and words in end["evidence"]["detail"], end
    assert end["code"] is None and end["signal"] is None and end["used_s"] < 5


def script(folder, name, text, mode):
    path = folder / name
    path.write_text(text)
    path.chmod(mode)
    return str(path)


def test_a_missing_working_folder_says_so(new_run):
    run = new_run(["true"], folder="/no/such/folder")
    run.start()
    end = run.end()
    assert end["reason"] == "start_failed" and "/no/such/folder" in end["evidence"]["detail"]


def test_stdin_none_file_and_attached(new_run):
    none = new_run(["cat"])
    none.start()
    assert none.end()["reason"] == "exited"
    file = new_run(["cat"], stdin="file", stdin_bytes=b"\x00\xff from a file\n")
    file.start()
    file.end()
    assert file.out() == b"\x00\xff from a file\n"
    missing = new_run(["cat"], stdin="file")
    missing.start()
    assert missing.end()["reason"] == "start_failed"


def test_a_claimed_folder_without_holder_is_abandoned_and_settled(new_run):
    run = new_run(["sleep", "100"])
    (run.attempt()).mkdir(parents=True)
    assert run.phase() == "claimed"
    run.wait_phase("abandoned")
    run.stop()
    end = run.end()
    assert end["reason"] == "agent_lost" and run.phase() == "ended"
    assert run.start(2)["claimed"] is True
    run.stop("--grace", 0, 0)
    run.end(2)


def test_a_start_killed_right_after_the_claim_can_be_settled(new_run):
    run = new_run(["sleep", "100"])
    run.call("start", run.dir, 1, env={"STOKER_CRASH_AT": "claimed"}, check=False)
    run.wait_phase("abandoned")
    run.stop()
    assert run.end()["reason"] == "agent_lost"


def test_odd_files_in_the_folder_hurt_nobody(new_run):
    run = new_run([PY, "-c", "import time; print('up', flush=True); time.sleep(100)"])
    (run.dir / "attempts").mkdir()
    (run.dir / "attempts" / "notes.txt").write_text("x")
    (run.dir / "limits.json").write_bytes(b'{"seq": 1, "time_')
    (run.dir / "keep.json").write_bytes(b"\xff\xfe")
    run.start()
    run.wait_out(b"up")
    (run.attempt() / "stop.json").write_text("[1, 2")
    (run.attempt() / "strange").mkdir()
    assert alive(run.run_pid())
    assert run.poll()["keep"] is None
    run.stop()
    assert run.end()["reason"] == "stopped_by_user"


def test_usage_errors_exit_2(new_run):
    run = new_run(["true"])
    for args in ([], ["nonsense"], ["start"], ["start", str(run.dir), "x"], ["stop", str(run.dir), "--grace", "1"], ["read", str(run.dir), "1", "all", "0"]):
        done = subprocess.run(run.argv(*args), capture_output=True, check=False)
        assert done.returncode == 2, args
        assert json.loads(done.stdout or done.stderr)["error"] == "usage"
