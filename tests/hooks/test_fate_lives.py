"""How lives end: SIGTERM, a second process that trains, a script that ends before its image. Real scripts, real signals."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

SRC = Path(__file__).resolve().parents[2] / "src"
pytestmark = pytest.mark.timeout(500)  # six starts of torch on a busy machine
LOOP = """
import os, sys, torch
from torch import nn
torch.manual_seed(0)
m = nn.Linear(4, 1); o = torch.optim.SGD(m.parameters(), 1e-3)
x = torch.randn(8, 4)
for i in range({steps}):
    l = m(x).pow(2).mean(); o.zero_grad(); l.backward(); o.step()
    {more}
    if i % 500 == 0:
        print(i, l.item(), flush=True)
print("end", m.weight.sum().item())
"""


class Trial:
    """A script in a folder of its own, under the hooks."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.started = folder, []
        entry = folder / "hooks" / "stoker_hooks"
        shutil.copytree(SRC / "stoker" / "inside", entry, ignore=shutil.ignore_patterns("__pycache__"))
        shutil.copy(entry / "entry" / "sitecustomize.py", folder / "hooks")
        for name in ("records", "resume", "work"):
            (folder / name).mkdir(mode=0o700)

    def start(self, script: str, attempt: int = 1, every: str = "auto", **more: str) -> subprocess.Popen:
        path = self.folder / "script.py"
        path.write_text(textwrap.dedent(script))
        env = {**os.environ, "PYTHONPATH": str(self.folder / "hooks"), "STOKER_HOOKS": str(self.folder / "records"), "STOKER_RESUME": "auto",
               "STOKER_RESUME_DIR": str(self.folder / "resume"), "STOKER_ATTEMPT": str(attempt), "STOKER_IMAGE_EVERY": every,
               "PYTHONHASHSEED": "1", "OMP_NUM_THREADS": "1", **more}
        with open(self.folder / f"out{attempt}", "w") as out, open(self.folder / f"err{attempt}", "w") as err:
            process = subprocess.Popen([sys.executable, str(path)], cwd=self.folder / "work", env=env, stdout=out, stderr=err)
        self.started.append(process)
        return process

    def state(self) -> dict:
        try:
            return json.loads((self.folder / "resume" / "state.json").read_text())
        except (OSError, ValueError):
            return {}

    def out(self, attempt: int) -> str:
        return (self.folder / f"out{attempt}").read_text()

    def err(self, attempt: int) -> str:
        return (self.folder / f"err{attempt}").read_text()

    def until(self, what: object, seconds: float = 150) -> None:
        deadline = time.monotonic() + seconds
        while not what():
            assert time.monotonic() < deadline, (self.state(), self.err(1)[-2000:])
            time.sleep(0.02)


@pytest.fixture
def trial(tmp_path: Path) -> Iterator[Trial]:
    made = Trial(tmp_path)
    yield made
    for process in made.started:
        if process.poll() is None:
            process.kill()
        process.wait()


def test_sigterm_leaves_an_image_that_the_next_life_uses(trial: Trial) -> None:
    script = LOOP.format(steps=30_000, more="")
    first = trial.start(script)
    trial.until(lambda: trial.out(1))
    first.send_signal(signal.SIGTERM)
    assert first.wait(60) == -signal.SIGTERM
    assert trial.state()["state"] == "resumable" and trial.state()["image"]["step"] > 0, (trial.state(), trial.err(1))
    second = trial.start(LOOP.format(steps=30_000, more=""), attempt=2)
    trial.until(lambda: trial.state().get("resumed"))
    told = trial.state()["resumed"]
    assert told["step"] == trial.state()["image"]["step"] and told["values_equal"] >= 3
    second.send_signal(signal.SIGKILL)


def test_a_sigterm_that_the_script_takes_itself_is_its_own(trial: Trial) -> None:
    more = "i == 0 and signal.signal(signal.SIGTERM, lambda *a: (os.write(1, b'mine\\n'), os._exit(5)))"
    first = trial.start("import signal\n" + LOOP.format(steps=10**6, more=more))
    trial.until(lambda: "500" in trial.out(1))
    first.send_signal(signal.SIGTERM)
    assert first.wait(60) == 5 and "mine" in trial.out(1)


