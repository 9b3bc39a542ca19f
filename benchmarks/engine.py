"""What the engine costs and saves: `python benchmarks/run.py --only engine`.

Each side runs in a fresh process on one thread; sides take turns.
Overhead is against the same loop in raw torch, with the same calls.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

REPO = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(REPO))

from benchmarks.ground import Ground  # noqa: E402
from benchmarks.measure import Row  # noqa: E402

HEAD = """
import json, os, statistics, sys, tempfile, time
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, Dataset, TensorDataset
import stoker
torch.set_num_threads(1)
count, turns = int(sys.argv[1]), int(sys.argv[2])
def folder(): return tempfile.mkdtemp(dir=".")
"""

STEP = HEAD + """
batches = [(torch.randn(32, 784), torch.randint(0, 10, (32,))) for _ in range(count)]
def made():
    model = nn.Sequential(nn.Linear(784, 32), nn.ReLU(), nn.Linear(32, 10))
    return model, torch.optim.SGD(model.parameters(), lr=0.01)
def raw():
    model, opt = made()
    began = time.perf_counter()
    for x, y in batches:
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        opt.step()
        opt.zero_grad(set_to_none=True)
    return (time.perf_counter() - began) / count * 1e6
def engine(log):
    model, opt = made()
    e = stoker.Engine(folder=folder(), save="1h")
    e.setup(model, opt)
    for _ in e.epochs(1):
        began = time.perf_counter()
        for x, y in e.batches(batches):
            loss = F.cross_entropy(model(x), y)
            e.step(loss)
            if log:
                e.log(loss=loss)
        spent = (time.perf_counter() - began) / count * 1e6
    return spent
sides = {"raw": raw, "engine": lambda: engine(False), "log": lambda: engine(True)}
for side in sides.values():
    side()
found = {name: [] for name in sides}
for turn in range(turns):
    for name in (list(sides) if turn % 2 else list(sides)[::-1]):
        found[name].append(sides[name]())
print(json.dumps(found))
"""

INPUT = (
    HEAD
    + """
data = TensorDataset(torch.randint(0, 256, (count, 784), dtype=torch.uint8), torch.randint(0, 10, (count,)))
def normalised(x): return x.float().div_(255).sub_(0.1307).div_(0.3081)
def plain():
    began = time.perf_counter()
    for x, y in DataLoader(data, batch_size=64, shuffle=True):
        normalised(x)
    return count / (time.perf_counter() - began)
loader = DataLoader(data, batch_size=64, shuffle=True)
e = stoker.Engine(folder=folder(), save="1h")
e.setup(nn.Linear(1, 1), loader)
def engine():
    began = time.perf_counter()
    for x, y in e.batches(loader):
        normalised(x)
    return count / (time.perf_counter() - began)
sides = {"plain": plain, "engine": engine}
for side in sides.values():
    side()
found = {name: [] for name in sides}
for turn in range(turns):
    for name in (list(sides) if turn % 2 else list(sides)[::-1]):
        found[name].append(sides[name]())
from stoker.engine.order import index_batches
from stoker.engine.data import feed, micros
first = next(iter(index_batches(loader, 7, 0)))
_, batch = next(feed(loader).batches(7, micros(iter([first]), len, 0, 1, rank=0, ranks=1, ghosts=False)))
assert torch.equal(batch[0], torch.stack([data[i][0] for i in first])) and torch.equal(batch[1], torch.stack([data[i][1] for i in first]))
print(json.dumps(found))
"""  # noqa: E501
)

SAVE = HEAD + """
model = nn.Linear(count, 1000)
opt = torch.optim.Adam(model.parameters(), lr=1e-3)
model(torch.randn(4, count)).sum().backward()
opt.step()
opt.zero_grad()
e = stoker.Engine(folder=folder(), save="1h")
e.setup(model, opt)
found = {"engine": [], "torch.save": [], "fsync": [], "copy": []}
state = lambda: {"model": model.state_dict(), "opt": opt.state_dict()}
tensors = [t for t in model.state_dict().values()] + [t for s in opt.state.values() for t in s.values()]
buffers = [t.clone() for t in tensors]
core = e._core
for epoch in e.epochs(1):
    for turn in range(turns + 1):
        began = time.perf_counter()
        body = core.objects.collect(core.world)
        core._check_finite()
        core.keeper.save({**body[0], "step": turn + 1}, body[1], 0, False)
        stall = time.perf_counter() - began
        core.keeper.wait()
        began = time.perf_counter()
        for b, t in zip(buffers, tensors): b.copy_(t)
        copy = time.perf_counter() - began
        began = time.perf_counter()
        with open("plain.pt", "wb") as f:
            torch.save(state(), f)
            wrote = time.perf_counter() - began
            f.flush()
            os.fsync(f.fileno())
        synced = time.perf_counter() - began
        if turn:
            for name, value in zip(found, (stall, wrote, synced, copy)): found[name].append(value)
