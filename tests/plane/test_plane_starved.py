"""A machine that can start no thread for a while: work that was handed out then is done, once threads can be had."""

from __future__ import annotations

import os
import sys
import threading
import time
from pathlib import Path

from stoker.base.config import Home
from stoker.plane.control import reconciler
from stoker.plane.control.agenda import Again
from stoker.plane.service import Service


def test_what_failed_is_due_after_its_pause_and_once():
    again = Again(0.5)
    again.add("box", 10.0)
    again.add("box", 10.4)
    again.add("lab", 10.3)
    assert sorted(again.moments()) == [10.5, 10.8]
    assert again.take(10.4) == [] and again.take(10.5) == ["box"] and again.take(10.5) == []
    assert again.take(11.0) == ["lab"] and again.moments() == []


def test_a_run_begins_once_threads_can_be_had_again(short_tmp: Path, monkeypatch):
    begin, scarce, refused = threading.Thread.start, threading.Event(), []

    def start(thread: threading.Thread) -> None:
        if scarce.is_set() and thread.name.startswith("plane-"):
            refused.append(thread.name)
            raise RuntimeError("can't start new thread")  # as Python does where the limit of processes is reached
        begin(thread)

    monkeypatch.setattr(threading.Thread, "start", start)
    monkeypatch.setattr(reconciler, "POLL_S", 1e6)  # the next round of looks would make a thread too, much later
    service = Service(Home(short_tmp / "h"))
    try:
        scarce.set()
        spec = {"command": [sys.executable, "-c", "print(1)"], "folder": str(short_tmp)}
        run_id = service.submit(spec, {}, {"PATH": os.environ["PATH"]}, None)["id"]
        deadline = time.monotonic() + 60
        while not refused and time.monotonic() < deadline:
            time.sleep(0.01)
        assert refused
        scarce.clear()
        assert service.wait(run_id, 60)["state"] == "done"
    finally:
        scarce.clear()
        service.close()


def test_a_machine_without_runs_is_forgotten_by_the_rounds_of_looks(short_tmp: Path):
    """Else its next run, minutes later, is looked at before it has begun, and once more after that: two processes in the way of its start."""
    service = Service(Home(short_tmp / "h"))
    try:
        spec = {"command": [sys.executable, "-c", "print(1)"], "folder": str(short_tmp)}
        run_id = service.submit(spec, {}, {"PATH": os.environ["PATH"]}, None)["id"]
        assert service.wait(run_id, 60)["state"] == "done"
        control, deadline = service._reconciler, time.monotonic() + 60
        while control._care and time.monotonic() < deadline:
            time.sleep(0.01)
        assert not control._care and not control._poll_at
    finally:
        service.close()
