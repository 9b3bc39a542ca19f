"""A pretend accelerator: a step that takes a + b * batch on a device's own clock, with a queue that the host runs ahead of.

Nothing is computed elsewhere: the tensors stay on the CPU, and only time is charged. `.item()`, `.cpu()`, `float(t)`, `if t:` and
their like wait for the queue, as they do on a GPU; arithmetic does not. The clock is a number, so that forked workers and
stopped processes need no thread of it.
"""

from __future__ import annotations

import time
from collections import deque

import torch

_WAITING = ("item", "tolist", "cpu", "numpy", "nonzero", "__float__", "__int__", "__bool__", "__repr__", "__format__", "__index__")
_WAITS = frozenset(getattr(torch.Tensor, name) for name in _WAITING)
_COPY_OUT = frozenset((torch.Tensor.cpu, torch.Tensor.numpy, torch.Tensor.tolist))


class _Device:
    """One queue: `free_at` is when what was put into it so far will be done."""

    def __init__(self) -> None:
        self.fixed_s, self.sample_s, self.bytes_per_s, self.depth = 0.004, 0.00005, 2e9, 8
        self.free_at = self.charged = 0.0
        self.pending: deque[float] = deque()

    def enqueue(self, seconds: float) -> None:
        now = time.perf_counter()
        self.charged += seconds
        self.free_at = max(now, self.free_at) + seconds
        self.pending.append(self.free_at)
        while len(self.pending) > self.depth:
            _sleep_until(self.pending.popleft())

    def drain(self) -> None:
        _sleep_until(self.free_at)
        self.pending.clear()


_device = _Device()


class OnDevice(torch.Tensor):
    """A tensor whose value is only known when the queue has come that far."""

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        if func in _WAITS:
            if func in _COPY_OUT:
                _device.enqueue(args[0].nbytes / _device.bytes_per_s)
            _device.drain()
            with torch._C.DisableTorchFunctionSubclass():
                return func(args[0].as_subclass(torch.Tensor), *args[1:], **(kwargs or {}))
        return super().__torch_function__(func, types, args, kwargs or {})


def configure(*, fixed_ms: float, sample_ms: float, gb_per_s: float = 2.0, depth: int = 8) -> None:
    """A training step takes `fixed_ms + sample_ms * batch`; copies go at `gb_per_s`; the host may be `depth` pieces of work ahead."""
    _device.fixed_s, _device.sample_s, _device.bytes_per_s, _device.depth = fixed_ms / 1e3, sample_ms / 1e3, gb_per_s * 1e9, depth


def prepare(model: torch.nn.Module) -> torch.nn.Module:
    """Charge a whole training step at each forward call of this module, or a third of it where no gradient is wanted."""

    def charge(module, args, out):
        whole = _device.fixed_s + _device.sample_s * len(args[0])
        _device.enqueue(whole if torch.is_grad_enabled() else whole / 3)
        return out.as_subclass(OnDevice)

    model.register_forward_hook(charge)
    return model


def put(tensor: torch.Tensor) -> torch.Tensor:
    """This tensor on the device; the copy is queued."""
    _device.enqueue(tensor.nbytes / _device.bytes_per_s)
    return tensor.as_subclass(OnDevice)


def synchronize() -> None:
    """Wait for everything that was queued."""
    _device.drain()


def charged() -> float:
    """Seconds of work that the device was given so far; no training takes less."""
    return _device.charged


def empty_cache() -> None:
    """Wait for the queue, give the memory back (2 ms), and pay for it again at the next step (2 ms)."""
    _device.drain()
    _sleep_until(time.perf_counter() + 0.002)
    _device.enqueue(0.002)


def _sleep_until(moment: float) -> None:
    left = moment - time.perf_counter()
    if left > 0:
        time.sleep(left)
