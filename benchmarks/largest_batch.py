"""Claim: the batch that `stoker tune --batch` names trains as fast as the best of all sizes that fit, after
at most six probes; where memory ends it, it names the largest that fits; and whoever asks is never harmed."""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from benchmarks.ground import Ground, memory_bytes
from benchmarks.measure import Row
from stoker.tune import batch, trial

MB = 1 << 20
CAP = 1024 * MB
TIMES = 2.0  # between two sizes of the brute force
ROUNDS = 3  # the named one against the best one, A B B A
SHORT_MOST, SHORT_PROBES = 64, 3  # of the short form, which comes to no limit
COMMON = """
import argparse, os, resource, sys, time
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset
words = argparse.ArgumentParser()
words.add_argument("--batch", type=int, default=OWN)
words.add_argument("--seconds", type=float, default=0.0)
args = words.parse_args()
torch.manual_seed(0)
"""
LOOP = """
loader = DataLoader(data, batch_size=args.batch, shuffle=True, drop_last=True)
steps, began, times, last = 0, time.perf_counter(), [], 0.0
def moment():  # less the time for which this thread stood ready and others had the core
    with open("/proc/thread-self/schedstat") as f:
        return time.perf_counter() - int(f.read().split()[1]) / 1e9
while True:
    model.train()
    for x, y in loader:
        optimizer.zero_grad()
        F.mse_loss(model(x), y).backward()
        optimizer.step()
        steps += 1
        if args.seconds:
            now = moment()
            if steps > 3:
                times.append(now - last)
            last = now
            if len(times) >= 6 and time.perf_counter() - began > args.seconds:
                print(args.batch / sorted(times)[len(times) // 2], resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024, flush=True)
                os._exit(0)
"""  # noqa: E501
DEEP = """
data = TensorDataset(torch.randn(40000, 32), torch.randn(40000, 1))
model = nn.Sequential(*[part for _ in range(12) for part in (nn.Linear(32, 32), nn.Tanh())], nn.Linear(32, 1))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
"""
CONVOLUTIONS = """
data = TensorDataset(torch.randn(4000, 3, 16, 16), torch.randn(4000, 1))
model = nn.Sequential(nn.Conv2d(3, 16, 3), nn.ReLU(), nn.Conv2d(16, 32, 3, stride=2), nn.ReLU(), nn.Flatten(), nn.Linear(32 * 36, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
"""  # noqa: E501
# A device that takes 50 ms for a step whatever the batch, and 2 MB for a sample.
FULL = """
class Far(nn.Module):
    def __init__(self):
        super().__init__()
        self.last, self.held = nn.Linear(16, 1), torch.zeros(1)
    def forward(self, x):
        if self.held.numel() < len(x) << 19:
            self.held = torch.zeros(len(x) << 19)
        time.sleep(0.05)
        return self.last(x) + self.held[0]
data = TensorDataset(torch.randn(40000, 16), torch.randn(40000, 1))
model = Far()
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
"""


@dataclass(frozen=True)
class Script:
    """One small training: its batch, and the limit on its memory (0: none)."""

    name: str
    body: str
    own: int
    most: int  # the largest size of the brute force
    cap: int = 0

    def write(self, folder: Path) -> Path:
        path = folder / f"{self.name}.py"
        path.write_text(COMMON.replace("OWN", str(self.own)) + self.body + LOOP)
        return path


SCRIPTS = (
    Script("deep", DEEP, 16, 4096),
    Script("convolutions", CONVOLUTIONS, 4, 480),
    Script("full", FULL, 8, 1024, CAP),
)


