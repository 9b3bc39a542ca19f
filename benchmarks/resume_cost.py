"""What exact resume costs: recording, the stop at an image, the way back.
`python benchmarks/resume_cost.py [--short] [--json FILE]`.

Recording is measured as CPU time of the training thread, so that what else this machine does counts little:
a plain and a recorded process live side by side and take turns, block by block, in ABBA order;
then the next two.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

REPO = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(REPO), str(REPO / "tests" / "resume")]

from benchmarks.ground import Ground, until  # noqa: E402
from benchmarks.measure import Row, abba, paired  # noqa: E402

MB = 1 << 20
# One block of steps for each line that comes in: the CPU seconds it took.
BLOCKS = """
import sys, time, torch
from torch import nn
width, batch, block = map(int, sys.argv[1:])
torch.manual_seed(0)
m = nn.Sequential(nn.Linear(8, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU(), nn.Linear(width, 1))
o = torch.optim.SGD(m.parameters(), 1e-3)
X, Y = torch.randn(1024, 8), torch.randn(1024, 1)
i, total = 0, 0.0
for line in sys.stdin:
    began = time.thread_time()
    for _ in range(block):
        at = i * batch % 1024
        loss = (m(X[at:at + batch]) - Y[at:at + batch]).pow(2).mean()
        o.zero_grad()
        loss.backward()
        o.step()
        total += loss.item()
        i += 1
    print(time.thread_time() - began, flush=True)
"""
# An ordinary loop, as long as one likes.
LOOP = """
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
torch.manual_seed(0)
data = DataLoader(TensorDataset(torch.randn(3200, 8), torch.randn(3200, 1)), batch_size=16, shuffle=True)
m = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 1))
o = torch.optim.Adam(m.parameters(), 1e-3)
for epoch in range(1000):
    total = 0.0
    for x, y in data:
        loss = (m(x) - y).pow(2).mean()
        o.zero_grad()
        loss.backward()
        o.step()
        total += loss.item()
    print(epoch, total, flush=True)
"""
# The same for Lightning's Trainer, with a bar as it has one by default.
LIGHTNING = """
import lightning as L
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

class Net(L.LightningModule):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 1))
    def training_step(self, batch, batch_idx):
        x, y = batch
        loss = (self.net(x) - y).pow(2).mean()
        self.log("loss", loss)
        return loss
    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), 1e-3)

L.seed_everything(0)
data = DataLoader(TensorDataset(torch.randn(3200, 8), torch.randn(3200, 1)), batch_size=16, shuffle=True)
L.Trainer(max_epochs=1000, accelerator="cpu", logger=False, enable_checkpointing=False, enable_model_summary=False).fit(Net(), data)
"""  # noqa: E501
# State of so many MB in parameters and Adam's two moments: CPU and wall seconds of each turn of the loop, and
# of a copy of as many bytes.
STATE = """
import sys, time, torch
size, steps = map(int, sys.argv[1:])
count = size * (1 << 20) // 4 // 3 // 16
m = torch.nn.ParameterList([torch.nn.Parameter(torch.randn(count)) for _ in range(16)])
o = torch.optim.Adam(m.parameters())
for p in m:
    p.grad = torch.ones_like(p)
source = torch.ones(size << 18)
target = torch.ones_like(source)
def clocks():
    return time.thread_time(), time.perf_counter()
turn = clocks()
for i in range(steps):
    before = clocks()
    target.copy_(source)
    copied = clocks()
    o.step()
    now, last = clocks(), turn
    print(i + 1, now[0] - last[0], now[1] - last[1], copied[0] - before[0], copied[1] - before[1], flush=True)
    time.sleep(0.1)
    turn = now
