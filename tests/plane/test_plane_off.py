"""What the server tells machines that switch themselves off: of runs that wait for them here, and of files that have come."""

from __future__ import annotations

import functools
import json
import os
import shutil
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from real.patience import until as until_within
from real.sshd import Sshd
from stoker.base.config import Home
from stoker.base.errors import TargetError
from stoker.base.units import iso
from stoker.hosts.ssh import SshHost
from stoker.plane import service, targets
from stoker.plane.control.silences import silent_before
from stoker.plane.service import Service

pytestmark = pytest.mark.real("sshd")


until = functools.partial(until_within, timeout_s=60.0)


class Laptop:
    """A service of its own, and a machine behind sshd whose locks are nobody else's; `off` there appends a line to a file."""

    def __init__(self, folder: Path, sshd: Sshd, name: str = "h", **table: object) -> None:
        self.folder, self.sshd = folder, sshd
        self.far, self.line, self.home = folder / "far", folder / "off", Home(folder / name)
        for place in (folder / "w", self.home.path):
            place.mkdir(mode=0o700, exist_ok=True)
        self.off = f"sh -c 'echo off >> {self.line}'"
        keys = {"host": "127.0.0.1", "root": str(self.far), "off": self.off, "off_after": "0s", "off_latest": "1h", **table}
        lines = [f"{key} = {json.dumps(value)}" for key, value in keys.items() if value]
        self.home.config.write_text("\n".join(["[targets.box]", *lines, ""]))
        self.service = Service(self.home)

    def submit(self, name: str, text: str = "pass", **more) -> dict:
        spec = {"command": ["python3", "-c", text], "folder": str(self.folder / "w"), "target": "box", "name": name, "copy": True, **more}
        return self.service.submit(spec, {}, {"PATH": os.environ["PATH"]}, None)

    def final(self, name: str) -> dict:
        return until(lambda: r if (r := self.service.run(name))["state"] in ("done", "failed", "stopped") else None, f"the end of {name}")

    def running(self, name: str) -> dict:
        return until(lambda: r if (r := self.service.run(name))["state"] == "running" else None, f"{name} to run")

    def watchman(self) -> dict:
        return self.service._targets.get("box").backend.power("look")

    def again(self) -> None:
        """Another server takes over."""
        self.service.close()
        self.service = Service(self.home)

    def stored(self) -> str | None:
        """Since when the machine is silent, as the next server will read it."""
        since = silent_before(self.service._store).get("box")
        return since and iso(since)

    def notes(self) -> list[int]:
        return [json.loads(path.read_bytes())["count"] for path in (self.far / "off").glob("queue-*.json")]

    def close(self) -> None:
        for run in self.service.runs():
            self.service.stop(run["id"], force=True)
        for run in self.service.runs():
            self.final(run["id"])
        self.service.close()


@pytest.fixture
def laptop(monkeypatch) -> Iterator[Callable[..., Laptop]]:
    """laptop(name, ...) -> a Laptop, with these keys in the table of the machine that all of them share; `off=""` for none."""
    folder, identity, made = Path(tempfile.mkdtemp(prefix="so-", dir="/tmp")), uuid.uuid4().hex, []
    sshd = Sshd(folder / "sshd", variables=(f"STOKER_IDENTITY={identity}",))
    monkeypatch.setattr(targets, "SshHost", functools.partial(SshHost, options=(*sshd.options, "ConnectTimeout=2")))

    def make(name: str = "h", **table: object) -> Laptop:
        made.append(Laptop(folder, sshd, name, **table))
        return made[-1]

    yield make
    for each in made[-1:]:  # the others are lost
        if each.service._targets.config().targets.get("box"):
            each.service.machines.withdraw("box")
        each.close()
    sshd.close()
    shutil.rmtree(folder, ignore_errors=True)
    for path in [path for place in ("/run/lock", "/tmp") for path in Path(place).glob("stoker-*-*") if identity in path.name]:
        path.unlink()


def test_a_run_that_waits_only_at_home_keeps_its_machine_on(laptop):
    """It waits for a run on this machine here. The server goes meanwhile, and the next one takes the note back."""
    box = laptop()
    gate = box.service.submit({"command": ["sleep", "600"], "folder": str(box.folder / "w"), "name": "gate"}, {}, {"PATH": os.environ["PATH"]}, None)
    box.submit("second", after_any=[gate["id"]])
    until(lambda: box.notes() == [1], "the machine to hear of it")
    box.submit("first")
    box.final("first")
    state = until(lambda: s if (s := box.watchman()["state"]).get("why") == "queued" else None, "the watchman to wait")
    assert 3000 < state["off_at"] - time.time() < 3601 and not box.line.exists()
    box.again()
    assert box.notes() == [1]
    box.service.stop("gate", force=True)
    assert box.final("second")["state"] == "done"
    until(lambda: box.notes() == [], "the note to be taken back")
    until(box.line.exists, "the machine to be switched off")


