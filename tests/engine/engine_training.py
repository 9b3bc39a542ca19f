"""A small training with everything that has to survive a kill; options come as JSON. Every batch it sees is written to a file."""

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
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn
from torch.utils.data import DataLoader, Dataset, IterableDataset, Sampler

import stoker

OPTIONS = {"workers": 0, "accumulate": 1, "precision": "fp32", "dropout": False, "norm": False, "ema": False, "plateau": False, "gan": False,
     "sampler": False, "epochs": 3, "save": "4step", "die_at": None, "samples": 62, "batch": 4, "clip": None, "stop_early": False, "ahead": False, "stream": None, "hurt": None, **json.loads(sys.argv[1])}
RANK = os.environ.get("RANK", "0")
SEEN = os.open(f"seen{RANK}.txt", os.O_WRONLY | os.O_CREAT | os.O_APPEND)


class Pictures(Dataset):
    """Points with three kinds of noise: of torch, random and numpy."""

    def __len__(self):
        return OPTIONS["samples"]

    def __getitem__(self, i):
        x = torch.linspace(-1, 1, 12).roll(i % 12) * (1 + i % 5) + 0.1 * torch.randn(12)
        return x * random.uniform(0.9, 1.1) + float(np.random.normal(0, 0.05)), i % 3, i


class Flow(IterableDataset):
    """The same points as a stream; `Kept` knows where it is."""

    def __iter__(self):
        yield from map(Pictures().__getitem__, range(OPTIONS["samples"]))


class Kept(IterableDataset):
    at = 0

    def __iter__(self):
        while self.at < OPTIONS["samples"]:
            self.at += 1
            yield Pictures()[self.at - 1]
        self.at = 0

    def state_dict(self):
        return {"at": self.at}

    def load_state_dict(self, state):
        self.at = state["at"]


class Waves(Sampler):
    """A sampler with a counter and a generator of its own."""

    def __init__(self, n):
        self.n = n
        self.rounds = 0
        self.rng = np.random.default_rng(5)

    def __len__(self):
        return self.n

    def __iter__(self):
        self.rounds += 1
        order = np.roll(self.rng.permutation(self.n), self.rounds).tolist()
        for i in order:
            yield (i + torch.randint(0, 3, ()).item()) % self.n


class Net(nn.Module):
    """With a buffer outside of state_dict that training uses and changes."""

    def __init__(self):
        super().__init__()
        layers = [nn.Linear(12, 16)]
        layers += [nn.BatchNorm1d(16)] if OPTIONS["norm"] else []
        layers += [nn.ReLU()] + ([nn.Dropout(0.3)] if OPTIONS["dropout"] else [])
        self.body = nn.Sequential(*layers, nn.Linear(16, 3))
        self.register_buffer("pull", torch.zeros(()), persistent=False)

    def forward(self, x):
        out = self.body(x)
        if self.training:
            with torch.no_grad():
                self.pull.mul_(0.9).add_(out.float().mean(), alpha=0.1)
        return out - self.pull


class Running:
    """A metric of the user's own."""

    def __init__(self):
        self.sum, self.count = torch.zeros(()), 0

    def add(self, value):
        self.sum, self.count = self.sum + value, self.count + 1

    def state_dict(self):
        return {"sum": self.sum, "count": self.count}

    def load_state_dict(self, state):
        self.sum, self.count = state["sum"], state["count"]


def see(name, epoch, ids, x):
    print(end="", flush=True)
    text = hashlib.sha256(x.numpy().tobytes()).hexdigest()[:12]
    os.write(SEEN, f"{name}.{epoch}.{engine._core.micro.number} {','.join(map(str, ids.tolist()))} {text} {engine._core.micro.ghost}\n".encode())


def perhaps_die():
    if OPTIONS["die_at"] is not None and engine.steps == OPTIONS["die_at"] and os.environ["STARTS"] == "1":
        engine._core.keeper.wait()
        os.kill(os.getpid(), signal.SIGKILL)


