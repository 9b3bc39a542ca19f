"""Commands that do not behave: fork and leave, close their output, ignore signals, rename themselves, start daemons."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
from pathlib import Path

import pytest
from benchmarks.ground import Ground, Terminal, alive, cmdline, kill, until
from parts import missing

FORK_AND_LEAVE = """
import os, sys, time
if os.fork(): os._exit(0)
os.setsid()
if os.fork(): os._exit(0)
open("daemon", "w").write(str(os.getpid()))
print("daemon speaks", flush=True)
time.sleep(600)
"""


def number_in(path: Path) -> int:
    return until(lambda: path.exists() and path.read_text().strip().isdigit() and int(path.read_text()), 20, f"a number in {path}")


def test_a_command_that_forks_and_leaves(ground: Ground):
    """A run ends with its first process; what it leaves behind is ended, verified and named."""
    ground.script("leave.py", FORK_AND_LEAVE)
    run = ground.detach("--grace", "1s", "leave.py")
    ended = ground.wait_state(run["id"], timeout_s=60)
    daemon = number_in(ground.work / "daemon") if (ground.work / "daemon").exists() else None
    assert ended["state"] == "done"
    assert daemon is None or not alive(daemon)
    last = ground.json_file(run["id"], 1, "exit.json")
    assert last["leftovers"]["survivors"] == []
    if daemon:
        assert daemon in [p["pid"] for p in last["leftovers"]["found"]]


def test_stop_ends_grandchildren_in_other_sessions(ground: Ground):
    ground.script("tree.py", "import subprocess, time\nfor i in range(3): subprocess.Popen(['setsid', 'sh', '-c', 'echo $$ > child%d; exec sleep 600' % i])\nprint('begun', flush=True)\ntime.sleep(600)\n")
    run = ground.detach("--grace", "1s", "tree.py")
    ground.until_log(run["id"], b"begun")
    pids = [number_in(ground.work / f"child{i}") for i in range(3)]
    ground.stoker("stop", run["id"]).ok()
    ground.wait_state(run["id"], "stopped", timeout_s=60)
    assert not [p for p in pids if alive(p)]


def test_a_command_that_closes_its_output(ground: Ground):
    ground.script("quiet.py", "import os, time\nprint('before', flush=True)\nfor fd in (0, 1, 2): os.close(fd)\ntime.sleep(1.5)\nopen('after', 'w').write('x')\nos._exit(4)\n")
    run = ground.detach("quiet.py")
    ended = ground.wait_state(run["id"])
    assert (ended["exit_code"], ended["reason"]) == (4, "nonzero_exit")
    assert (ground.work / "after").exists()
    assert ground.stoker("run", "quiet.py").code == 4
    term = ground.terminal("run", "--name", "pty", "quiet.py")
    assert term.wait() == 4
    term.close()


def test_a_command_that_ignores_sigterm(ground: Ground):
    ground.script("deaf.py", "import signal, time\nfor s in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP): signal.signal(s, signal.SIG_IGN)\nprint('begun', flush=True)\nwhile True: time.sleep(1)\n")
    run = ground.detach("--grace", "1s", "deaf.py")
    ground.until_log(run["id"], b"begun")
    pid = ground.run_pid(run["id"])
    ground.stoker("stop", run["id"]).ok()
    ended = ground.wait_state(run["id"], "stopped", timeout_s=40)
    assert ended["reason"] == "stopped_by_user"
    assert not alive(pid)


def test_force_does_not_wait_for_the_grace(ground: Ground):
    ground.script("deaf.py", "import signal, time\nfor s in (signal.SIGINT, signal.SIGTERM): signal.signal(s, signal.SIG_IGN)\nprint('begun', flush=True)\nwhile True: time.sleep(1)\n")
    run = ground.detach("--grace", "10m", "deaf.py")
    ground.until_log(run["id"], b"begun")
    ground.stoker("stop", "--force", run["id"]).ok()
    assert ground.wait_state(run["id"], timeout_s=40)["state"] == "stopped"


def test_a_command_that_renames_itself(ground: Ground):
    text = ("import ctypes, time\nlibc = ctypes.CDLL(None)\nlibc.prctl(15, b') R 1 (x', 0, 0, 0)\nprint('begun', flush=True)\n"
            "import subprocess\nsubprocess.Popen(['setsid', 'sleep', '600'])\ntime.sleep(600)\n")
    ground.script("renamed.py", text)
    run = ground.detach("--grace", "1s", "renamed.py")
    ground.until_log(run["id"], b"begun")
    pid = ground.run_pid(run["id"])
    assert b") R 1 (x" in Path(f"/proc/{pid}/comm").read_bytes()
    ground.kill_server()
    assert ground.show(run["id"])["state"] == "running"
    ground.stoker("stop", run["id"]).ok()
    assert ground.wait_state(run["id"])["state"] == "stopped"
    assert not alive(pid)


def test_a_command_that_execs_something_else(ground: Ground):
    run = ground.detach("--", "sh", "-c", "exec python -c 'print(1); raise SystemExit(5)'")
    assert ground.wait_state(run["id"])["exit_code"] == 5


def test_a_command_that_removes_its_working_folder(ground: Ground):
    folder = ground.work / "mine"
    folder.mkdir()
    run = ground.detach("--", "sh", "-c", f"rm -rf '{folder}'; echo gone", cwd=folder)
    assert ground.wait_state(run["id"])["state"] == "done"
    assert ground.log(run["id"]) == b"gone\n"
    ground.stoker("show", run["id"]).ok()


def test_a_very_big_environment_and_argument_list(ground: Ground):
    env = {f"VARIABLE_{i}": "v" * 1000 for i in range(300)}
    words = [f"word-{i}" for i in range(5000)]
    done = ground.stoker("run", "--", "python", "-c", "import os, sys; print(len(sys.argv), os.environ['VARIABLE_299'] == 'v' * 1000)", *words, env=env)
    assert done.ok().out == "5001 True\n"


def test_a_process_that_stops_itself_is_not_lost(ground: Ground):
    ground.script("stopped.py", "import os, signal, time\nprint('begun', flush=True)\nos.kill(os.getpid(), signal.SIGSTOP)\nprint('on', flush=True)\n")
    run = ground.detach("--grace", "1s", "stopped.py")
    ground.until_log(run["id"], b"begun")
    assert ground.show(run["id"])["state"] == "running"
    ground.stoker("stop", run["id"]).ok()
    ground.wait_state(run["id"], timeout_s=40)


@pytest.mark.real("tmux")
def test_a_tmux_server_first_started_inside_a_run_survives_it(ground: Ground):
    if not shutil.which("tmux"):
        missing("tmux")
    socket = ground.root / "t"
    ground.script("train.sh", f"#!/bin/sh\ntmux -S '{socket}' new-session -d -s mine 'sleep 600'\nsleep 1\necho made\n", 0o755)
    run = ground.detach("--grace", "1s", "./train.sh")
    try:
        ended = ground.wait_state(run["id"], timeout_s=40)
        assert ended["state"] == "done" and ground.log(run["id"]) == b"made\n"
        listed = subprocess.run(["tmux", "-S", str(socket), "list-sessions"], capture_output=True, env=ground.env, check=False)
        assert b"mine" in listed.stdout, "the tmux server was ended with the run"
    finally:
        subprocess.run(["tmux", "-S", str(socket), "kill-server"], env=ground.env, capture_output=True, check=False)


def test_another_stoker_first_started_inside_a_run_survives_it(ground: Ground):
    inner = ground.root / "inner"
    ground.script("train.sh", "#!/bin/sh\nstoker run -d --json --name within -- sh -c 'echo inner begun; exec sleep 600' > inner.json\n", 0o755)
    run = ground.detach("--grace", "1s", "--", "env", f"STOKER_HOME={inner}", "./train.sh")
    ended = ground.wait_state(run["id"], timeout_s=60)
    assert ended["state"] == "done", ground.log(run["id"])
    env = {"STOKER_HOME": str(inner)}
    try:
        body = json.loads((ground.work / "inner.json").read_text())
        log = inner / "runs" / body["id"] / "attempts" / "1" / "out.log"
        until(lambda: log.exists() and b"inner begun" in log.read_bytes(), 15, "the inner run's output")
        until(lambda: ground.stoker("show", "within", "--json", env=env).json()["state"] == "running", 30, "the inner run in state running")
        within = json.loads((log.parent / "agent.json").read_text())
        assert alive(within["run"]["pid"]) and alive(within["holder"]["pid"]) and alive(within["agent"]["pid"])
    finally:
        ground.stoker("stop", "--force", "within", env=env)
        until(lambda: ground.stoker("show", "within", "--json", env=env).json()["state"] == "stopped", 30, "the end of the inner run")
        ground.stoker("server", "stop", env=env)


def test_a_stoker_run_inside_a_run_of_the_same_home(ground: Ground):
    run = ground.detach("--", "stoker", "run", "--", "sh", "-c", "echo from within; exit 3")
    ended = ground.wait_state(run["id"], timeout_s=60)
    assert ended["exit_code"] == 3
    assert b"from within" in ground.log(run["id"])
    assert len(ground.runs()) == 2


def test_a_hangup_has_its_own_reason(ground: Ground):
    ground.script("train.py", "import time\nprint('begun', flush=True)\ntime.sleep(600)\n")
    run = ground.detach("train.py")
    ground.until_log(run["id"], b"begun")
    kill(ground.run_pid(run["id"]), signal.SIGHUP)
    assert ground.wait_state(run["id"])["reason"] == "hangup"


def test_a_full_screen_of_processes_is_ended(ground: Ground):
    """A run that keeps forking while it is being stopped."""
    ground.script("spawner.py", "import os, signal, time\nsignal.signal(signal.SIGTERM, signal.SIG_IGN); signal.signal(signal.SIGINT, signal.SIG_IGN)\n"
                                "signal.signal(signal.SIGCHLD, signal.SIG_IGN)\nprint('begun', flush=True)\nwhile True:\n    if os.fork() == 0:\n        os.setsid(); time.sleep(60); os._exit(0)\n    time.sleep(0.05)\n")
    run = ground.detach("--grace", "1s", "spawner.py")
    ground.until_log(run["id"], b"begun")
    ground.stoker("stop", run["id"]).ok()
    assert ground.wait_state(run["id"], timeout_s=60)["state"] == "stopped"
    marked = [p for p in ground.processes() if "spawner.py" in cmdline(p) and alive(p) and "agent" not in cmdline(p)]
    assert marked == []


def test_the_keyboard_works_when_the_run_reads_passwords(ground: Ground):
    """getpass turns echo off on the run's terminal; afterwards the user's terminal is as before."""
    ground.script("ask.py", "import getpass\nprint(len(getpass.getpass('secret: ')))\n")
    term: Terminal = ground.terminal("run", "ask.py")
    term.expect(b"secret: ")
    term.send(b"hunter2\r")
    assert term.wait() == 0
    assert b"7" in term.seen.split(b"secret: ")[1] and b"hunter2" not in term.seen
    assert term.settings() == term.initial
    term.close()


def test_the_working_folder_of_another_name_space_of_bytes(ground: Ground):
    folder = bytes(ground.work) + b"/\xff\xfe"
    os.mkdir(folder)
    done = subprocess.run([b"stoker", b"run", b"--", b"sh", b"-c", b"pwd | od -c | head -5; echo \"$1\" | od -c", b"x", b"\xfa"], cwd=folder, env=ground.env,
                          capture_output=True, check=False)
    assert b"Traceback" not in done.stderr
    assert done.returncode == 0, done.stderr
    assert b"372" in done.stdout and b"377 376" in done.stdout
