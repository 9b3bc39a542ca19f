"""How far a training is, out of the loops that its author wrote: each line tells the part of all its steps that is done, or nothing."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from test_split_clock import hooks, train  # noqa: F401

from stoker.plane import steps

pytest.importorskip("torch")

START = """
import argparse
data = DataLoader(TensorDataset(torch.randn(40, 4), torch.randn(40, 1)), 8, shuffle=True)
def step(x, y, s=0.06):
    o.zero_grad()
    (m(x) - y).square().mean().backward()
    o.step()
    time.sleep(s)
"""
KNOWN = {
    "a function for an epoch, and arguments": (30, """
def epoch(args, n):
    for i, (x, y) in enumerate(data):
        step(x, y, args.sleep)
def main():
    args = argparse.Namespace(epochs=6, sleep=0.06)
    for n in range(1, args.epochs + 1):
        epoch(args, n)
main()
"""),
    "a limit, and a break behind it": (40, """
n, max_iters = 0, 39
while True:
    x = torch.randn(8, 4)
    step(x, x[:, :1])
    n += 1
    if n > max_iters:
        break
"""),
    "while there is something to do": (40, """
class Config:
    steps = 40
def run(config):
    done = 0
    while done < config.steps:
        x = torch.randn(8, 4)
        step(x, x[:, :1])
        done += 1
run(Config())
"""),
    "steps with an iterator that begins anew": (40, """
it = iter(data)
for i in range(40):
    try:
        x, y = next(it)
    except StopIteration:
        it = iter(data)
        x, y = next(it)
    step(x, y)
"""),
    "folds of epochs, a bar around the batches": (40, """
def tqdm(it, **more):
    yield from it
config = {"train": {"epochs": 4}}
for fold in range(2):
    for epoch in tqdm(range(config["train"]["epochs"])):
        for x, y in tqdm(data, desc="x"):
            step(x, y)
"""),
    "batches in a list": (40, """
batches = [torch.randn(8, 4) for _ in range(10)]
for epoch in range(4):
    for i, x in enumerate(batches):
        step(x, x[:, :1])
"""),
}
SILENT = {
    "no limit that the text tells": "for x, y in (b for _ in range(6) for b in data):\n    step(x, y)\n",
    "a counter that may go back": """
bad, patience = 0, 100
for_how_long = iter([True] * 30 + [False])
while next(for_how_long):
    x = torch.randn(8, 4)
    step(x, x[:, :1])
    bad += 1
    if bad > 20:
        bad = 0
    if bad >= patience:
        break
""",
    "locals() is asked for by the function": """
def main(n=6):
    before = locals()
    for epoch in range(n):
        for x, y in data:
            step(x, y)
    assert set(before) == {"n"}, before
main()
""",
}


@pytest.mark.parametrize("name", KNOWN)
def test_the_part_that_is_done(name, hooks, tmp_path):  # noqa: F811
    total, code = KNOWN[name]
    told = [line for line in train(hooks, tmp_path, START + code).lines if "done" in line]
    assert len(told) >= 2, "no line tells it"
    for line in told:
        assert line["done"] == pytest.approx(line["step"] / total, abs=1.6 / total)
    last = steps.summary(told)
    assert 0 < last["eta_s"] < 2.0  # of less than three seconds in all


@pytest.mark.parametrize("name", SILENT)
def test_what_is_not_known_is_not_told(name, hooks, tmp_path):  # noqa: F811
    assert not [line for line in train(hooks, tmp_path, START + SILENT[name]).lines if "done" in line]


@pytest.mark.skipif(sys.version_info >= (3, 13), reason="there, a look at locals leaves nothing behind")
def test_nothing_is_held_after_a_look(hooks, tmp_path: Path):  # noqa: F811
    """What a function lets go is gone, though its variables were looked at meanwhile."""
    code = START + """
import gc, weakref
seen = []
def main():
    for epoch in range(30):
        x = torch.randn(8, 4)
        seen.append(weakref.ref(x))
        step(x, x[:, :1])
        del x
        gc.collect()
        assert all(r() is None for r in seen), epoch
main()
"""
    assert [line for line in train(hooks, tmp_path, code).lines if "done" in line]


def test_one_training_after_another_begins_at_nothing():
    lines = [{"at": at, "done": done, "step": 5, "steps": 1, "s": 1.0, "ms": {"forward": 1000.0}}
             for at, done in ((0, 0.1), (10, 0.9), (20, 0.1), (30, 0.2))]
    told = steps.summary(lines)
    assert (told["done"], told["eta_s"]) == (0.2, 80.0)
    assert steps.summary(lines[:1])["eta_s"] is None
