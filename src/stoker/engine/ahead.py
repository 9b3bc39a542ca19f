"""The next batch on its way to the device while the current one is computed with: one batch ahead, on CUDA on a stream of its own."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import torch

from stoker.engine.data import Micro


class Ahead:
    """An iterator over (micro-batch, data on the device). It reads one batch further than it has handed out.

    An exception of the source comes when its batch is asked for, not one batch early.
    """

    def __init__(self, source: Iterator[tuple[Micro, object]], device: torch.device, move: Callable[[object], object]) -> None:
        """move: gives a batch with its tensors on the device."""
        self._source = source
        self._device = device
        self._move = move
        self._copies = torch.cuda.Stream(device) if device.type == "cuda" else None
        self._next: tuple[Micro, object] | None = None
        self._failed: Exception | None = None
        self._begun = False

    def __iter__(self) -> Ahead:
        return self

    def __next__(self) -> tuple[Micro, object]:
        if not self._begun:
            self._begun = True
            self._load()
        found, failed = self._next, self._failed
        self._next = self._failed = None
        if failed is not None:
            raise failed
        if found is None:
            raise StopIteration
        if self._copies is not None:
            here = torch.cuda.current_stream(self._device)
            here.wait_stream(self._copies)
            for tensor in tensors(found[1]):
                tensor.record_stream(here)  # its memory is not used again before this stream has read it
        self._load()
        return found

    def _load(self) -> None:
        try:
            found = next(self._source, None)
        except Exception as e:
            self._failed = e
            return
        if found is not None:
            with torch.cuda.stream(self._copies):  # with None, nothing changes
                self._next = found[0], self._move(found[1])


def tensors(batch: object) -> Iterator[torch.Tensor]:
    """The GPU tensors of a batch; lists, tuples and dicts are gone through."""
    if isinstance(batch, torch.Tensor):
        if batch.is_cuda:
            yield batch
    elif isinstance(batch, dict):
        for each in batch.values():
            yield from tensors(each)
    elif isinstance(batch, list | tuple):
        for each in batch:
            yield from tensors(each)
