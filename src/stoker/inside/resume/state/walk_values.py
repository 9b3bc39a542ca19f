"""How the walk reads values, containers, memory and random generators:
the kinds that hold what training computes."""

from __future__ import annotations

import array
import collections
import mmap
import sys
import weakref
import zlib

from ...looks import isinstance
from ..core import leaves
from ..core.leaves import BULK, PLAIN

# -- values


def of_value(walk, thing, path):
    walk.facts[path] = leaves.value_of(thing)


def of_plain_subclass(walk, thing, path):
    """A subclass of int, str and the like: its text, and the attributes it has besides."""
    base = leaves.solid(type(thing))
    walk.facts[path] = ("value", leaves.name_of(type(thing)), leaves.text(base.__repr__(thing)))
    walk.add_attributes(thing, path)


def of_scalar(walk, thing, path):
    walk.facts[path] = (
        "scalar",
        thing.dtype.str,
        bytes(thing.tobytes()) if not thing.dtype.hasobject else repr(thing),
    )


def of_bytes_like(walk, thing, path):
    """Bytes that may change: their length and checksum."""
    if type(thing) is memoryview:
        try:
            walk.add(thing.obj, path + ".obj")
            walk.facts[path] = (
                "memoryview",
                thing.nbytes,
                thing.format,
                str(thing.shape),
                str(thing.strides),
                _offset(thing),
            )
        except ValueError:
            walk.facts[path] = ("memoryview", "released")
        return
    try:
        view = memoryview(thing)
        # its content is the file's, which is judged elsewhere, and may be vast
        of_a_file = isinstance(thing, mmap.mmap) and view.readonly
        walk.facts[path] = (leaves.name_of(type(thing)), view.nbytes, 0 if of_a_file else zlib.crc32(view))
        view.release()
        if isinstance(thing, (bytearray, array.array)):
            walk.things[path] = thing
        if isinstance(thing, mmap.mmap):
            walk.facts[path] += (thing.tell(),)
    except (ValueError, BufferError):
        walk.facts[path] = (leaves.name_of(type(thing)), "closed")


def _offset(view) -> int:
    """Where in the memory of its object it begins; its content, where nobody can tell."""
    numpy = sys.modules.get("numpy")
    if not hasattr(numpy, "asarray"):
        return zlib.crc32(view.tobytes())
    with memoryview(view.obj) as whole:
        there, begin = (numpy.asarray(each).__array_interface__["data"][0] for each in (view, whole))
    return there - begin


def of_memory_file(walk, thing, path):
    """A file in memory: its content by checksum, and the place in it."""
    if thing.closed:
        walk.facts[path] = (leaves.name_of(type(thing)), "closed")
        return
    inside = thing.getvalue()
    data = inside.encode("utf-8", "surrogatepass") if isinstance(inside, str) else inside
    walk.facts[path] = (leaves.name_of(type(thing)), len(data), zlib.crc32(data), thing.tell())


def of_hash(walk, thing, path):
    """A running hash by what it gives now."""
    walk.facts[path] = (leaves.name_of(type(thing)), thing.hexdigest(*(() if thing.digest_size else (16,))))


def of_ctypes(walk, thing, path):
    """Plain memory of ctypes by its bytes; pointers and functions are not understood."""
    base = leaves.solid(type(thing)).__name__
    if base in ("_SimpleCData", "Array", "Structure", "Union"):
        walk.facts[path] = (leaves.name_of(type(thing)), bytes(memoryview(thing).cast("B")))
    else:
        walk.unknown.append((path, leaves.name_of(type(thing)), thing))


# -- containers


def of_size(walk, thing, path, size):
    """Every container: its class and how much is in it."""
    walk.facts[path] = (leaves.name_of(type(thing)), size)
    walk.things[path] = thing


