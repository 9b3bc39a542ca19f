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
from stoker.inside.resume.core import phases
{setup}
phases.enter(); phases.leave()
image()
{training}
print("goes on")
"""
CASES = {
    "thread": ("", "", "t = threading.Thread(target=print, name='own'); t.start(); t.join()", "own"),
    "thread from set-up": ("", "e = threading.Event(); threading.Thread(target=lambda: e.wait() and seen.append(1), daemon=True, name='early').start(); seen = []", "", "early"),
    "thread before torch": ("e = threading.Lock(); e.acquire(); threading.Thread(target=e.acquire, daemon=True, name='first').start()", "", "", "first"),
    "subprocess": ("import subprocess", "subprocess.run(['true'])", "subprocess.run(['true'])", "another program"),
    "system": ("", "", "os.system('true')", "another program"),
    "fork": ("", "", "os.fork() or os._exit(0)", "another program"),
    "socket": ("import socket", "", "s = socket.socket(); s.settimeout(1); s.connect_ex(('127.0.0.1', 9))", "network"),
    "ctypes": ("import ctypes", "ctypes.CDLL('libc.so.6')", "ctypes.CDLL('libm.so.6')", "libm"),
    "sqlite": ("import sqlite3", "", "sqlite3.connect('own.db')", "own.db"),
    "compile": ("", "torch.compile(torch.nn.Linear(1, 1))", "", "torch.compile"),
    "jit": ("", "torch.jit.script(torch.nn.Linear(1, 1))", "", "torch.jit"),
    "signal": ("import signal", "signal.signal(signal.SIGUSR1, lambda *a: None)", "os.kill(os.getpid(), signal.SIGUSR1)", "signal handler"),
    "interrupt": ("import signal", "", "try:\n    os.kill(os.getpid(), signal.SIGINT); time.sleep(1)\nexcept KeyboardInterrupt: pass", "the script was interrupted (KeyboardInterrupt)"),
}


@pytest.mark.parametrize("name", CASES)
def test_refused_with_its_reason(tmp_path: Path, name: str) -> None:
    before, setup, training, told = CASES[name]
    done = live(tmp_path / "run", BEGIN.format(before=before, setup=setup, training=training))
    assert done.returncode == 0, done.stderr
    assert "goes on" in done.stdout, done.stdout
    state = json.loads((tmp_path / "run" / "resume" / "state.json").read_text())
    assert told in state["reason"], state


HARMLESS = """
import json, queue, socket
stop, lines = threading.Event(), queue.Queue()
def waits():
    while not stop.wait(0.05):
        time.monotonic()
def sends(address):
    to = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    while (line := lines.get()) is not None:
        to.sendto(json.dumps(line).encode(), address)
    to.close()
"""
THREADS = {
    "waits": ("waits", "()", "", ""),
    "an event": ("stop.wait", "()", "", ""),
    "sends": ("sends", "(near.getsockname(),)", "lines.put((1, 0.5)); assert near.recv(99) == b'[1, 0.5]'", ""),
    "calls what it is given": ("sends", "(near.getsockname(),)", "lines.put(type('Own', (str,), {'__reduce__': print, 'format': print})('a')); near.recv(9)", ""),
    "writes a variable": ("counts", "()", "", "runs during training"),
    "writes through an alias": ("adds", "(seen,)", "", "runs during training"),
    "moves an iterator": ("moves", "()", "", "runs during training"),
    "a method of what it is given": ("formats", "()", "lines.put(Own()); done.wait(20)", "runs during training"),
}


@pytest.mark.parametrize("name", THREADS)
def test_only_threads_that_write_nothing_are_no_reason(tmp_path: Path, name: str) -> None:
    target, given, training, told = THREADS[name]
    setup = HARMLESS + """
seen, numbers, done = [], iter(range(9)), threading.Event()
near = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); near.bind(("127.0.0.1", 0)); near.settimeout(20)
class Own:
    def format(self):
        done.set()
def counts():
    global seen
    seen = stop.wait()
def adds(held):
    stop.wait()
    held += [1]
def moves():
    stop.wait()
    next(numbers)
def formats():
    while (thing := lines.get()) is not None:
        thing.format()
""" + f"t = threading.Thread(target={target}, args={given}); t.start()\n"
    done = live(tmp_path / "run", BEGIN.format(before="", setup=setup, training=f"{training}\nstop.set(); lines.put(None); t.join(20)\nphases.log.flush()"))
    assert done.returncode == 0, done.stderr
    assert "goes on" in done.stdout, done.stderr
    state = tmp_path / "run" / "resume" / "state.json"
    reason = json.loads(state.read_text()).get("reason") or "" if state.exists() else ""
    assert told in reason if told else not reason, reason


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
