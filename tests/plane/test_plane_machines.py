"""The plane on machines that are not just this one: GPUs handed out by UUID (a fake nvidia-smi stands at the edge), a box behind sshd."""

from __future__ import annotations

import contextlib
import functools
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from real.sshd import children
from stoker.base.config import Home
from stoker.base.errors import InvalidSpec, TargetError
from stoker.base.state import State
from stoker.hosts.ssh import SshHost
from stoker.plane import logs, targets
from stoker.plane.service import Service

SMI = """#!/bin/sh
case "$1" in
*utilization*) echo "0, GPU-aaaa, 7, 100"; echo "1, GPU-bbbb, 9, 200";;
*) echo "0, GPU-aaaa, Fake 1, 24000, 100"; echo "1, GPU-bbbb, Fake 1, 24000, 200";;
esac
"""
SHOW_GPU = "import os, time; print(os.environ.get('CUDA_VISIBLE_DEVICES'), flush=True); time.sleep(600)"


def until(condition: Callable, what: str, timeout_s: float = 40.0):
    """The first true value of `condition`."""
    deadline = time.monotonic() + timeout_s
    while not (value := condition()):
        assert time.monotonic() < deadline, f"waited {timeout_s} s in vain for {what}"
        time.sleep(0.02)
    return value


@pytest.fixture
def root() -> Iterator[Path]:
    folder = Path(tempfile.mkdtemp(prefix="sm-", dir="/tmp"))
    (folder / "w").mkdir()
    (folder / "h").mkdir(mode=0o700)
    yield folder
    shutil.rmtree(folder, ignore_errors=True)


class Plane:
    """A service in this process, ended with all it started."""

    def __init__(self, root: Path, config: str) -> None:
        self.root = root
        (root / "h" / "config.toml").write_text(config)
        self.service = Service(Home(root / "h"))

    def submit(self, text: str, **more) -> dict:
        spec = {"command": [sys.executable, "-c", text], "folder": str(self.root / "w"), **more}
        return self.service.submit(spec, {}, {"PATH": os.environ["PATH"]}, None)

    def state(self, ref: str, *states: str) -> dict:
        return until(lambda: r if (r := self.service.run(ref))["state"] in states else None, f"{ref} in {states}")

    def final(self, ref: str) -> dict:
        return self.state(ref, "done", "failed", "stopped")

    def text(self, run: dict) -> str:
        return until(lambda: b"".join(self.service.logs(run["id"])), f"the first line of {run['name']}").decode()

    def close(self) -> None:
        for run in self.service.runs():
            self.service.stop(run["id"], force=True)
        for run in self.service.runs():
            self.final(run["id"])
        self.service.close()


@pytest.fixture
def gpus(root, monkeypatch) -> Iterator[Plane]:
    (root / "bin").mkdir()
    (root / "bin" / "nvidia-smi").write_text(SMI)
    (root / "bin" / "nvidia-smi").chmod(0o755)
    monkeypatch.setenv("PATH", f"{root}/bin:{os.environ['PATH']}")
    plane = Plane(root, "")
    yield plane
    plane.close()


