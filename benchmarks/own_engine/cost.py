"""Microseconds of CPU time a step of a tiny model, with each library that is installed:
`cost.py STEPS TURNS` prints JSON.

Sides take turns.
"""

from __future__ import annotations

import importlib.util
import json
import logging
import sys
import tempfile
import time
import warnings
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import stoker

torch.set_num_threads(1)
warnings.filterwarnings("ignore")
STEPS, TURNS = int(sys.argv[1]), int(sys.argv[2])
batches = [(torch.randn(32, 784), torch.randint(0, 10, (32,))) for _ in range(STEPS)]


class Ready:
    """The batches as a loader that does nothing; Lightning takes a list for several loaders."""

    def __iter__(self):
        return iter(batches)

    def __len__(self):
        return STEPS


def parts() -> tuple[nn.Module, torch.optim.Optimizer]:
    model = nn.Sequential(nn.Linear(784, 32), nn.ReLU(), nn.Linear(32, 10))
    return model, torch.optim.SGD(model.parameters(), lr=0.01)


def raw() -> float:
    model, moving = parts()
    began = time.process_time()
    for x, y in batches:
        F.cross_entropy(model(x), y).backward()
        moving.step()
        moving.zero_grad()
    return time.process_time() - began


def engine() -> float:
    model, moving = parts()
    one = stoker.Engine(folder=tempfile.mkdtemp(dir="."), save="1h")
    one.setup(model, moving)
    for _ in one.epochs(1):
        began = time.process_time()
        for x, y in one.batches(batches):
            one.step(F.cross_entropy(model(x), y))
        spent = time.process_time() - began
    return spent


def accelerate() -> float:
    from accelerate import Accelerator

    accelerator = Accelerator(cpu=True)
    model, moving = accelerator.prepare(*parts())
    began = time.process_time()
    for x, y in batches:
        with accelerator.accumulate(model):
            accelerator.backward(F.cross_entropy(model(x), y))
            moving.step()
            moving.zero_grad()
    return time.process_time() - began


def lightning() -> float:
    import lightning.pytorch as pl

    logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)

    class Net(pl.LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.net, self.moving = parts()

        def training_step(self, batch, batch_idx):
            return F.cross_entropy(self.net(batch[0]), batch[1])

        def configure_optimizers(self):
            return self.moving

        def on_train_epoch_start(self):
            self.began = time.process_time()

        def on_train_epoch_end(self):
            self.spent = time.process_time() - self.began

    quiet = {
        "logger": False,
        "enable_checkpointing": False,
        "enable_progress_bar": False,
        "enable_model_summary": False,
    }
    module = Net()
    pl.Trainer(max_epochs=1, accelerator="cpu", devices=1, **quiet).fit(module, Ready())
    return module.spent


def ignite() -> float:
    from ignite.engine import Engine

    model, moving = parts()

    def update(_, batch):
        F.cross_entropy(model(batch[0]), batch[1]).backward()
        moving.step()
        moving.zero_grad()

    one = Engine(update)
    began = time.process_time()
    one.run(batches, max_epochs=1)
    return time.process_time() - began


SIDES: dict[str, Callable[[], float]] = {"raw": raw, "stoker.Engine": engine}
SIDES |= {
    side.__name__: side for side in (accelerate, lightning, ignite) if importlib.util.find_spec(side.__name__)
}
DataLoader(TensorDataset(torch.zeros(1)))  # what its first use imports
found: dict[str, list[float]] = {name: [] for name in SIDES}
for turn in range(TURNS + 1):
    for name in list(SIDES) if turn % 2 else list(SIDES)[::-1]:
        spent = SIDES[name]() / STEPS * 1e6
        if turn:
            found[name].append(spent)
print(json.dumps(found))
