"""The watchman that switches the machine off: when nobody works there, whoever above it is dead; once, and never under a run."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

import stoker.agent

AGENT = str(Path(stoker.agent.__file__).parent)
A, B = "a" * 16, "b" * 16


def until(condition, what: str, timeout_s: float = 60.0):
    deadline = time.monotonic() + timeout_s
    while not (value := condition()):
        assert time.monotonic() < deadline, f"waited in vain for {what}"
        time.sleep(0.03)
    return value


class Box:
    """A machine of its own, as far as the agent can tell, with a state folder; its `off` command appends a line to a file."""

    def __init__(self, folder: Path, identity: str) -> None:
        self.root, self.identity = folder, identity
        self.line = folder.parent / f"off-{identity}"
        (folder / "runs").mkdir(parents=True)

    def agent(self, *words: str, body: dict | None = None, code: int = 0) -> dict:
        env = {"PATH": os.environ["PATH"], "STOKER_IDENTITY": self.identity}
        stdin = json.dumps(body).encode() if body is not None else b""
        done = subprocess.run([sys.executable, "-I", "-S", AGENT, *words], input=stdin, capture_output=True, env=env, timeout=60, check=False)
        assert done.returncode == code, (words, done.stdout, done.stderr)
        return json.loads(done.stdout.splitlines()[-1])

    def order(self, owner: str = A, **more) -> dict:
        command = ["sh", "-c", f"echo off >> '{self.line}'"]
        return {"owner": {"id": owner, "hint": "me@laptop"}, "command": command, "latest_s": 3600.0, "after_s": 0.0, "disk_survives": False, **more}

    def stage(self, run_id: str, seconds: float) -> str:
        folder = self.root / "runs" / run_id
        folder.mkdir()
        spec = {"id": run_id, "folder": str(self.root), "command": ["sleep"], "argv": ["sleep", str(seconds)], "copy": False}
        for name, text in (("env", ""), ("limits.json", '{"seq": 1}'), ("spec.json", json.dumps(spec))):
            (folder / name).write_text(text)
        return str(folder)

    def start(self, run_id: str, seconds: float, order: dict | None, code: int = 0) -> dict:
        words = ["start", self.stage(run_id, seconds), "1"]
        return self.agent(*words, *(["--order"] if order else []), body=order, code=code)

    def off(self, what: str, body: dict | None = None, code: int = 0) -> dict:
        return self.agent("off", what, str(self.root), body=body or {}, code=code)

    def look(self) -> dict:
        return self.off("look")

    def ended(self, run_id: str) -> None:
        until((self.root / "runs" / run_id / "attempts" / "1" / "exit.json").exists, f"the end of {run_id}")

    def home(self, run_id: str) -> None:
        self.off("home", {"runs": {run_id: 1}})

    def lines(self) -> int:
        return len(self.line.read_text().splitlines()) if self.line.exists() else 0

    def state(self, name: str) -> dict:
        return until(lambda: s if (s := self.look()["state"]).get("state") == name else None, f"the watchman {name}")

    def close(self) -> None:
        for run in (self.root / "runs").iterdir():
            self.agent("stop", str(run), "--grace", "0", "0")
        for order in (self.root / "off").glob("order-*.json"):
            self.off("withdraw", {"owner": order.stem.removeprefix("order-")})
        assert not self.look()["watchman"]


@pytest.fixture
def box() -> Iterator[Box]:
    """Its identity is nobody else's, so other tests do not keep it on."""
    folder = Path(tempfile.mkdtemp(prefix="so-", dir="/tmp"))
    made = Box(folder / "r", uuid.uuid4().hex)
    yield made
    made.close()
    shutil.rmtree(folder)
    for place in ("/run/lock", "/tmp"):
        for path in Path(place).glob("stoker-*-*"):
            if made.identity in path.name:
                path.unlink()


