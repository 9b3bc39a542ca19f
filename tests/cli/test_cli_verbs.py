"""The verbs about runs and the machine, against the real server."""

from __future__ import annotations

import json
import os
import re
import subprocess
from pathlib import Path

import pytest
from benchmarks.ground import STOKER, Ground, until

COUNTER = "import os, sys, time\nfor i in range(int(sys.argv[1])):\n    os.write(1, b'line %d\\n' % i)\n    time.sleep(0.02)\n"
SLEEPER = "import time\nprint('begun', flush=True)\ntime.sleep(600)\n"


def talks(pid: int) -> bool:
    """True while the process has a socket open."""
    for entry in Path(f"/proc/{pid}/fd").iterdir():
        try:
            if os.readlink(entry).startswith("socket:"):
                return True
        except FileNotFoundError:
            continue
    return False


def lines(count: int) -> bytes:
    return b"".join(b"line %d\n" % i for i in range(count))


def test_ps_is_columns_in_a_pipe_and_a_table_on_a_terminal(ground: Ground):
    assert ground.stoker("ps").ok().stdout == b""
    ground.detach("--name", "训练 🚂", "--", "true")
    ground.detach("--name", "*rf", "--", "sh", "-c", "exit 3")
    ground.wait_state("训练 🚂")
    until(lambda: json.loads(ground.stoker("show", "--json", "*rf").stdout)["state"] == "failed", 20, "the end of *rf")
    text = ground.stoker("ps", "-a").ok().out
    assert text.splitlines()[0].split() == ["NAME", "STATE", "SINCE", "RAN", "COMMAND"]
    assert text.splitlines()[1].startswith("*rf ") and "failed (exit 3)" in text
    assert text.splitlines()[2].startswith("训练 🚂 ") and "done" in text
    term = ground.terminal("ps", "-a")
    assert term.wait() == 0
    assert "训练 🚂".encode() in term.seen and b"\x1b[" in term.seen
    term.close()


def test_show_opens_with_a_sentence_and_what_to_type(ground: Ground):
    ground.script("train.py", "import sys\nopen('model.bin', 'wb').write(b'x' * 2048)\nraise ValueError('the loss is nan')\n")
    ground.stoker("run", "--name", "mine", "--env", "SECRET=abc", "train.py")
    text = ground.stoker("show", "mine").ok().out
    first, second = text.splitlines()[:2]
    assert first.startswith("mine: Failed with exit code 1")
    assert second.startswith("Next: stoker logs")
    for fact in ("ValueError: the loss is nan", "train.py:3", "model.bin", "2.0 kB", "exit code 1", "run folder", str(ground.work)):
        assert fact in text, text
    assert "abc" not in text
    body = ground.stoker("show", "mine", "--json").json()
    assert body["evidence"]["exception"]["line"] == 3


LAST_WORDS = {
    "parser.py --lrr 1": ("import argparse\np = argparse.ArgumentParser()\np.add_argument('--lr')\nprint('begun', flush=True)\np.parse_args()\n", 2,
                          'last output: "parser.py: error: unrecognized arguments: --lrr 1".'),
    "says.py": ("import sys\nprint('begun')\nsys.exit('no data in /data')\n", 1, 'last output: "no data in /data".'),
    "silent.py": ("import os\nos._exit(3)\n", 3, "no output."),
    "out.py": ("import os, sys\nprint('epoch 1: giving up', flush=True)\nos._exit(4)\n", 4, 'last output: "epoch 1: giving up".'),
}


@pytest.mark.parametrize("words", LAST_WORDS)
def test_an_end_without_an_exception_is_told_by_its_last_words(ground: Ground, words: str):
    text, code, told = LAST_WORDS[words]
    ground.script(words.split(maxsplit=1)[0], text)
    detached = ground.detach("--name", "b", *words.split())
    ended = ground.wait_state(detached["id"])
    assert ended["sentence"] == f"Failed with exit code {code}; {told}"
    done = ground.stoker("run", "--new", *words.split())
    assert done.code == code and f"stoker: Failed with exit code {code}; {told} Next: stoker logs" in done.err
    assert ground.stoker("show", "b").ok().out.splitlines()[0].endswith(told)


def test_show_prints_tabs_of_the_last_output_as_spaces(ground: Ground):
    assert ground.stoker("run", "--name", "mine", "--", "sh", "-c", r"printf 'a\tb \007c\n'; exit 3").code == 3
    assert "  last output  a b \\x07c\n" in ground.stoker("show", "mine").ok().out


