"""Real trainings on real data, laid out to be run as they are:
the subjects beside this checkout, and ten scripts in the usual styles."""

from __future__ import annotations

import gzip
import importlib.util
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

from benchmarks.ground import REPO

SHARED = REPO.parent / "shared"
USUAL = REPO / "tests" / "tune" / "usual"
NANOGPT = (  # its readme's words for a CPU
    "config/train_shakespeare_char.py",
    "--device=cpu",
    "--compile=False",
    "--eval_iters=20",
    "--log_interval=1",
    "--block_size=64",
    "--batch_size=12",
    "--n_layer=4",
    "--n_head=4",
    "--n_embd=128",
    "--max_iters=2000",
    "--lr_decay_iters=2000",
    "--dropout=0.0",
)


@dataclass(frozen=True)
class Real:
    """A training that is ready to start."""

    name: str
    script: Path
    args: tuple[str, ...]
    folder: Path

    @property
    def words(self) -> list[str]:
        return [sys.executable, os.fspath(self.script), *self.args]


def usual() -> ModuleType:
    """tests/tune/usual/layout.py, which is no package."""
    spec = importlib.util.spec_from_file_location("usual_layout", USUAL / "layout.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules["usual_layout"] = module
    spec.loader.exec_module(module)
    return module


def ready(name: str, target: Path) -> Real:
    """Lay a training and its data out in a new folder.
    Raises FileNotFoundError where ../shared is not beside this checkout."""
    if not SHARED.is_dir():
        raise FileNotFoundError(f"{name} needs the data of ../shared, which is not beside this checkout")
    target.mkdir(parents=True)
    if name == "mnist":
        return _mnist(target)
    if name == "nanogpt":
        return _nanogpt(target)
    args = usual().lay_out(name, SHARED, target)
    script = target / f"{name}.py"
    shutil.copyfile(USUAL / script.name, script)
    return Real(name, script, tuple(args), target)


def _mnist(target: Path) -> Real:
    folder = target / "mnist"
    shutil.copytree(SHARED / "subjects" / "pytorch-examples" / "mnist", folder)
    raw = target / "data" / "MNIST" / "raw"
    raw.mkdir(parents=True)
    for packed in (SHARED / "data" / "mnist").glob("*.gz"):
        shutil.copyfile(packed, raw / packed.name)
        (raw / packed.stem).write_bytes(gzip.decompress(packed.read_bytes()))
    return Real("mnist", folder / "main.py", (), folder)


def _nanogpt(target: Path) -> Real:
    folder = target / "nanogpt"
    shutil.copytree(SHARED / "subjects" / "nanogpt", folder)
    text = folder / "data" / "shakespeare_char"
    os.chmod(text, 0o755)
    shutil.copyfile(SHARED / "data" / "tiny-shakespeare" / "input.txt", text / "input.txt")
    subprocess.run([sys.executable, "prepare.py"], cwd=text, capture_output=True, timeout=120, check=True)
    return Real("nanogpt", folder / "train.py", NANOGPT, folder)