def test_off_waits_for_the_files_and_runs_once(box: Box):
    box.start("one", 0.2, box.order())
    box.ended("one")
    told = box.state("waiting")
    assert (told["why"], told["owed"]) == ("owed", ["one"]) and 3000 < told["off_at"] - time.time() < 3601 and box.lines() == 0
    box.home("one")
    told = box.state("off")
    until(box.lines, "the command")
    refused = box.start("two", 1, box.order(), code=1)
    assert refused["error"] == "switching_off"
    assert box.look()["state"]["ran"][0]["code"] == 0 and box.lines() == 1


def test_off_comes_at_the_latest_with_everything_above_dead(box: Box):
    box.start("one", 0.2, box.order(latest_s=2.0))
    until(lambda: box.lines() == 1, "the command")
    assert box.look()["owed"] == ["one"]


def test_never_while_a_run_of_any_state_folder_lives_or_waits(box: Box):
    """The other state folder has asked for nothing."""
    other = Box(box.root.parent / "other", box.identity)
    other.start("theirs", 600, None)
    box.start("one", 0.2, box.order(latest_s=1.0, disk_survives=True))
    box.ended("one")
    box.state("working")
    box.off("queue", {"owner": B, "count": 2})
    box.off("order", box.order(latest_s=3600.0, disk_survives=True))
    other.agent("stop", str(other.root / "runs" / "theirs"), "--grace", "0", "0")
    told = until(lambda: s if (s := box.look()["state"]).get("why") == "queued" else None, "the wait for those in the queue")
    assert told["off_at"] - time.time() > 3000 and box.off("now", code=1)["detail"] == "runs are waiting to start on the machine"
    box.off("queue", {"owner": B, "count": 0})
    until(lambda: box.lines() == 1, "the command, at once since the disk survives")


def test_a_killed_watchman_is_replaced_and_a_withdrawn_order_ends_it(box: Box):
    box.start("one", 0.2, box.order())
    box.ended("one")
    first = box.state("waiting")
    os.kill(first["watchman"]["pid"], signal.SIGKILL)
    until(lambda: box.look()["state"]["watchman"] != first["watchman"], "another watchman")
    again = box.state("waiting")
    assert abs(again["latest_at"] - first["latest_at"]) < 15  # it counts from when the machine fell quiet
    assert box.agent("off", "withdraw", str(box.root), body={"owner": A}) == {}
    assert not box.look()["watchman"] and box.lines() == 0


def test_asked_for_now_it_comes_now_but_not_under_a_run(box: Box):
    box.start("one", 600, box.order())
    assert "runs are active" in box.off("now", code=1)["detail"]
    box.agent("stop", str(box.root / "runs" / "one"), "--grace", "0", "0")
    box.ended("one")
    assert until(lambda: box.off("now"), "the answer")["owed"] == ["one"]
    until(lambda: box.lines() == 1, "the command")


def test_a_command_that_fails_is_told_and_tried_again(box: Box):
    box.start("one", 0.2, box.order(command=["/nowhere/off"]))
    box.home("one")
    told = box.state("failed")
    assert told["ran"][-1]["code"] == 127 and "No such file" in (box.root / "off" / "log").read_text()


def test_who_asks_may_not_touch_the_runs_of_another(box: Box):
    run = box.stage("one", 600)
    Path(run, "owner.json").write_text(json.dumps({"id": A, "hint": "mate@lab"}))
    for words in (("start", run, "1"), ("stop", run), ("rm", run)):
        assert box.agent("--owner", B, *words, code=1) == {"error": "not_yours", "detail": "one belongs to mate@lab"}
    box.agent("--owner", A, "start", run, "1")
    assert box.agent("adopt", str(box.root), body={"owner": {"id": B, "hint": "me@new"}, "runs": ["one", "gone"]}) == {"taken": ["one"]}
    assert box.agent("poll", str(box.root), "one")["owner"] == {"id": B, "hint": "me@new"}
    assert box.agent("--owner", A, "stop", run, code=1)["detail"] == "one belongs to me@new"