print(json.dumps(found))
"""

RESUME = HEAD + """
from stoker.engine.order import index_batches
class Long(Dataset):
    def __len__(self): return count
    def __getitem__(self, i): return i
loader = DataLoader(Long(), batch_size=64, shuffle=True)
at = int(count * 0.83) // 64
found = {"start": [], "late": []}
for turn in range(turns + 1):
    for name, skip in (("start", 0), ("late", at)) if turn % 2 else (("late", at), ("start", 0)):
        began = time.perf_counter()
        next(iter(index_batches(loader, turn, skip)))
        if turn:
            found[name].append(time.perf_counter() - began)
straight, late = index_batches(loader, 3, 0), index_batches(loader, 3, at)
for _ in range(at): next(straight)
for _ in range(min(50, count // 64 - at)):
    assert next(straight).tolist() == next(late).tolist()
print(json.dumps(found))
"""


def sides(text: str, count: int, turns: int) -> dict[str, float]:
    """The medians of a script's sides."""
    with tempfile.TemporaryDirectory(dir=REPO / "build" if (REPO / "build").is_dir() else None) as folder:
        env = {**{k: v for k, v in os.environ.items() if not k.startswith("STOKER_")}, "OMP_NUM_THREADS": "1"}
        done = subprocess.run(
            [sys.executable, "-c", text, str(count), str(turns)],
            cwd=folder,
            env=env,
            capture_output=True,
            text=True,
            timeout=1200,
            check=False,
        )
    if done.returncode:
        raise RuntimeError(done.stderr[-2000:])
    return {
        name: statistics.median(values) for name, values in json.loads(done.stdout.splitlines()[-1]).items()
    }


def rows(ground: Ground, short: bool) -> list[Row]:
    """Overhead of a step, input from memory, stall of a save, position in the data."""
    turns = 3 if short else 15
    step = sides(STEP, 300 if short else 3000, turns)
    data = sides(INPUT, 6400 if short else 60_000, turns)
    save = sides(SAVE, 3_000 if short else 33_000, turns)
    raw = f"raw {step['raw']:.0f} us"
    rates = f"{data['engine']:,.0f} against {data['plain']:,.0f} samples/s"
    copied = f"a bare copy {save['copy']:.3f} s"
    stalls = (
        f"{save['engine']:.3f} s against {save['torch.save']:.3f} s ({save['fsync']:.3f} s with fsync); "
        f"{copied}"
    )
    found = [
        Row(
            name="engine: step over a raw loop",
            value=step["engine"] - step["raw"],
            target=25,
            unit="us",
            n=turns,
            detail=raw,
        ),
        Row(
            name="engine: step with log over a raw loop",
            value=step["log"] - step["raw"],
            target=35,
            unit="us",
            n=turns,
            detail=raw,
        ),
        Row(
            name="engine: tensors in memory against DataLoader(0)",
            value=data["engine"] / data["plain"],
            target=5,
            unit="x",
            best="high",
            n=turns,
            detail=rates,
        ),
        Row(
            name="engine: stall of a save against torch.save",
            value=save["engine"] / save["torch.save"],
            target=0.2,
            unit="x",
            n=turns,
            detail=stalls,
        ),
    ]
    for count in (60_000,) if short else (60_000, 12_000_000):
        late = sides(RESUME, count, turns)
        found.append(
            Row(
                name=f"engine: first batch late in {count:,} samples, over the first of all",
                target=50,
                unit="ms",
                n=turns,
                value=1000 * (late["late"] - late["start"]),
                detail=f"{1000 * late['start']:.1f} ms at sample 0",
            )
        )
    return found
