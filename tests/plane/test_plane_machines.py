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
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from real.patience import until
from real.sshd import children
from stoker.base.config import Home
from stoker.base.errors import InvalidSpec, TargetError
from stoker.base.state import State
from stoker.hosts.ssh import SshHost
from stoker.plane import logs, targets
from stoker.plane.reach import Silence
from stoker.plane.service import Service

SMI = """#!/bin/sh
case "$1" in
*utilization*) echo "0, GPU-aaaa, 7, 100"; echo "1, GPU-bbbb, 9, 200";;
*compute-apps*) ;;
*) echo "0, GPU-aaaa, Fake 1, 24000, 100"; echo "1, GPU-bbbb, Fake 1, 24000, 200";;
esac
"""
USED = """#!/bin/sh
case "$*" in
*query-compute-apps*) echo "4711, GPU-aaaa, 23800 MiB";;
*query-gpu*) echo "0, GPU-aaaa, NVIDIA A5000, 24576, 23900, 97"; test -n "$ONE" || echo "1, GPU-bbbb, NVIDIA A5000, 24576, 12, 0";;
esac
"""
SHOW_GPU = "import os, time; print(os.environ.get('CUDA_VISIBLE_DEVICES'), flush=True); time.sleep(600)"


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
        self.state(run["id"], "running", "done", "failed", "stopped")
        return until(lambda: b"".join(self.service.logs(run["id"])), f"the first line of {run['name']}").decode()

    def close(self) -> None:
        for run in self.service.runs():
            self.service.stop(run["id"], force=True)
        for run in self.service.runs():
            self.final(run["id"])
        self.service.close()


A, B = (f"GPU-{letter * 4}-{uuid.uuid4().hex[:12]}" for letter in "ab")  # leases lie where all on this machine see them


def machine_with(root: Path, monkeypatch, smi: str) -> None:
    """A machine whose nvidia-smi says this."""
    (root / "bin").mkdir()
    (root / "bin" / "nvidia-smi").write_text(smi.replace("GPU-aaaa", A).replace("GPU-bbbb", B))
    (root / "bin" / "nvidia-smi").chmod(0o755)
    monkeypatch.setenv("PATH", f"{root}/bin:{os.environ['PATH']}")


@pytest.fixture
def played(root, monkeypatch) -> Iterator[Callable[..., Plane]]:
    """played(smi, folder) -> a Plane with a state folder of its own on a machine with these GPUs."""
    made: list[Plane] = []

    def make(smi: str = "", folder: str = "") -> Plane:
        if smi:
            machine_with(root, monkeypatch, smi)
        place = root / folder if folder else root
        (place / "w").mkdir(parents=True, exist_ok=True)
        (place / "h").mkdir(mode=0o700, exist_ok=True)
        plane = Plane(place, "")
        made.append(plane)
        if [g["uuid"] for g in plane.service.capacity()["gpus"]] not in ([A, B], [A]):
            pytest.skip("this machine has real GPUs, which NVML tells of")
        return plane

    yield make
    for plane in made:
        plane.close()
    for lease in [path for folder in ("/run/lock", "/tmp") for name in (A, B) for path in Path(folder).glob(f"stoker-gpu-{name}*")]:
        lease.unlink() if lease.is_file() or lease.is_symlink() else lease.rmdir()


@pytest.fixture
def gpus(played) -> Plane:
    return played(SMI)


def test_a_gpu_that_somebody_else_uses_is_handed_out_only_by_name(played):
    plane = played(USED)
    first = plane.submit(SHOW_GPU, gpus=1, name="first")
    assert plane.text(first).strip() == B and not first["warnings"]
    second = plane.submit(SHOW_GPU, gpus=1, name="second")
    assert second["state"] == "pending"
    assert second["waits_for"] == ("1 GPU: 1 of 2 is used by first, GPU 0 is used by process 4711 (25.1 GB of 25.8 GB) "
                                   "(to use this GPU anyway: `--gpus id:0`)")
    named = plane.submit(SHOW_GPU, gpus=1, gpu_ids=["0"], name="named")
    assert plane.text(named).strip() == A and any("GPU 0 is also used by process 4711" in line for line in named["warnings"])
    with pytest.raises(InvalidSpec, match="the GPUs 7; the machine has 0, 1"):
        plane.submit("pass", gpus=1, gpu_ids=["7"])


