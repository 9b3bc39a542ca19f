"""A training with the engine that has everything a kill could hurt. argv: options as JSON.
Its last line holds hashes of its end."""

import hashlib
import json
import os
import sys

os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")

import torch
import torch.nn.functional as F
from torch import nn
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn
from torch.utils.data import DataLoader, Dataset

import stoker

OPTIONS = {
    "device": "cuda",
    "precision": "fp32",
    "deterministic": False,
    "benchmark": False,
    "resize": False,
    "ahead": True,
    "compile": False,
    "epochs": 12,
    "samples": 2048,
    "workers": 2,
    "save": "10step",
    **json.loads(sys.argv[1]),
}
if OPTIONS["deterministic"]:
    torch.use_deterministic_algorithms(True)
torch.backends.cudnn.benchmark = OPTIONS["benchmark"]


class Pictures(Dataset):
    """Noise is drawn for each sample."""

    def __len__(self):
        return OPTIONS["samples"]

    def __getitem__(self, index):
        picture = torch.full((3, 16, 16), (index % 10) / 10) + 0.3 * torch.randn(3, 16, 16)
        return picture.roll(int(torch.randint(0, 4, ())), 2), index % 10


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1, self.norm1 = nn.Conv2d(3, 32, 3, padding=1), nn.BatchNorm2d(32)
        self.conv2, self.norm2 = nn.Conv2d(32, 64, 3, padding=1), nn.BatchNorm2d(64)
        self.dropout = nn.Dropout(0.3)
        self.head = nn.Linear(64 * 16, 10)

    def forward(self, x):
        x = F.relu(self.norm1(self.conv1(x)))
        # its backward adds up in any order, unless deterministic algorithms are asked for
        if OPTIONS["resize"]:
            x = F.interpolate(x, size=24, mode="bilinear")
            x = F.interpolate(x, size=16, mode="bilinear")
        x = F.max_pool2d(F.relu(self.norm2(self.conv2(x))), 4)
        return self.head(self.dropout(x.flatten(1)))


def digest(value: object) -> str:
    """A hash of all tensors and numbers in nested containers."""
    found = hashlib.sha256()

    def add(part):
        if isinstance(part, torch.Tensor):
            found.update(f"{part.dtype}{tuple(part.shape)}".encode())
            found.update(part.detach().cpu().contiguous().flatten().view(torch.uint8).numpy().tobytes())
        elif isinstance(part, dict):
            for name in sorted(part, key=str):
                found.update(str(name).encode())
                add(part[name])
        elif isinstance(part, list | tuple):
            for each in part:
                add(each)
        else:
            found.update(repr(part).encode())

    add(value)
    return found.hexdigest()[:16]


engine = stoker.Engine(
    folder="run",
    seed=3,
    precision=OPTIONS["precision"],
    accumulate=2,
    save=OPTIONS["save"],
    clip=1.0,
    device=OPTIONS["device"],
)
train = DataLoader(Pictures(), batch_size=32, shuffle=True, num_workers=OPTIONS["workers"])
test = DataLoader(Pictures(), batch_size=256)
model = Net()
opt = torch.optim.AdamW(model.parameters(), lr=1e-2)
sched = torch.optim.lr_scheduler.CosineAnnealingLR(opt, 400)
model, opt, sched, train, test = engine.setup(model, opt, sched, train, test, compile=OPTIONS["compile"])
ema = engine.setup(AveragedModel(model, multi_avg_fn=get_ema_multi_avg_fn(0.99), use_buffers=True))
if not OPTIONS["ahead"]:
    engine._core.moves = False  # to compare: no batch is read ahead, none is copied on a second stream


class Confusion:
    """A metric of its own, on the device."""

    def __init__(self):
        self.counts = torch.zeros(10, dtype=torch.int64, device=engine.device)

    def add(self, found):
        self.counts = self.counts + torch.bincount(found, minlength=10)

    def state_dict(self):
        return {"counts": self.counts}

    def load_state_dict(self, state):
        self.counts = state["counts"]


confusion, history = engine.keep(confusion=Confusion(), history=[])
best = engine.keep(best=0.0)
begun = False
for _ in engine.epochs(OPTIONS["epochs"]):
    for x, y in engine.batches(train):
        if not begun:
            print("BEGUN", flush=True)
            begun = True
        x, y = x.to(engine.device), y.to(engine.device)
        loss = F.cross_entropy(model(x), y)
        moved = engine.step(loss)
        if moved:
            sched.step()
            ema.update_parameters(model)
            engine.log(loss=loss, lr=opt.param_groups[0]["lr"])
    right = count = 0
    with engine.eval(model):
        for x, y in engine.batches(test):
            found = model(x.to(engine.device)).argmax(1)
            confusion.add(found)
            right += (found == y.to(engine.device)).sum()
            count += len(x)
    score = engine.average(float(right) / count, count)
    best = engine.keep(best=max(best, score))
    history.append(loss.detach())
    engine.log(score=score)
after = torch.randn(4, device=engine.device), torch.randn(4)
with open("run/metrics.jsonl") as f:
    curve = [{k: v for k, v in json.loads(line).items() if k != "at"} for line in f]
print(
    "RESULT "
    + json.dumps(
        {
            "weights": digest(model.state_dict()),
            "optimizer": digest(opt.state_dict()),
            "average": digest(ema.state_dict()),
            "schedule": digest(sched.state_dict()),
            "precision": digest(engine._core.precision.state_dict()),
            "curve": digest(curve),
            "lines": len(curve),
            "steps": engine.steps,
            "score": best,
            "drawn": digest(after),
            "confusion": digest(confusion.counts),
            "history": digest(torch.stack(history)),
        }
    ),
    flush=True,
)
