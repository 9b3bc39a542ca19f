"""What a refused resume does to the user's files:
trainings with checkpoints of their own are killed, no image can be used, and when the script begins from its
start every file must be what it was at the kill: content, time, mode, links.

`python benchmarks/run.py --only own-files`; the short form takes one kill.
"""

from __future__ import annotations

import hashlib
import os
import random
import signal
import stat
import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

from benchmarks.ground import FINAL, Ground, alive, until
from benchmarks.measure import Row

JOBS = 2
PATIENCE_S = 240.0
WAYS = ("on the way to the image", "behind the image", "killed on the way", "killed twice on the way")
# What a training does to its files in each step `i`.
KINDS = {
    "replaced": "save('tmp.pt', i); os.replace('tmp.pt', 'last.pt')",
    "rewritten": "save('last.pt', i)",
    "appended": "save('last.pt', 0)\n    with open('table.csv', 'a') as f: f.write(f'{i}\\n' * 9)",
    "held open": "held = held or open('held.txt', 'w')\n    held.write(f'{i}\\n' * 999); held.flush()",
    "truncated": "os.truncate('cut', 4000 - i)",
    "deleted": "os.remove(f'gone{i}')",
    "new": "save(f'step{i}.pt', i)",
    "sparse": "with open('sparse', 'r+b') as f: f.seek((i % 50) << 18); f.write(b'x' * 999)",
    "large": "with open('large', 'wb') as f: f.write(bytes([i % 256]) * 3_000_000)",
    "symbolic link": "save(f'step{i}.pt', i); os.symlink(f'step{i}.pt', 'link'); os.replace('link', 'last.pt')",  # noqa: E501
    "hard link": "save(f'step{i}.pt', i); os.link(f'step{i}.pt', 'link'); os.replace('link', 'last.pt')",
    "folders": (
        "os.makedirs(f'run/{i}/deep'); save(f'run/{i}/deep/last.pt', i); "
        "shutil.rmtree(f'run/{i - 3}', ignore_errors=True)"
    ),
    "moved folder": "os.rename(f'moved{i}', f'moved{i + 1}'); save(f'moved{i + 1}/{i}.pt', i)",
    "mode and time": "os.chmod('cut', 0o600 + i % 8); os.utime('sparse', (i, i))",
    "by a worker": "next(reader)",
    "by a program": "i % 10 or subprocess.run(['cp', 'cut', f'copy{i}'], check=True)",
}
# `numpy`'s clock is in no log: where the script lets it into a variable or its numbers,
# no other life can repeat it.
SCRIPT = '''
import os, shutil, subprocess, sys, time
import numpy as np, torch
kind, way = os.environ["KIND"], os.environ["WAY"]
if os.path.exists("began"):
    print("own resume", flush=True)
    while not os.path.exists("go"): time.sleep(0.1)
def now(): return int(np.datetime64("now").astype(int))
def save(path, i):
    with open(path, "wb") as f: torch.save({"model": model.state_dict(), "i": i}, f)
class Writing(torch.utils.data.Dataset):
    def __len__(self): return 100_000
    def __getitem__(self, i):
        if i % 20 == 0: open(f"sample{i}", "w").close()
        return i
torch.manual_seed(0)
model = torch.nn.Linear(64, 64)
optimizer = torch.optim.SGD(model.parameters(), 0.01)
reader = iter(torch.utils.data.DataLoader(Writing(), num_workers=1)) if kind == "by a worker" else None
held = None
os.mkdir("moved0")
for name in ("cut", "sparse"):
    with open(name, "wb") as f: f.write(bytes(4000))
os.truncate("sparse", 16 << 20)
for i in range(3000 if kind == "deleted" else 0):
    with open(f"gone{i}", "w") as f: f.write(str(i))
open("began", "w").close()
seen = now() if way == "on the way to the image" else 0
for i in range(3000):
    x = torch.randn(8, 64)
    if way != "on the way to the image": x = x + now() % 1000 / 1e4
    loss = model(x).pow(2).mean()
    optimizer.zero_grad(); loss.backward(); optimizer.step()
    if i % 5 == 0: print(i, loss.item(), flush=True)
    time.sleep(0.02)
    STEP
'''


