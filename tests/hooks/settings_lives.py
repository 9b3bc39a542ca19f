"""Scripts under settings, as `stoker run` gives them: what they print, and what the hooks say of it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

HEAD = """
import json, os, random, sys, torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, IterableDataset, TensorDataset
def tell(**what):
    print(json.dumps(what))
def lines(knobs):
    return [json.loads(line) for line in open(os.environ["STOKER_HOOKS"] + "/processes.jsonl")]
"""


class Told:
    """What one run said: `said` in its output, line for line together, and the settings that were applied and left."""

    def __init__(self, done: subprocess.CompletedProcess[str], hooks: Path) -> None:
        self.done = done
        self.said: dict = {}
        for line in done.stdout.splitlines():
            if line.startswith("{"):
                self.said.update(json.loads(line))
        records = [json.loads(line) for line in (hooks / "processes.jsonl").read_text().splitlines()]
        self.records = records
        settings = [each["settings"] for each in records if "settings" in each]
        self.applied: list = settings[-1]["applied"] if settings else []
        self.left: dict = settings[-1]["left"] if settings else {}


def live(vendored: Path, folder: Path, code: str, settings: dict | None, **env: str) -> Told:
    """Run `code` behind HEAD as train.py under these settings (None: without any)."""
    hooks = folder / "hooks"
    hooks.mkdir(exist_ok=True)
    (hooks / "processes.jsonl").unlink(missing_ok=True)
    (folder / "train.py").write_text(HEAD + code)
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("STOKER_", "PYTHON"))}
    if settings is not None:
        (folder / "settings.json").write_text(json.dumps({"version": 1, **settings}))
        kept["STOKER_SETTINGS"] = str(folder / "settings.json")
    done = subprocess.run([sys.executable, "train.py"], cwd=folder, capture_output=True, text=True, timeout=100, check=False,
                          env={**kept, "PYTHONPATH": str(vendored), "STOKER_HOOKS": str(hooks), "OMP_NUM_THREADS": "1", **env})
    assert done.returncode == 0, done.stderr
    return Told(done, hooks)


def line_of(code: str, text: str) -> int:
    """The line of train.py at which `text` stands in `code`, and only once."""
    assert code.count(text) == 1
    return HEAD.count("\n") + code[: code.index(text)].count("\n") + 1
