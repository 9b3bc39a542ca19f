"""The local terminal is always given back as it was found, whatever happens to the client."""

from __future__ import annotations

import os
import signal
import sys
import termios
from collections.abc import Iterator
from pathlib import Path

import pytest
from benchmarks.ground import Terminal as Screen
from benchmarks.ground import alive, children, kill, until

PROGRAM = """
import os, signal, sys, time
from stoker.cli.run.terminal import Terminal
terminal = Terminal(0)
{}
"""
RAW = "assert terminal.raw()\nos.write(1, b'raw\\n')\n"


@pytest.fixture
def screens() -> Iterator[list[Screen]]:
    made: list[Screen] = []
    yield made
    for screen in made:
        if screen.proc.poll() is None:
            screen.proc.kill()
        screen.proc.wait()
        screen.close()


def start(screens: list[Screen], body: str) -> Screen:
    screen = Screen([sys.executable, "-c", PROGRAM.format(body)], Path("/"), dict(os.environ))
    screens.append(screen)
    return screen


def is_raw(settings: list) -> bool:
    return not settings[3] & (termios.ECHO | termios.ICANON | termios.ISIG)


def test_input_is_raw_and_output_stays_cooked(screens):
    screen = start(screens, RAW + "print(os.read(0, 10))\nterminal.restore()")
    screen.expect(b"raw\r\n")
    now = screen.settings()
    assert is_raw(now)
    assert now[1] == screen.initial[1] and now[1] & termios.OPOST
    screen.send(b"\x03\x1a\x13\r")
    assert screen.wait() == 0
    assert b"b'\\x03\\x1a\\x13\\r'" in screen.seen
    assert screen.settings() == screen.initial


@pytest.mark.parametrize("end", ["raise SystemExit(3)", "raise ValueError('crash')", "terminal.restore(); terminal.restore(); terminal.raw()", "sys.exit()"])
def test_given_back_at_the_end_of_the_program(screens, end: str):
    screen = start(screens, RAW + end)
    screen.wait()
    assert screen.settings() == screen.initial


def test_given_back_after_sigkill(screens):
    screen = start(screens, RAW + "time.sleep(600)")
    screen.expect(b"raw\r\n")
    watchers = list(children(screen.proc.pid))
    assert len(watchers) == 1
    kill(screen.proc.pid)
    until(lambda: screen.settings() == screen.initial, 10, "the old settings")
    until(lambda: not alive(watchers[0]), 10, "the end of the watcher")


def test_settings_that_somebody_else_made_are_left_alone(screens):
    """A shell notices the death of the client too, and sets its own line editing: that must not be overwritten."""
    screen = start(screens, RAW + "time.sleep(600)")
    screen.expect(b"raw\r\n")
    watcher = next(children(screen.proc.pid))
    theirs = list(screen.settings())
    theirs[3] |= termios.ECHO
    termios.tcsetattr(screen.fd, termios.TCSANOW, theirs)
    kill(screen.proc.pid)
    until(lambda: not alive(watcher), 10, "the end of the watcher")
    assert screen.settings()[3] == theirs[3]


def test_no_watcher_is_left_when_the_terminal_was_given_back(screens):
    screen = start(screens, RAW + "terminal.restore()\nos.write(1, b'cooked\\n')\ntime.sleep(600)")
    screen.expect(b"cooked\r\n")
    assert list(children(screen.proc.pid)) == []


def test_in_the_background_nothing_is_changed(screens):
    """A shell puts a job into the background by another process group; touching the terminal from there would stop the job."""
    screen = start(screens, "import subprocess\nother = subprocess.Popen(['sleep', '600'], process_group=0)\nos.tcsetpgrp(0, other.pid)\n"
                   "print('raw:', terminal.raw(), flush=True)\nother.kill(); other.wait()")
    screen.expect(b"raw: False")
    assert screen.wait() == 0
    assert screen.settings() == screen.initial


def test_restoring_from_the_background_does_not_stop_the_program(screens):
    screen = start(screens, "import subprocess\n" + RAW + "signal.signal(signal.SIGTTOU, signal.SIG_IGN)\n"
                   "other = subprocess.Popen(['sleep', '600'], process_group=0)\nos.tcsetpgrp(0, other.pid)\nsignal.signal(signal.SIGTTOU, signal.SIG_DFL)\n"
                   "terminal.restore()\nother.kill(); other.wait()")
    assert screen.wait() == 0
    assert screen.settings() == screen.initial


def test_the_size_is_that_of_the_terminal(screens):
    screen = start(screens, "print(terminal.size())")
    screen.expect(b"(24, 80)")
    screen.wait()
    assert signal.getsignal(signal.SIGWINCH) in (signal.SIG_DFL, None)
