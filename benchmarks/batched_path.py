"""What a batch costs that is read at once instead of picture by picture:
`python benchmarks/run.py --only batched-path`.

60,000 pictures of 28x28 in memory, each through PIL, ToTensor and Normalize, in batches of 64 from an
unmodified script's DataLoader: as it is, and with the batched path that settings put in.
Both loaders live in one process, on one thread, and take turns in ABBA order.
First every batch of one pass is compared: the same samples, in the same order, to the last bit.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
from pathlib import Path

REPO = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(REPO))

from benchmarks.ground import Ground  # noqa: E402
from benchmarks.measure import Row, ratio  # noqa: E402

TARGET = 40.0  # x, samples a second at batch 64
COMPARED = 10_000
# argv: the folder of the package, pictures, batches a turn, turns, samples to compare. Prints one JSON line.
SIDES = """
import json, sys, time
sys.path.insert(0, sys.argv[1])
import numpy as np
import torch
from PIL import Image
from torch.utils.data import DataLoader, Dataset
from stoker.inside.settings import feeds, loaders
torch.set_num_threads(1)
count, batches, turns, wanted = map(int, sys.argv[2:])

class ToTensor:  # as torchvision does it for a picture of bytes
    def __call__(self, picture):
        x = torch.from_numpy(np.array(picture, np.uint8, copy=True))
        x = x.view(picture.size[1], picture.size[0], len(picture.getbands())).permute((2, 0, 1)).contiguous()
        return x.to(dtype=torch.get_default_dtype()).div(255)

class Normalize:
    def __init__(self, mean, std):
        self.mean, self.std = mean, std
    def __call__(self, x):
        x = x.clone()
        mean, std = torch.as_tensor(self.mean, dtype=x.dtype), torch.as_tensor(self.std, dtype=x.dtype)
        return x.sub_(mean.view(-1, 1, 1)).div_(std.view(-1, 1, 1))

class Compose:
    def __init__(self, transforms):
        self.transforms = transforms
    def __call__(self, x):
        for transform in self.transforms:
            x = transform(x)
        return x

class Digits(Dataset):
    def __init__(self, count):
        self.data = torch.randint(0, 256, (count, 28, 28), dtype=torch.uint8)
        self.targets = torch.randint(0, 10, (count,))
        self.transform = Compose([ToTensor(), Normalize((0.1307,), (0.3081,))])
    def __len__(self):
        return len(self.data)
    def __getitem__(self, index):
        picture, target = self.data[index], int(self.targets[index])
        return self.transform(Image.fromarray(picture.numpy())), target

loaders.install({})
torch.manual_seed(0)
data = Digits(count)
def loader():
    return DataLoader(data, batch_size=64, shuffle=True, generator=torch.Generator().manual_seed(7))
as_it_is, at_once = loader(), loader()
why = []
feeds.want(at_once, "batched", None, why.append)
compared = mismatches = 0
for one, other in zip(as_it_is, at_once):
    same = (one[0] == other[0]).flatten(1).all(1) & (one[1] == other[1])
    same &= torch.tensor([a.dtype == b.dtype and a.shape == b.shape for a, b in zip(one, other)]).all()
    compared, mismatches = compared + len(same), mismatches + int((~same).sum())
    if compared >= wanted:
        break
def passes(loader):
    while True:
        yield from loader
sides = passes(as_it_is), passes(at_once)
sizes = batches, batches * 20
def turn(side):
    began = time.process_time()
    for _ in range(sizes[side]):
        next(sides[side])
    return (time.process_time() - began) / sizes[side]
times = [], []
for side in (0, 1):
    turn(side)
for n in range(turns):
    for side in (0, 1) if n % 2 == 0 else (1, 0):
        times[side].append(turn(side))
print(json.dumps({"why": why, "compared": compared, "mismatches": mismatches, "times": times}))
"""


def rows(ground: Ground | None, short: bool) -> list[Row]:
    """For the page of all benchmarks."""
    sizes = ("20000", "4", "6") if short else ("60000", "20", "40")
    done = subprocess.run(
        [sys.executable, "-c", SIDES, str(REPO / "src"), *sizes, str(COMPARED)],
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
        env={**os.environ, "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"},
    )
    if done.returncode:
        raise RuntimeError(
            done.stderr.strip().splitlines()[-1] if done.stderr.strip() else f"exit code {done.returncode}"
        )
    told = json.loads(done.stdout)
    if told["why"] != [""]:
        raise RuntimeError(f"the batched path was left: {told['why'][-1]}")
    slow, fast = told["times"]
    value, low, high = ratio(slow, fast)
    detail = (
        f"{64 / statistics.median(slow):,.0f} and {64 / statistics.median(fast):,.0f} samples a second of "
        "CPU time"
    )
    return [
        Row(
            name="a data set through PIL, ToTensor, Normalize: batches of 64 read at once",
            value=value,
            low=low,
            high=high,
            target=TARGET,
            unit="x",
            best="high",
            n=len(slow),
            detail=detail,
        ),
        Row(
            name="samples that differ from those read one by one",
            value=told["mismatches"],
            target=0,
            unit="",
            n=told["compared"],
            detail=f"{told['compared']:,} compared, bit by bit and in their order",
        ),
    ]
