"""Whether one way to read a data set gives the same samples as another:
compared on items drawn at random, beside the training."""

from __future__ import annotations

import math
import random
import sys
import time

from . import beside, fingerprint

CLOSE = 1e-6  # floats may differ by that much, absolute or relative
BATCHES = (64, 1, 17, 64, 2, 128, 33)  # sizes in which items are asked
SEED = 20250117
TAKES = {
    "unlink",
    "rmtree",
    "rmdir",
    "rename",
    "remove",
    "pop",
    "popleft",
    "popitem",
    "get_nowait",
    "truncate",
    "execute",
}


class Unfit(Exception):
    """A sentence: why this cannot be done with this loader or its data."""


class Proof:
    """`ok`, or `why` not; `n` items were compared in `seconds`."""

    def __init__(self, why: str, n: int, seconds: float) -> None:
        self.ok, self.why, self.n, self.seconds = not why, why, n, round(seconds, 4)

    def __bool__(self) -> bool:
        return self.ok

    def __repr__(self) -> str:
        return f"Proof({self.n} items are equal)" if self.ok else f"Proof({self.why})"


def compare(data: object, read: object, n: int, seconds: float, twice: bool = False) -> Proof:
    """`read(indices)` against what the data set gives one by one and default_collate puts together;
    with `twice`, the data set against itself. Stops early when the time is over, and says how many were
    compared; fewer than that are no proof of anything: `n` tells."""
    began, done = time.monotonic(), 0
    why = takes_away(data)
    if why:
        return Proof(why, 0, 0.0)
    try:
        with beside.aside(data):
            batches = _batches(len(data), n)
            _ = data[batches[0][0]]  # what is opened at the first read
            for indices in batches:
                before, held = beside.states(data), fingerprint.of(data)
                samples = [data[i] for i in indices]
                why = own_doing(data, before, held)
                if why:
                    return Proof(why, done, time.monotonic() - began)
                other = [data[i] for i in indices] if twice else read(indices)
                found = difference(samples, other) if twice else difference(collate(samples), other)
                if found:
                    word = (
                        "reading an index twice gives different samples"
                        if twice
                        else "reading a batch at once gives other samples than reading one by one"
                    )
                    return Proof(f"{word}: {found}", done, time.monotonic() - began)
                done += len(indices)
                if time.monotonic() - began > seconds:
                    break
    except Unfit as e:
        return Proof(str(e), done, time.monotonic() - began)
    except Exception as e:
        return Proof(f"{type(e).__name__}: {e}"[:200], done, time.monotonic() - began)
    return Proof("", done, time.monotonic() - began)


def takes_away(data: object) -> str:
    """Whether reading a sample may take something away, by the words of its code, or "".
    Asked before anything is read."""
    from . import fingerprint
    words = fingerprint.words_of(data) & TAKES
    if not words:
        return ""
    return f"reading a sample may delete the sample: the data set's code uses {', '.join(sorted(words))}"


def own_doing(data: object, before: tuple, held: dict) -> str:
    """What reading a sample does besides, or ""."""
    drew = beside.drew(before, beside.states(data))
    if drew:
        return f"reading a sample draws random numbers from {drew}"
    now = fingerprint.of(data)
    return (
        f"the data set changes while it is read ({fingerprint.difference(held, now)})" if now != held else ""
    )


def _batches(length: int, n: int) -> list:
    """Indices of about `n` different items, in batches of changing size;
    no generator of the script's is asked."""
    drawn = random.Random(SEED).sample(range(length), min(length, n))
    found, turn = [], 0
    while drawn:
        size = BATCHES[turn % len(BATCHES)]
        found.append(drawn[:size])
        drawn, turn = drawn[size:], turn + 1
    return found


def collate(samples: list) -> object:
    """As a DataLoader does it by default."""
    from torch.utils.data import default_collate
    return default_collate(samples)


def difference(one: object, other: object, path: str = "") -> str:
    """Where two batches or samples differ, or "". The same kinds and shapes;
    bytes and integers exactly, floats to CLOSE."""
    torch, numpy = sys.modules["torch"], sys.modules.get("numpy")
    name = f"`sample{path}`" if path else "the sample"
    if type(one) is not type(other):
        return f"{name} has the type {type(other).__name__} instead of {type(one).__name__}"
    if isinstance(one, torch.Tensor):
        return _tensors(one, other, name, torch)
    if numpy is not None and isinstance(one, numpy.ndarray) and not one.dtype.hasobject:
        if one.dtype != other.dtype or one.shape != other.shape:
            return f"{name} is {other.dtype}{other.shape} instead of {one.dtype}{one.shape}"
        if one.dtype.kind == "f":
            return (
                ""
                if numpy.allclose(one, other, CLOSE, CLOSE, equal_nan=True)
                else f"{name} has different values"
            )
        return "" if (one == other).all() else f"{name} has different values"
    if isinstance(one, dict):
        if list(one) != list(other):
            return f"{name} has different keys"
        return next(filter(None, (difference(one[key], other[key], f"{path}[{key!r}]") for key in one)), "")
    if isinstance(one, (list, tuple)):
        if len(one) != len(other):
            return f"{name} has {len(other)} elements instead of {len(one)}"
        pairs = enumerate(zip(one, other))  # noqa: B905
        return next(filter(None, (difference(a, b, f"{path}[{n}]") for n, (a, b) in pairs)), "")
    if isinstance(one, float):
        same = math.isclose(one, other, rel_tol=CLOSE, abs_tol=CLOSE) or (
            math.isnan(one) and math.isnan(other)
        )
        return "" if same else f"{name} differs"
    try:
        same = bool(one == other)
    except Exception:
        same = False
    return "" if same else f"{name} differs"


def _tensors(one: object, other: object, name: str, torch: object) -> str:
    if one.dtype != other.dtype or one.shape != other.shape or one.device != other.device:
        return f"{name} is {_told(other)} instead of {_told(one)}"
    if one.layout is not torch.strided or other.layout is not torch.strided:
        return f"{name} is sparse, and Stoker can compare only dense tensors"
    if one.requires_grad != other.requires_grad:
        return f"{name} has requires_grad={other.requires_grad} instead of {one.requires_grad}"
    if torch.equal(one, other):
        return ""
    if not (one.is_floating_point() or one.is_complex()):
        return f"{name} has different values"
    return "" if torch.allclose(one, other, CLOSE, CLOSE, equal_nan=True) else f"{name} has different values"


def _told(tensor: object) -> str:
    return f"{str(tensor.dtype).partition('.')[2]}{tuple(tensor.shape)}"