def test_gpus_are_handed_out_by_uuid_and_never_twice(gpus):
    if not shutil.which("nvidia-smi", path=f"{gpus.root}/bin") or len(gpus.service.capacity()["gpus"]) != 2:
        pytest.skip("this machine has real GPUs, which NVML tells of")
    one, two = gpus.submit(SHOW_GPU, gpus=1, name="one"), gpus.submit(SHOW_GPU, gpus=1, name="two")
    assert (one["state"], two["state"]) == ("staging", "staging")
    third, pair = gpus.submit("print(1)", gpus=1, name="third"), gpus.submit(SHOW_GPU, gpus=2, name="pair")
    assert third["waits_for"] == pair["waits_for"].replace("2 GPUs", "1 GPU") == "1 GPU: 2 of 2 are used by one, two"
    for run in (one, two):
        gpus.state(run["id"], "running")
    assert {gpus.text(one).strip(), gpus.text(two).strip()} == {"GPU-aaaa", "GPU-bbbb"}
    assert gpus.service.capacity()["gpus_used"] == {"GPU-aaaa": "one", "GPU-bbbb": "two"}
    late = gpus.submit(SHOW_GPU, gpus=1, name="late")
    gpus.service.stop("two", force=True)
    assert gpus.final("third")["state"] == "done"
    held = gpus.service.run("late")
    assert held["state"] == "pending" and gpus.service.run("pair")["state"] == "pending"  # late may not overtake the pair
    gpus.service.stop("one", force=True)
    gpus.state("pair", "running")
    assert set(gpus.text(gpus.service.run("pair")).strip().split(",")) == {"GPU-aaaa", "GPU-bbbb"}
    assert gpus.service.run(late["id"])["state"] == "pending"
    with pytest.raises(InvalidSpec, match="3 GPUs, and the machine has 2"):
        gpus.submit("pass", gpus=3)


# -- a box behind sshd


@pytest.fixture
def far(root, sshd, monkeypatch) -> Iterator[Plane]:
    monkeypatch.setattr(targets, "SshHost", functools.partial(SshHost, options=(*sshd.options, "ConnectTimeout=2")))
    plane = Plane(root, f'[targets.box]\nhost = "127.0.0.1"\nroot = "{root}/far"\nslots = 1\n')
    yield plane
    plane.close()


@pytest.mark.real("sshd")
def test_a_run_on_a_box_behind_sshd(far):
    Path(far.root, "w", "part.py").write_text("TEXT = 'from the copy'\n")
    Path(far.root, "w", "train.py").write_text("import part, os; print(part.TEXT); open('out.bin', 'w').write('x'); print(os.getcwd())\n")
    spec = {"command": ["train.py"], "folder": str(far.root / "w"), "target": "box", "name": "far"}
    run = far.service.submit(spec, {}, {"PATH": os.environ["PATH"]}, None)
    assert run["folder"] == f"{far.root}/far/runs/{run['id']}"
    ended = far.final("far")
    assert (ended["state"], ended["attempts"], ended["reachability"]) == ("done", 1, "ok"), ended
    assert b"".join(far.service.logs("far")).decode().splitlines() == ["from the copy", f"{far.root}/far/runs/{run['id']}/work"]
    shown = far.service.show("far")
    assert shown["attempts_detail"][0]["reason"] == "exited" and shown["files"] is None
    assert os.listdir(far.root / "h" / "spool") == []
    far.service.rm("far")
    assert not Path(run["folder"]).exists()


@pytest.mark.real("sshd")
def test_only_named_variables_travel(far):
    spec = {"command": ["python3", "-c", "import os; print(sorted(os.environ))"], "folder": str(far.root / "w"), "target": "box", "name": "far",
            "env_names": ["NAMED", "UNSET"]}
    run = far.service.submit(spec, {}, {"PATH": "/nowhere", "NAMED": "1", "SECRET": "hunter2"}, None)
    assert far.final("far")["state"] == "done"
    seen = b"".join(far.service.logs("far")).decode()
    assert "'NAMED'" in seen and "'PATH'" in seen and "'HOME'" in seen and "SECRET" not in seen
    assert Path(run["folder"], "env").read_bytes() == b"NAMED=1\0"


COUNTS = "import time\nfor i in range(60): print('line', i, flush=True); time.sleep(0.1)"
COUNTED = [f"line {i}" for i in range(60)]


@pytest.mark.real("sshd")
def test_a_log_that_is_followed_goes_on_where_its_connection_was_cut(far, sshd):
    far.submit(COUNTS, target="box", name="far")
    far.state("far", "running")
    seen, cuts = b"", 0
    for piece in far.service.logs("far", follow=True):
        seen += piece
        if cuts < 3 and seen.count(b"\n") > 8 * (cuts + 1):
            cuts += 1
            sshd.cut()
    assert cuts == 3 and seen.decode().splitlines() == COUNTED