def found(folder: Path) -> dict:
    """path -> mode, time, content or target or names, and which other paths are the same file."""
    shapes, names = {}, {}
    for path in sorted([folder, *folder.rglob("*")]):
        now, name = path.lstat(), str(path.relative_to(folder))
        if path.is_symlink():
            held = os.readlink(path)
        else:
            held = (
                sorted(os.listdir(path)) if path.is_dir() else hashlib.sha256(path.read_bytes()).hexdigest()
            )
        names.setdefault(now.st_ino, []).append(name)
        shapes[name] = (stat.filemode(now.st_mode), now.st_mtime_ns, held, names[now.st_ino])
    return shapes


def _kill(ground: Ground, run: str, attempt: int) -> None:
    """SIGKILL for the process that trains, and the end of its attempt."""
    pid = ground.run_pid(run, attempt)
    os.kill(pid, signal.SIGKILL)
    until(lambda: not alive(pid), 30, "the death of the training")
    ground.wait_state(run, *FINAL, timeout_s=60)


def trial(ground: Ground, number: int, kind: str, way: str) -> list[str]:
    """The paths that were changed."""
    chance, folder = random.Random(number), ground.work / f"{number}"
    folder.mkdir()
    script = ground.script(
        "train.py", SCRIPT.replace("STEP", KINDS[kind]), folder=ground.root / f"script{number}"
    )
    run = ground.detach(
        "--name",
        f"own{number}",
        "--env",
        f"KIND={kind}",
        "--env",
        f"WAY={way}",
        "--env",
        "STOKER_IMAGE_EVERY=15steps",
        str(script),
        cwd=folder,
    )["id"]
    images, asked = ground.folder(run) / "resume" / "images", kind in ("by a worker", "by a program")
    ground.until_log(run, b"\n60 ", timeout_s=PATIENCE_S)
    if not asked:
        until(
            lambda: images.is_dir() and any(each.name.isdigit() for each in images.iterdir()),
            PATIENCE_S,
            "an image",
        )
    time.sleep(chance.uniform(0.5, 3.0))
    _kill(ground, run, 1)
    then, attempt = found(folder), 1
    # lives that are killed on their way; where one is faster, it waits at its start
    for _ in range(WAYS.index(way) - 1):
        attempt += 1
        ground.stoker("start", run, timeout_s=PATIENCE_S).ok()
        time.sleep(chance.uniform(1.0, 8.0))
        _kill(ground, run, attempt)
    attempt += 1
    ground.stoker("start", run, timeout_s=PATIENCE_S).ok()
    ground.until_log(run, b"own resume", attempt, timeout_s=PATIENCE_S)
    now = found(folder)
    _kill(ground, run, attempt)
    return [path for path in then.keys() | now.keys() if then.get(path) != now.get(path)]


def rows(ground: Ground, short: bool) -> list[Row]:
    """60 kills over all kinds and ways; one in the short form."""
    plans = [(kind, WAYS[(n + turn) % len(WAYS)]) for turn in range(4) for n, kind in enumerate(KINDS)]
    plans = [("replaced", WAYS[0])] if short else plans[:60]
    with ThreadPoolExecutor(JOBS) as pool:
        changed = list(pool.map(partial(_one, ground), range(len(plans)), plans))
    bad = [
        f"{kind}, {way}: {', '.join(sorted(paths)[:3])}"
        for (kind, way), paths in zip(plans, changed, strict=True)
        if paths
    ]
    return [
        Row(
            name="own files after a refused resume: kills after which one was changed",
            value=len(bad),
            target=0,
            unit="kills",
            n=len(plans),
            detail="; ".join(bad)
            or f"{len(plans)} untouched, {len({kind for kind, _ in plans})} kinds of change",
        )
    ]


def _one(ground: Ground, number: int, plan: tuple[str, str]) -> list[str]:
    changed = trial(ground, number, *plan)
    print(f"  {', '.join(plan)}: {f'changed: {changed[:5]}' if changed else 'untouched'}", flush=True)
    return changed
