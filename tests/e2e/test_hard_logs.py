"""Logs that are huge, have no newline, or are not text."""

from __future__ import annotations

import hashlib
import subprocess

import pytest
from benchmarks.ground import Ground, memory_bytes

LOUD = """
import os
block = b"".join(b"%d " % i for i in range(200000))
left = {count}
while left:
    left -= os.write(1, block[:left])
"""


def expected(count: int) -> bytes:
    block = b"".join(b"%d " % i for i in range(200000))
    return (block * (count // len(block) + 1))[:count]


@pytest.mark.slow
def test_a_log_of_two_gigabytes(ground: Ground):
    """Two gigabytes on the disk; the ends are read quickly and the server stays small."""
    ground.script("loud.py", "import os\nblock = b'x' * 99 + b'\\n'\nblock *= 10000\nfor _ in range(2000): os.write(1, block)\nos.write(1, b'the end\\n')\n")
    run = ground.detach("loud.py")
    ended = ground.wait_state(run["id"], timeout_s=100)
    size = 2_000_000_000 + 8
    assert ended["state"] == "done"
    assert ground.attempt_file(run["id"], 1, "out.log").stat().st_size == size
    assert ground.stoker("logs", "--tail", "2", run["id"]).ok().stdout == b"x" * 99 + b"\nthe end\n"
    reader = ground.start_stoker("logs", run["id"], stdout=subprocess.PIPE)
    count, most = 0, 0
    server = ground.server_pid()
    while block := reader.stdout.read(1 << 22):
        count += len(block)
        most = max(most, memory_bytes(server))
    assert (reader.wait(), count) == (0, size)
    assert most < 300_000_000, "the server held the log in memory"
    assert "error" not in ground.stoker("show", run["id"]).ok().err


def test_a_log_without_a_newline(ground: Ground):
    count = 30_000_000
    ground.script("loud.py", LOUD.format(count=count))
    run = ground.detach("loud.py")
    ground.wait_state(run["id"])
    want = hashlib.sha256(expected(count)).hexdigest()
    assert hashlib.sha256(ground.log(run["id"])).hexdigest() == want
    assert hashlib.sha256(ground.stoker("logs", run["id"]).ok().stdout).hexdigest() == want
    tail = ground.stoker("logs", "--tail", "3", run["id"]).ok().stdout
    assert expected(count).endswith(tail) and tail
    ground.stoker("show", run["id"]).ok()


def test_a_log_that_is_not_text(ground: Ground):
    noise = bytes(range(256)) * 4000 + b"\xff\xfe\xc3"
    (ground.work / "noise").write_bytes(noise)
    run = ground.detach("--", "cat", "noise")
    ground.wait_state(run["id"])
    assert ground.log(run["id"]) == noise
    assert ground.stoker("logs", "--raw", run["id"]).ok().stdout == noise
    assert ground.stoker("logs", "--raw", "-f", run["id"]).ok().stdout == noise
    assert ground.stoker("run", "--", "cat", "noise").ok().stdout == noise
    for verb in ("show", "ps"):
        assert ground.stoker(verb, *([run["id"]] if verb == "show" else ["-a"])).code == 0


def test_error_text_that_is_not_utf8(ground: Ground):
    ground.script("train.py", "import os\nos.write(2, b'\\xff\\xfe Traceback (most recent call last):\\n  File \"a\\xff.py\", line 3, in f\\nValueError: \\xfe\\n')\nraise SystemExit(1)\n")
    run = ground.detach("train.py")
    assert ground.wait_state(run["id"])["state"] == "failed"
    assert ground.stoker("show", run["id"]).code == 0


def test_a_log_read_while_it_is_written_and_the_reader_leaves(ground: Ground):
    ground.script("loud.py", "import os, time\nfor i in range(100000): os.write(1, b'%d\\n' % i); time.sleep(0.0005)\n")
    run = ground.detach("loud.py")
    follow = ground.start_stoker("logs", "-f", run["id"], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    follow.stdout.read(1000)
    follow.stdout.close()
    _, err = follow.communicate(timeout=20)
    assert b"Traceback" not in err
    assert ground.show(run["id"])["state"] == "running"


def test_the_end_of_the_log_reaches_every_follower(ground: Ground):
    ground.script("loud.py", "import time\nfor i in range(60): print('x' * 1000, i, flush=True); time.sleep(0.01)\nprint('the end')\n")
    run = ground.detach("loud.py")
    followers = [ground.start_stoker("logs", "-f", run["id"], stdout=subprocess.PIPE) for _ in range(3)]
    texts = [f.communicate(timeout=60)[0] for f in followers]
    assert len(set(texts)) == 1 and texts[0].endswith(b"the end\n") and texts[0].count(b"\n") == 61
