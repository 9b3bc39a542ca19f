"""Nothing that a person waits for is silent: a target that cannot be reached, and a stop that takes its time."""

from __future__ import annotations

import signal
import socket
import subprocess

import pytest
from benchmarks.ground import Ground, until


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
        assert b"second Ctrl-C: leave at once; Ctrl-Z: detach" in said
        run.send_signal(signal.SIGTERM)
        until(lambda: run.poll() is not None or run.send_signal(signal.SIGTERM), 30, "the end of the waiting")
        assert run.returncode in (128 + signal.SIGTERM, -signal.SIGTERM)
        run.stdout.close()
        run.stderr.close()
        ground.stoker("server", "stop").ok()  # the run that waits would be stopped for as long as its machine is silent
        until(lambda: not ground.server_pids(), 20, "the end of the server")


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
