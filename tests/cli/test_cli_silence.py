"""Nothing that a person waits for is silent: a target that cannot be reached, and a stop that takes its time."""

from __future__ import annotations

import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from benchmarks.ground import Ground, until

from real.sshd import Sshd
from stoker.cli.run.follow import Follower


@pytest.mark.real("sshd")
def test_an_unreachable_target_is_named_with_a_way_to_leave(ground: Ground):
    with socket.socket() as taken:  # nobody listens at this port
        taken.bind(("127.0.0.1", 0))
        ground.home.mkdir(parents=True)
        (ground.home / "config.toml").write_text(f'[targets.far]\nhost = "ssh://127.0.0.1:{taken.getsockname()[1]}"\nroot = "{ground.root}/far"\n')
        ground.script("x.py", "print(1)\n")
        run = ground.start_stoker("run", "--target", "far", "x.py", stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        said = b""
        while b"sshd is not running" not in said:
            line = run.stderr.readline()
            assert line, said
            said += line
        assert b"Ctrl-Z" not in said  # nobody is at a keyboard
        watched = ground.terminal("attach", "x")
        watched.expect(b"second Ctrl-C: do not wait for the machine; Ctrl-Z: detach")
        watched.send(b"\x1a")
        watched.wait()
        watched.close()
        run.send_signal(signal.SIGTERM)
        until(lambda: run.poll() is not None or run.send_signal(signal.SIGTERM), 30, "the end of the waiting")
        assert run.returncode in (128 + signal.SIGTERM, -signal.SIGTERM)
        run.stdout.close()
        run.stderr.close()
        ground.stoker("stop", "--force", "x").ok()
        assert ground.show("x")["state"] == "stopped"


@pytest.mark.parametrize(("state", "told"), [("staging", True), ("starting", True), ("stopping", True), ("running", False), ("failed", False)])
def test_waiting_is_told_of_until_the_run_runs(capsys, state, told):
    """A busy machine may take seconds to bring the first output; that a run is running, or how it ended, is not told as waiting."""
    follower = Follower({"id": "palu-zuzu", "name": "x", "ref": "x", "command": ["true"], "state": state, "sentence": "What it does."})
    follower._since -= 60
    follower._tell_what_it_waits_for()
    follower._tell_what_it_waits_for()
    assert capsys.readouterr().err.count("What it does.") == int(told)


def far(ground: Ground, sshd: Sshd, known: str = "known") -> None:
    """The target "far": a folder behind a real sshd. `known`: the file with the host keys that ssh knows."""
    options = sshd.with_option("UserKnownHostsFile", f"{sshd.folder}/{known}")
    config = "".join(f"{option.replace('=', ' ', 1)}\n" for option in options)
    (ground.root / "ssh").write_text(f"Host box\nHostName 127.0.0.1\n{config}")
    ground.home.mkdir(parents=True, exist_ok=True)
    (ground.home / "config.toml").write_text(f'[targets.far]\nhost = "-F {ground.root}/ssh box"\nroot = "{ground.root}/far"\n')


@pytest.mark.real("sshd")
def test_an_unknown_host_key_names_the_command_that_asks_about_it(ground: Ground, sshd: Sshd):
    far(ground, sshd, known="nobody")
    ground.script("x.py", "print(1)\n")
    done = ground.stoker("run", "--target", "far", "x.py")
    assert done.code == 125 and "host key" in done.err and f"Log in once: ssh -F {ground.root}/ssh box" in done.err, done.err
    assert "Log in once: ssh" in ground.show("x")["next"]


@pytest.fixture
def running(ground: Ground, short_tmp: Path) -> Iterator[Sshd]:
    """The sshd of the machine on which the run `x` trains; the test may halt it."""
    sshd = Sshd(short_tmp / "sshd")
    try:
        far(ground, sshd)
        ground.script("x.py", "import time\nprint('begun', flush=True)\ntime.sleep(600)\n")
        ground.stoker("run", "-d", "--on", "far", "x.py").ok()
        until(lambda: ground.show("x")["state"] == "running", 60, "the run")
        yield sshd
        ground.stoker("server", "stop").ok()
        until(lambda: not ground.server_pids(), 20, "the end of the server")
    finally:
        sshd.close()


@pytest.mark.real("sshd")
def test_a_forced_stop_of_a_run_whose_machine_is_silent_comes_back(ground: Ground, running: Sshd):
    told = ground.show("x")["attempts_detail"][0]
    running.halt()
    stop = ground.stoker("stop", "--force", "x")
    assert told["started_at"] and ground.show("x")["attempts_detail"][0]["started_at"] == told["started_at"], "what is known stays"
    assert stop.code == 5 and "far cannot be reached since " in stop.err and "stoker wait x" in stop.err, stop.err
    running.again()
    ground.stoker("stop", "--force", "x").ok()
    assert ground.show("x")["reason"] == "stopped_by_user"


@pytest.mark.real("sshd")
def test_a_stop_of_a_run_whose_machine_is_silent_comes_back_and_is_carried_out_later(ground: Ground, running: Sshd):
    running.halt()
    hasty = "import sys; from stoker.cli import runs; runs.UNREACHABLE_S = 1.0; from stoker.cli.main import main; sys.exit(main())"
    stop = subprocess.run([sys.executable, "-c", hasty, "stop", "--grace", "1s", "x"], cwd=ground.work, env=ground.env,
                          capture_output=True, text=True, timeout=60, check=False)
    assert stop.returncode == 5, stop.stderr
    assert "x is not stopped yet: far cannot be reached since " in stop.stderr and "stoker wait x" in stop.stderr, stop.stderr
    running.again()
    ground.stoker("wait", "x")
    assert ground.show("x")["reason"] == "stopped_by_user"


def test_a_stop_that_takes_long_says_so(ground: Ground):
    ground.script("slow.py", "import signal, time\nfor s in (signal.SIGINT, signal.SIGTERM): signal.signal(s, lambda *a: None)\n"
                  "print('begun', flush=True)\nend = time.monotonic() + 600\nwhile time.monotonic() < end: time.sleep(1)\n")
    run = ground.detach("slow.py")
    ground.until_log(run["id"], b"begun")
    stop = ground.start_stoker("stop", "--grace", "60s", "slow", stderr=subprocess.PIPE)
    assert b"waiting for slow to end" in stop.stderr.readline()
    ground.stoker("stop", "--force", "slow").ok()
    stop.communicate(timeout=60)
    assert stop.returncode == 0


@pytest.mark.real("sshd")
def test_a_silent_machine_refuses_no_run_and_is_shown_as_unreachable_since_when(ground: Ground, short_tmp: Path):
    sshd = Sshd(short_tmp / "sshd")
    try:
        far(ground, sshd)
        ground.script("x.py", "print(1)\n")
        sshd.halt()
        ground.stoker("run", "-d", "--on", "far", "x.py").ok()
        told = until(lambda: ground.show("x")["unreachable"], 60, "the silence")
        assert "cannot be reached" in told["why"] or "Connection refused" in told["why"] or "not running" in told["why"], told
        for words in (("ps",), ("show", "x")):
            shown = ground.stoker(*words).ok().out
            assert "unreachable since " in shown and "next try " in shown and "failed" not in shown.split("\n")[-2], shown
        run = ground.start_stoker("run", "--on", "far", "x.py", stdin=subprocess.DEVNULL, stderr=subprocess.PIPE)
        said = b""
        while b"far has been unreachable since " not in said:
            said += run.stderr.readline() or pytest.fail(said.decode())
        sshd.again()
        assert run.wait(90) == 0
        run.stderr.close()
        until(lambda: ground.show("x")["state"] == "done", 90, "the first run")
        assert ground.show("x")["unreachable"] is None
    finally:
        sshd.close()