"""
# Beside the hooks, in the life that comes back: CPU and wall seconds from the end of its set-up until the
# image is restored.
PROBE = """
import os, time
if os.environ.get("STOKER_ATTEMPT") == "2":
    from stoker_hooks.resume.core import phases
    clocks, begun = (time.thread_time, time.perf_counter), []
    def end():
        told = " ".join(str(clock() - then) for clock, then in zip(clocks, begun))
        fd = os.open(os.environ["COST_PROBE"] + ".new", os.O_WRONLY | os.O_CREAT, 0o600)
        os.write(fd, f"{phases.steps} {told}".encode())
        os.close(fd)
        os.rename(os.environ["COST_PROBE"] + ".new", os.environ["COST_PROBE"])
    phases.on_setup_end.append(lambda: begun.extend(clock() for clock in clocks))
    phases.on_ghost_end.append(end)
"""


class Lives:
    """Scripts in a folder of their own, plain or under the hooks."""

    def __init__(self, base: Path) -> None:
        from stoker.base.vendor import lay_out

        self._hooks, self.base, self._started = Path(lay_out(base / "hooks")), base, []
        (base / "probe").mkdir()
        (base / "probe" / "sitecustomize.py").write_text(PROBE)

    def script(self, name: str, text: str) -> str:
        (self.base / name).write_text(text)
        return str(self.base / name)

    def start(
        self,
        argv: list[str],
        *,
        folder: Path | None = None,
        cwd: Path | None = None,
        every: str = "",
        attempt: int = 1,
        **pipes: object,
    ) -> tuple[subprocess.Popen, Path]:
        """A process and the folder of its record; without `every` it has none."""
        folder = folder or Path(tempfile.mkdtemp(dir=self.base))
        (folder / "records").mkdir(parents=True, exist_ok=True)
        kept = {k: v for k, v in os.environ.items() if not k.startswith(("STOKER", "PYTHON"))}
        env = {**kept, "PYTHONHASHSEED": "1", "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
        if every:
            env |= {
                "PYTHONPATH": f"{self._hooks}{os.pathsep}{self.base / 'probe'}",
                "STOKER_RESUME": "auto",
                "STOKER_IMAGE_EVERY": every,
                "STOKER_RESUME_DIR": str(folder / "resume"),
                "STOKER_HOOKS": str(folder / "records"),
                "STOKER_ATTEMPT": str(attempt),
                "COST_PROBE": str(folder / "probe"),
            }
        with open(folder / "err", "ab") as err:
            process = subprocess.Popen(
                [sys.executable, *argv], cwd=cwd or folder, env=env, stderr=err, **pipes
            )
        self._started.append(process)
        return process, folder

    def close(self) -> None:
        for process in self._started:
            if process.poll() is None:
                process.kill()
            process.wait()
            for pipe in (process.stdin, process.stdout):
                if pipe:
                    pipe.close()


@contextmanager
def lives() -> Iterator[Lives]:
    base = Path(tempfile.mkdtemp(prefix="st-cost-", dir="/tmp"))
    made = Lives(base)
    try:
        yield made
    finally:
        made.close()
        shutil.rmtree(base, ignore_errors=True)


def recording(
    made: Lives, *, width: int, batch: int, block: int, blocks: int, pairs: int
) -> tuple[list[float], list[float], float]:
    """CPU seconds a step of so many plain and recorded processes (medians of their blocks), and bytes of log
    a step. Where its memory lies makes one process faster than the next by some per cent, for all its life:
    hence many, each pair side by side."""
    argv = [made.script(f"blocks{width}.py", BLOCKS), str(width), str(batch), str(block)]
    sides, sizes = ([], []), []
    for _ in range(pairs):
        plain, recorded, a_step = recorded_beside_plain(made, argv, block, blocks)
        sides[0].append(statistics.median(plain))
        sides[1].append(statistics.median(recorded))
        sizes.append(a_step)
    return *sides, statistics.median(sizes)


def recorded_beside_plain(
    made: Lives, argv: list[str], block: int, blocks: int
) -> tuple[list[float], list[float], float]:
    """The same of one pair of processes, block by block."""
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    plain, _ = made.start(argv, **pipes)
    recorded, folder = made.start(argv, every="3600s", **pipes)
    log = folder / "resume" / "log"

    def turn(process: subprocess.Popen) -> float:
        process.stdin.write("\n")
        process.stdin.flush()
        return float(process.stdout.readline()) / block

    for process in (plain, recorded, plain, recorded):
        turn(process)
    before = log.stat().st_size
    sides = abba(lambda: turn(plain), lambda: turn(recorded), blocks)
    turn(recorded)
    a_step = (log.stat().st_size - before) / ((blocks + 2) * block)
    assert json.loads((folder / "resume" / "state.json").read_text())["state"] != "off"
    for process in (plain, recorded):
        process.kill()
    return *sides, a_step


def record_rows(made: Lives, short: bool) -> list[Row]:
    rows = []
    if not short:
        plain, recorded, _ = recording(made, width=1024, batch=128, block=8, blocks=16, pairs=24)
        value, low, high = (
            100 * each for each in paired([b / a - 1 for a, b in zip(plain, recorded, strict=True)])
        )
        sides = (
            f"CPU of a step {1000 * statistics.median(plain):.2f} ms, recorded "
            f"{1000 * statistics.median(recorded):.2f} ms"
        )
        rows.append(
            Row(
                name="recording a loop of steps of 5 ms and more",
                value=value,
                low=low,
                high=high,
                target=2,
                unit="%",
                n=len(plain),
                detail=sides,
            )
        )
    plain, recorded, a_step = recording(
        made, width=32, batch=16, block=100, blocks=8 if short else 20, pairs=2 if short else 12
    )
    value, low, high = (1e6 * each for each in paired([b - a for a, b in zip(plain, recorded, strict=True)]))
    sides = (
        f"CPU of a step {1e6 * statistics.median(plain):.0f} us, recorded "
        f"{1e6 * statistics.median(recorded):.0f} us"
    )
    rows.append(
        Row(
            name="recording a loop of steps of some 300 us",
            value=value,
            low=low,
            high=high,
            target=40,
            unit="us a step",
            n=len(plain),
            detail=sides,
        )
    )
    rows.append(
        Row(name="log of a loop with one .item() a step", value=a_step, target=60, unit="bytes a step")
    )
    return rows


def stall_rows(made: Lives, short: bool) -> list[Row]:
    """What the turns of the loop with an image in them take more than the others,
    against a copy of as many bytes."""
    size, steps = (50 if short else 200), (16 if short else 150)
    script, out = made.script("state.py", STATE), made.base / "state.out"
    with open(out, "w") as f:
        process, folder = made.start(
            [script, str(size), str(steps)], every="4steps" if short else "10steps", stdout=f
        )
    taken: set[int] = set()
    while process.poll() is None:
        for manifest in (folder / "resume" / "images").glob("*/manifest.json"):
            try:
                taken.add(json.loads(manifest.read_text())["step"])
            except (OSError, ValueError):
                pass  # gone meanwhile
        time.sleep(0.03)
    turns = {
        int(line.split()[0]): [float(word) for word in line.split()[1:]]
        for line in out.read_text().splitlines()
    }
    assert taken, (folder / "resume" / "state.json").read_text()
    near = {step + 1 for step in taken if step + 1 in turns}  # the image is made on the way to the next step
    usual = [
        statistics.median(t[i] for step, t in turns.items() if step not in near and step > 3)
        for i in range(4)
    ]
    cpu, wall = ([1000 * (turns[step][i] - usual[i]) for step in sorted(near)] for i in (0, 1))
    spread = sorted(cpu)
    return [
        Row(
            name=f"stall for an image of {size} MB",
            value=statistics.median(cpu),
            low=spread[0],
            high=spread[-1],
            target=1200 * usual[2] + 30,
            unit="ms",
            n=len(near),
            detail=(
                f"CPU; {statistics.median(wall):.0f} ms by the clock; a copy of as many bytes "
                f"{1000 * usual[2]:.0f} ms"
            ),
        )
    ]


def way_back(
    made: Lives, argv: list[str], steps: tuple[int, ...], cwd: Callable[[], Path] | None = None
) -> tuple[float, float, float]:
    """(CPU us a ghost's step, the same by the clock on the wall, fixed seconds):
    from lives that come back to images at so many steps."""
    told = [[0.0, 0.0, 0.0]] if len(steps) == 1 else []
    for wanted in steps:
        where = cwd() if cwd else None
        first, folder = made.start(argv, cwd=where, every=f"{wanted}steps", stdout=subprocess.DEVNULL)
        state = folder / "resume" / "state.json"
        until(
            lambda state=state: state.exists() and json.loads(state.read_text() or "{}").get("image"),
            300,
            "an image",
        )
        time.sleep(0.3)  # a tail
        first.send_signal(signal.SIGKILL)
        first.wait()
        second, _ = made.start(
            argv, folder=folder, cwd=where, every=f"{wanted}steps", attempt=2, stdout=subprocess.DEVNULL
        )
        until(lambda folder=folder: (folder / "probe").exists(), 300, f"the way back of {argv}")
        second.kill()
        second.wait()
        told.append([float(word) for word in (folder / "probe").read_text().split()])
    (a, cpu_a, wall_a), (b, cpu_b, wall_b) = told
    slope = (cpu_b - cpu_a) / (b - a)
    return 1e6 * slope, 1e6 * (wall_b - wall_a) / (b - a), cpu_a - a * slope


def ghost_rows(made: Lives, short: bool) -> list[Row]:
    us, wall, fixed = way_back(made, [made.script("loop.py", LOOP)], (1000,) if short else (100, 8000))
    rows = [Row(name="way back, a plain loop with a DataLoader", value=us, target=200, unit="us a step",
                detail=f"CPU; {wall:.0f} us by the clock{', the fixed part among them' if short else ''}")]
    if short:
        return rows
    rows.append(
        Row(
            name="way back, fixed part",
            value=fixed,
            target=1,
            unit="s",
            detail="CPU from the first batch to the restored image",
        )
    )
    import test_resume_subjects as subjects

    if subjects.SUBJECTS.is_dir():
        source = subjects.nanogpt(made.base / "nanogpt")
        replaced = ("--max_iters", "--lr_decay_iters", "--eval_interval", "--log_interval")
        words = [word for word in source.args if not word.startswith(replaced)]
        words += ["--max_iters=100000", "--lr_decay_iters=100000", "--eval_interval=100", "--log_interval=10"]
        us, wall, _ = way_back(made, ["train.py", *words], (50, 650), lambda: source.path.parent)
        rows.append(
            Row(
                name="way back, nanoGPT",
                value=us,
                target=800,
                unit="us a step",
                detail=f"CPU; {wall:.0f} us by the clock",
            )
        )
    if importlib.util.find_spec("lightning"):  # not among what `make setup` installs
        us, wall, _ = way_back(made, [made.script("fit.py", LIGHTNING)], (100, 2100))
        rows.append(
            Row(
                name="way back, Lightning",
                value=us,
                target=1700,
                unit="us a step",
                detail=f"CPU; {wall:.0f} us by the clock",
            )
        )
    return rows


KINDS = {"record": record_rows, "stall": stall_rows, "ghost": ghost_rows}


def rows(ground: Ground | None, short: bool) -> list[Row]:
    """For the page of all benchmarks. The short form does all at once:
    its numbers are rough, and nearly all of its time is starts."""
    with lives() as made, ThreadPoolExecutor(len(KINDS) if short else 1) as pool:
        return [row for found in pool.map(lambda kind: kind(made, short), KINDS.values()) for row in found]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--short", action="store_true")
    parser.add_argument("--only", choices=KINDS, action="append")
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    print(f"load {os.getloadavg()[0]:.1f}", flush=True)
    began = time.monotonic()
    with lives() as made:
        found = (
            [row for kind in args.only for row in KINDS[kind](made, args.short)]
            if args.only
            else rows(None, args.short)
        )
    for row in found:
        print(row.line())
    print(
        f"{len(found)} numbers, {sum(not row.met for row in found)} targets missed, "
        f"{time.monotonic() - began:.0f} s"
    )
    if args.json:
        args.json.write_text(json.dumps([row.to_json() for row in found], indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