def test_the_only_gpu_of_a_machine_is_shared_with_a_note(played, monkeypatch):
    monkeypatch.setenv("ONE", "1")
    plane = played(USED)
    run = plane.submit(SHOW_GPU, gpus=1)
    assert plane.text(run).strip() == A and any("GPU 0 is also used by process 4711" in line for line in run["warnings"])


def test_a_gpu_that_gets_free_is_handed_out_to_who_waits(played, root):
    plane = played(USED)
    plane.submit(SHOW_GPU, gpus=1, name="first")
    second = plane.submit(SHOW_GPU, gpus=1, name="second")
    machine = root / "bin" / "nvidia-smi"
    beside = root / "bin" / "new"
    beside.write_text(SMI.replace("GPU-aaaa", A).replace("GPU-bbbb", B))
    beside.chmod(0o755)
    beside.replace(machine)
    plane.state(second["id"], "running")
    assert plane.text(second).strip() == A


def test_two_state_folders_never_hand_out_the_same_gpu(played):
    one, other = played(SMI), played(folder="other")
    first, second = one.submit(SHOW_GPU, gpus=1, name="first"), other.submit(SHOW_GPU, gpus=1, name="second")
    one.state("first", "running"), other.state("second", "running")
    assert {one.text(first).strip(), other.text(second).strip()} == {A, B}
    third = other.submit(SHOW_GPU, gpus=1, name="third")
    assert third["state"] == "pending" and f"is used by the run {first['id']} of " in third["waits_for"]
    one.service.stop("first", force=True)
    other.state("third", "running")
    assert other.text(third).strip() == one.text(first).strip()


def test_a_lease_goes_with_its_dead_owner_and_is_not_led_astray(played, root):
    """The owner's caretakers are killed; and somebody has planted a link where the lease would lie."""
    victim = root / "victim"
    victim.write_text("precious")
    folder = Path("/run/lock") if os.path.isdir("/run/lock") and os.stat("/run/lock").st_mode & 0o1002 == 0o1002 else Path("/tmp")
    (folder / f"stoker-gpu-{A}").symlink_to(victim)
    (folder / f"stoker-gpu-{B}").mkdir()
    one, other = played(SMI), played(folder="other")
    first = one.submit(SHOW_GPU, gpus=2, name="first")
    one.state("first", "running")
    second = other.submit(SHOW_GPU, gpus=2, name="second")
    waiting = other.state(second["id"], "pending")  # at once, or after its start met the lease
    assert f"the run {first['id']}" in waiting["waits_for"] and victim.read_text() == "precious"
    record = json.loads((Path(first["folder"]) / "attempts" / "1" / "agent.json").read_text())
    os.kill(record["agent"]["pid"], signal.SIGSTOP)
    os.kill(record["holder"]["pid"], signal.SIGKILL)
    os.kill(record["agent"]["pid"], signal.SIGKILL)
    other.state("second", "running")


def test_a_run_that_names_its_gpu_in_the_environment_holds_it(played):
    plane = played(SMI)
    spec = {"command": [sys.executable, "-c", SHOW_GPU], "folder": str(plane.root / "w"), "name": "by-hand"}
    by_hand = plane.service.submit(spec, {}, {"PATH": os.environ["PATH"], "CUDA_VISIBLE_DEVICES": "1"}, None)
    assert plane.text(by_hand).strip() == "1"
    other = plane.submit(SHOW_GPU, gpus=1, name="other")
    assert plane.text(other).strip() == A
    third = plane.submit("pass", gpus=1, name="third")
    assert third["waits_for"] == "1 GPU: 2 of 2 are used by by-hand, other" or third["waits_for"] == "1 GPU: 2 of 2 are used by other, by-hand"


