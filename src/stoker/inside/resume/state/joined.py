"""Arrays and tensors that lie in each other's memory (`torch.from_numpy`, `tensor.numpy()`, a view of an
array): what is written through one is read through the other, so that a restore must leave them as they were.
"""

from __future__ import annotations

import sys

from . import storages, walk


def pairs(seen) -> dict:
    """{path: (path, offset)} of arrays and tensors that lie in memory that another array, or a tensor of
    torch, owns: `torch.from_numpy`, `tensor.numpy()`, a view of an array."""
    if not seen.arrays:
        return {}
    numpy = sys.modules["numpy"]
    owners, inside, known = [], [], set()
    for path, array in seen.arrays.items():
        if array.nbytes:
            at = array.__array_interface__["data"][0]
            (owners if array.base is None else inside).append((at, array.nbytes, path))
    for path, tensor in seen.tensors.items():
        if (
            not storages.store_cannot(tensor)
            and tensor.device.type == "cpu"
            and storages.storage_key(tensor) not in known
        ):
            known.add(storages.storage_key(tensor))
            storage = tensor.untyped_storage()
            if storage.nbytes():
                owners.append((storage.data_ptr(), storage.nbytes(), path))
    owners.sort(key=lambda each: (each[0], -each[1]))
    starts = numpy.array([at for at, _, _ in owners], dtype=numpy.uint64)
    found = {}
    for at, size, path in (*inside, *owners):
        n = int(numpy.searchsorted(starts, numpy.uint64(at), "right")) - 1
        while n > 0 and starts[n - 1] == starts[n]:
            n -= 1  # the largest of those that begin there
        if n >= 0 and owners[n][2] != path and at + size <= owners[n][0] + owners[n][1]:
            found[path] = (owners[n][2], at - owners[n][0])
    return found


def put_back(meta: dict) -> tuple | None:
    """Join what a ghost has apart, as far as a tensor can be moved into the memory of an array;
    the first (path, path) that stays apart."""
    if not meta["shared"]:
        return None
    seen = walk.Walk().run()
    for path, where in _apart(meta, seen):
        _join(meta, seen, path, where[0])
    seen.close()
    seen = walk.Walk().run()
    left = _apart(meta, seen)
    seen.close()
    return (left[0][0], left[0][1][0]) if left else None


def _apart(meta: dict, seen) -> list:
    now = pairs(seen)
    return [(path, tuple(where)) for path, where in meta["shared"].items() if now.get(path) != tuple(where)]


def _join(meta: dict, seen, one: str, other: str) -> None:
    """The tensors of a storage into the memory of an array that is all of it."""
    torch, numpy = sys.modules["torch"], sys.modules["numpy"]
    array, place = (seen.arrays.get(one), other) if one in seen.arrays else (seen.arrays.get(other), one)
    if (
        array is None
        or place not in meta["members"]
        or not array.flags.c_contiguous
        or not array.flags.writeable
    ):
        return
    group = meta["members"][place][0]
    paths = [path for path, member in meta["members"].items() if member[0] == group]
    source = meta["groups"][group]
    if source[1 if source[0] == "same" else 2] != array.nbytes or any(
        "._parameters[" in path or "._buffers[" in path for path in paths
    ):
        return
    memory = torch.from_numpy(array.reshape(-1).view(numpy.uint8)).untyped_storage()
    for path in paths:
        tensor, (_, form, (stride, offset), _) = seen.tensors.get(path), meta["members"][path]
        if tensor is not None:
            tensor.data = torch.empty(0, dtype=tensor.dtype).set_(
                memory, offset, tuple(form[2]), tuple(stride)
            )
