"""State as JSON beside tensors: any nest of plain values, tensors and arrays, and back, with the same types. Never pickle."""

from __future__ import annotations

import base64
import math
from collections import Counter, OrderedDict, deque

import numpy
import torch

MARK = "~"  # a JSON object with this key is not a dict of the user's


class Unsaveable(Exception):
    """A value that no checkpoint can hold. args: (path, type name)."""


def encode(value: object, tensors: dict[str, torch.Tensor], path: str) -> object:
    """`value` as JSON; its tensors go into `tensors` under names that begin with `path`. Raises Unsaveable."""
    if value is None or isinstance(value, bool | str) or type(value) is int:
        return value
    if type(value) is float:
        return value if math.isfinite(value) else {MARK: "float", "v": repr(value)}
    if isinstance(value, torch.Tensor):
        return {MARK: "tensor", "v": _put(value.detach(), tensors, path)}
    if type(value) is list:
        return [encode(each, tensors, f"{path}.{n}") for n, each in enumerate(value)]
    if isinstance(value, dict) and type(value) in _DICTS:
        return _encode_dict(value, tensors, path)
    if type(value) in _ROWS:
        items = sorted(value, key=repr) if isinstance(value, set | frozenset) else value
        body = {MARK: _ROWS[type(value)], "v": [encode(each, tensors, f"{path}.{n}") for n, each in enumerate(items)]}
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


def decode(body: object, tensors: dict[str, torch.Tensor]) -> object:
    """What `encode` was given. Tensors are those of `tensors`, not copies."""
    if isinstance(body, list):
        return [decode(each, tensors) for each in body]
    if not isinstance(body, dict):
        return body
    if MARK not in body:
        return {name: decode(each, tensors) for name, each in body.items()}
    return _DECODE[body[MARK]](body, tensors)


def _pairs(body: dict, tensors: dict) -> list[tuple]:
    return [(decode(name, tensors), decode(each, tensors)) for name, each in body["v"]]


def _row(body: dict, tensors: dict) -> list:
    return [decode(each, tensors) for each in body["v"]]


_DECODE = {
    "float": lambda body, _: float(body["v"]),
    "tensor": lambda body, tensors: tensors[body["v"]],
    "array": lambda body, tensors: tensors[body["v"]].numpy().copy(),
    "numpy": lambda body, _: numpy.frombuffer(base64.b64decode(body["v"]), dtype=body["d"])[0],
    "bytes": lambda body, _: base64.b64decode(body["v"]),
    "dtype": lambda body, _: getattr(torch, body["v"]),
    "device": lambda body, _: torch.device(body["v"]),
    "dict": lambda body, tensors: dict(_pairs(body, tensors)),
    "ordered": lambda body, tensors: OrderedDict(_pairs(body, tensors)),
    "counter": lambda body, tensors: Counter(dict(_pairs(body, tensors))),
    "tuple": lambda body, tensors: tuple(_row(body, tensors)),
    "set": lambda body, tensors: set(_row(body, tensors)),
    "frozenset": lambda body, tensors: frozenset(_row(body, tensors)),
    "deque": lambda body, tensors: deque(_row(body, tensors), body["maxlen"]),
    "size": lambda body, tensors: torch.Size(_row(body, tensors)),
}
