"""`stoker logs`: both streams as one text in the order in which they came, and of a progress bar its last frame."""

from __future__ import annotations

import subprocess

import pytest
from benchmarks.ground import Ground, until

from stoker.cli.frames import Frames

# Prints to both streams in turn, each time when the line before it is in the log; then a bar, and a traceback.
MIXED = """
import os, sys, time
logs = os.path.join(os.environ["STOKER_RUN_DIR"], "attempts", "1")
def say(fd, name, text):
    os.write(fd, text)
    end = time.monotonic() + 30
    while not open(os.path.join(logs, name), "rb").read().endswith(text):
        assert time.monotonic() < end
        time.sleep(0.002)
for i in range(3):
    say(1, "out.log", b"out %d\\n" % i)
    say(2, "err.log", b"err %d\\n" % i)
say(2, "err.log", b"half ")
say(1, "out.log", b"between\\n")
say(2, "err.log", b"a line\\n")
for i in range(20000):
    os.write(2, b"\\r%5d of 20000 [" % i + b"#" * 60)
say(2, "err.log", b" whole\\n")
say(1, "out.log", b"after\\n")
raise ValueError("the shapes do not fit")
"""
ORDER = "".join(f"out {i}\nerr {i}\n" for i in range(3)) + "between\nhalf a line\n"


def test_both_streams_are_one_text_in_order(ground: Ground):
    ground.script("mixed.py", MIXED)
    assert ground.stoker("run", "--name", "mixed", "mixed.py").code == 1
    text = ground.stoker("logs").ok()
    assert text.err == "stoker: the newest run: mixed\n"
    bar = "19999 of 20000 [" + "#" * 60 + " whole\n"
    head, _, trace = text.out.partition("after\n")
    assert head == ORDER + bar and trace.startswith("Traceback") and trace.endswith("ValueError: the shapes do not fit\n")
    assert ground.stoker("logs", "mixed", "--out").ok().out == "out 0\nout 1\nout 2\nbetween\nafter\n"
    assert ground.stoker("logs", "mixed", "--err").ok().out.startswith("err 0\nerr 1\nerr 2\nhalf a line\n" + bar + "Traceback")
    raw = ground.stoker("logs", "mixed", "--raw").ok().stdout
    assert len(raw) > 20000 * 60 and raw.replace(b"\r", b"\n").endswith(trace.encode())
    last = ground.stoker("logs", "-n", "40", "mixed").ok().out
    assert last == text.out and ground.stoker("logs", "-n", "1", "mixed").ok().out == "ValueError: the shapes do not fit\n"
    assert "stoker logs" in ground.stoker("show", "mixed").ok().out.splitlines()[1]


def test_both_streams_are_followed_over_the_death_of_the_server(ground: Ground):
    ground.script("two.py", "import os, sys, time\nfor i in range(60):\n    os.write(1 + i % 2, b'line %d\\n' % i)\n    time.sleep(0.05)\n")
    run = ground.start_stoker("run", "--name", "two", "two.py", stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    until(lambda: ground.stoker("show", "two").code == 0, 30, "the run")
    follow = ground.start_stoker("logs", "-f", "two", stdout=subprocess.PIPE)
    assert follow.stdout.readline() == b"line 0\n"
    ground.kill_server()
    assert sorted(follow.stdout.read().splitlines()) == sorted(b"line %d" % i for i in range(1, 60))
    assert follow.wait(30) == 0 and run.wait(30) == 0
    run.stdout.close()
    run.stderr.close()


BAR = [b"begin\n", b"\r 10%", b"\r 50%\r 60", b"%\r100%\n", b"window\r\n", b"a\rb\r\n", b"left \r"]


@pytest.mark.parametrize(("raw", "live", "shown"), [
    (False, False, b"begin\n100%\nwindow\r\nb\r\nleft \r"), (True, False, b"".join(BAR)),
    (False, True, b"begin\n 10%\r 60\r100%\nwindow\r\nb\r\nleft \r")])
def test_of_a_bar_the_last_frame_is_shown(capfdbinary: pytest.CaptureFixture, raw: bool, live: bool, shown: bytes):
    frames = Frames(raw, live)
    for piece in BAR:
        frames.write(piece)
    frames.end()
    assert capfdbinary.readouterr().out == shown
