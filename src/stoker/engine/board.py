"""The logged numbers as TensorBoard event files. After a kill, no step is missing or repeated.

Source is metrics.jsonl: each start writes the events up to the checkpoint again, then appends new events.
"""

from __future__ import annotations

from pathlib import Path

from stoker.engine.errors import InvalidSpec


class Board:
    """Event files in the folder tensorboard/ beside the checkpoints; only rank 0 has one."""

    def __init__(self, root: Path) -> None:
        """Raises InvalidSpec without TensorBoard."""
        try:
            from torch.utils.tensorboard import SummaryWriter
        except ImportError as e:
            raise InvalidSpec(
                f'Engine(log="tensorboard"): TensorBoard cannot be imported ({e}).',
                hint="pip install tensorboard",
            ) from None
        folder = root / "tensorboard"
        for old in folder.glob("events.out.tfevents.*"):
            old.unlink()
        self._writer = SummaryWriter(str(folder))

    def add(self, line: dict) -> None:
        """Write one line of metrics.jsonl; values that are not numbers are left out."""
        for name, value in line.items():
            if name not in ("step", "at") and isinstance(value, int | float):
                self._writer.add_scalar(name, value, line["step"], walltime=line["at"])

    def close(self) -> None:
        """Write the buffered events and close the file."""
        self._writer.close()
