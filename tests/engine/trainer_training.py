"""The training of engine_training.py as a Task of a Trainer, with a callback that has state. Every batch it sees is written to a file."""

import hashlib
import json
import os
import random
import signal
import sys

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, Dataset

import stoker

OPTIONS = {"workers": 0, "accumulate": 1, "plateau": False, "epochs": 3, "save": "4step", "samples": 62, "die_at": None, **json.loads(sys.argv[1])}
SEEN = os.open(f"seen{os.environ.get('RANK', '0')}.txt", os.O_WRONLY | os.O_CREAT | os.O_APPEND)


class Points(Dataset):
    def __len__(self):
        return OPTIONS["samples"]

    def __getitem__(self, i):
        x = torch.linspace(-1, 1, 12).roll(i % 12) * (1 + i % 5) + 0.1 * torch.randn(12)
        return x * random.uniform(0.9, 1.1) + float(np.random.normal(0, 0.05)), i % 3, i


class Kinds(stoker.Task):
    watch = "right"

    def build(self):
        self.model = nn.Sequential(nn.Linear(12, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Dropout(0.3), nn.Linear(16, 3))
        self.opt = torch.optim.AdamW(self.model.parameters(), lr=3e-2)
        self.ema = stoker.EMA(self.model, decay=0.9)
        self.sched = (torch.optim.lr_scheduler.ReduceLROnPlateau(self.opt, mode="max", patience=0, factor=0.5) if OPTIONS["plateau"]
                      else stoker.sched.cosine(self.opt, "3ep", warmup="20sample"))

    def see(self, name, ids, x):
        text = hashlib.sha256(x.numpy().tobytes()).hexdigest()[:12]
        micro = self.engine._core.micro
        os.write(SEEN, f"{name}.{self.engine._core.epoch}.{micro.number} {','.join(map(str, ids.tolist()))} {text} {micro.ghost}\n".encode())

    def loss(self, batch):
        x, y, ids = batch
        self.see("train", ids, x)
        return F.cross_entropy(self.model(x), y)

    def score(self, batch):
        x, y, ids = batch
        self.see("test", ids, x)
        return {"right": (self.model(x).argmax(1) == y).float(), "loss": F.cross_entropy(self.model(x), y)}


class Count:
    """A callback that remembers."""

    def __init__(self):
        self.moments = {}
        self.drawn = 0.0

    def _add(self, moment):
        self.moments[moment] = self.moments.get(moment, 0) + 1

    def step(self, trainer):
        self._add("step")
        self.drawn += random.random()
        if OPTIONS["die_at"] == trainer.engine.steps and os.environ["STARTS"] == "1":
            trainer.engine._core.keeper.wait()
            os.kill(os.getpid(), signal.SIGKILL)

    def epoch(self, trainer, epoch):
        self._add("epoch")
        if epoch == 2 and OPTIONS["epochs"] > 3:
            trainer.stop()

    def evaluate(self, trainer, scores):
        self._add("evaluate")

    def state_dict(self):
        return {"moments": dict(self.moments), "drawn": self.drawn}

    def load_state_dict(self, state):
        self.moments, self.drawn = dict(state["moments"]), state["drawn"]


count = Count()
data = Points()
trainer = stoker.Trainer("run", epochs=OPTIONS["epochs"], seed=3, accumulate=OPTIONS["accumulate"], save=OPTIONS["save"], clip=1.0, callbacks=[count])
train = DataLoader(data, batch_size=4, shuffle=True, num_workers=OPTIONS["workers"])
history = trainer.fit(Kinds(), train, DataLoader(data, batch_size=9))
print("RESULT", trainer.engine.steps, json.dumps(history), count.moments, count.drawn, trainer.task.opt.param_groups[0]["lr"], random.random())