def of_dict(walk, thing, path):
    """Entries by key, in their order; keys that are no plain values,
    and large numbers that may be an id(), by place."""
    pairs = leaves.items(thing)
    keys = [key for key, _ in pairs]
    size = len(keys)
    of_size(walk, thing, path, size)
    if size > BULK and leaves.all_plain(keys) and leaves.bulk(dict.values(thing)):
        walk.facts[path] = (leaves.name_of(type(thing)), size, leaves.crc(pairs))
        walk.bulk[path] = thing
        return
    if size > 1 and leaves.all_plain(keys) and not any(type(k) is int and k > 0xFFFFFFFF for k in keys):
        walk.facts[path] = (leaves.name_of(type(thing)), size, leaves.crc(keys))  # their order
    for n, (key, value) in enumerate(pairs):
        kind = type(key)
        if kind is int and key > 0xFFFFFFFF:  # perhaps an id(): its number means nothing, its place does
            where = f"{path}[#{n}]"
            walk.add(key, where + "<key>")
        elif kind in PLAIN:
            where = f"{path}[{key!r}]"
        else:
            where = f"{path}[#{n}]"
            walk.add(key, where + "<key>")
        walk.add(value, where, thing, key, "item")


def of_defaultdict(walk, thing, path):
    """A dict, and what makes its missing values."""
    of_dict(walk, thing, path)
    walk.add(collections.defaultdict.default_factory.__get__(thing), path + ".default_factory")


def of_sequence(walk, thing, path):
    """A list or tuple, element by element; many plain values as one checksum."""
    plain = tuple if isinstance(thing, tuple) else list
    size = plain.__len__(thing)
    of_size(walk, thing, path, size)
    inside = list(plain.__iter__(thing))
    if size > BULK and leaves.bulk(inside):
        walk.facts[path] = (leaves.name_of(type(thing)), size, leaves.crc(inside))
        walk.bulk[path] = thing
        return
    how = "item" if plain is list else ""
    for n, value in enumerate(inside):
        walk.add(value, f"{path}[{n}]", thing, n, how)


def of_deque(walk, thing, path):
    """As a list, with its greatest length."""
    inside = list(collections.deque.__iter__(thing))
    walk.facts[path] = (leaves.name_of(type(thing)), len(inside), collections.deque.maxlen.__get__(thing))
    walk.things[path] = thing
    if len(inside) > BULK and leaves.bulk(inside):
        walk.facts[path] += (leaves.crc(inside),)
        walk.bulk[path] = thing
        return
    for n, value in enumerate(inside):
        walk.add(value, f"{path}[{n}]", thing, n, "item")


def of_set(walk, thing, path):
    """Plain elements are one value, in their order where lives share it;
    others have none, so they are only visited after all else."""
    plain = set if isinstance(thing, set) else frozenset
    inside = list(plain.__iter__(thing))
    values = [v for v in inside if type(v) in PLAIN]
    of_size(walk, thing, path, len(inside))
    walk.facts[path] += (
        (leaves.crc(values if leaves.has_order(values) else sorted(map(repr, values))),) if values else ()
    )
    others = [v for v in inside if type(v) not in PLAIN and type(v) is not weakref.ref]
    weak = [v for v in inside if type(v) is weakref.ref]
    if weak:  # of a WeakSet
        walk.weak_sets.append((path, weak))
    if others:
        walk.unordered.append((path, others))


# -- memory and random generators


def of_tensor(walk, thing, path):
    """A tensor, its gradient, its attributes and hooks."""
    if not (_is_constant(thing) and _of_sparse(walk, thing, path)):
        walk.tensors[path] = thing
    if ("._parameters[" in path or "._buffers[" in path) and _is_shared(thing):
        walk.facts[path + ".shared"] = True
    # `sparse.values()` holds the sparse one, though nothing in Python shows it
    if thing._is_view() and str(thing._base.layout) in SPARSE:
        walk.add(thing._base, path + "._base")
    if thing.is_leaf or thing.retains_grad:
        grad = thing.grad
        if grad is not None:
            walk.add(grad, path + ".grad", thing, "grad", "grad")
    for part in leaves.parts(thing):
        if type(part) is dict:
            for name, value in list(part.items()):
                if not (type(name) is str and name.startswith("_stoker")):
                    walk.add(value, f"{path}.{name}", thing, name, "attr")
        elif type(part) is collections.OrderedDict:
            for key, hook in part.items():
                walk.add(hook, f"{path}.hook[{key}]")
                walk.strict.append((hook, path))  # it is called within backward


