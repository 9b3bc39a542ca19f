"""What the clock costs that runs in every training: `python benchmarks/run.py --only clock`.

CPU seconds of the training thread, so that what else this machine does counts little.
One process imports torch and forks pairs, one with the clock and one without:
the same code at the same addresses. They live side by side and take turns in ABBA order.
"""

from __future__ import annotations

import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

REPO = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(REPO))

from benchmarks.ground import Ground  # noqa: E402
from benchmarks.measure import Row, difference, ratio  # noqa: E402

TINY_US = 6.0  # that much the clock may add to a step of some 300 us
SHARE = 1.0  # %; of steps of 1 ms and more
MODELS = ("mlp", "convolutions", "lstm", "transformer", "many small modules")
# For each line `MODEL STEPS BLOCKS` on stdin: a pair, and its seconds a step as two lists,
# with the clock and without.
PAIRS = """
import json, os, signal, sys, time, types
sys.path.insert(0, sys.argv[1])
import torch
from torch import nn
from torch.utils.data import BatchSampler, DataLoader, RandomSampler, TensorDataset
torch.set_num_threads(1)

class Recurrent(nn.Module):
    def __init__(self):
        super().__init__()
        self.lstm, self.out = nn.LSTM(32, 64, batch_first=True), nn.Linear(64, 4)
    def forward(self, x):
        return self.out(self.lstm(x)[0][:, -1])

class Encoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.TransformerEncoder(nn.TransformerEncoderLayer(64, 4, 128, batch_first=True), 2, enable_nested_tensor=False)
        self.out = nn.Linear(64, 4)
    def forward(self, x):
        return self.out(self.layers(x).mean(1))

def conv(i, o):
    return nn.Sequential(nn.Conv2d(i, o, 3, padding=1, stride=2), nn.BatchNorm2d(o), nn.ReLU())

def make(name):
    if name == "tiny":
        return nn.Sequential(nn.Linear(32, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 4)), (32,), 32
    if name == "mlp":
        return nn.Sequential(nn.Linear(256, 512), nn.ReLU(), nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 4)), (256,), 64
    if name == "convolutions":
        return nn.Sequential(conv(3, 16), conv(16, 32), conv(32, 32), nn.Flatten(), nn.Linear(512, 4)), (3, 32, 32), 16
    if name == "lstm":
        return Recurrent(), (16, 32), 16
    if name == "transformer":
        return Encoder(), (16, 64), 16
    return nn.Sequential(*(nn.Sequential(nn.Linear(48, 48), nn.ReLU()) for _ in range(24)), nn.Linear(48, 4)), (48,), 64

def child(name, steps, on, ask, tell):
    if on:
        from stoker_hooks import clock
        clock.install(types.SimpleNamespace(role="script", resumes=False))
    torch.manual_seed(0)
    model, shape, batch = make(name)
    data = TensorDataset(torch.randn(1024, *shape), torch.randint(0, 4, (1024,)))
    loader = DataLoader(data, sampler=BatchSampler(RandomSampler(data), batch, False), batch_size=None)
    optimizer, criterion = torch.optim.SGD(model.parameters(), 1e-3), nn.CrossEntropyLoss()
    def batches():
        while True:
            yield from loader
    source = batches()
    while os.read(ask, 1):
        began = time.thread_time()
        for _ in range(steps):
            x, y = next(source)
            optimizer.zero_grad()
            criterion(model(x), y).backward()
            optimizer.step()
        os.write(tell, b"%.12f\\n" % ((time.thread_time() - began) / steps))

def pair(name, steps, blocks):
    sides = []
    for on in (True, False):
        (ask, asked), (told, tell) = os.pipe(), os.pipe()
        pid = os.fork()
        if not pid:
            code = 1
            try:
                for each in (asked, told, *(fd for side in sides for fd in side[1:])):
                    os.close(each)
                child(name, steps, on, ask, tell)
                code = 0
            finally:
                os._exit(code)
        os.close(ask), os.close(tell)
        sides.append((pid, asked, told))
    def turn(side):
        os.write(side[1], b".")
        return float(os.read(side[2], 100))
    times = [], []
    for side in (0, 1) * 2:
        turn(sides[side])
    for i in range(blocks):
        for side in (0, 1) if i % 2 == 0 else (1, 0):
            times[side].append(turn(sides[side]))
    for pid, asked, told in sides:
        os.close(asked), os.close(told)
        os.waitpid(pid, 0)
    return times

for line in sys.stdin:
    name, steps, blocks = line.rsplit(" ", 2)
    print(json.dumps(pair(name, int(steps), int(blocks))), flush=True)
"""  # noqa: E501


class Pairs:
    """The process that forks them."""

    def __init__(self, base: Path) -> None:
        from stoker.base.vendor import lay_out

        (base / "attempt" / "hooks").mkdir(parents=True)
        kept = {k: v for k, v in os.environ.items() if not k.startswith(("STOKER", "PYTHON"))}
        env = {**kept, "PYTHONHASHSEED": "1", "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1",
               "STOKER_HOOKS": str(base / "attempt" / "hooks")}
        self._process = subprocess.Popen(
            [sys.executable, "-c", PAIRS, str(lay_out(base))],
            env=env,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def of(self, name: str, *, steps: int, blocks: int, times: int) -> tuple[list[float], list[float]]:
        """Seconds a step in blocks of `steps`: (with the clock, without), over `times` pairs."""
        on: list[float] = []
        off: list[float] = []
        for _ in range(times):
            self._process.stdin.write(f"{name} {steps} {blocks}\n")
            self._process.stdin.flush()
            pair = json.loads(self._process.stdout.readline())
            on += pair[0]
            off += pair[1]
        return on, off

    def close(self) -> None:
        self._process.stdin.close()
        self._process.wait(30)
        self._process.stdout.close()


def rows(ground: Ground | None, short: bool) -> list[Row]:
    """For the page of all benchmarks."""
    base = Path(tempfile.mkdtemp(prefix="st-clock-", dir="/tmp"))
    pairs = Pairs(base)
    try:
        return [tiny(pairs, short), shares(pairs, short)]
    finally:
        pairs.close()
        shutil.rmtree(base, ignore_errors=True)


def tiny(pairs: Pairs, short: bool) -> Row:
    on, off = pairs.of("tiny", steps=50, blocks=10 if short else 60, times=1 if short else 10)
    value, low, high = (1e6 * each for each in difference(on, off))
    return Row(
        name="the clock in a loop of tiny steps",
        value=value,
        low=low,
        high=high,
        target=TINY_US,
        unit="us a step",
        n=len(on),
        detail=f"CPU of a step {1e6 * statistics.median(off):.0f} us without",
    )


def shares(pairs: Pairs, short: bool) -> Row:
    """The worst of the models."""
    found = {}
    for name in MODELS[-1:] if short else MODELS:
        on, off = pairs.of(name, steps=10, blocks=6 if short else 40, times=1 if short else 6)
        found[name] = ([100 * (each - 1) for each in ratio(on, off)], 1e3 * statistics.median(off), len(on))
    worst = max(found, key=lambda name: found[name][0][0])
    value, low, high = found[worst][0]
    told = ", ".join(f"{name} {ms:.1f} ms {spread[0]:+.2f} %" for name, (spread, ms, _) in found.items())
    return Row(
        name=f"the clock in steps of 1 ms and more, worst of {len(found)}",
        value=value,
        low=low,
        high=high,
        target=SHARE,
        unit="%",
        n=found[worst][2],
        detail=told,
    )
