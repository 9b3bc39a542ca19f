"""Who got a gradient from a backward, told the same way whenever the garbage collector comes by."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

SRC = Path(__file__).resolve().parents[2] / "src"
# One model after the other; each hangs in a circle, so that only the garbage collector takes it. Prints what each backward would log.
FOLDS = """
import gc, sys
import torch
from torch import nn
from stoker.inside.resume.compute import gradients
gc.disable()
always, zeroed = sys.argv[1] == "always", sys.argv[2] == "zeroed"
told = []
def backward(loss):
    reach = gradients.before(loss, sys._getframe())
    loss.backward()
    told.append(gradients.after(reach))
kept = nn.Linear(3, 3)
gradients.know(kept.parameters())
for fold in range(4):
    model = nn.Sequential(nn.Linear(3, 4), nn.Linear(4, 1))
    model.circle = [model]
    gradients.know(model.parameters())
    for step in range(3):
        model.zero_grad()
        backward(model(torch.ones(2, 3)).sum())
        if step == 1:
            backward(kept(torch.ones(2, 3)).sum())
    if zeroed:
        model.zero_grad()
    del model
    if always:
        gc.collect()
backward(kept(torch.ones(2, 3)).sum())
print(told)
"""
# A hook that uses a gradient up at once, leaves that nobody knew, a leaf given to a module, gradients that add up.
GHOST = """
import sys
import torch
from torch import nn
from stoker.inside.resume.compute import gradients
def life(ghost, log):
    torch.manual_seed(0)
    gradients._leaves.clear(), gradients._known.clear(), gradients._patterns.clear(), gradients._by_number.clear()
    gradients._count, gradients._last = 0, None
    gradients._places.clear()
    net, other, seen = nn.Linear(3, 3), nn.Linear(3, 1), []
    gradients.know([*net.parameters(), *other.parameters()])
    x = torch.ones(2, 3, requires_grad=True)
    hook = net.weight.register_post_accumulate_grad_hook(lambda p: setattr(p, "grad", None))
    for step in range(6):
        if step == 3:
            hook.remove()
        if step == 5:
            net.weight.grad = torch.ones(3, 3)
            net.weight.register_post_accumulate_grad_hook(lambda p: setattr(p, "grad", None))
        gradients.know_input(x)
        out = net(x) if step % 2 or step > 2 else other(x)
        reach = gradients.before(out.sum(), sys._getframe())
        if ghost:
            gradients.stand_in(log.pop(0), reach)
        else:
            out.sum().backward()
            log.append(gradients.after(reach))
        seen.append([p.grad is None for p in [*net.parameters(), *other.parameters(), x]])
        if step == 3:
            net.zero_grad()
    return seen
log = []
one = life(False, log)
assert one == life(True, log), one
assert one[5][0] and not one[3][0], one
print("the same")
"""


def run(program: str, *args: str) -> str:
    env = {**os.environ, "PYTHONPATH": str(SRC), "OMP_NUM_THREADS": "1"}
    done = subprocess.run([sys.executable, "-c", program, *args], env=env, capture_output=True, text=True, timeout=100, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_moment_of_collection_does_not_show() -> None:
    for zeroed in ("zeroed", "left"):
        assert run(FOLDS, "always", zeroed) == run(FOLDS, "never", zeroed)


def test_a_ghost_gives_and_takes_the_same_gradients() -> None:
    assert "the same" in run(GHOST)
