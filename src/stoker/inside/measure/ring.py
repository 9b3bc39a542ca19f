"""A few batches of a loader, kept in memory and handed out again and again, so that what the script does to
them does no harm."""

from __future__ import annotations

import copy
import sys

SIZE = 12  # batches; fewer where they are large
LEAST = 8
BYTES_MAX = 1 << 30  # or a quarter of the memory that is free


class Ring:
    """Batches of one loader. `keep` while they come, `give` afterwards."""

    def __init__(self) -> None:
        self.batches: list = []
        self.bytes = 0
        self.broken = ""  # why these batches cannot be kept
        self.touched = False  # the script changes its batches in place
        self._limit = min(BYTES_MAX, _free_memory() // 4)
        self._at = 0
        self._last: tuple | None = None

    @property
    def full(self) -> bool:
        return (
            len(self.batches) >= SIZE
            or self.bytes + self.bytes // max(1, len(self.batches)) > self._limit
            or bool(self.broken)
        )

    @property
    def usable(self) -> bool:
        return not self.broken and len(self.batches) >= 2

    def keep(self, batch: object) -> None:
        """A batch that the script is about to get."""
        try:
            self.look_back()
            if self.full:
                return
            own = _map(batch, _copied)
            size = nbytes(own)
            if self.bytes + size > self._limit:
                self.broken = (
                    ""
                    if len(self.batches) >= 2
                    else "two batches need more memory than Stoker may use for copies"
                )
                self._limit = 0
                return
            self.batches.append(own)
            self.bytes += size
            self._last = (batch, own, marks_of(batch))
        except Exception as e:
            self.broken = f"{type(e).__name__}: {e}"

    def look_back(self) -> None:
        """Whether the script changed the batch before."""
        if self._last is None:
            return
        batch, own, was = self._last
        self._last = None
        if not self.touched:
            self.touched = marks_of(batch) != was or not _same_start(batch, own)

    def give(self) -> object:
        """The next one: containers are new each time, tensors only where the script changes them."""
        self._at = (self._at + 1) % len(self.batches)
        return _map(self.batches[self._at], _copied if self.touched else _as_it_is)

    def on(self, device: object) -> None:
        """Keep them on a device from now on."""
        self.batches = [
            _map(each, lambda leaf: leaf.to(device, copy=True) if _is_tensor(leaf) else _copied(leaf))
            for each in self.batches
        ]

    def doubled(self) -> Ring | None:
        """A ring of half as many batches of twice the size; None where they cannot be put together."""
        twice = Ring()
        try:
            twice.batches = [_joined(a, b) for a, b in zip(self.batches[::2], self.batches[1::2])]  # noqa: B905
        except Exception:
            return None
        twice.touched = self.touched
        return twice if len(twice.batches) >= 2 else None


def leaves(batch: object) -> list:
    """What is in a batch, flat."""
    found: list = []
    _map(batch, found.append)
    return found


def nbytes(batch: object) -> int:
    """Bytes of its tensors and arrays."""
    return sum(int(getattr(leaf, "nbytes", 0) or 0) for leaf in leaves(batch))


def marks_of(batch: object) -> list:
    """What shows that a tensor was changed in place."""
    return [
        (leaf._version, leaf.requires_grad)
        for leaf in leaves(batch)
        if _is_tensor(leaf) and not leaf.is_inference()
    ]


def _same_start(batch: object, own: object) -> bool:
    """A change through numpy leaves no mark: a few values of each are compared."""
    torch = sys.modules["torch"]
    for a, b in zip(leaves(batch), leaves(own)):  # noqa: B905
        if not _is_tensor(a):
            continue
        if a.shape != b.shape or a.dtype != b.dtype:
            return False
        if (
            a.layout == torch.strided
            and not torch.equal(_few(a), _few(b))
            and not bool(_few(a).isnan().any())
        ):
            return False
    return True


def _few(tensor: object) -> object:
    flat = tensor.detach().flatten()
    return flat[:: max(1, flat.numel() // 64)][:64].cpu()


def _is_tensor(leaf: object) -> bool:
    return isinstance(leaf, sys.modules["torch"].Tensor)


_PLAIN = (str, bytes, int, float, complex, bool, type(None))


def _copied(leaf: object) -> object:
    if _is_tensor(leaf):
        own = leaf.detach().clone()
        return (
            own.pin_memory()
            if leaf.device.type == "cpu" and own.layout is sys.modules["torch"].strided and leaf.is_pinned()
            else own
        )
    return leaf if isinstance(leaf, _PLAIN) else copy.deepcopy(leaf)


def _as_it_is(leaf: object) -> object:
    return (
        leaf
        if _is_tensor(leaf) or isinstance(leaf, _PLAIN) or hasattr(leaf, "__array_interface__")
        else copy.deepcopy(leaf)
    )


def _map(batch: object, on_leaf: object) -> object:
    """The same containers, made anew, around what `on_leaf` makes of each leaf."""
    kind = type(batch)
    if kind is list:
        return [_map(each, on_leaf) for each in batch]
    if kind is tuple:
        return tuple(_map(each, on_leaf) for each in batch)
    if kind is dict:
        return {key: _map(each, on_leaf) for key, each in batch.items()}
    if isinstance(batch, tuple) and hasattr(batch, "_fields"):
        return kind(*(_map(each, on_leaf) for each in batch))
    if isinstance(batch, dict):
        made = copy.copy(batch)
        for key, each in batch.items():
            made[key] = _map(each, on_leaf)
        return made
    return on_leaf(batch)


def _joined(a: object, b: object) -> object:
    torch = sys.modules["torch"]
    if isinstance(a, torch.Tensor):
        if a.dim() == 0 or a.shape[1:] != b.shape[1:]:
            raise ValueError("the batches have different shapes")
        return torch.cat([a, b])
    if isinstance(a, dict):
        return {key: _joined(a[key], b[key]) for key in a}
    if isinstance(a, (list, tuple)) and not hasattr(a, "_fields"):
        if a and not isinstance(a[0], (torch.Tensor, list, tuple, dict)):
            return type(a)([*a, *b])
        return type(a)(_joined(x, y) for x, y in zip(a, b))  # noqa: B905
    raise ValueError("the batches have an unknown type")


def _free_memory() -> int:
    try:
        with open("/proc/meminfo") as f:
            for each in f:
                if each.startswith("MemAvailable:"):
                    return int(each.split()[1]) << 10
    except (OSError, ValueError, IndexError):
        pass
    return 1 << 30