@pytest.mark.real("sshd")
def test_a_log_that_cannot_be_followed_any_more_is_an_error_and_no_end(far, sshd, monkeypatch):
    monkeypatch.setattr(logs, "GIVE_UP_S", 2.0)
    far.submit(COUNTS, target="box", name="far")
    far.state("far", "running")
    seen = b""
    with pytest.raises(TargetError):
        for piece in far.service.logs("far", follow=True):
            seen += piece
            if seen.count(b"\n") >= 5 and sshd.listens():
                sshd.halt()
    sshd.again()
    assert far.final("far")["state"] == "done"
    assert b"".join(far.service.logs("far")).decode().splitlines() == COUNTED and COUNTED[:5] == seen.decode().splitlines()[:5]


@pytest.mark.real("sshd")
def test_silence_changes_nothing_but_reachability(far, sshd):
    run = far.submit("import time\nfor i in range(40): print('line', i, flush=True); time.sleep(0.1)", target="box", name="far")
    far.state("far", "running")
    argv, connections = sshd._process.args, sshd.connections()
    sshd._process.terminate()
    sshd._process.wait()
    for pid in [each for top in connections for each in (*children(top), top)]:
        with contextlib.suppress(ProcessLookupError):
            if b"sshd" in Path(f"/proc/{pid}/comm").read_bytes():
                os.kill(pid, signal.SIGKILL)
    assert far.service.stop("far")["id"] == run["id"]  # a wish that cannot be told now
    silent = until(lambda: r if (r := far.service.run("far"))["reachability"] == "unreachable" else None, "the silence", 60)
    assert not State(silent["state"]).final and "cannot be reached" in silent["sentence"]
    folder = Path(run["folder"])
    until((folder / "attempts/1/exit.json").exists, "the end, all alone")
    assert not State(far.service.run("far")["state"]).final
    sshd._process = subprocess.Popen(argv, env={"PATH": os.environ["PATH"]}, stdin=subprocess.DEVNULL)
    ended = until(lambda: r if State((r := far.service.run("far"))["state"]).final else None, "the news", 90)
    assert (ended["state"], ended["reason"], ended["reachability"]) == ("done", "exited", "ok")
    assert json.loads((folder / "attempts/1/exit.json").read_bytes())["code"] == 0


@pytest.mark.real("sshd")
def test_a_lost_database_does_not_lose_what_lives_far_away(far):
    run = far.submit("import time\nfor i in range(50): print('line', i, flush=True); time.sleep(0.1)", target="box", name="far")
    far.state("far", "running")
    far.service.close()
    for path in (far.root / "h" / "server").glob("stoker.db*"):
        path.unlink()
    far.service = Service(Home(far.root / "h"))
    until(lambda: [r["id"] for r in far.service.runs(all=True)] == [run["id"]], "the run to be found again")
    ended = far.final("far")
    assert (ended["state"], ended["attempts"]) == ("done", 1) and any("found again" in w for w in ended["warnings"])


def test_a_keep_typed_on_the_machine_is_obeyed(root):
    plane = Plane(root, "")
    try:
        spec = {"command": [sys.executable, "-c", SHOW_GPU], "folder": str(root / "w"), "name": "kept"}
        run = plane.service.submit(spec, {"time_s": 600}, {"PATH": os.environ["PATH"]}, None)
        plane.state("kept", "running")
        folder = Path(run["folder"])
        (folder / "keep.json").write_text(json.dumps({"time_s": 9000, "seq": 1, "at": time.time()}))
        until(lambda: plane.service.run("kept")["limits"]["time_s"] == 9000, "the new limit")
        until(lambda: json.loads((folder / "limits.json").read_bytes()) == {"seq": 2, "time_s": 9000}, "the new limits.json")
    finally:
        plane.close()