def test_a_mistyped_run_is_answered_with_what_was_meant(ground: Ground):
    ground.detach("--name", "baseline", "--", "true")
    missing = ground.stoker("logs", "base")
    assert (missing.code, missing.err.splitlines()[1]) == (3, "hint: Did you mean baseline? List all runs: stoker ps --all")
    assert ground.stoker("show", "something-else").err.splitlines()[1] == "hint: List all runs: stoker ps --all"


def test_logs_of_attempts_streams_and_ends(ground: Ground):
    ground.script("count.py", COUNTER)
    ground.stoker("run", "--name", "mine", "--", "sh", "-c", "echo out $STOKER_ATTEMPT; echo err >&2; exit 1")
    ground.stoker("start", "mine", "--attach")
    assert ground.stoker("logs", "mine", "--attempt", "1", "--out").ok().stdout == b"out 1\n"
    assert sorted(ground.stoker("logs", "mine").ok().out.splitlines()) == ["err", "out 2"]
    assert ground.stoker("logs", "mine", "--err").ok().stdout == b"err\n"
    assert ground.stoker("logs", "mine", "--attempt", "7").code in (2, 3, 6)
    ground.stoker("run", "--name", "count", "count.py", "50").ok()
    assert ground.stoker("logs", "count", "--tail", "2").ok().stdout == b"line 48\nline 49\n"
    assert ground.stoker("logs", "count", "--since", "1h").ok().stdout == lines(50)


def test_logs_of_a_restarted_run_say_on_a_terminal_which_attempt_it_is(ground: Ground):
    ground.stoker("run", "--name", "two", "--restarts", "1", "--backoff", "0.1s", "--", "sh", "-c", "echo attempt $STOKER_ATTEMPT; exit 1")
    note = b"attempt 2 of 2; to see the previous attempt: stoker logs --attempt 1 two"
    for words, seen, told in ((["two"], b"attempt 2\r\n", True), (["-f", "two"], b"attempt 2\r\n", True), (["--attempt", "1", "two"], b"attempt 1\r\n", False)):
        term = ground.terminal("logs", *words)
        assert term.wait() == 0
        term.close()
        assert seen in term.seen and (note in term.seen) is told
    done = ground.stoker("logs", "two").ok()
    assert (done.out, done.err) == ("attempt 2\n", "")


