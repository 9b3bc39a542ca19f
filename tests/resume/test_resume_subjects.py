"""Scripts that nobody here wrote, unmodified: MNIST of the PyTorch examples and nanoGPT, killed and brought back.

They lie beside the repository in ../shared; where that is absent these tests are skipped and say so.
"""

from __future__ import annotations

import gzip
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from harness import FULL, REPO, Kill, Script

SHARED = REPO.parent / "shared"
SUBJECTS = SHARED / "subjects"
pytestmark = [pytest.mark.slow, pytest.mark.timeout(3000), pytest.mark.skipif(not SUBJECTS.is_dir(), reason="../shared/subjects is not beside this checkout")]

NANOGPT = ("config/train_shakespeare_char.py", "--device=cpu", "--compile=False", "--eval_iters=2", "--eval_interval=20", "--log_interval=1", "--block_size=32", "--batch_size=4", "--n_layer=2",
           "--n_head=2", "--n_embd=32", "--max_iters=90", "--lr_decay_iters=90", "--dropout=0.1", "--always_save_checkpoint=True")


def first_of(idx: bytes, most: int) -> bytes:
    """A file of MNIST with the first so many of its pictures or labels; big-endian: type, how many, and for pictures their two sides."""
    count, head = int.from_bytes(idx[4:8], "big"), 4 + 4 * idx[3]
    each = (len(idx) - head) // count
    return idx[:4] + min(most, count).to_bytes(4, "big") + idx[8 : head + each * min(most, count)]


def mnist(folder: Path, workers: int, pictures: int = 60_000, batch: int = 256) -> Script:
    """main.py with its data beside it. Workers are asked for in its own words: the settings it keeps for accelerators, given to the loaders.
    With fewer pictures an epoch is shorter."""
    source = SUBJECTS / "pytorch-examples" / "mnist"
    place = folder / "mnist"
    shutil.copytree(source, place)
    if workers:
        text = (place / "main.py").read_text()
        marked = "train_kwargs = {'batch_size': args.batch_size}"
        assert marked in text
        (place / "main.py").write_text(text.replace(marked, f"train_kwargs = {{'batch_size': args.batch_size, 'num_workers': {workers}, 'shuffle': True}}"))
    raw = folder / "data" / "MNIST" / "raw"
    raw.mkdir(parents=True)
    for packed in (SHARED / "data" / "mnist").glob("*.gz"):
        shutil.copyfile(packed, raw / packed.name)
        (raw / packed.stem).write_bytes(first_of(gzip.decompress(packed.read_bytes()), pictures))
    words = ("--epochs", "1", "--save-model", "--batch-size", str(batch), "--test-batch-size", "1000", "--log-interval", "5", "--no-accel")
    return Script(place / "main.py", cwd="mnist", beside=(folder,), args=words, expected="exact", needs=("torchvision",))


def nanogpt(folder: Path) -> Script:
    """train.py on the characters of a real text, a small network."""
    shutil.copytree(SUBJECTS / "nanogpt", folder, dirs_exist_ok=True)
    shutil.copyfile(SHARED / "data" / "tiny-shakespeare" / "input.txt", folder / "data" / "shakespeare_char" / "input.txt")
    nothing = folder.with_name("nothing")
    nothing.mkdir()
    (nothing / "requests.py").write_text("# prepare.py imports it to fetch the text, which is here already\n")
    env = {**os.environ, "PYTHONPATH": str(nothing)}
    subprocess.run([sys.executable, "data/shakespeare_char/prepare.py"], cwd=folder, env=env, check=True, capture_output=True, timeout=120)
    return Script(folder / "train.py", cwd="./", beside=(folder,), args=NANOGPT, expected="exact", mask=(r"time [\d.]+ms, mfu [-\d.]+%",), clocks=("dt", "mfu", "running_mfu", "t0", "t1"))


def check(script: Script, killed, every: str) -> None:
    plans = [[Kill("image", 0.3, 2), *([Kill("image", 0.5)] if FULL else [])]]
    if FULL:
        plans += [[Kill("time", 3 + 1.7 * i)] for i in range(8)] + [[Kill("image", 0.2, 3), Kill("resumed", 0.02), Kill("writing", 0.01)]]
    trials = killed(script, plans, every=every)
    assert {t.outcome for t in trials} <= {"exact", "restart", "unhurt"} and any(t.outcome == "exact" for t in trials), [t.line() for t in trials]


@pytest.mark.parametrize("workers", [0, 2])
def test_mnist(tmp_path, killed, workers):
    check(mnist(tmp_path / "src", workers), killed, "30steps")


def test_nanogpt(tmp_path, killed):
    check(nanogpt(tmp_path / "src"), killed, "12steps")
