"""The ranks of this run: the number of this rank, and every collective that the engine uses.
With one rank, the collectives do nothing.

Gradients are summed by one all-reduce of flat buffers in the order of the parameters.
This order never changes, so the first step of a new process sums exactly as a later step
(DistributedDataParallel regroups its buckets after the first step of a process;
docs/decisions/013-gradients-in-fixed-order.md).
"""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist

from stoker.engine.errors import InvalidSpec

BUCKET = 1 << 23  # elements in one all-reduce: 32 MB of float32


@dataclass
class World:
    """One rank alone; the base of `Ranks`."""

    rank: int = 0
    size: int = 1
    local_size: int = 1

    def same_everywhere(self, tensors: list[torch.Tensor]) -> None:
        """Give every rank the values of rank 0, in place."""

    def share(self, body: Any) -> Any:
        """Rank 0's JSON value, on every rank."""
        return body

    def gather(self, data: bytes) -> list[bytes]:
        """The bytes of every rank, in rank order, on every rank."""
        return [data]

    def add(self, numbers: list[float]) -> list[float]:
        """Sums over the ranks, in float64."""
        return numbers

    def sum_gradients(self, parameters: list[torch.Tensor], extra: list[float]) -> list[float]:
        """Replace each gradient by its sum over the ranks; a gradient that no rank has stays None.
        Returns the sums of `extra`."""
        return extra

    def barrier(self) -> None:
        """Wait until every rank has reached this call."""

    def close(self) -> None:
        """Leave the process group, if the engine created the group."""


class Ranks(World):
    """Several ranks, over torch.distributed."""

    def __init__(self, rank: int, size: int, local_size: int, device: torch.device, ours: bool) -> None:
        super().__init__(rank, size, local_size)
        self.device = device
        self.ours = ours

    def same_everywhere(self, tensors: list[torch.Tensor]) -> None:
        for group in _by_kind([t.detach() for t in tensors]):
            flat = torch.cat([t.reshape(-1) for t in group])
            dist.broadcast(flat, 0)
            _spread(flat, group)

    def share(self, body: Any) -> Any:
        text = json.dumps(body).encode() if self.rank == 0 else b""
        return json.loads(self.gather(text)[0])

    def gather(self, data: bytes) -> list[bytes]:
        lengths = [torch.zeros(1, dtype=torch.int64, device=self.device) for _ in range(self.size)]
        dist.all_gather(lengths, torch.tensor([len(data)], dtype=torch.int64, device=self.device))
        longest = max(int(n) for n in lengths)
        mine = torch.zeros(max(longest, 1), dtype=torch.uint8)
        mine[:len(data)] = torch.frombuffer(bytearray(data), dtype=torch.uint8) if data else mine[:0]
        parts = [torch.zeros_like(mine, device=self.device) for _ in range(self.size)]
        dist.all_gather(parts, mine.to(self.device))
        return [bytes(part[:int(n)].cpu().numpy()) for part, n in zip(parts, lengths, strict=True)]

    def add(self, numbers: list[float]) -> list[float]:
        sums = torch.tensor(numbers, dtype=torch.float64, device=self.device)
        dist.all_reduce(sums)
        return sums.tolist()

    def sum_gradients(self, parameters: list[torch.Tensor], extra: list[float]) -> list[float]:
        have = [float(p.grad is not None) for p in parameters]
        sums = self.add([*extra, *have])
        used = [p for p, n in zip(parameters, sums[len(extra):], strict=True) if n]
        for p in used:
            if p.grad is None:
                p.grad = torch.zeros_like(p)
        for group in _by_kind([p.grad for p in used]):
            for bucket in _buckets(group):
                flat = torch.cat([g.reshape(-1) for g in bucket])
                dist.all_reduce(flat)
                _spread(flat, bucket)
        return sums[:len(extra)]

    def barrier(self) -> None:
        dist.barrier()

    def close(self) -> None:
        if self.ours and dist.is_initialized():
            dist.destroy_process_group()


def _by_kind(tensors: list[torch.Tensor]) -> list[list[torch.Tensor]]:
    """Tensors of one dtype and device together, in their order."""
    groups: dict[tuple, list[torch.Tensor]] = {}
    for t in tensors:
        groups.setdefault((t.dtype, t.device), []).append(t)
    return list(groups.values())


def _buckets(tensors: list[torch.Tensor]) -> list[list[torch.Tensor]]:
    found: list[list[torch.Tensor]] = [[]]
    held = 0
    for t in tensors:
        if held and held + t.numel() > BUCKET:
            found.append([])
            held = 0
        found[-1].append(t)
        held += t.numel()
    return found


def _spread(flat: torch.Tensor, tensors: list[torch.Tensor]) -> None:
    for part, t in zip(flat.split([t.numel() for t in tensors]), tensors, strict=True):
        t.copy_(part.view_as(t))


def _number(name: str) -> int | None:
    text = os.environ.get(name)
    return int(text) if text and text.isdigit() else None


def join(device: torch.device) -> World:
    """The ranks, as the launcher (torchrun) set them in RANK and WORLD_SIZE.
    Raises InvalidSpec if launcher and process group disagree."""
    size, rank = _number("WORLD_SIZE"), _number("RANK")
    if dist.is_initialized():
        if size is not None and size != dist.get_world_size():
            raise InvalidSpec(
                (
                    f"The process group has {dist.get_world_size()} ranks, but the launcher set "
                    f"WORLD_SIZE={size}."
                ),
                hint="Remove your call of init_process_group; Engine calls this function.",
            )
        size, rank, ours = dist.get_world_size(), dist.get_rank(), False
    elif size is None or rank is None or size == 1:
        return World()
    else:
        import torch.distributed.nn.functional  # noqa: F401  # has the group as defaults: imported later, it would keep the group and its threads

        dist.init_process_group("nccl" if device.type == "cuda" else "gloo")
        ours = True
    if size == 1:
        return World()
    return Ranks(rank, size, _number("LOCAL_WORLD_SIZE") or size, device, ours)


def device_of(asked: str | None) -> torch.device:
    """The device of this rank: the requested device, else the GPU with the rank's number, else the CPU.

    A GPU becomes the current device, so generators, streams and pinned memory belong to this GPU.
    Raises InvalidSpec for a GPU that does not exist.
    """
    device = torch.device(asked or ("cuda" if torch.cuda.is_available() else "cpu"))
    if device.type != "cuda":
        return device
    count = torch.cuda.device_count()
    if (device.index or 0) >= count:
        raise InvalidSpec(f"Engine(device={asked!r}): torch sees {count} GPU{'s' * (count != 1)}.",
                          hint="To check the GPUs and torch: stoker doctor")
    number = (_number("LOCAL_RANK") or 0) % count if device.index is None else device.index
    torch.cuda.set_device(number)
    return torch.device("cuda", number)
