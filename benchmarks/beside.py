"""Claim: beside a training run Stoker is not felt; an idle server costs nothing."""

from __future__ import annotations

import os
import sys
import time

from benchmarks.ground import Ground, cpu_seconds, memory_bytes
from benchmarks.measure import Row

TRAIN = """
import sys, time
try:
    import torch
except ImportError:
    torch = None
end = time.monotonic() + float(sys.argv[1])
step = 0
if torch:
    torch.set_num_threads(1)
    model = torch.nn.Sequential(torch.nn.Linear(64, 256), torch.nn.ReLU(), torch.nn.Linear(256, 10))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    x, y = torch.randn(4096, 64), torch.randint(0, 10, (4096,))
while time.monotonic() < end:
    if torch:
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
    else:
        sum(i * i for i in range(20000))
    step += 1
    if step % 50 == 0:
        print(f"step {step}", flush=True)
"""


def training(ground: Ground, short: bool) -> list[Row]:
    """CPU and memory of holder and agent beside a small real training loop that prints."""
    window_s = 4 if short else 90
    ground.script("train.py", TRAIN)
    run = ground.detach("--", sys.executable, "train.py", str(window_s + 20))
    ground.until_log(run["id"], b"step 50\n", timeout_s=60)
    time.sleep(2)  # the start is not what is claimed
    pids = ground.caretakers(run["id"])
    before, began = [cpu_seconds(p) for p in pids], time.monotonic()
    peak = 0
    while time.monotonic() - began < window_s:
        peak = max(peak, sum(memory_bytes(p) for p in pids))
        time.sleep(0.25)
    took = time.monotonic() - began
    used = sum(cpu_seconds(p) - b for p, b in zip(pids, before, strict=True))
    fine = f"over {took:.0f} s, clock ticks of {1000 // os.sysconf('SC_CLK_TCK')} ms"
    assert pids == ground.caretakers(run["id"]), "a caretaker was replaced during the measurement"
    ground.stoker("stop", "--force", run["id"]).ok()
    return [
        Row(
            name="holder + agent beside a training run: CPU of one core",
            value=100 * used / took,
            target=0.5,
            unit="%",
            detail=fine,
        ),
        Row(
            name="holder + agent beside a training run: RSS",
            value=peak / 1e6,
            target=30,
            unit="MB",
            detail=f"holder {memory_bytes(pids[0]) / 1e6:.1f} MB" if memory_bytes(pids[0]) else "",
        ),
    ]


def idle_server(ground: Ground, short: bool) -> list[Row]:
    """CPU of a server that has nothing to do, with 20 ended runs in its list."""
    for _ in range(3 if short else 20):
        ground.detach("--", "true")
    for run in ground.runs():
        ground.wait_state(run["id"])
    pid = ground.server_pid()
    time.sleep(3)
    before, began = cpu_seconds(pid), time.monotonic()
    time.sleep(4 if short else 60)
    took = time.monotonic() - began
    return [
        Row(
            name="idle server: CPU of one core",
            value=100 * (cpu_seconds(pid) - before) / took,
            target=0.5,
            unit="%",
            detail=f"over {took:.0f} s, RSS {memory_bytes(pid) / 1e6:.0f} MB",
        )
    ]
