"""The afternoon of a laptop: a rented box, a training, the lid closed in the middle, back later. And two laptops on one box."""

from __future__ import annotations

import shutil
import tempfile
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest
from benchmarks.ground import Ground, numbered, until

from real.sshd import Sshd

TRAIN = """
import os, pathlib, time
data = pathlib.Path("data/numbers.txt").read_text().split()
for i in range(60):
    print("line", i, flush=True)
    if i % 10 == 9:
        pathlib.Path("checkpoints").mkdir(exist_ok=True)
        pathlib.Path("checkpoints/%d.pt" % i).write_bytes(data[i % len(data)].encode() * 1000)
    time.sleep(0.05)
"""


class Box:
    """A machine behind an sshd of its own, whose locks are nobody else's; its `off` command appends a line to a file."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.identity = folder, uuid.uuid4().hex
        self.sshd = Sshd(folder / "sshd", variables=(f"STOKER_IDENTITY={self.identity}",))
        self.line = folder / "off"

    def words(self, ground: Ground) -> list[str]:
        """What one types after `ssh` to reach it."""
        options = "".join(f"{option.replace('=', ' ', 1)}\n" for option in self.sshd.options)
        (ground.root / "ssh").write_text(f"Host box\nHostName 127.0.0.1\n{options}")
        return ["--root", f"{self.folder}/far", "--", "-F", f"{ground.root}/ssh", "box"]

    @property
    def off(self) -> str:
        return f"sh -c 'echo off >> {self.line}'"

    def lines(self) -> int:
        return len(self.line.read_text().splitlines()) if self.line.exists() else 0

    def close(self) -> None:
        self.sshd.close()
        for path in [path for place in ("/run/lock", "/tmp") for path in Path(place).glob(f"stoker-*-{self.identity}*")]:
            path.unlink()
        shutil.rmtree(self.folder, ignore_errors=True)


@pytest.fixture
def box() -> Iterator[Box]:
    made = Box(Path(tempfile.mkdtemp(prefix="sb-", dir="/tmp")))
    yield made
    made.close()


@pytest.fixture
def laptops() -> Iterator[tuple[Ground, Ground]]:
    pair = (Ground(), Ground())
    yield pair
    left = [line for ground in pair for line in ground.close()]
    assert not left, "processes were left behind: " + "; ".join(left)


@pytest.mark.real("sshd")
def test_the_afternoon_of_a_laptop(ground: Ground, box: Box):
    added = ground.stoker("machine", "add", "box", "--off", box.off, "--off-after", "0s", *box.words(ground)).ok()
    assert "box will be switched off after the files of its last run have been copied to this machine, at the latest 12h after" in added.err
    ground.script("data/numbers.txt", "1 22 333")
    ground.script("train.py", TRAIN)
    run = ground.stoker("run", "-d", "--json", "--on", "box", "--time", "10m", "train.py").json()
    far = box.folder / "far" / "runs" / run["id"] / "attempts" / "1"
    until(lambda: (far / "out.log").exists() and b"line 9\n" in (far / "out.log").read_bytes(), 60, "the training")
    ground.kill_server()
    box.sshd.halt()  # the lid is closed
    until((far / "exit.json").exists, 60, "the end of the training, with nobody looking")
    until((box.folder / "far" / "off" / "watchman.json").exists, 60, "the watchman")
    assert box.lines() == 0  # nothing is at home yet
    box.sshd.again()
    ended = ground.stoker("wait", "train", timeout_s=90)
    assert ended.code == 0, ended.err
    until(lambda: box.lines() == 1, 90, "the machine to be switched off")
    for i in range(9, 60, 10):
        assert len((ground.work / "checkpoints" / f"{i}.pt").read_bytes()) >= 1000
    box.sshd.halt()  # it is off
    assert ground.stoker("logs", "train").ok().stdout == numbered(60)
    shown = ground.show("train")
    assert (shown["state"], shown["reason"], shown["attempts"]) == ("done", "exited", 1) and shown["limits"]["time_s"] == 600
    assert box.lines() == 1
    box.sshd.again()
    ground.stoker("machine", "rm", "--yes", "box").ok()


@pytest.mark.real("sshd")
def test_two_laptops_and_one_box(laptops: tuple[Ground, Ground], box: Box):
    """The second one sees, stops and removes nothing of the first, until it takes over; then the first one does no harm."""
    lost, new = laptops
    for ground in laptops:
        ground.stoker("machine", "add", "box", *box.words(ground)).ok()
        ground.script("train.py", "import time\nopen('made.bin', 'w').write('x')\nprint('begun', flush=True)\ntime.sleep(600)\n")
    run = lost.stoker("run", "-d", "--json", "--on", "box", "train.py").json()
    until(lambda: lost.show("train")["state"] == "running", 60, "the run")
    assert new.stoker("ps", "-a", "--json").json() == [] and new.stoker("stop", run["id"]).code == 3
    lost.kill_server()  # the laptop is lost
    listed = new.stoker("machine", "adopt", "box")
    assert listed.code == 2 and run["id"] in listed.out and "@" in listed.out and "stoker machine adopt --yes box" in listed.err
    taken = new.stoker("machine", "adopt", "--yes", "--json", "box").json()
    assert [each["id"] for each in taken] == [run["id"]]
    until(lambda: new.show(run["id"])["state"] == "running", 60, "the run that was taken over")
    told = until(lambda: s if "taken over by " in (s := lost.show("train")["sentence"]) else None, 60, "the word to the first owner")
    assert "this state folder can no longer stop the run" in told
    assert lost.stoker("stop", "train").code == 6
    lost.stoker("rm", "--yes", "--force", "train").ok()
    assert new.show(run["id"])["state"] == "running"
    new.stoker("stop", "--force", run["id"]).ok()
    assert new.show(run["id"])["reason"] == "stopped_by_user"
    until((lost.work / "made.bin").exists, 60, "its files, in the folder of the same path")
