"""The digits as a Task for a Trainer: a schedule with warm-up, averaged weights, early stopping,
the best checkpoint.

    python trainer.py
    torchrun --nproc-per-node 2 trainer.py
"""

import torch
import torch.nn.functional as F
from digits import load
from torch import nn
from torch.utils.data import DataLoader

import stoker


class Digits(stoker.Task):
    watch = "accuracy"  # its best checkpoint is kept

    def build(self):
        self.model = nn.Sequential(
            nn.Flatten(), nn.Linear(64, 128), nn.ReLU(), nn.Dropout(0.2), nn.Linear(128, 10)
        )
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=3e-3)
        self.schedule = stoker.sched.cosine(self.optimizer, "30ep", warmup="1ep")
        self.average = stoker.EMA(self.model, decay=0.98)

    def loss(self, batch):
        images, labels = batch
        return F.cross_entropy(self.model(images), labels)

    def score(self, batch):
        images, labels = batch
        return {"accuracy": (self.model(images).argmax(1) == labels).float()}


class Patience:
    """A callback: stops when the accuracy has not improved for five epochs."""

    def __init__(self):
        self.best, self.worse = 0.0, 0

    def evaluate(self, trainer, scores):
        self.worse = 0 if scores["accuracy"] > self.best else self.worse + 1
        self.best = max(self.best, scores["accuracy"])
        if self.worse == 5:
            trainer.stop()

    def state_dict(self):
        return {"best": self.best, "worse": self.worse}

    def load_state_dict(self, state):
        self.best, self.worse = state["best"], state["worse"]


train_set, test_set = load()
trainer = stoker.Trainer("runs/trainer", epochs=30, seed=1, save="20s", callbacks=[patience := Patience()])
trainer.fit(Digits(), DataLoader(train_set, batch_size=32, shuffle=True), DataLoader(test_set, batch_size=64))
trainer.engine.export("trainer.safetensors", best=True)
trainer.engine.print(f"best test accuracy {100 * patience.best:.2f} % of {len(trainer.history)} epochs")
