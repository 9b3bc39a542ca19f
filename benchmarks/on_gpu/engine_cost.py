"""What the engine costs and saves on a device: a step, a save, reading ahead. One JSON line each.
argv: device, small or whole."""

import json
import os
import statistics
import sys
import tempfile
import time

import torch
import torch.nn.functional as F
from torch import nn

import stoker

DEVICE, SMALL = sys.argv[1], sys.argv[2] == "small"
torch.manual_seed(0)


def wait():
    if DEVICE == "cuda":
        torch.cuda.synchronize()


def folder():
    return tempfile.mkdtemp(dir=".")


def say(name, found, **more):
    """Medians, and how far the values are spread."""
    sides = {
        side: {"median": statistics.median(v), "low": min(v), "high": max(v), "n": len(v)}
        for side, v in found.items()
    }
    print(json.dumps({"name": name, "sides": sides, **more}), flush=True)


def in_turn(sides, turns):
    """side -> values; sides change places, one unmeasured turn first."""
    found = {name: [] for name in sides}
    for turn in range(turns + 1):
        for name in list(sides) if turn % 2 else list(sides)[::-1]:
            value = sides[name]()
            if turn:
                found[name].append(value)
    return found


def step():
    """Microseconds of a step of a tiny network; batches are on the device already."""
    count, turns = (100, 3) if SMALL else (1500, 7)
    batches = [
        (torch.randn(32, 784, device=DEVICE), torch.randint(0, 10, (32,), device=DEVICE))
        for _ in range(count)
    ]

    def made():
        model = nn.Sequential(nn.Linear(784, 32), nn.ReLU(), nn.Linear(32, 10)).to(DEVICE)
        return model, torch.optim.SGD(model.parameters(), lr=0.01)

    def raw():
        model, opt = made()
        wait()
        began = time.perf_counter()
        for x, y in batches:
            loss = F.cross_entropy(model(x), y)
            loss.backward()
            opt.step()
            opt.zero_grad(set_to_none=True)
        wait()
        return (time.perf_counter() - began) / count * 1e6

    def engine(log):
        model, opt = made()
        e = stoker.Engine(folder=folder(), save="1h", device=DEVICE)
        e.setup(model, opt)
        spent = 0.0
        for _ in e.epochs(1):
            wait()
            began = time.perf_counter()
            for x, y in e.batches(batches):
                loss = F.cross_entropy(model(x), y)
                e.step(loss)
                if log:
                    e.log(loss=loss)
            wait()
            spent = (time.perf_counter() - began) / count * 1e6
        return spent

    say(
        "step",
        in_turn({"raw": raw, "engine": lambda: engine(False), "with log": lambda: engine(True)}, turns),
        unit="us",
        steps=count,
    )


def save():
    """Seconds that the training thread stands still for a save of 400 MB, against torch.save;
    then steps beside the writing."""
    rows, turns = (1000, 2) if SMALL else (33_000, 7)
    model = nn.Linear(rows, 1000, device=DEVICE)
    opt = torch.optim.Adam(model.parameters(), lr=1e-3)
    model(torch.randn(4, rows, device=DEVICE)).sum().backward()
    opt.step()
    opt.zero_grad()
    e = stoker.Engine(folder=folder(), save="1h", device=DEVICE)
    e.setup(model, opt)
    tensors = [*model.state_dict().values(), *(t for s in opt.state.values() for t in s.values())]
    size = sum(t.numel() * t.element_size() for t in tensors)
    pinned = [torch.empty(t.shape, dtype=t.dtype, pin_memory=DEVICE == "cuda") for t in tensors]
    x = torch.randn(64, rows, device=DEVICE)

    def steps():
        wait()
        began = time.perf_counter()
        for _ in range(20):
            F.linear(x, model.weight).sum().item()
        return (time.perf_counter() - began) / 20

    found = {
        name: []
        for name in (
            "engine",
            "torch.save",
            "torch.save and fsync",
            "copy to pinned memory",
            "written in the background",
        )
    }
    beside = {"alone": [], "beside the writing": []}
    core = e._core
    for _ in e.epochs(1):
        for turn in range(turns + 1):
            alone = steps()
            began = time.perf_counter()
            body = core.objects.collect(core.world)
            core._check_finite()
            core.keeper.save({**body[0], "step": turn + 1}, body[1], 0, False)
            stall = time.perf_counter() - began
            busy = steps()
            core.keeper.wait()
            wrote_s = time.perf_counter() - began
            wait()
            began = time.perf_counter()
            for place, t in zip(pinned, tensors, strict=True):
                place.copy_(t, non_blocking=True)
            wait()
            copied = time.perf_counter() - began
            began = time.perf_counter()
            with open("plain.pt", "wb") as f:
                torch.save({"model": model.state_dict(), "opt": opt.state_dict()}, f)
                wrote = time.perf_counter() - began
                f.flush()
                os.fsync(f.fileno())
            synced = time.perf_counter() - began
            if turn:
                for side, value in zip(found, (stall, wrote, synced, copied, wrote_s), strict=True):
                    found[side].append(value)
                beside["alone"].append(alone)
                beside["beside the writing"].append(busy)
    say("save", found, unit="s", megabytes=round(size / 1e6))
    say("steps beside a save", beside, unit="s")


