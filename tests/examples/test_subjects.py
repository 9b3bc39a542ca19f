"""Training scripts that nobody here wrote run unmodified under Stoker: real MNIST, and nanoGPT on real text.

They lie beside the repository in ../shared; where that is absent these tests are skipped and say so.
"""

from __future__ import annotations

import gzip
import hashlib
import math
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from benchmarks.ground import REPO, Ground

SHARED = REPO.parent / "shared"
SUBJECTS = SHARED / "subjects"
MODES = pytest.mark.parametrize("copy", [False, True], ids=["in place", "copy"])
NANOGPT = ("config/train_shakespeare_char.py", "--device=cpu", "--compile=False", "--eval_iters=5", "--log_interval=1", "--block_size=64", "--batch_size=12",
           "--n_layer=4", "--n_head=4", "--n_embd=128", "--max_iters=20", "--lr_decay_iters=2000", "--dropout=0.0")

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(1000),
    pytest.mark.skipif(not SUBJECTS.is_dir(), reason="../shared/subjects is not beside this checkout"),
]


def needs(*modules: str) -> None:
    """Skip, with the reason, where the script's own imports are not installed; fail where nothing may be skipped."""
    done = subprocess.run([sys.executable, "-c", f"import {', '.join(modules)}"], capture_output=True, text=True, timeout=60, check=False)
    if done.returncode == 0:
        return
    reason = f"the script needs {', '.join(modules)}: {done.stderr.strip().splitlines()[-1]}"
    if os.environ.get("STOKER_REQUIRE_REAL"):
        pytest.fail(reason)
    pytest.skip(reason)


@pytest.fixture
def ground() -> Iterator[Ground]:
    ground = Ground()
    try:
        yield ground
    finally:
        left = ground.close()
    assert not left, "processes were left behind: " + "; ".join(left)


def lay_out(source: Path, target: Path) -> dict[str, str]:
    """A writable copy of a script's folder; gives the hashes of its files."""
    for path in sorted(p for p in source.rglob("*") if p.is_file()):
        copied = target / path.relative_to(source)
        copied.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(path, copied)
    return hashes(source)


def hashes(folder: Path) -> dict[str, str]:
    return {p.relative_to(folder).as_posix(): hashlib.sha256(p.read_bytes()).hexdigest() for p in folder.rglob("*") if p.is_file()}


def unpack_mnist(data: Path, most: int = 12_000) -> None:
    """As torchvision wants it: MNIST/raw with the unpacked files; at most so many pictures in each."""
    raw = data / "MNIST" / "raw"
    raw.mkdir(parents=True)
    for packed in (SHARED / "data" / "mnist").glob("*.gz"):
        whole = gzip.decompress(packed.read_bytes())
        axes = whole[3]
        count = min(most, int.from_bytes(whole[4:8], "big"))
        each = math.prod(int.from_bytes(whole[n:n + 4], "big") for n in range(8, 4 + 4 * axes, 4))
        head = 4 + 4 * axes
        (raw / packed.stem).write_bytes(whole[:4] + count.to_bytes(4, "big") + whole[8:head + count * each])


@MODES
def test_mnist_of_pytorch_examples(ground: Ground, copy: bool):
    """In place an epoch of a fifth of the pictures; in a copy one step. Both read the whole test set."""
    needs("torch", "torchvision")
    before = lay_out(SUBJECTS / "pytorch-examples" / "mnist", ground.work / "mnist")
    words = ("python", "main.py", "--epochs", "1", "--save-model")
    if copy:  # it reads ../data: the folder above is frozen, and the data stay where they are
        words += ("--dry-run",)
        unpack_mnist(ground.root / "data")
        done = ground.stoker("run", "--copy", "--mount", f"data={ground.root}/data", "--", "sh", "-c", f"cd mnist && exec {' '.join(words)}", timeout_s=900)
    else:
        unpack_mnist(ground.work / "data")
        done = ground.stoker("run", "--", *words, cwd=ground.work / "mnist", timeout_s=900)
    done.ok()
    assert ("Train Epoch: 1 [0/12000 (0%)]" if copy else "Train Epoch: 1 [11520/12000 (96%)]") in done.out
    right = int(re.search(r"Accuracy: (\d+)/10000", done.out)[1])
    assert copy or right >= 9300
    run = ground.runs()[0]
    assert run["state"] == "done"
    assert ground.log(run["id"]) == done.stdout
    where = Path(run["workdir"]) / "mnist" if copy else ground.work / "mnist"
    assert (where / "mnist_cnn.pt").stat().st_size > 1_000_000
    now = hashes(where)
    assert {name: now[name] for name in before} == before
    assert "mnist_cnn.pt" in ground.stoker("show", run["id"]).ok().out
    assert not (copy and (ground.work / "mnist" / "mnist_cnn.pt").exists())


@MODES
def test_nanogpt(ground: Ground, copy: bool):
    needs("torch", "numpy", "requests")
    before = lay_out(SUBJECTS / "nanogpt", ground.work)
    data = ground.work / "data" / "shakespeare_char"
    shutil.copyfile(SHARED / "data" / "tiny-shakespeare" / "input.txt", data / "input.txt")
    subprocess.run([sys.executable, "prepare.py"], cwd=data, capture_output=True, timeout=120, check=True)
    done = ground.stoker("run", *(["--copy"] if copy else []), "train.py", *NANOGPT, timeout_s=300).ok()
    losses = [float(x) for x in re.findall(r"^iter \d+: loss ([\d.]+)", done.out, re.M)]
    assert len(losses) == 21
    assert losses[-1] < losses[0] - 0.3
    run = ground.runs()[0]
    assert run["state"] == "done"
    assert ground.log(run["id"]) == done.stdout
    now = hashes(Path(run["workdir"]))
    assert {name: now[name] for name in before} == before