def test_gpus_are_handed_out_by_uuid_and_never_twice(gpus):
    one, two = gpus.submit(SHOW_GPU, gpus=1, name="one"), gpus.submit(SHOW_GPU, gpus=1, name="two")
    assert (one["state"], two["state"]) == ("staging", "staging")
    third, pair = gpus.submit("print(1)", gpus=1, name="third"), gpus.submit(SHOW_GPU, gpus=2, name="pair")
    assert third["waits_for"] == pair["waits_for"].replace("2 GPUs", "1 GPU") == "1 GPU: 2 of 2 are used by one, two"
    for run in (one, two):
        gpus.state(run["id"], "running")
    assert {gpus.text(one).strip(), gpus.text(two).strip()} == {A, B}
    assert gpus.service.capacity()["gpus_used"] == {A: "one", B: "two"}
    late = gpus.submit(SHOW_GPU, gpus=1, name="late")
    gpus.service.stop("two", force=True)
    assert gpus.final("third")["state"] == "done"
    held = gpus.service.run("late")
    assert held["state"] == "pending" and gpus.service.run("pair")["state"] == "pending"  # late may not overtake the pair
    gpus.service.stop("one", force=True)
    gpus.state("pair", "running")
    assert set(gpus.text(gpus.service.run("pair")).strip().split(",")) == {A, B}
    assert gpus.service.run(late["id"])["state"] == "pending"
    with pytest.raises(InvalidSpec, match="3 GPUs; the machine has 2"):
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
    assert shown["attempts_detail"][0]["reason"] == "exited"
    assert [(f["path"], f["bytes"], f["change"]) for f in shown["files"]] == [("out.bin", 1, "new")]
    assert os.listdir(far.root / "h" / "spool") == []
    far.service.rm("far")
    assert not Path(run["folder"]).exists()


RECORDED = """
import json, os, time
attempt = os.path.join(os.environ["STOKER_RUN_DIR"], "attempts", os.environ["STOKER_ATTEMPT"])
with open(os.path.join(attempt, "steps.jsonl"), "a") as f:  # as the hooks write them
    f.write(json.dumps({"at": time.time(), "pid": 7, "step": 90, "steps": 90, "s": 2.0, "ms": {"forward": 2000.0}}) + "\\n")
os.makedirs(os.path.join(attempt, "..", "..", "resume"), exist_ok=True)
with open(os.path.join(attempt, "..", "..", "resume", "state.json"), "w") as f:
    json.dump({"state": "not resumable", "reason": "it started a process"}, f)
open("out.bin", "w").write("xyz")
open("part.py", "a").write("more")
"""


@pytest.mark.real("sshd")
def test_a_far_run_is_shown_as_a_near_one_and_with_one_question(far, monkeypatch):
    Path(far.root, "w", "part.py").write_text("TEXT = 1\n")
    Path(far.root, "w", "same.txt").write_text("same")
    for name, target in (("near", "local"), ("far", "box")):
        far.submit(RECORDED, target=target, name=name, copy=True, hooks=True, resume="auto", env_names=["PATH"])
        assert far.final(name)["state"] == "done"
    far.service.wait("far", 30, outputs=True)  # what copies its files asks the machine too
    near, asked, run = far.service.show("near"), [], SshHost.run
    monkeypatch.setattr(SshHost, "run", lambda self, argv, **more: asked.append(argv) or run(self, argv, **more))
    there = far.service.show("far")
    assert len([words for words in asked if {"poll", "probe"}.isdisjoint(words)]) == 1, asked  # the reconciler may ask these meanwhile
    for shown in (near, there):
        assert {f["path"]: (f["bytes"], f["change"]) for f in shown["files"]} == {"out.bin": (3, "new"), "part.py": (13, "changed")}
        assert shown["training"]["steps_s"] == 45.0 and shown["hooks"]["processes"] == 1
        assert shown["resume"]["sentence"] == "not resumable: it started a process"
        assert shown["usage"]["folder_files"] > 10 and "PATH" in shown["env_names"] and shown["code"]["files"] == 2
        assert shown["attempts_detail"][0]["used_s"] is not None and shown["broken_files"] == {}
    assert near.keys() == there.keys()