def ahead():
    """Seconds of a step with large batches in memory:
    a raw loop, one with pinned memory, the engine, and the engine without reading ahead."""
    side, count, batch, turns = (32, 5, 8, 2) if SMALL else (224, 60, 64, 3)
    held = [(torch.randn(batch, 3, side, side), torch.randint(0, 10, (batch,))) for _ in range(4)]
    batches = [held[i % 4] for i in range(count)]

    def made():
        torch.manual_seed(0)
        model = nn.Sequential(
            nn.Conv2d(3, 64, 7, 4, 3),
            nn.BatchNorm2d(64),
            nn.ReLU(),
            nn.Conv2d(64, 128, 3, 1, 1),
            nn.ReLU(),
            nn.Conv2d(128, 128, 3, 2, 1),
            nn.ReLU(),
            nn.AdaptiveAvgPool2d(1),
            nn.Flatten(),
            nn.Linear(128, 10),
        ).to(DEVICE)
        return model, torch.optim.SGD(model.parameters(), lr=0.01)

    def raw(move):
        model, opt = made()
        wait()
        began = time.perf_counter()
        for x, y in batches:
            loss = F.cross_entropy(model(move(x)), move(y))
            loss.backward()
            opt.step()
            opt.zero_grad(set_to_none=True)
        wait()
        return (time.perf_counter() - began) / count

    def engine(reads_ahead):
        model, opt = made()
        e = stoker.Engine(folder=folder(), save="1h", device=DEVICE)
        e.setup(model, opt)
        e._core.moves = reads_ahead
        spent = 0.0
        for _ in e.epochs(1):
            wait()
            began = time.perf_counter()
            for x, y in e.batches(batches):
                loss = F.cross_entropy(model(x.to(DEVICE)), y.to(DEVICE))
                e.step(loss)
            wait()
            spent = (time.perf_counter() - began) / count
        return spent

    def pinned(t):
        return t.pin_memory().to(DEVICE, non_blocking=True) if DEVICE == "cuda" else t

    ready = [tuple(t.to(DEVICE) for t in pair) for pair in held]
    there = {
        id(a): b for one, other in zip(held, ready, strict=True) for a, b in zip(one, other, strict=True)
    }
    sides = {
        "on the device already": lambda: raw(lambda t: there[id(t)]),
        "raw": lambda: raw(lambda t: t.to(DEVICE)),
        "raw, pinned": lambda: raw(pinned),
        "engine": lambda: engine(True),
        "engine, not ahead": lambda: engine(False),
    }
    say("ahead", in_turn(sides, turns), unit="s", megabytes=round(held[0][0].numel() * 4 / 1e6, 1))


for part in (step, save, ahead):
    try:
        part()
    except Exception as e:
        print(json.dumps({"name": part.__name__, "error": f"{type(e).__name__}: {e}"[:600]}), flush=True)
