"""Convert nested plain values, tensors and arrays to JSON plus tensors, and back with the same types.
Never pickle."""

from __future__ import annotations

import base64
import math
from collections import Counter, OrderedDict, deque
from collections.abc import Callable
from typing import Any

import numpy
import torch

MARK = "~"  # a JSON object with this key is not a dict of the user's


class Unsaveable(Exception):
    """A value that a checkpoint cannot store. args: (path, type name)."""


def encode(value: object, tensors: dict[str, torch.Tensor], path: str) -> object:
    """`value` as JSON; its tensors are added to `tensors`, with names that start with `path`.
    Raises Unsaveable."""
    if value is None or isinstance(value, bool | str) or type(value) is int:
        return value
    if type(value) is float:
        return value if math.isfinite(value) else {MARK: "float", "v": repr(value)}
    if isinstance(value, torch.Tensor):
        away = {} if value.device.type == "cpu" else {"on": value.device.type}
        return {MARK: "tensor", "v": _put(value.detach(), tensors, path), **away}
    if type(value) is list:
        return [encode(each, tensors, f"{path}.{n}") for n, each in enumerate(value)]
    if isinstance(value, dict) and type(value) in _DICTS:
        return _encode_dict(value, tensors, path)
    if type(value) in _ROWS:
        items: Any = sorted(value, key=repr) if isinstance(value, set | frozenset) else value
        body: dict[str, Any] = {
            MARK: _ROWS[type(value)],
            "v": [encode(each, tensors, f"{path}.{n}") for n, each in enumerate(items)],
        }
        return {**body, "maxlen": value.maxlen} if isinstance(value, deque) else body
    if isinstance(value, numpy.ndarray) and value.dtype.kind in "biufc":
        copied = torch.from_numpy(numpy.ascontiguousarray(value).copy()).reshape(value.shape)
        return {MARK: "array", "v": _put(copied, tensors, path)}
    if isinstance(value, numpy.generic) and value.dtype.kind in "biuf":
        return {MARK: "numpy", "d": value.dtype.str, "v": base64.b64encode(value.tobytes()).decode()}
    if isinstance(value, bytes):
        return {MARK: "bytes", "v": base64.b64encode(value).decode()}
    if isinstance(value, torch.dtype | torch.device):
        return {MARK: type(value).__name__, "v": str(value).removeprefix("torch.")}
    raise Unsaveable(path, f"{type(value).__module__}.{type(value).__qualname__}")


def _put(tensor: torch.Tensor, tensors: dict[str, torch.Tensor], path: str) -> str:
    """The name of the tensor; never that of another (the keys 1 and "1" of a dict make the same path)."""
    while path in tensors:
        path += "_"
    tensors[path] = tensor
    return path


_DICTS = {dict: "dict", OrderedDict: "ordered", Counter: "counter"}
_ROWS = {tuple: "tuple", set: "set", frozenset: "frozenset", deque: "deque", torch.Size: "size"}


def _encode_dict(value: dict, tensors: dict[str, torch.Tensor], path: str) -> dict:
    plain = type(value) is dict and all(type(name) is str for name in value) and MARK not in value
    if plain:
        return {name: encode(each, tensors, f"{path}.{name}") for name, each in value.items()}
    pairs = [[encode(name, tensors, f"{path}.key{n}"), encode(each, tensors, f"{path}.{name}")]
             for n, (name, each) in enumerate(value.items())]
    return {MARK: _DICTS[type(value)], "v": pairs}


def decode(body: object, tensors: dict[str, torch.Tensor], device: torch.device | None = None) -> Any:
    """The value that was given to `encode`. Tensors come from `tensors` without a copy;
    tensors that were not on the CPU are copied to `device`."""
    def inner(part: object) -> object:
        return decode(part, tensors, device)

    if isinstance(body, list):
        return [inner(each) for each in body]
    if not isinstance(body, dict):
        return body
    if MARK not in body:
        return {name: inner(each) for name, each in body.items()}
    if body[MARK] == "array":
        return tensors[body["v"]].numpy().copy()
    if body[MARK] == "tensor":
        return tensors[body["v"]].to(device if "on" in body else None)
    return _DECODE[body[MARK]](body, inner)


def _pairs(body: dict, inner: Callable[[object], object]) -> list[tuple]:
    return [(inner(name), inner(each)) for name, each in body["v"]]


def _row(body: dict, inner: Callable[[object], object]) -> list:
    return [inner(each) for each in body["v"]]


_DECODE = {
    "float": lambda body, _: float(body["v"]),
    "numpy": lambda body, _: numpy.frombuffer(base64.b64decode(body["v"]), dtype=body["d"])[0],
    "bytes": lambda body, _: base64.b64decode(body["v"]),
    "dtype": lambda body, _: getattr(torch, body["v"]),
    "device": lambda body, _: torch.device(body["v"]),
    "dict": lambda body, inner: dict(_pairs(body, inner)),
    "ordered": lambda body, inner: OrderedDict(_pairs(body, inner)),
    "counter": lambda body, inner: Counter(dict(_pairs(body, inner))),
    "tuple": lambda body, inner: tuple(_row(body, inner)),
    "set": lambda body, inner: set(_row(body, inner)),
    "frozenset": lambda body, inner: frozenset(_row(body, inner)),
    "deque": lambda body, inner: deque(_row(body, inner), body["maxlen"]),
    "size": lambda body, inner: torch.Size(_row(body, inner)),
}