def test_the_log_of_an_ended_run_is_here_when_its_machine_is_gone(laptop):
    """Without an `off` command, and also after the machine was taken out of config.toml."""
    box = laptop(off="")
    box.submit("far", "print('first')")
    box.final("far")
    until(lambda: box.service.wait("far", 30, outputs=True)["outputs"]["state"] == "settled", "its files")
    box.sshd.halt()
    assert b"".join(box.service.logs("far")) == b"".join(box.service.logs("far", tail=5)) == b"first\n"
    box.home.config.write_text("")
    assert b"".join(box.service.logs("far", attempt=1)) == b"first\n"


def test_a_log_above_the_limit_stays_and_is_named(laptop):
    box = laptop(off="")
    box.home.config.write_text("pull_limit = '50KB'\n" + box.home.config.read_text())
    box.submit("far", "import os; print(os.urandom(2_000_000).hex())")
    box.final("far")
    told = until(lambda: o if (o := box.service.wait("far", 30, outputs=True)["outputs"])["state"] == "settled" else None, "its files")
    assert "The run's log stays on box, because the log is larger than the limit of 50.0 kB (pull_limit in config.toml)." in told["lines"] and not list(box.home.runs.glob("*/attempts*"))
    assert len(b"".join(box.service.logs("far"))) == 4_000_001


def test_files_that_are_pulled_by_hand_count_as_home(laptop):
    box = laptop()
    box.home.config.write_text("pull_limit = '1KB'\n" + box.home.config.read_text())
    box.submit("far", "open('big.pt', 'w').write('x' * 5000)")
    box.final("far")
    until(lambda: (box.service.wait("far", 30, outputs=True)["outputs"]["left"] or {}).get("paths") == ["big.pt"], "the file to be left")
    assert until(lambda: s if (s := box.watchman()["state"]).get("why") == "owed" else None, "the wait")["owed"] and not box.line.exists()
    assert b'"brought"' in b"".join(box.service.pull("far", ["big.pt"]))
    told = box.service.run("far")["outputs"]
    assert (told["left"]["count"], told["files"]) == (0, 1) and not any("left on box" in line for line in told["lines"])
    until(box.line.exists, "the machine to be switched off")


def test_who_adopts_the_runs_of_a_lost_laptop_takes_over_its_order(laptop):
    lost = laptop(off_latest="2h", disk_survives=True)
    run = lost.submit("far", "import time; time.sleep(600)")
    lost.running("far")
    lost.service.close()
    new = laptop("new", off="", off_after="", off_latest="")
    assert [each["id"] for each in new.service.machines.adopt("box")] == [run["id"]]
    orders = new.watchman()["orders"]
    assert [order["owner"]["id"] for order in orders] == [new.service._targets.get("box").owner["id"]]
    config = new.service._targets.get("box").config
    assert (config.off, config.off_latest_s, config.off_after_s, config.disk_survives) == (lost.off, 7200.0, 0.0, True)
    assert orders[0]["command"] == ["sh", "-c", f"echo off >> {new.line}"] and 'root = ' in new.home.config.read_text()
    new.service.stop(run["id"], force=True)
    until(new.line.exists, "the machine to be switched off")


def test_since_when_a_machine_is_silent_survives_a_restart_of_the_server(laptop):
    box = laptop(off="")
    box.submit("far", "import time; time.sleep(600)")
    box.running("far")
    box.sshd.halt()
    box.service.stop("far")  # a wish, so it is looked at
    since = until(lambda: (box.service.run("far")["unreachable"] or {}).get("since"), "the silence")
    until(lambda: box.stored() == since, "it to be stored")
    box.again()
    assert until(lambda: (box.service.run("far")["unreachable"] or {}).get("since"), "the silence, again") == since
    box.sshd.again()
    box.final("far")
    until(lambda: box.stored() is None, "it to be forgotten")


def test_a_run_on_a_machine_that_never_comes_back_is_forgotten_by_force(laptop, monkeypatch):
    """Without force it stays, and the hint says what force does. What is there can be adopted if the machine comes back all the same."""
    monkeypatch.setattr(service, "REMOVED_WITHIN_S", 0.5)
    box = laptop(off="")
    ended, run = box.submit("ended"), box.submit("far", "import time; time.sleep(600)")
    box.final("ended")
    box.service.wait("ended", 30, outputs=True)
    box.running("far")
    box.sshd.halt()
    with pytest.raises(TargetError, match="does not answer") as refused:
        box.service.rm("ended")
    assert f"stoker rm --force {ended['id']}" in refused.value.hint
    left = box.service.rm("far", force=True)["left"]
    assert left == (f"box does not answer, so Stoker did not delete the folder {run['folder']} and did not end the run's processes there. "
                    "When box answers, you can get the run back: stoker machine adopt box.")
    assert "processes" not in box.service.rm(ended["id"], force=True)["left"] and not box.service.runs(all=True)
    assert not list(box.home.runs.iterdir())
    box.sshd.again()
    assert run["id"] in [each["id"] for each in until(lambda: box.service.machines.adopt("box"), "the runs there")]
