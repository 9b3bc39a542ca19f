"""What exact resume does not understand is said while a run is young, and ends the images before it where it may have changed the world."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
from lives import live

BEGIN = """
import os, sys, threading, time
{before}
begin()
import torch
from stoker.hooks.ghost import life
{setup}
life.enter(); life.leave()
image()
{training}
print("goes on")
"""
CASES = {
    "thread": ("", "", "t = threading.Thread(target=print, name='own'); t.start(); t.join()", "own"),
    "thread from set-up": ("", "e = threading.Event(); threading.Thread(target=e.wait, daemon=True, name='early').start()", "", "early"),
    "subprocess": ("import subprocess", "subprocess.run(['true'])", "subprocess.run(['true'])", "another program"),
    "system": ("", "", "os.system('true')", "another program"),
    "fork": ("", "", "os.fork() or os._exit(0)", "another program"),
    "socket": ("import socket", "", "s = socket.socket(); s.settimeout(1); s.connect_ex(('127.0.0.1', 9))", "network"),
    "ctypes": ("import ctypes", "ctypes.CDLL('libc.so.6')", "ctypes.CDLL('libm.so.6')", "libm"),
    "sqlite": ("import sqlite3", "", "sqlite3.connect('own.db')", "own.db"),
    "compile": ("", "torch.compile(torch.nn.Linear(1, 1))", "", "torch.compile"),
    "jit": ("", "torch.jit.script(torch.nn.Linear(1, 1))", "", "torch.jit"),
    "signal": ("import signal", "signal.signal(signal.SIGUSR1, lambda *a: None)", "os.kill(os.getpid(), signal.SIGUSR1)", "signal handler"),
    "interrupt": ("import signal", "", "try:\n    os.kill(os.getpid(), signal.SIGINT); time.sleep(1)\nexcept KeyboardInterrupt: pass", "signal"),
}


@pytest.mark.parametrize("name", CASES)
def test_refused_with_its_reason(tmp_path: Path, name: str) -> None:
    before, setup, training, told = CASES[name]
    done = live(tmp_path / "run", BEGIN.format(before=before, setup=setup, training=training))
    assert done.returncode == 0, done.stderr
    assert "goes on" in done.stdout, done.stdout
    state = json.loads((tmp_path / "run" / "resume" / "state.json").read_text())
    assert told in state["reason"], state


def test_ordinary_things_are_no_reason(tmp_path: Path) -> None:
    done = live(tmp_path / "run", BEGIN.format(
        before="import subprocess, socket, signal", setup="subprocess.run(['true']); t = threading.Thread(target=print); t.start(); t.join()",
        training="signal.signal(signal.SIGUSR1, print); assert signal.getsignal(signal.SIGUSR1) is print; torch.randn(3).sum()"))
    assert done.returncode == 0, done.stderr
    state = tmp_path / "run" / "resume" / "state.json"
    assert not state.exists() or not json.loads(state.read_text()).get("reason")


def test_a_program_that_set_up_does_not_wait_for_is_named_and_no_reason(tmp_path: Path) -> None:
    done = live(tmp_path / "run", BEGIN.format(
        before="import subprocess", setup="subprocess.run(['true']); os.system('true'); os.popen('cat').close(); subprocess.Popen(['env', 'true']).wait()", training=""))
    assert done.returncode == 0, done.stderr
    state = json.loads((tmp_path / "run" / "resume" / "state.json").read_text())
    assert [Path(each["what"]).name for each in state["again"]] == ["sh", "env"], state  # the other two are run once
    assert all("script.py:" in each["where"] for each in state["again"]), state
    assert not state.get("reason"), state


def test_what_a_program_did_outside_ends_the_image_before_it(tmp_path: Path) -> None:
    """The program may have changed any file: an image from before it is not gone back to."""
    script = BEGIN.format(before="", setup="", training="os.system('echo x >> out.txt')\nif os.environ['STOKER_ATTEMPT'] == '1': os.kill(os.getpid(), 9)")
    assert live(tmp_path / "run", script).returncode == -9
    done = live(tmp_path / "run", script, attempt=2)
    assert done.returncode == 3 and "another program" in done.stderr
