"""Read the next batch while the current batch is in use;
on CUDA, copy it to the device on a second stream."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import torch

from stoker.engine.data import Micro


class Ahead:
    """An iterator over (micro-batch, data on the device). The iterator reads one batch ahead.
    An exception of the source is raised for the batch that caused it, not one batch early.
    """

    def __init__(
        self, source: Iterator[tuple[Micro, object]], device: torch.device, move: Callable[[object], object]
    ) -> None:
        """move: gives a batch with its tensors on the device."""
        self._source = source
        self._device = device
        self._move = move
        self._copies = torch.cuda.Stream(device) if device.type == "cuda" else None
        self._next: tuple[Micro, object] | None = None
        self._copied = False  # is its data on the device?
        self._failed: Exception | None = None
        self._begun = False

    def __iter__(self) -> Ahead:
        return self

    def __next__(self) -> tuple[Micro, object]:
        if not self._begun:
            self._begun = True
            self._load()
        if self._failed is not None:
            failed, self._failed = self._failed, None
            raise failed
        if self._next is None:
            raise StopIteration
        micro, batch = self._next
        if self._copied:
            self._hand_over(batch)
        else:
            batch = self._move(batch)
        self._load()
        return micro, batch

    def _hand_over(self, batch: object) -> None:
        """The stream that computes waits for the copy, and the copy's memory is not used again before that
        stream has read it."""
        here = torch.cuda.current_stream(self._device)
        here.wait_stream(self._copies)
        for tensor in tensors(batch):
            if tensor.is_cuda:
                tensor.record_stream(here)

    def _load(self) -> None:
        self._next, self._copied = None, False
        try:
            found = next(self._source, None)
        except Exception as e:
            self._failed = e
            return
        if found is not None and self._copies is not None and known(found[1]):
            with torch.cuda.stream(self._copies):
                found = found[0], self._move(found[1])
            self._copied = True
        self._next = found


def known(batch: object) -> bool:
    """True if all tensors of a batch are in lists, tuples and dicts.
    A stream cannot be recorded for tensors in other objects."""
    if isinstance(batch, dict):
        return all(map(known, batch.values()))
    if isinstance(batch, list | tuple):
        return all(map(known, batch))
    return isinstance(batch, torch.Tensor) or not hasattr(batch, "to")


def tensors(batch: object) -> Iterator[torch.Tensor]:
    """The tensors of a batch, also those in lists, tuples and dicts."""
    if isinstance(batch, torch.Tensor):
        yield batch
    elif isinstance(batch, dict | list | tuple):
        for each in batch.values() if isinstance(batch, dict) else batch:
            yield from tensors(each)
