"""The main job, as a person types it: run, watch, stop, start again, clean up; and what scripts read as JSON."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys

import pytest
from benchmarks.ground import FINAL, NUMBERED, STOKER, Ground, alive, kill, numbered, until

FIELDS = {"id", "name", "kind", "state", "reason", "exit_code", "attempts", "target", "created_at", "started_at", "ended_at", "folder", "workdir", "command",
          "argv", "priority", "waits_for", "reachability", "billing", "limits", "used_s", "still_s", "pinned", "sentence", "unreachable", "next", "warnings", "tty", "restart_at"}
SHOWN = {"evidence", "telemetry", "attempts_detail", "files", "code", "usage", "waits_for_input", "interpreter", "env_names"}
TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z")
SLEEPER = "import time; print('begun', flush=True); time.sleep(600)"


# ---- foreground

def test_umask_limits_and_cpus_are_those_of_the_shell_not_of_the_first_one(ground: Ground):
    assert ground.stoker("run", "--", "true").ok()  # the server has begun under our own
    tell = "import os, resource; print(oct(os.umask(0)), resource.getrlimit(resource.RLIMIT_NOFILE)[0], len(os.sched_getaffinity(0)))"
    shell = f"umask 027; ulimit -S -n 321; exec taskset -c 0 {STOKER} run -- {sys.executable} -c '{tell}'"
    out = subprocess.run(["sh", "-c", shell], env=ground.env, cwd=ground.work, stdin=subprocess.DEVNULL, capture_output=True, check=True, timeout=60)
    assert out.stdout == b"0o27 321 1\n"


def test_foreground_gives_the_same_bytes_streams_and_code(ground: Ground):
    text = r"import sys; sys.stdout.buffer.write(b'out\x00\xff\r\n' + sys.stdin.buffer.read()); sys.stderr.buffer.write(b'err\xfe'); sys.exit(7)"
    plain = subprocess.run([sys.executable, "-c", text], input=b"typed\x00\n", capture_output=True, check=False)
    done = ground.stoker("run", "--", "python", "-c", text, stdin=b"typed\x00\n")
    assert (done.stdout, done.code) == (plain.stdout, 7)
    assert plain.stderr in done.stderr
    assert b"Traceback" not in done.stderr


def test_stoker_says_nothing_on_stdout(ground: Ground):
    assert ground.stoker("run", "--", "true").ok().stdout == b""


def test_a_python_file_runs_with_the_users_python(ground: Ground):
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(ground.root / "theirs")], check=True)
    ground.script("train.py", "import sys; print(sys.prefix); print(sys.argv)")
    env = {"PATH": f"{ground.root}/theirs/bin:{ground.env['PATH']}"}
    out = ground.stoker("run", "train.py", "--lr", "0.1", "--json", "-d", env=env).ok().out.splitlines()
    assert out == [str(ground.root / "theirs"), "['train.py', '--lr', '0.1', '--json', '-d']"]


def test_a_pyenv_shim_is_resolved_to_the_interpreter(ground: Ground):
    shims = ground.root / "shims"
    ground.script("python", f"#!/bin/sh\nexec {sys.executable} \"$@\"\n", 0o755, folder=shims)
    ground.script("train.py", "import sys; print('ran')")
    run = ground.detach("train.py", env={"PATH": f"{shims}:{ground.env['PATH']}"})
    run = ground.wait_state(run["id"])
    assert run["state"] == "done"
    assert run["argv"][0].startswith("/")


def test_working_folder_and_environment_are_those_of_the_shell(ground: Ground):
    deep = ground.work / "deep er"
    deep.mkdir()
    out = ground.stoker("run", "--", "python", "-c", "import os; print(os.getcwd()); print(os.environ['MINE']); print(os.environ['STOKER_ATTEMPT'])", cwd=deep,
                        env={"MINE": "a\nb =é"}).ok().out
    assert out == f"{deep}\na\nb =é\n1\n"


def test_ctrl_c_reaches_the_run_as_plain_python_gets_it(ground: Ground):
    ground.script("train.py", "import time\ntry:\n    print('begun', flush=True); time.sleep(600)\nexcept KeyboardInterrupt:\n    print('bye', flush=True); raise SystemExit(3)\n")
    term = ground.terminal("run", "train.py")
    term.expect(b"begun")
    term.send(b"\x03")
    assert term.wait() == 3
    assert b"bye" in term.seen
    assert term.settings() == term.initial
    term.close()


def test_the_third_ctrl_c_ends_a_run_that_ignores_them(ground: Ground):
    ground.script("train.py", "import os, signal, time\nsignal.signal(signal.SIGINT, lambda *a: os.write(1, b'no\\n'))\nprint('begun', flush=True)\nwhile True: time.sleep(1)\n")
    term = ground.terminal("run", "train.py")
    term.expect(b"begun")
    for n in (1, 2):
        term.send(b"\x03")
        until(lambda n=n: term.pump() or term.seen.count(b"no") >= n, 15, f"answer {n}")
    term.send(b"\x03")
    assert term.wait(40) != 0
    assert ground.runs()[0]["state"] == "stopped"
    term.close()


def test_ctrl_z_detaches_and_attach_comes_back_with_a_working_keyboard(ground: Ground):
    ground.script("train.py", "import time\nprint('begun', flush=True)\nprint('got', input(), flush=True)\ntime.sleep(0.2)\n")
    term = ground.terminal("run", "--name", "mine", "train.py")
    term.expect(b"begun")
    term.send(b"\x1a")
    term.wait()
    assert b"attach" in term.seen, term.seen
    assert term.settings() == term.initial
    assert ground.show("mine")["state"] == "running"
    term.close()
    back = ground.terminal("attach", "mine")
    back.expect(b"begun")
    back.send(b"hello\r")
    back.expect(b"got hello")
    assert back.wait() == 0
    assert back.settings() == back.initial
    back.close()
    assert ground.show("mine")["reason"] == "exited"


def test_a_closed_terminal_leaves_the_run_going(ground: Ground):
    ground.script("train.py", SLEEPER)
    term = ground.terminal("run", "--name", "mine", "train.py")
    term.expect(b"begun")
    term.close()
    until(lambda: term.proc.poll() is not None, 15, "the end of the client")
    assert ground.show("mine")["state"] == "running"


def test_a_killed_client_leaves_the_run_going(ground: Ground):
    ground.script("train.py", SLEEPER)
    client = ground.start_stoker("run", "--name", "mine", "train.py", stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    assert client.stdout.readline() == b"begun\n"
    kill(client.pid)
    client.wait()
    assert ground.show("mine")["state"] == "running"


def test_the_size_of_the_terminal_follows(ground: Ground):
    ground.script("train.py", "import os, signal, time\nsignal.signal(signal.SIGWINCH, lambda *a: os.write(1, b'now %d %d\\n' % os.get_terminal_size()))\n"
                              "print('size', *os.get_terminal_size(), flush=True)\nfor _ in range(600): time.sleep(0.1)\n")
    term = ground.terminal("run", "train.py")
    term.expect(b"size 80 24")
    term.resize(50, 132)
    kill(term.proc.pid, signal.SIGWINCH)
    term.expect(b"now 132 50")
    term.send(b"\x03")
    term.wait()
    term.close()


def test_the_log_of_a_terminal_run_holds_the_scripts_own_bytes(ground: Ground):
    ground.script("train.py", "import sys\nassert sys.stdout.isatty()\nprint('one')\nprint('two')\nsys.stdout.write('\\r50%')\n")
    term = ground.terminal("run", "train.py")
    assert term.wait() == 0
    assert b"one\r\ntwo\r\n" in term.seen
    term.close()
    assert ground.log(ground.runs()[0]["id"]) == b"one\ntwo\n\r50%"


# ---- detached

def test_detached_life_of_a_run(ground: Ground):
    side = ground.work / "starts"
    ground.script("count.py", NUMBERED)
    run = ground.detach("--name", "base", "count.py", "40", "0.05", str(side))
    assert run["name"] == "base"
    follow = ground.start_stoker("logs", "-f", "base", stdout=subprocess.PIPE)
    assert [r["name"] for r in ground.runs()] == ["base"]
    assert ground.stoker("wait", "base").code == 0
    assert follow.communicate(timeout=20)[0] == numbered(40)
    shown = ground.stoker("show", "base").ok().out
    assert "Finished successfully" in shown and "stoker logs" in shown
    assert ground.stoker("logs", "base").ok().stdout == numbered(40)
    assert ground.stoker("logs", "--tail", "2", "base").ok().stdout == b"line 38\nline 39\n"
    ground.stoker("rm", "--yes", "base").ok()
    assert ground.runs() == []
    assert not ground.folder(run["id"]).exists()


def test_detached_output_is_unbuffered_and_stdin_is_closed(ground: Ground):
    ground.script("train.py", "import sys, time\nprint('early')\nprint(repr(sys.stdin.read()))\ntime.sleep(600)\n")
    run = ground.detach("train.py")
    ground.until_log(run["id"], b"early\n''\n")


def test_stdin_from_a_file(ground: Ground):
    ground.script("words", "a\nb\n")
    run = ground.detach("--stdin", "words", "--", "cat")
    assert ground.wait_state(run["id"])["state"] == "done"
    assert ground.log(run["id"]) == b"a\nb\n"


def test_stop_then_start_adds_an_attempt(ground: Ground):
    ground.script("train.py", SLEEPER)
    run = ground.detach("--name", "mine", "train.py")
    ground.until_log(run["id"], b"begun")
    pid = ground.run_pid(run["id"])
    ground.stoker("stop", "mine").ok()
    stopped = ground.wait_state("mine")
    assert (stopped["state"], stopped["reason"], stopped["attempts"]) == ("stopped", "stopped_by_user", 1)
    assert not alive(pid)
    ground.stoker("start", "mine").ok()
    ground.until_log(run["id"], b"begun", attempt=2)
    again = ground.wait_state("mine", "running")
    assert (again["id"], again["attempts"]) == (run["id"], 2)
    assert ground.stoker("logs", "mine").ok().stdout.count(b"begun") >= 1


def test_stop_says_so_when_there_is_nothing_to_stop(ground: Ground):
    run = ground.detach("--", "true")
    ground.wait_state(run["id"])
    done = ground.stoker("stop", run["id"])
    assert done.code in (0, 6)
    assert "Traceback" not in done.err
    assert ground.show(run["id"])["state"] == "done"


def test_time_limit_and_keep(ground: Ground):
    ground.script("train.py", SLEEPER)
    short = ground.detach("--time", "2s", "train.py")
    kept = ground.detach("--name", "kept", "--time", "1h", "train.py")
    ended = ground.wait_state(short["id"], timeout_s=60)
    assert (ended["state"], ended["reason"]) == ("stopped", "limit_time")
    assert "2s" in ended["sentence"]
    ground.stoker("keep", "kept", "3h").ok()
    limits = ground.show("kept")["limits"]
    assert limits["time_s"] >= 3 * 3600 - 60
    until(lambda: json.loads((ground.folder(kept["id"]) / "limits.json").read_bytes())["time_s"] == limits["time_s"], 15, "the limit in the run folder")


def test_restarts_for_a_reason_that_is_worth_it(ground: Ground):
    ground.script("train.py", "import os, sys\nprint('attempt', os.environ['STOKER_ATTEMPT'])\nsys.exit(0 if os.environ['STOKER_ATTEMPT'] == '2' else 1)\n")
    run = ground.detach("--restarts", "3", "train.py")
    ended = ground.wait_state(run["id"], "done", timeout_s=60)
    assert ended["attempts"] == 2
    assert [ground.log(run["id"], n) for n in (1, 2)] == [b"attempt 1\n", b"attempt 2\n"]


def test_no_more_restarts_than_asked(ground: Ground):
    run = ground.detach("--restarts", "1", "--", "false")
    until(lambda: ground.show(run["id"])["attempts"] == 2, 30, "the second attempt")
    ended = ground.wait_state(run["id"])
    assert (ended["state"], ended["attempts"], ended["exit_code"]) == ("failed", 2, 1)


def test_a_copy_is_frozen_when_it_is_asked_for(ground: Ground):
    subprocess.run(["git", "init", "-q", str(ground.work)], check=True)
    (ground.work / ".gitignore").write_text("big\n")
    (ground.work / "big").write_text("ignored")
    ground.script("part.py", "TEXT = 'old'\n")
    ground.script("train.py", "import os, time\nwhile not os.path.exists(os.environ['GO']): time.sleep(0.05)\nimport part\nprint(part.TEXT, os.path.exists('big'), os.getcwd())\n"
                              "open('made.txt', 'w').write('x' * 10)\n")
    run = ground.detach("--copy", "train.py", env={"GO": str(ground.root / "go")})
    (ground.work / "part.py").write_text("TEXT = 'new'\n")
    (ground.root / "go").touch()
    ended = ground.wait_state(run["id"])
    assert ground.log(run["id"]).decode() == f"old False {ended['workdir']}\n"
    assert not (ground.work / "made.txt").exists()
    assert "made.txt" in json.dumps(ended["files"])


def test_a_second_run_in_the_same_folder_is_warned_about(ground: Ground):
    ground.script("train.py", SLEEPER)
    ground.detach("train.py")
    done = ground.stoker("run", "-d", "train.py").ok()
    assert "--copy" in done.err + done.out


def test_environment_file_and_secrets(ground: Ground):
    ground.script("secrets", "TOKEN=abc\n")
    run = ground.detach("--env-file", "secrets", "--", "python", "-c", "import os; print(os.environ['TOKEN'])")
    ended = ground.wait_state(run["id"])
    assert ground.log(run["id"]) == b"abc\n"
    assert (ground.folder(run["id"]) / "env").stat().st_mode & 0o777 == 0o600
    assert "abc" not in json.dumps(ended)
    assert b"abc" not in (ground.folder(run["id"]) / "spec.json").read_bytes()


def test_after_and_slots(ground: Ground):
    ground.home.mkdir(mode=0o700)
    (ground.home / "config.toml").write_text("slots = 1\n")
    ground.script("train.py", SLEEPER)
    first = ground.detach("--slots", "1", "train.py")
    second = ground.detach("--slots", "1", "--", "true")
    third = ground.detach("--after", second["id"], "--", "true")
    ground.wait_state(first["id"], "running")
    waiting = ground.wait_state(second["id"], "pending")
    assert waiting["waits_for"]
    assert second["id"] in json.dumps(ground.show(third["id"])["waits_for"]) or second["name"] in json.dumps(ground.show(third["id"])["waits_for"])
    ground.stoker("stop", first["id"]).ok()
    assert ground.wait_state(second["id"])["state"] == "done"
    assert ground.wait_state(third["id"])["state"] == "done"


def test_priority_goes_before_age(ground: Ground):
    ground.home.mkdir(mode=0o700)
    (ground.home / "config.toml").write_text("slots = 1\n")
    ground.script("train.py", SLEEPER)
    ground.detach("--name", "first", "--slots", "1", "train.py")
    ground.detach("--name", "old", "--slots", "1", "--", "true")
    ground.detach("--name", "urgent", "--slots", "1", "--priority", "5", "--", "true")
    ground.stoker("stop", "first").ok()
    old, urgent = ground.wait_state("old"), ground.wait_state("urgent")
    assert urgent["started_at"] < old["started_at"]


def test_the_same_name_and_spec_continues_in_a_script(ground: Ground):
    ground.script("train.py", SLEEPER)
    first = ground.detach("--name", "mine", "train.py")
    ground.until_log(first["id"], b"begun")
    ground.stoker("stop", "mine").ok()
    ground.wait_state("mine")
    second = ground.detach("--name", "mine", "train.py")
    assert second["id"] == first["id"]
    ground.until_log(first["id"], b"begun", attempt=2)


def test_the_unfinished_run_is_offered_first_on_a_terminal(ground: Ground):
    ground.script("train.py", "import os\nprint('attempt', os.environ['STOKER_ATTEMPT'])\nraise SystemExit(0 if os.environ['STOKER_ATTEMPT'] == '2' else 1)\n")
    term = ground.terminal("run", "train.py")
    assert term.wait() == 1
    term.close()
    again = ground.terminal("run", "train.py")
    again.expect(b"[Y/n]")
    again.send(b"\r")
    assert again.wait() == 0
    assert b"attempt 2" in again.seen
    again.close()
    assert len(ground.runs()) == 1


def test_wait_gives_the_runs_code(ground: Ground):
    run = ground.detach("--", "sh", "-c", "exit 9")
    assert ground.stoker("wait", run["id"]).code == 9


def test_gc_says_what_old_runs_cost_and_asks(ground: Ground):
    run = ground.detach("--", "true")
    pinned = ground.detach("--name", "pinned", "--", "true")
    for r in (run, pinned):
        ground.wait_state(r["id"])
    ground.stoker("keep", "--pin", "pinned").ok()
    assert ground.folder(run["id"]).exists()
    refused = ground.stoker("gc", "--older", "0s")
    assert "Traceback" not in refused.err
    assert refused.err.endswith("hint: To delete: stoker gc --older 0s --yes   To look: stoker gc --older 0s --dry-run\n")
    assert ground.folder(run["id"]).exists(), "gc removed without an answer"
    ground.stoker("gc", "--older", "0s", "--yes").ok()
    assert not ground.folder(run["id"]).exists()
    assert ground.folder(pinned["id"]).exists()


def test_show_lists_new_files_with_sizes(ground: Ground):
    run = ground.detach("--", "sh", "-c", "printf 12345 > weights.bin")
    ended = ground.wait_state(run["id"])
    assert "weights.bin" in json.dumps(ended["files"])
    assert "weights.bin" in ground.stoker("show", run["id"]).ok().out


def test_top_and_doctor_print(ground: Ground):
    ground.script("train.py", "import sys\n")
    assert ground.stoker("doctor", timeout_s=60).code in (0, 1)
    assert isinstance(json.loads(ground.stoker("doctor", "--json").stdout), (dict, list))
    assert isinstance(ground.stoker("top", "--json").json(), dict)


# ---- JSON for scripts

def test_json_has_the_documented_fields(ground: Ground):
    run = ground.detach("--", "true")
    ended = ground.wait_state(run["id"])
    listed = ground.runs()[0]
    for body, fields in ((run, FIELDS), (listed, FIELDS), (ended, FIELDS | SHOWN)):
        assert not fields - set(body), fields - set(body)
    for key in ("created_at", "started_at", "ended_at"):
        assert TIME.fullmatch(ended[key]), (key, ended[key])
    assert (ended["kind"], ended["state"], ended["reason"], ended["exit_code"], ended["attempts"], ended["target"]) == ("job", "done", "exited", 0, 1, "local")
    assert ended["folder"] == str(ground.folder(run["id"]))
    assert ended["command"] == ["true"]
    assert ended["state"] in FINAL


def test_json_errors_are_json(ground: Ground):
    done = ground.stoker("show", "nosuch", "--json")
    assert done.code == 3
    body = json.loads(done.stderr)
    assert body["error"] == "not_found" and body["message"] and body["hint"]


def test_a_prefix_or_the_name_stands_for_the_id(ground: Ground):
    run = ground.detach("--name", "base line", "--", "true")
    assert ground.show(run["id"][:4])["id"] == run["id"]
    assert ground.show("base line")["id"] == run["id"]
    assert len(run["id"]) <= 16


@pytest.mark.parametrize("verb", ["ps", "show", "logs", "run", "stop", "attach", "wait", "start", "keep", "rm", "doctor", "top", "gc", "server"])
def test_every_verb_has_help(common: Ground, verb: str):
    done = common.stoker(verb, "--help").ok()
    assert done.out.startswith("Usage: stoker " + verb)


def test_a_run_that_asks_a_question_is_told_from_a_busy_one(ground: Ground):
    asks = ground.detach("--tty", "--", "python", "-c", "input('name? ')")
    seen = until(lambda: (s := ground.show(asks["id"]))["waits_for_input"] and s, 20, "it is seen to wait")
    assert seen["sentence"] == "Waiting for input at the terminal." and seen["next"] == f"stoker attach {asks['name']}"
    ground.stoker("stop", asks["id"]).ok()
    assert ground.show(asks["id"])["reason"] == "stopped_by_user"