def test_logs_follow_from_attempt_to_attempt(ground: Ground):
    ground.script("train.py", "import os, time\nprint('attempt', os.environ['STOKER_ATTEMPT'], flush=True)\n"
                  "while not os.path.exists('go'): time.sleep(0.02)\nraise SystemExit(os.environ['STOKER_ATTEMPT'] != '3')\n")
    run = ground.detach("--name", "mine", "--restarts", "5", "--backoff", "0.1s", "train.py")
    following = ground.start_stoker("logs", "-f", "mine", stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert following.stdout.readline() == b"attempt 1\n"
    (ground.work / "go").touch()
    out, err = following.communicate(timeout=60)
    assert (following.returncode, out) == (0, b"attempt 2\nattempt 3\n")
    for attempt in (1, 2):  # said before the next one starts or after, as it is seen
        assert re.search(rb"attempt %d ended; (starting attempt %d|attempt %d starts at)" % (attempt, attempt + 1, attempt + 1), err)
    assert ground.wait_state(run["id"])["state"] == "done"


def test_logs_follow_over_the_death_of_the_server(ground: Ground):
    ground.script("count.py", COUNTER)
    ground.detach("--name", "mine", "count.py", "150")
    follow = ground.start_stoker("logs", "-f", "mine", stdout=subprocess.PIPE)
    assert follow.stdout.readline() == b"line 0\n"
    ground.kill_server()
    assert follow.stdout.read() == lines(150)[7:]
    assert follow.wait(20) == 0


def test_logs_into_a_closed_pipe(ground: Ground):
    ground.script("big.py", "print('x' * 5_000_000)")
    ground.stoker("run", "--name", "mine", "big.py").ok()
    done = subprocess.run(["sh", "-c", f"{STOKER} logs mine | head -c 10; echo"], cwd=ground.work, env=ground.env, capture_output=True, check=True,
                          timeout=60)
    assert (done.stdout, done.stderr) == (b"xxxxxxxxxx\n", b"")


def test_ctrl_c_ends_the_watching_not_the_run(ground: Ground):
    ground.script("train.py", SLEEPER)
    ground.detach("--name", "mine", "train.py")
    for words in (("logs", "-f", "mine"), ("wait", "mine")):
        term = ground.terminal(*words)
        until(lambda term=term: talks(term.proc.pid), 20, "the connection to the server")
        term.send(b"\x03")
        assert term.wait() == 130
        assert b"Traceback" not in term.seen
        term.close()
    assert ground.show("mine")["state"] == "running"


def test_wait_for_several_gives_the_first_code_that_is_not_0(ground: Ground):
    for name, code in (("a", 0), ("b", 4), ("c", 5)):
        ground.detach("--name", name, "--", "sh", "-c", f"exit {code}")
    assert ground.stoker("wait", "a").code == 0
    assert ground.stoker("wait", "a", "b", "c").code == 4
    assert [r["name"] for r in json.loads(ground.stoker("wait", "a", "b", "--json").stdout)] == ["a", "b"]


def test_wait_survives_the_death_of_the_server(ground: Ground):
    ground.script("train.py", "import os, time\nwhile not os.path.exists('go'): time.sleep(0.05)\nraise SystemExit(6)\n")
    ground.detach("--name", "mine", "train.py")
    waiting = ground.start_stoker("wait", "mine", stderr=subprocess.PIPE)
    ground.wait_state("mine", "running")
    ground.kill_server()
    (ground.work / "go").touch()
    assert waiting.wait(60) == 6


def test_stop_start_keep_and_rm(ground: Ground):
    ground.script("train.py", SLEEPER)
    ground.detach("--name", "mine", "--time", "1h", "train.py")
    ground.wait_state("mine", "running")
    kept = ground.stoker("keep", "mine", "3h", "--json").json()
    assert kept["limits"]["time_s"] > 3600
    assert ground.stoker("keep", "mine", "--pin", "--json").json()["pinned"] is True
    assert ground.stoker("keep", "mine", "--unpin", "--json").json()["pinned"] is False
    stopped = ground.stoker("stop", "mine", "--json").json()
    assert [r["state"] for r in stopped] == ["stopped"]
    assert ground.stoker("start", "mine", "--json").json()["id"] == stopped[0]["id"]
    ground.wait_state("mine", "running")
    several = ground.stoker("stop", "nosuch", "mine")
    assert several.code == 3
    assert ground.show("mine")["state"] == "stopped"
    term = ground.terminal("rm", "mine")
    term.expect(b"[y/N]")
    term.send(b"\r")
    assert term.wait() == 1
    term.close()
    assert ground.show("mine")["state"] == "stopped"
    ground.stoker("rm", "--yes", "mine").ok()
    assert ground.stoker("show", "mine").code == 3


def test_gc_shows_asks_and_frees(ground: Ground):
    run = ground.detach("--", "true")
    ground.wait_state(run["id"])
    shown = ground.stoker("gc", "--older", "0s", "--dry-run").ok()
    assert run["name"] in shown.out and "FILES" in shown.out
    assert ground.stoker("gc", "--older", "0s").code == 2
    term = ground.terminal("gc", "--older", "0s")
    term.expect(b"[y/N]")
    term.send(b"y\r")
    assert term.wait() == 0
    assert b"freed" in term.seen
    term.close()
    assert ground.runs() == []


def test_wait_says_what_will_not_come_by_itself(ground: Ground):
    ground.script("train.py", SLEEPER)
    ground.detach("--name", "first", "train.py")
    ground.detach("--name", "second", "--after", "first", "train.py")
    ground.stoker("stop", "first").ok()
    term = ground.terminal("wait", "second")
    term.expect(b"second waits for first, which ended as stopped")
    term.send(b"\x03")
    assert term.wait() == 130
    term.close()


def test_top_once_and_live(ground: Ground):
    ground.script("train.py", SLEEPER)
    ground.detach("--name", "mine", "train.py")
    ground.wait_state("mine", "running")
    assert "mine" in ground.stoker("top", "--once").ok().out
    term = ground.terminal("top")
    term.expect(b"mine")
    term.send(b"\x03")
    assert term.wait() == 130
    assert term.seen.rstrip().endswith(b"\x1b[?25h\x1b[?1049l") and b"Traceback" not in term.seen
    term.close()
    term = ground.terminal("top")
    term.expect(b"q: leave")
    until(lambda: not term.settings()[3] & 0o10, 20, "keys without echo")
    term.send(b"q")
    assert term.wait() == 0
    assert term.settings() == term.initial
    term.close()


def test_the_same_name_and_command_says_whether_anything_was_started(ground: Ground):
    ground.script("train.py", SLEEPER)
    words = ("run", "-d", "--name", "mine", "train.py")
    assert ground.stoker(*words).ok().err == ""
    assert ground.stoker(*words).ok().err == "stoker: mine is already running this command; no new run was started\n"
    ground.wait_state("mine", "running")  # stopped before its first attempt began, it would continue with attempt 1
    ground.stoker("stop", "--force", "mine").ok()
    assert ground.stoker(*words).ok().err == "stoker: continuing mine, attempt 2\n"
    assert len(ground.runs()) == 1


def test_what_cannot_be_deleted_is_not_asked_about(ground: Ground):
    ground.script("train.py", SLEEPER)
    ground.detach("--name", "mine", "train.py")
    term = ground.terminal("rm", "mine")
    assert term.wait() == 6
    assert b"Delete" not in term.seen and b"stoker rm --force mine" in term.seen
    term.close()
    assert "no time limit" in ground.stoker("keep", "mine", "2h").ok().err


def test_a_missing_module_leads_to_the_doctor(ground: Ground):
    ground.script("train.py", "import nonsuchlib\n")
    done = ground.stoker("run", "train.py", "--lr", "1")
    assert done.err.splitlines()[-1].endswith("Next: stoker doctor -- train.py --lr 1")
    assert "pip install nonsuchlib" in ground.stoker("doctor", "--", "train.py", "--lr", "1").out


def test_server_verbs(ground: Ground):
    assert ground.stoker("server", "status").code == 1
    assert ground.stoker("server", "status", "--json").stdout == b'{"running": false}\n'
    started = ground.stoker("server", "start", "--json").json()
    assert started["running"] and ground.stoker("server", "status", "--json").json()["pid"] == started["pid"]
    assert "runs continue" in ground.stoker("server", "stop").ok().out
    assert ground.stoker("server", "status").code == 1
    assert ground.stoker("server", "stop").ok()


def test_enable_writes_a_unit_that_systemd_would_take(ground: Ground):
    """systemctl and loginctl are programs at the edge: these note what they were asked."""
    for name in ("systemctl", "loginctl"):
        ground.script(name, f'#!/bin/sh\necho {name} "$@" >> {ground.root}/asked\n', 0o755, folder=ground.root / "bin")
    env = {"PATH": f"{ground.root}/bin:{ground.env['PATH']}"}
    assert "after logout" in ground.stoker("server", "enable", env=env).ok().out
    unit = ground.user / ".config/systemd/user/stoker.service"
    text = unit.read_text()
    assert f'Environment="STOKER_HOME={ground.home}"' in text
    assert '"-m" "stoker.server" "--wait"' in text and "KillMode=process" in text
    asked = (ground.root / "asked").read_text()
    assert "systemctl --user enable stoker.service" in asked and "loginctl enable-linger" in asked
    ground.stoker("server", "disable", env=env).ok()
    assert not unit.exists()


def test_enable_where_there_is_no_systemd(ground: Ground):
    ground.script("systemctl", "#!/bin/sh\necho 'Failed to connect to bus' >&2\nexit 1\n", 0o755, folder=ground.root / "bin")
    done = ground.stoker("server", "enable", env={"PATH": f"{ground.root}/bin:{ground.env['PATH']}"})
    assert done.code == 6
    assert "Failed to connect to bus" in done.err and "cron" in done.err


def test_doctor_prints_lines_and_what_to_do(ground: Ground):
    ground.script("train.py", "import no_such_package_at_all\nx = input('how many?')\n")
    done = ground.stoker("doctor", "train.py")
    assert done.code == 1
    assert "train.py:1" in done.out and "no_such_package_at_all" in done.out
    listed = json.loads(ground.stoker("doctor", "--json", "train.py").stdout)
    assert {"level", "topic", "message", "hint", "file", "line"} <= set(listed[0])


def test_completion_offers_the_runs(ground: Ground):
    ground.detach("--name", "baseline", "--", "true")
    env = {"_STOKER_COMPLETE": "bash_complete", "COMP_WORDS": "stoker show ba", "COMP_CWORD": "2"}
    assert ground.stoker(env=env).out.split() == ["plain,baseline"]


@pytest.mark.parametrize("verb", ["run", "top", "doctor"])
def test_completion_offers_the_machines_without_a_server(ground: Ground, verb: str):
    ground.home.mkdir(mode=0o700)
    (ground.home / "config.toml").write_text('[targets.big]\nhost = "big"\n[targets.small]\nhost = "small"\n')
    env = {"_STOKER_COMPLETE": "bash_complete", "COMP_WORDS": f"stoker {verb} --on b", "COMP_CWORD": "3"}
    assert ground.stoker(env=env).out.split() == ["plain,big"]
    assert os.listdir(ground.home) == ["config.toml"]
