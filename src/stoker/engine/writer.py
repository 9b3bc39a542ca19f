"""Save while the training continues: copy tensors into permanent buffers, and write them in a thread.
At most one save is in progress."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path

import torch

from stoker.engine import checkpoint


class Writer:
    """Writes checkpoints in a thread. A second save waits for the first."""

    def __init__(self, root: Path, after: Callable[[], None]) -> None:
        """after: called in the thread when a checkpoint is complete (retention)."""
        self.root = root
        self.after = after
        self.failed: OSError | None = None  # of the last save; the ones before it are still whole
        self._buffers: dict[str, torch.Tensor] = {}
        self._thread: threading.Thread | None = None

    def save(self, doc: dict, tensors: dict[str, torch.Tensor], wait: bool) -> None:
        """Copy the tensors, then write. wait: return when the checkpoint is on disk,
        and raise OSError on failure."""
        self.wait()
        copied = self._copy(tensors)
        self.failed = None
        if wait:
            self._write(doc, copied)
            if self.failed:
                raise self.failed
            return
        self._thread = threading.Thread(
            target=self._write, args=(doc, copied), name="stoker-save", daemon=False
        )
        self._thread.start()

    def wait(self) -> None:
        """Wait until no save is in progress."""
        if self._thread is not None:
            self._thread.join()
        self._thread = None

    def _copy(self, tensors: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        held, self._buffers = self._buffers, {}
        for name, tensor in tensors.items():
            buffer = held.get(name)
            if buffer is None or buffer.shape != tensor.shape or buffer.dtype != tensor.dtype:
                buffer = torch.empty(tensor.shape, dtype=tensor.dtype)
            self._buffers[name] = buffer.copy_(tensor)
        return self._buffers

    def _write(self, doc: dict, tensors: dict[str, torch.Tensor]) -> None:
        try:
            checkpoint.write(self.root, doc, tensors)
        except OSError as e:
            self.failed = e
            return
        self.after()
