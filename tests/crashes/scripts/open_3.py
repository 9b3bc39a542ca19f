"""A folder is missing, and the fallback does not even parse."""
import pathlib
import sys

import torch

OUT = pathlib.Path("runs/exp1")
pathlib.Path("fallback.py").write_text("FOLDER = 1\nNAMES = {1: 2, 3 4}\n")


def checkpoint(model, step):
    target = OUT / f"step{step}" / "note.txt"
    with target.open("w") as f:
        f.write("step %d\n" % step)


def train():
    OUT.mkdir(parents=True)
    (OUT / "step0").mkdir()
    torch.manual_seed(7)
    model = torch.nn.Conv1d(1, 2, 3)
    opt = torch.optim.SGD(model.parameters(), lr=0.05)
    for step in range(10):
        opt.zero_grad()
        model(torch.randn(2, 1, 9)).mean().backward()
        opt.step()
        if step % 5 == 0:
            checkpoint(model, step)
            print("saved", step)


try:
    train()
except FileNotFoundError:
    import fallback  # here or at fallback.py:2
    print(fallback.NAMES)
