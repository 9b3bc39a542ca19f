"""Random numbers are derived, not saved: a seed is computed from a position in the program,
then set in every generator.

Source of `mix`: splitmix64 (Steele, Lea, Flood 2014).
Its results are evenly spread, also for neighbouring inputs.
"""

from __future__ import annotations

import _random
import random
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from hashlib import blake2b
from itertools import islice

import numpy
import torch

_MASK = (1 << 64) - 1
_seed_python = _random.Random.seed  # the C function: random.seed adds Python around it
_python = random._inst
_torch_cpu = torch.default_generator


def key(*parts: object) -> int:
    """A 64-bit number for a position in the program.
    The same parts give the same number in every process and version."""
    return int.from_bytes(blake2b(repr(parts).encode(), digest_size=8).digest(), "little")


def mix(place: int, number: int) -> int:
    """The seed of item `number` at a position, 63 bits."""
    z = (place + (number + 1) * 0x9E3779B97F4A7C15) & _MASK
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & _MASK
    return (z ^ (z >> 31)) >> 1


def seed_cpu(seed: int) -> None:
    """Seed the generators of torch (CPU), random and numpy."""
    _torch_cpu.manual_seed(seed)
    _seed_python(_python, seed)
    _python.gauss_next = None  # type: ignore[attr-defined]  # the half of a pair that gauss() keeps
    numpy.random.seed(seed & 0xFFFFFFFF)


def seed_gpu(seed: int) -> None:
    """`seed_cpu`, and the generator of this process's GPU."""
    seed_cpu(seed)
    number = torch.cuda.current_device()  # first: it starts CUDA, and that makes the generators
    torch.cuda.default_generators[number].manual_seed(seed)


def seeder(device: torch.device) -> Callable[[int], None]:
    """The function that seeds all generators for this device."""
    return seed_gpu if device.type == "cuda" else seed_cpu


def _states(gpu: bool) -> tuple:
    return (
        _torch_cpu.get_state(),
        random.getstate(),
        numpy.random.get_state(),
        torch.cuda.get_rng_state() if gpu else None,
    )


def _put_back(states: tuple) -> None:
    of_torch, of_python, of_numpy, of_gpu = states
    _torch_cpu.set_state(of_torch)
    random.setstate(of_python)
    numpy.random.set_state(of_numpy)
    if of_gpu is not None:
        torch.cuda.set_rng_state(of_gpu)


@contextmanager
def bubble(gpu: bool = False) -> Iterator[None]:
    """Restore all generators at the end: random numbers drawn inside do not change those outside."""
    before = _states(gpu)
    try:
        yield
    finally:
        _put_back(before)


class Isolated:
    """The items of an iterable that draws random numbers,
    from a separate stream that starts at `seed`. Items are read `at_once` at a time.
    The stream is kept between reads, so the chunk size changes nothing.
    """

    def __init__(self, items: Iterable, seed: int, at_once: int = 256) -> None:
        self.pulled = 0  # chunks
        self._items = items
        self._seed = seed
        self._at_once = at_once
        self._ready: deque = deque()
        self._iterator: Iterator | None = None
        self._states: tuple = ()
        self._over = False

    def __iter__(self) -> Isolated:
        return self

    def __next__(self) -> object:
        if not self._ready:
            self.pull()
        if not self._ready:
            raise StopIteration
        return self._ready.popleft()

    def pull(self, chunks: int = 1) -> None:
        """Read more items, if there are more."""
        for _ in range(chunks):
            if not self._over:
                self._draw()

    def _draw(self) -> None:
        with bubble():
            if self._iterator is None:
                seed_cpu(self._seed)
                self._iterator = iter(self._items)
            else:
                _put_back(self._states)
            chunk = list(islice(self._iterator, self._at_once))
            self._states = _states(False)
        self.pulled += 1
        self._ready.extend(chunk)
        self._over = len(chunk) < self._at_once


def seed_own(holder: object, seed: int) -> None:
    """Seed the private generators (torch, random, numpy) that an object holds as attributes."""
    for value in list(getattr(holder, "__dict__", {}).values()):
        if isinstance(value, torch.Generator):
            value.manual_seed(seed)
        elif isinstance(value, random.Random):
            value.seed(seed)
        elif isinstance(value, numpy.random.Generator):
            value.bit_generator.state = type(value.bit_generator)(seed).state
        elif isinstance(value, numpy.random.RandomState):
            value.seed(seed & 0xFFFFFFFF)
