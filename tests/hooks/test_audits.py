"""An audit without the agent: a recorded script makes the room, a second process is started in it as the agent would, and says what it
found. Real scripts, real processes."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

SRC = Path(__file__).resolve().parents[2] / "src"
pytestmark = [pytest.mark.timeout(300), pytest.mark.inside]
LOOP = """
import os, random, sys, time, torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
{before}
torch.manual_seed(0); random.seed(0)
model = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Dropout(0.3), nn.Linear(8, 1))
optimizer = torch.optim.Adam(model.parameters(), 1e-3)
loader = DataLoader(TensorDataset(torch.randn(320, 4), torch.randn(320, 1)), batch_size=8, shuffle=True, num_workers={workers})
best, seen = 1e9, []
for epoch in range(100):
    for n, (x, y) in enumerate(loader):
        loss = (model(x) - y).pow(2).mean()
        optimizer.zero_grad(); loss.backward(); optimizer.step()
        best = min(best, loss.item())
        seen = [*seen[-5:], random.random()]
        {inside}
        time.sleep(0.02)
    print(epoch, best, flush=True)
"""
FILES = """if n % 10 == 0:
            os.makedirs("kept", exist_ok=True)
            with open("kept/log.csv", "a") as f: f.write(f"{epoch},{n},{best}\\n")
            torch.save(model.state_dict(), "kept/last.pt")
            with open("kept/place.txt", "w") as f: f.write(f"{epoch} {n}")
            with open("kept/place.txt") as f: place = f.read()
            os.replace("kept/last.pt", "kept/best.pt")"""


class Beside:
    """A run, and the audit of it."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.resume, self.work = folder, folder / "resume", folder / "work"
        self.run: subprocess.Popen | None = None
        entry = folder / "hooks" / "stoker_hooks"
        shutil.copytree(SRC / "stoker" / "inside", entry, ignore=shutil.ignore_patterns("__pycache__"))
        shutil.copy(entry / "entry" / "sitecustomize.py", folder / "hooks")
        for name in ("records", "resume", "work"):
            (folder / name).mkdir(mode=0o700)

    def start(self, inside: str = "pass", before: str = "", workers: int = 0, every: str = "60steps") -> None:
        (self.folder / "script.py").write_text(LOOP.format(inside=inside, before=before, workers=workers))
        self.env = {**os.environ, "PYTHONPATH": str(self.folder / "hooks"), "STOKER_HOOKS": str(self.folder / "records"), "STOKER_RESUME": "auto",
                    "STOKER_RESUME_DIR": str(self.resume), "STOKER_ATTEMPT": "1", "STOKER_IMAGE_EVERY": every, "PYTHONHASHSEED": "1",
                    "OMP_NUM_THREADS": "1", "STOKER_RESUME_DEBUG": "1", "CUDA_VISIBLE_DEVICES": ""}
        with open(self.folder / "out", "w") as out:
            self.run = subprocess.Popen([sys.executable, str(self.folder / "script.py")], cwd=self.work, env={**self.env, "STOKER_AUDIT": "on"}, stdout=out,
                                        stderr=out, start_new_session=True)

    def room(self) -> Path:
        """The room, once the run has made it and gone on for a while."""
        found = self.until(lambda: list(self.resume.glob("audit/*/order.json")), "an order")[0].parent
        size = (self.resume / "log").stat().st_size
        self.until(lambda: (self.resume / "log").stat().st_size > size + 500, "events behind the image")
        return found

    def audit(self, room: Path, begun: object = None, **more: str) -> dict:
        """Its verdict. `begun()` is called when it has laid out its files."""
        env = {**self.env, "STOKER_AUDIT": "child", "STOKER_RESUME_DIR": str(room), "STOKER_HOOKS": str(room / "hooks"), **more}
        child = subprocess.Popen([sys.executable, str(self.folder / "script.py")], cwd=self.work, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        if begun is not None:
            self.until((room / "hooks" / "processes.jsonl").exists, "the beginning of the audit")
            begun()
        out, err = child.communicate(timeout=150)
        assert out == b""
        assert (room / "verdict.json").exists(), err.decode()[-3000:]
        return json.loads((room / "verdict.json").read_text())

    def state(self) -> dict:
        return json.loads((self.resume / "state.json").read_text())

    def made(self) -> dict:
        return {str(p.relative_to(self.work)): p.read_bytes() for p in sorted(self.work.rglob("*")) if p.is_file()}

    def until(self, what: object, name: str, seconds: float = 90) -> object:
        deadline = time.monotonic() + seconds
        while not (found := what()):
            assert time.monotonic() < deadline and self.run.poll() is None, (name, (self.folder / "out").read_text()[-2000:], self.state())
            time.sleep(0.02)
        return found


@pytest.fixture
def beside(tmp_path: Path) -> Iterator[Beside]:
    made = Beside(tmp_path)
    yield made
    if made.run is not None:
        os.killpg(made.run.pid, signal.SIGKILL)
        made.run.wait()


@pytest.mark.parametrize("workers", [0, 2])
def test_it_comes_to_the_state_of_the_next_image(beside: Beside, workers: int):
    beside.start(workers=workers)
    told = beside.audit(beside.room())
    assert told["verdict"] == "bit-exact", told
    assert told["values_equal"] > 100, told
    assert not (beside.resume / "refused").exists()
    assert beside.run.poll() is None
    assert beside.state()["state"] == "resumable"


def test_it_finds_its_files_as_they_were_and_changes_none(beside: Beside):
    beside.start(FILES)
    room = beside.room()
    time.sleep(1.0)  # the run changes its files behind the image, once more
    os.killpg(beside.run.pid, signal.SIGSTOP)
    before = beside.made()
    images = {p: p.read_bytes() for p in (*beside.resume.glob("images/*/*"), beside.resume / "log")}
    told = beside.audit(room)
    assert told["verdict"] == "bit-exact", told
    assert beside.made() == before
    assert {p: p.read_bytes() for p in images} == images
    assert list((room / "files").rglob("best.pt")), "it wrote nothing into its room"


def test_its_files_come_back_however_many_images_the_run_took_since(beside: Beside):
    beside.start(FILES, every="10steps")
    room = beside.room()
    beside.until(lambda: beside.state()["image"]["n"] > int(room.name) + 4, "four more images")
    assert not (beside.resume / "images" / str(json.loads((room / "order.json").read_text())["from"])).exists(), "its image is still one of the run's"
    assert beside.audit(room)["verdict"] == "bit-exact"
    (room / "order.json").unlink()
    shutil.rmtree(room)
    def oldest():
        return min(int(p.name) for p in beside.resume.glob("undo/*") if p.name.isdigit())
    beside.until(lambda: oldest() > int(room.name), "the end of what only the audit needed")


def test_state_that_does_not_come_back_and_that_no_value_tells_of_is_found(beside: Beside):
    """The statistics of a BatchNorm do not change what a training prints: the tail check is silent."""
    beside.start()
    told = beside.audit(beside.room(), STOKER_RESUME_DROP="buffers")
    assert told["verdict"] == "different" and "running_mean" in told["why"], told
    beside.until(lambda: beside.state()["state"] == "not resumable", "a word of the run about it", 20)
    reason = beside.state()["reason"]
    assert reason.startswith("an audit of steps 60 to 120 ended in a different state than the run") and "running_mean" in reason
    n = beside.state()["image"]["n"]
    time.sleep(3.0)  # two intervals
    assert max(int(p.name) for p in beside.resume.glob("images/*") if p.name.isdigit()) <= n + 1


def test_what_the_tail_check_sees_is_a_difference_too(beside: Beside):
    beside.start()
    told = beside.audit(beside.room(), STOKER_RESUME_DROP="optimizer")
    assert told["verdict"] == "different" and "after the image" in told["why"], told


def test_a_script_that_talks_before_it_trains_is_not_audited(beside: Beside):
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        beside.start(before=f"import socket; link = socket.create_connection(('127.0.0.1', {port})); link.close()")
        room = beside.room()
        server.settimeout(5)
        server.accept()[0].close()  # of the run
        told = beside.audit(room)
        server.settimeout(0.2)
        with pytest.raises(TimeoutError):
            server.accept()
    assert told["verdict"] == "not audited" and "socket.connect" in told["why"], told
    assert beside.state()["state"] == "resumable"


def test_a_script_that_asks_for_any_free_port_is_audited(beside: Beside):
    """As urllib3 does when it is imported, and who looks for a port for its ranks."""
    beside.start(before="import socket; free = socket.socket(); free.bind(('127.0.0.1', 0)); free.close()")
    assert beside.audit(beside.room())["verdict"] == "bit-exact"


def test_what_no_sandbox_holds_back_ends_it(beside: Beside):
    beside.start('if n % 10 == 0:\n            open("mine", "w").close(); os.chown("mine", -1, os.getgid())')
    told = beside.audit(beside.room())
    assert told == {**told, "verdict": "not audited", "why": "the script calls os.chown; the audit cannot block this call in its child process"}


def test_a_file_that_the_run_changes_again_is_not_taken_for_what_it_was(beside: Beside):
    """`kept/note` is written once before the pair of images, and once behind it: the audit, which reads it in between, must not find the later
    text."""
    beside.start("""if (epoch, n) == (0, 5): open("note", "w").write("a")
        if (epoch, n) == (2, 20): told = open("note").read()
        if (epoch, n) in ((3, 10), (3, 30)): open("note", "w").write("b")""")
    room = beside.room()
    beside.until(lambda: (beside.work / "note").read_text() == "b", "a later text", 30)
    told = beside.audit(room)
    assert told["verdict"] == "bit-exact", told


def test_a_file_that_changes_under_it_ends_it(beside: Beside):
    beside.start("""if (epoch, n) == (0, 5): open("note", "w").write("a")
        if (epoch, n) == (2, 20): told = open("note").read()
        if (epoch, n) == (5, 0): open("note", "w").write("b")""")
    room = beside.room()
    os.killpg(beside.run.pid, signal.SIGSTOP)
    told = beside.audit(room, lambda: os.killpg(beside.run.pid, signal.SIGCONT))
    assert told["verdict"] == "not audited" and "note" in told["why"], told["why"]


def test_two_rooms_are_never_made_at_a_time(beside: Beside):
    beside.start(every="20steps")
    beside.room()
    beside.until(lambda: beside.state()["image"]["n"] > 8, "more images")
    assert len(list(beside.resume.glob("audit/*"))) == 1