def rows(ground: Ground, short: bool) -> list[Row]:
    """The rate of the named size over the best one's, the probes, the largest size, and who was harmed."""
    rooms = ground.work / "rooms"
    rooms.mkdir()
    ratios, probes, told, largest = [], [], [], None
    before = memory_bytes(os.getpid())
    for script in SCRIPTS[-1:] if short else SCRIPTS:
        path = script.write(ground.work)
        command = trial.read([sys.executable, path.name], ground.work, dict(ground.env))
        answer = batch.largest(
            command, parent=rooms, cap_bytes=script.cap, most=SHORT_PROBES if short else batch.MOST
        )
        assert answer.chosen, answer.refused
        best, most = _brute_force(
            script, path, ground.env, 0.5 if short else 1.5, SHORT_MOST if short else script.most
        )
        named = answer.chosen.size
        ratio = _side_by_side(path, ground.env, (named, best), 0.5 if short else 2.0, 1 if short else ROUNDS)
        ratios.append(ratio)
        probes.append(len(answer.points))
        told.append(
            f"{script.name}: {named} named, {best} best, {ratio:.2f}, {len(answer.points)} probes, "
            f"{answer.seconds:.0f} s"
        )
        print(f"    {told[-1]}", flush=True)
        if script.cap and not short:
            largest = min(answer.largest / most, most / answer.largest)
            told.append(f"largest {answer.largest}, by brute force {most}")
    grown = max(0.0, (memory_bytes(os.getpid()) - before) / MB)
    found = [
        Row(
            name="batch: its rate over the best of brute force, worst script",
            value=min(ratios),
            target=0.95,
            unit="x",
            best="high",
            n=len(ratios),
            detail="; ".join(told),
        ),
        Row(name="batch: probes, at most", value=max(probes), target=6, unit="", n=len(probes)),
        Row(
            name="batch: left behind by its probes",
            value=len(list(rooms.iterdir())),
            target=0,
            unit="rooms",
            detail=f"the asking process grew by {grown:.0f} MB",
        ),
    ]
    if largest is not None:
        found.append(
            Row(
                name="batch: largest that fits, over brute force",
                value=largest,
                target=0.95,
                unit="x",
                best="high",
                detail=f"under {CAP // MB} MB, {batch.USE:.0%} of it used",
            )
        )
    return found


def _run(path: Path, env: dict, size: int, seconds: float) -> tuple[float, int]:
    """(samples a second, peak bytes) of a size, by the script's own clock."""
    done = subprocess.run(
        [sys.executable, path.name, "--batch", str(size), "--seconds", str(seconds)],
        cwd=path.parent,
        env=env,
        capture_output=True,
        check=True,
        text=True,
    )
    rate, peak = done.stdout.split()
    return float(rate), int(peak)


def _brute_force(script: Script, path: Path, env: dict, seconds: float, most: int) -> tuple[int, int]:
    """(fastest size, largest size) of those that fit; the largest by halving."""
    rates, size, low, high = {}, float(script.own), script.own, 0
    while size <= most:
        rate, peak = _run(path, env, int(size), seconds)
        if script.cap and peak > batch.USE * script.cap:
            high = int(size)
            break
        rates[int(size)], low = rate, int(size)
        size *= TIMES
    while high and high - low > max(1, low // 50):
        middle = (low + high) // 2
        rate, peak = _run(path, env, middle, 0.1)
        if peak > batch.USE * script.cap:
            high = middle
        else:
            low = middle
    if high:
        rates[low], _ = _run(path, env, low, seconds)
    return max(rates, key=rates.__getitem__), low


def _side_by_side(path: Path, env: dict, sizes: tuple[int, int], seconds: float, rounds: int) -> float:
    named, best = sizes
    if named == best:
        return 1.0
    pairs = []
    for number in range(rounds):
        order = (named, best) if number % 2 == 0 else (best, named)
        rate = {size: _run(path, env, size, seconds)[0] for size in order}
        pairs.append(rate[named] / rate[best])
    return statistics.median(pairs)


if __name__ == "__main__":
    made = Ground()
    try:
        for row in rows(made, "--short" in sys.argv):
            print(row.line())
            print(json.dumps(row.to_json()))
    finally:
        made.close()