def test_a_second_process_that_trains_ends_exact_resume_for_the_run(trial: Trial) -> None:
    script = LOOP.format(steps=40, more="")
    assert trial.start(script, every="10steps").wait(150) == 0
    assert trial.state()["state"] == "resumable"
    assert trial.start(script, every="10steps").wait(150) == 0
    assert trial.state()["state"] == "not resumable" and "two processes train" in trial.state()["reason"]
    assert trial.start(script, attempt=2, every="10steps").wait(150) == 0
    assert trial.out(2).count("end") == 1 and "two processes train" in trial.state()["reason"]


def test_a_script_that_goes_another_way_starts_from_its_beginning(trial: Trial) -> None:
    more = "os.environ.get('STOP') and i == int(os.environ['STOP']) and sys.exit(3)"
    script = LOOP.format(steps=30_000, more=more)
    first = trial.start(script, every="2000steps")
    trial.until(lambda: trial.state().get("image"))
    lines = trial.out(1).count("\n")
    trial.until(lambda: trial.out(1).count("\n") > lines + 1)  # enough behind the image for a tail
    first.kill()
    first.wait()
    assert trial.start(script, attempt=2, every="1000steps", STOP="5").wait(150) == 3
    assert trial.state()["tried"] and trial.state().get("resumed") is None
    assert "Retrying from" in trial.err(2) and trial.out(2).startswith("0 ")


FOLDS = """
import torch
from torch import nn
torch.manual_seed(0)
X = torch.randn(320, 8)
def fold(k):
    m = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.BatchNorm1d(32), nn.Linear(32, 1))
    o = torch.optim.Adam(m.parameters(), 1e-2)
    for i in range(400):
        x = X[(i * 16) % 320:][:16]
        loss = (m(x).squeeze(1) - x.sum(1)).pow(2).mean(); o.zero_grad(); loss.backward(); o.step()
for k in range(3):
    fold(k)
    print(k, flush=True)
"""


def test_the_fingerprint_of_models_that_the_script_dropped_is_the_same_after_a_kill(trial: Trial) -> None:
    """verify-resume keeps every model alive to the end; images and what they are compared with must know of them."""
    plain, whole = trial.folder / "plain.json", trial.folder / "whole.json"
    assert trial.start(FOLDS, STOKER_RESUME="off", STOKER_DIGEST=str(plain)).wait(150) == 0
    first = trial.start(FOLDS, every="100steps", STOKER_DIGEST=str(whole))
    trial.until(lambda: (trial.state().get("image") or {}).get("step", 0) > 800)  # two models are gone by then
    time.sleep(0.05)  # a step or two behind the image
    first.kill()
    first.wait()
    assert not whole.exists(), "it was faster than the kill"
    assert trial.start(FOLDS, attempt=2, every="100steps", STOKER_DIGEST=str(whole)).wait(150) == 0
    assert trial.state()["resumed"]["step"] > 400, trial.state()
    assert json.loads(whole.read_text()) == json.loads(plain.read_text())
    assert not trial.state()["reason"]  # reading the weights for the fingerprint is no event of the script's


def test_what_ends_after_the_hooks_is_no_part_of_the_life(trial: Trial) -> None:
    """What was registered with atexit before torch came runs after our own end: killed in the middle of it, the next life still comes back."""
    script = """
    import atexit, os, time
    def bye():
        for _ in range(100 if os.environ['STOKER_ATTEMPT'] == '1' else 1):
            os.getppid(), time.time(), os.path.exists('nothing')
            open('bye.txt', 'w').close()
            time.sleep(0.1)
    atexit.register(bye)
    """
    script = textwrap.dedent(script) + LOOP.format(steps=600, more="")
    first = trial.start(script, every="200steps")
    trial.until((trial.folder / "work" / "bye.txt").exists)
    time.sleep(1.2)  # what were logged now would be on the disk
    first.kill()
    first.wait()
    assert trial.start(script, attempt=2, every="200steps").wait(150) == 0
    assert trial.state()["resumed"]["step"] > 0, (trial.state(), trial.err(2))
    assert trial.out(1).splitlines()[-1] == trial.out(2).splitlines()[-1]
