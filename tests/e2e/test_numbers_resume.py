"""What a script hands to TensorBoard and tqdm, through kills and exact resumes: one curve, no gap, no step twice, the values of an undisturbed run."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest
from benchmarks.ground import Ground, kill, until
from training import python_with_torch

from stoker.base import reading

pytest.importorskip("tqdm")
pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]
STEPS = 150
TRAIN = """
import argparse, time, torch
from torch import nn
from tqdm import trange
from torch.utils.tensorboard import SummaryWriter
parser = argparse.ArgumentParser()
parser.add_argument("steps", type=int)
parser.add_argument("--pause", type=float)
args = parser.parse_args()
torch.manual_seed(0)
model = nn.Linear(8, 1)
opt = torch.optim.SGD(model.parameters(), lr=0.05)
train, val = SummaryWriter("runs/train"), SummaryWriter("runs/val")
x = torch.randn(64, 8)
y = x.sum(1, keepdim=True)
bar = trange(args.steps, mininterval=60)
for step in bar:
    i = torch.randint(0, 64, (16,))
    loss = nn.functional.mse_loss(model(x[i]), y[i])
    opt.zero_grad()
    loss.backward()
    opt.step()
    train.add_scalar("loss", loss.item(), step)
    bar.set_postfix(squared=loss.item() ** 2, refresh=False)
    if step % 10 == 0:
        val.add_scalar("loss", loss.item() + 1, step)
        train.add_scalars("both", {"a": step, "b": 2.0 * step}, step)
    time.sleep(args.pause)
print("ended", loss.item())
"""


def numbers(ground: Ground, ref: str) -> dict[str, list]:
    told = ground.stoker("plot", ref, "--json").json()
    assert {one["source"] for one in told["series"]} == {"tensorboard", "tqdm"}
    return {one["name"]: [point[:2] for point in one["points"]] for one in told["series"]}


def test_a_curve_through_a_kill_and_an_exact_resume(ground: Ground):
    python = python_with_torch()
    ground.script("train.py", TRAIN)
    options = ["--env", "STOKER_IMAGE_EVERY=30steps", "--env", "OMP_NUM_THREADS=1"]
    ground.stoker("run", "--name", "straight", *options, "--", python, "train.py", str(STEPS), "--pause", "0", timeout_s=120).ok()
    run = ground.detach("--name", "killed", *options, "--", python, "train.py", str(STEPS), "--pause", "0.1")
    state = Path(run["folder"]) / "resume" / "state.json"
    begun = until(lambda: (reading.read_json(state) or {}).get("image"), 120, "an image")["step"]
    written = Path(run["folder"]) / "attempts" / "1" / "hooks" / "numbers.jsonl"
    until(lambda: written.read_bytes().count(b'"runs/train"}') > begun + 8, 60, "steps after the image")
    kill(ground.run_pid(run["id"]), signal.SIGKILL)
    ground.wait_state("killed", "failed")
    ground.stoker("start", "killed").ok()
    ended = ground.wait_state("killed", timeout_s=200)
    assert ended["state"] == "done" and ended["attempts"] == 2
    assert ground.show("killed")["resume"]["came_back"]
    straight, through = numbers(ground, "straight"), numbers(ground, "killed")
    assert [at for at, _ in straight["train/loss"]] == list(range(STEPS))
    assert set(straight) == {"train/loss", "val/loss", "train/both/a", "train/both/b", "squared"}
    assert [at for at, _ in straight["squared"]] == list(range(1, STEPS + 1))
    assert through == straight
    assert ground.stoker("compare", "straight", "killed", "--json").json()["parameters"] == ["pause"]