engine = stoker.Engine(folder="run", seed=3, precision=OPTIONS["precision"], accumulate=OPTIONS["accumulate"], save=OPTIONS["save"], clip=OPTIONS["clip"])
engine._core.moves = OPTIONS["ahead"]  # read one batch ahead, as on a GPU
data = Pictures()
sampler = Waves(len(data)) if OPTIONS["sampler"] else None
train = DataLoader(data, batch_size=OPTIONS["batch"], shuffle=sampler is None, sampler=sampler, num_workers=OPTIONS["workers"])
if OPTIONS["stream"]:
    train = DataLoader({"flow": Flow, "kept": Kept}[OPTIONS["stream"]](), batch_size=OPTIONS["batch"], num_workers=OPTIONS["workers"])
test = DataLoader(data, batch_size=9, num_workers=min(OPTIONS["workers"], 1))
model = Net()
opt = torch.optim.AdamW(model.parameters(), lr=3e-2)
things = [opt, model, train, test]
if OPTIONS["gan"]:
    critic = nn.Sequential(nn.Linear(12, 8), nn.LeakyReLU(0.2), nn.Linear(8, 1))
    maker = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 12))
    opt_c, opt_m = torch.optim.Adam(critic.parameters(), lr=1e-2), torch.optim.SGD(maker.parameters(), lr=1e-2, momentum=0.9)
    things += [critic, opt_m, opt_c, maker]
sched = (torch.optim.lr_scheduler.ReduceLROnPlateau(opt, patience=0, factor=0.5) if OPTIONS["plateau"]
         else torch.optim.lr_scheduler.SequentialLR(opt, [torch.optim.lr_scheduler.LinearLR(opt, 0.3, 1, 5), torch.optim.lr_scheduler.CosineAnnealingLR(opt, 20)], [5]))
ema = AveragedModel(model, multi_avg_fn=get_ema_multi_avg_fn(0.9), use_buffers=True) if OPTIONS["ema"] else None
engine.setup(*things, sched, *([ema] if ema else []))

if OPTIONS["hurt"]:
    import stoker.engine.data as feeds

    exec(OPTIONS["hurt"], {"engine": engine, "feeds": feeds})

running = engine.keep(running=Running())
history = engine.keep(history=[])
best, bad, total = engine.keep(best=1e9, bad=0, total=0.0)
for epoch in engine.epochs(OPTIONS["epochs"]):
    for x, y, ids in engine.batches(train):
        see("train", epoch, ids, x)
        if OPTIONS["gan"]:
            noise = torch.randn(len(x), 4)
            engine.backward(F.softplus(-critic(x)).mean() + F.softplus(critic(maker(noise).detach())).mean(), opt_c)
            engine.update(opt_c)
            engine.backward(F.softplus(-critic(maker(noise))).mean(), opt_m)
            engine.update(opt_m)
            engine.backward(F.cross_entropy(model(x), y), opt)
            moved = engine.update(opt)
            loss = engine._core.gradients.loss.detach()
        else:
            loss = F.cross_entropy(model(x), y)
            moved = engine.step(loss)
        if moved and ema:
            ema.update_parameters(model)
        if moved and not OPTIONS["plateau"]:
            sched.step()
        running.add(loss.detach())
        total = engine.keep(total=total + loss.item())
        if moved:
            engine.log(loss=loss, lr=opt.param_groups[0]["lr"])
        perhaps_die()
    wrong = count = 0
    with engine.eval(model):
        for x, y, ids in engine.batches(test):
            see("test", epoch, ids, x)
            wrong += F.cross_entropy(model(x), y, reduction="sum").item()
            count += len(x)
    score = engine.average(wrong / max(count, 1), count)
    best, bad = engine.keep(best=min(best, score), bad=0 if score < best else bad + 1)
    history.append(round(score, 9))
    engine.save(score=-score)
    if OPTIONS["plateau"]:
        sched.step(score)
    engine.log(score=score)
    if OPTIONS["stop_early"] and epoch == 1:
        break
after = torch.randn(2).tolist()
print("RESULT", engine.steps, [round(h, 6) for h in history], round(best, 9), bad, total, running.count, float(running.sum), after, random.random())