@pytest.mark.real("sshd")
def test_a_machine_that_is_silent_tells_nothing_of_files(far, sshd):
    far.submit("print(1)", target="box", name="far")
    assert far.final("far")["state"] == "done"
    sshd.halt()
    shown = far.service.show("far")
    assert shown["files"] is shown["env_names"] is shown["hooks"] is shown["training"] is None and shown["usage"] == {}
    sshd.again()


@pytest.mark.real("sshd")
def test_the_code_of_a_run_is_shown_while_its_machine_is_off(far, sshd):
    work = Path(far.root, "w")
    for words in (["init", "-q"], ["-c", "user.name=u", "-c", "user.email=u@x", "commit", "-q", "--allow-empty", "-m", "first"]):
        subprocess.run(["git", *words], cwd=work, check=True)
    for name, text in (("one", "print(1)\n"), ("two", "print(2)\n")):
        (work / "train.py").write_text(text)
        far.service.submit({"command": ["train.py"], "folder": str(work), "target": "box", "name": name}, {}, {"PATH": os.environ["PATH"]}, None)
        far.final(name)
    far.service.wait("two", 30, outputs=True)
    sshd.halt()
    told = far.service.recorded("two", "code")
    assert len(told["code"]["commit"]) == 40 and "+print(2)" in told["diff"]
    assert "print(1)" in str(far.service.compare(["one", "two"], code=True)["code_diff"])
    sshd.again()


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
def test_who_waits_for_a_run_to_begin_waits_for_its_machine_too(far, sshd):
    """The cable is out in the moment in which the log begins."""
    far.submit(COUNTS, target="box", name="far")
    pieces = far.service.logs("far", follow=True)
    far.state("far", "running")
    sshd.halt()
    with ThreadPoolExecutor(1) as pool:
        seen = pool.submit(b"".join, pieces)
        with pytest.raises(TimeoutError):
            seen.result(timeout=2)
        sshd.again()
        assert seen.result(timeout=60).decode().splitlines() == COUNTED


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
    assert not State(silent["state"]).final and "box has been unreachable since " in silent["sentence"]
    folder = Path(run["folder"])
    until((folder / "attempts/1/exit.json").exists, "the end, all alone")
    assert not State(far.service.run("far")["state"]).final
    sshd._process = subprocess.Popen(argv, env={"PATH": os.environ["PATH"]}, stdin=subprocess.DEVNULL)
    ended = until(lambda: r if State((r := far.service.run("far"))["state"]).final else None, "the news", 90)
    assert (ended["state"], ended["reason"], ended["reachability"]) == ("done", "exited", "ok")
    assert json.loads((folder / "attempts/1/exit.json").read_bytes())["code"] == 0


@pytest.mark.real("sshd")
def test_a_machine_that_answers_show_is_looked_at_at_once(far, sshd):
    run = far.submit("import time; time.sleep(3); print('end')", target="box", name="far")
    far.state("far", "running")
    sshd.halt()
    until((Path(run["folder"]) / "attempts/1/exit.json").exists, "the end, all alone")
    until(lambda: (far.service._reconciler.reach.silence("box") or Silence(0, 0)).next_at > time.time() + 4, "the fourth try or a later one", 60)
    sshd.again()
    shown = far.service.show("far")
    assert (shown["state"], shown["reachability"], shown["attempts_detail"][0]["reason"]) == ("done", "ok", "exited")


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
    assert (ended["state"], ended["attempts"]) == ("done", 1) and any("recovered" in w for w in ended["warnings"])


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
