"""The logged numbers as TensorBoard event files, without gap and without a step twice after a kill.

metrics.jsonl is the truth: each start writes the events of what it holds up to the checkpoint again, then adds to them.
"""

from __future__ import annotations

import json
from pathlib import Path

from stoker.engine.errors import InvalidSpec


class Board:
    """Event files in a folder; only rank 0 has one."""

    def __init__(self, folder: Path, parts: list[dict]) -> None:
        """parts: {"path", "bytes"} of each metrics.jsonl of this run, in order. Raises InvalidSpec without TensorBoard."""
        try:
            from torch.utils.tensorboard import SummaryWriter
        except ImportError as e:
            raise InvalidSpec(f'Engine(log="tensorboard"): TensorBoard cannot be imported ({e}).', hint="pip install tensorboard") from None
        for old in folder.glob("events.out.tfevents.*"):
            old.unlink()
        self._writer = SummaryWriter(str(folder))
        for part in parts:
            for line in _lines(part):
                self.add(json.loads(line))

    def add(self, line: dict) -> None:
        """One line of metrics.jsonl; what is no number is left out."""
        for name, value in line.items():
            if name not in ("step", "at") and isinstance(value, int | float):
                self._writer.add_scalar(name, value, line["step"], walltime=line["at"])

    def close(self) -> None:
        """Write what is held and close."""
        self._writer.close()


def _lines(part: dict) -> list[bytes]:
    """The whole lines of a file's first bytes; a file that is gone has none."""
    try:
        with open(part["path"], "rb") as f:
            return f.read(part["bytes"]).splitlines()
    except OSError:
        return []
