"""`engine.log`: write numbers to metrics.jsonl, one JSON object per line, without waiting for the device.
After a kill, no line is missing or repeated.

A line: `{"step", "epoch", "at", NAME: value, ...}`.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from time import monotonic, time

import torch

from stoker.base.rundir import ATTEMPTS, METRICS
from stoker.engine import seeds
from stoker.engine.board import Board
from stoker.engine.wandb_sink import Wandb

FLUSH_S = 1.0
SINKS: dict[str, type[Board | Wandb]] = {"tensorboard": Board, "wandb": Wandb}


def path(root: Path) -> Path:
    """The path of metrics.jsonl: under Stoker, the file of this attempt in the run folder;
    otherwise, beside the checkpoints."""
    run, attempt = os.environ.get("STOKER_RUN_DIR"), os.environ.get("STOKER_ATTEMPT")
    return Path(run) / ATTEMPTS / attempt / METRICS if run and attempt else root / METRICS


def opened(root: Path, log: dict | None, sinks: tuple[str, ...]) -> Metrics:
    """Open the log of this start. log: its state in the checkpoint. before:
    the files of earlier attempts (under Stoker, each attempt has a file).

    sinks: names of additional logs; each gets the lines of earlier starts first.
    Raises InvalidSpec if the package of a sink is missing.
    """
    at = path(root)
    log = log or {"path": str(at), "bytes": 0}
    same = log["path"] in (at.name, str(at))
    made = Metrics(at, log["bytes"] if same else None)
    made.before = [*log.get("before", []), *([] if same else [{"path": log["path"], "bytes": log["bytes"]}])]
    with seeds.bubble():  # what other people's packages draw is no part of the training
        made.sinks = [SINKS[name](root) for name in sinks]
    for part in [*made.before, {"path": str(at), "bytes": log["bytes"] if same else 0}] if sinks else []:
        for line in _lines(part):
            made.feed(json.loads(line))
    return made


def _lines(part: dict) -> list[bytes]:
    """The whole lines of a file's first bytes; a file that is gone has none."""
    try:
        with open(part["path"], "rb") as f:
            return f.read(part["bytes"]).splitlines()
    except OSError:
        return []


class Metrics:
    """Rank 0's log of numbers."""

    def __init__(self, at: Path, size: int | None) -> None:
        """size: cut the file to this length; what is after it belongs to steps that are done again."""
        self.path = at
        self._fd = os.open(at, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)
        if size is not None and os.fstat(self._fd).st_size > size:
            os.ftruncate(self._fd, size)
        self._held: list[tuple[int, int, float, dict]] = []
        self.sinks: list[Board | Wandb] = []
        self.before: list[dict] = []
        self._flushed = monotonic()

    def add(self, step: int, epoch: int, values: dict[str, object]) -> None:
        """Add a line. GPU tensors are kept until the next flush;
        CPU tensors are converted to numbers at once."""
        for name, value in values.items():
            if isinstance(value, torch.Tensor):
                values[name] = value.item() if value.device.type == "cpu" else value.detach().clone()
        self._held.append((step, epoch, time(), values))
        if monotonic() - self._flushed > FLUSH_S:
            self.flush()

    def flush(self) -> int:
        """Write the buffered lines. Returns the size of the file."""
        lines = [
            {
                "step": step,
                "epoch": epoch,
                "at": round(at, 3),
                **{name: _number(v) for name, v in values.items()},
            }
            for step, epoch, at, values in self._held
        ]
        self._held = []
        if lines:
            os.write(self._fd, "".join(f"{json.dumps(line)}\n" for line in lines).encode())
        for line in lines:
            self.feed(line)
        self._flushed = monotonic()
        return os.fstat(self._fd).st_size

    def feed(self, line: dict) -> None:
        """Send a line to each sink."""
        for sink in self.sinks:
            sink.add(line)

    def mark(self) -> dict:
        """State of the log for a checkpoint. All lines before it are on disk."""
        return {"path": str(self.path), "bytes": self.sync(), "before": self.before}

    def sync(self) -> int:
        """`flush`, then sync to disk."""
        size = self.flush()
        os.fsync(self._fd)
        return size

    def close(self) -> None:
        """Write the buffered lines and close the file."""
        self.flush()
        for sink in self.sinks:
            sink.close()
        os.close(self._fd)


def _number(value: object) -> object:
    return value.item() if hasattr(value, "item") else value