def _is_shared(tensor) -> bool:
    """With other processes; one from a worker is, but a model is only if the script says so."""
    try:
        return tensor.device.type == "cpu" and tensor.is_shared()
    except (RuntimeError, NotImplementedError):  # of a kind without memory
        return False


def of_unmade(walk, thing, path):
    """A parameter of a lazy module before its first call, which has no memory yet."""
    walk.facts[path] = (leaves.name_of(type(thing)), str(thing.dtype), str(thing.device), thing.requires_grad)


def _is_constant(tensor) -> bool:
    """Whether autograd has no business with it: a gradient has none either."""
    return tensor.is_leaf and not tensor.requires_grad and tensor.grad is None


def _of_sparse(walk, tensor, path) -> bool:
    """A sparse tensor is known by its form, and kept as the dense ones that it consists of, which share its
    memory. A ghost has another
    gradient: a restore makes it from its parts."""
    parts = SPARSE.get(str(tensor.layout))
    is_grad = walk.owners.get(path, ("",))[-1] == "grad"
    if parts is None or (is_grad and "_values" not in parts):
        return False
    dims = (tensor.is_coalesced(), tensor.sparse_dim()) if "_values" in parts else ()
    form = (
        leaves.name_of(type(tensor)),
        str(tensor.layout),
        str(tensor.dtype),
        tuple(tensor.shape),
        str(tensor.device),
        *dims,
    )
    walk.facts[path] = (SPARSE_GRAD if is_grad else "sparse", *form)
    for name in parts:
        walk.add(getattr(tensor, name)(), f"{path}<{name}>")
    return True


SPARSE_GRAD = "sparse gradient"
_COLUMNS, _ROWS = ("crow_indices", "col_indices", "values"), ("ccol_indices", "row_indices", "values")
SPARSE = {f"torch.sparse_{word}": parts for word, parts in (
    ("coo", ("_indices", "_values")), ("csr", _COLUMNS), ("bsr", _COLUMNS), ("csc", _ROWS), ("bsc", _ROWS))}
# of the paths of what they consist of
SPARSE_ENDS = tuple(f"<{name}>" for parts in SPARSE.values() for name in parts)


def of_storage(walk, thing, path):
    """Memory that no tensor need stand for: all its bytes."""
    torch = sys.modules["torch"]
    walk.tensors[path] = torch.empty(0, dtype=torch.uint8, device=thing.device).set_(thing)


def of_typed_storage(walk, thing, path):
    walk.add(thing._untyped_storage, path)


def of_array(walk, thing, path):
    """A numpy array, and what owns its memory; one of objects element by element."""
    if thing.dtype.hasobject:
        walk.facts[path] = ("array of objects", str(thing.shape))
        if thing.dtype.names:
            walk.refusals.append("a structured numpy array that holds Python objects")
            return
        for n, value in enumerate(list(thing.flat)):
            walk.add(value, f"{path}.flat[{n}]", thing.flat, n, "item")
        return
    walk.arrays[path] = thing
    if not thing.flags.writeable:
        walk.facts[path + ".flags"] = "read only"
    base = thing.base
    while isinstance(base, sys.modules["numpy"].ndarray):
        base = base.base
    if base is not None:  # a tensor, a memory map, a buffer
        walk.add(base, path + ".base")


def of_rng(walk, thing, path):
    """A random generator; its state is saved apart."""
    walk.rngs[path] = thing
    walk.facts[path] = (leaves.name_of(type(thing)),)
    seed = getattr(getattr(thing, "bit_generator", thing), "seed_seq", None)
    if seed is not None:
        walk.facts[path] += (leaves.text(repr(seed)),)
