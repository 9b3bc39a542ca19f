"""The closed world: at every image each live tensor and array must have been reached by the walk, or be known
to need no saving.

What no path reaches (a temporary, something that C code or another thread holds) could not be put back, so
such a point is refused.
"""

from __future__ import annotations

import collections
import gc
import sys
import types
import weakref

from ...looks import isinstance, vars
from ..core import leaves, words
from ..world import effects
from . import storages, walk_garbage, walk_heap, walk_kinds, walk_settings

_REACH = 200_000  # objects that are looked at behind one of our own, or the loader's
handed = weakref.WeakSet()  # functions of the script's that torch.func calls (compute/transforms.py)
_known: dict = {}  # id of a tensor that was out of reach when set-up ended -> (weak reference, checksum)
_known_arrays: dict = {}  # the same for arrays
_modules: set = set()  # names of those that were there by then, or were looked through since


def know(seen) -> None:
    """At the end of set-up: what the libraries hold by themselves is not the script's."""
    _modules.update(sys.modules)
    for array in _arrays_out_of_reach(seen):
        _known_arrays[id(array)] = (weakref.ref(array), _content(array))
    for tensor in seen.heap.pick(walk_heap.TENSOR):
        if id(tensor) not in seen.seen and not storages.cannot(tensor):
            _known[id(tensor)] = (weakref.ref(tensor), _print(tensor))


def _print(tensor):
    """A cheap fingerprint: small tensors by content, large ones by how often torch wrote to them."""
    try:
        if tensor.device.type != "cpu" or tensor.numel() * tensor.element_size() > storages.BIG:
            return ("version", tensor._version)
        storage = tensor.untyped_storage()
        return (
            leaves.zlib.crc32(storages.store.memory(storage.data_ptr(), storage.nbytes()))
            if storage.nbytes()
            else 0
        )
    except RuntimeError:
        return None


def unseen(seen) -> list:
    """Sentences about live memory that no path reaches; empty: the world is closed."""
    heap = seen.heap
    if heap.frozen():
        return [words.FROZEN]
    reached = {storages.storage_key(t) for t in seen.tensors.values() if not storages.store_cannot(t)}
    lost = [t for t in heap.pick(walk_heap.TENSOR) if id(t) not in seen.seen and not _is_known(t, reached)]
    arrays = _lost_arrays(seen)
    for excuse in _EXCUSES:  # dear ones last: most walks need none
        if not (lost or arrays):
            return []
        lost, arrays = excuse(lost, arrays, seen, reached)
    found = [
        words.UNSEEN_TENSOR.format(shape=tuple(t.size()), dtype=str(t.dtype)[6:], who=_holder(t, heap))
        for t in lost[:3]
    ]
    return found + [
        words.UNSEEN_ARRAY.format(shape=tuple(a.shape), dtype=a.dtype, who=_holder(a, heap))
        for a in arrays[:3]
    ]


def _without(lost: list, arrays: list, excused) -> tuple:
    return [t for t in lost if id(t) not in excused], [a for a in arrays if id(a) not in excused]


def _late_modules_hold(lost: list, arrays: list, seen, reached: set) -> tuple:
    """Constants of libraries that were imported since: known from now on by their content."""
    late = _of_late_modules(seen)
    if not late:
        return lost, arrays
    for array in [a for a in arrays if id(a) in late]:
        _known_arrays[id(array)] = (weakref.ref(array), _content(array))
    for tensor in [t for t in lost if id(t) in late and not storages.cannot(t)]:
        _known[id(tensor)] = (weakref.ref(tensor), _print(tensor))
    return [t for t in lost if not _is_known(t, reached)], [a for a in arrays if not _is_known_array(a)]


def _stoker_holds(lost: list, arrays: list, seen, _reached: set) -> tuple:
    """Not what hangs on things of the script's, though Stoker holds those too."""
    return _without(lost, arrays, behind(ours(), seen) | seen.inside)


def _pictures_hold(lost: list, arrays: list, seen, _reached: set) -> tuple:
    return _without(lost, arrays, _of_pictures(seen))


def _garbage(lost: list, arrays: list, seen, _reached: set) -> tuple:
    """What waits for the garbage collector: no code will read it again."""
    return _without(lost, arrays, walk_garbage.only(lost, arrays, seen, ours()))


_EXCUSES = (_late_modules_hold, _stoker_holds, _pictures_hold, _garbage)


def _of_late_modules(seen) -> set:
    """The ids of what modules of libraries hold that were imported since (`numpy.ma` by the first
    `numpy.median`, say): their constants.
    Each is looked through once; what changes afterwards is not known any more."""
    late = [
        module
        for name, module in list(sys.modules.items())
        if name not in _modules
        and type(module) is types.ModuleType
        and not leaves.is_user_module(name, module)
        and not name.startswith(leaves.PACKAGE)
    ]
    _modules.update(sys.modules)
    return behind(
        [
            value
            for module in late
            for value in vars(module).values()
            if not isinstance(value, types.ModuleType)
        ],
        seen,
    )


def _of_pictures(seen) -> set:
    """The ids of what hangs on things of matplotlib that no path leads to:
    figures that were closed, caches. Open figures are gone through (walk_settings.py), and what a script
    draws from there on is drawn as before."""
    if "matplotlib" not in sys.modules:
        return set()
    kinds: dict = {}
    roots = []
    for thing in seen.heap.objects:
        kind = type(thing)
        of = kinds.get(kind)
        if of is None:
            of = kinds[kind] = (
                isinstance(kind.__module__, str) and kind.__module__.partition(".")[0] == "matplotlib"
            )
        if of:
            roots.append(thing)
    return behind(roots, seen)


def _is_known(tensor, reached: set) -> bool:
    if tensor is storages.pool():
        return True
    known = _known.get(id(tensor))
    if known is not None and known[0]() is tensor and known[1] is not None and known[1] == _print(tensor):
        return True
    return not storages.store_cannot(tensor) and storages.storage_key(tensor) in reached


def _lost_arrays(seen) -> list:
    """Arrays that no path reaches, and that do not lie in the memory of one that is reached."""
    lost = [a for a in _arrays_out_of_reach(seen) if not _is_known_array(a)]
    memory = [*map(_span, seen.arrays.values()), *_of_tensors(seen)] if lost else ()
    return [a for a in lost if not any(lo <= _span(a)[0] and _span(a)[1] <= hi for lo, hi in memory)]


def _of_tensors(seen) -> list:
    """Where the memory of the reached tensors lies:
    what `torch.from_numpy(memmap.copy())` keeps of the array is no more than that."""
    kept = [
        t.untyped_storage()
        for t in seen.tensors.values()
        if not storages.store_cannot(t) and t.device.type == "cpu"
    ]
    return [(storage.data_ptr(), storage.data_ptr() + storage.nbytes()) for storage in kept]


def _arrays_out_of_reach(seen) -> list:
    """Each look goes through all containers: a list that is known from before may hold an array now.
    One of objects is no more than what it holds."""
    if not hasattr(sys.modules.get("numpy"), "ndarray"):
        return []
    found = [a for a in seen.heap.arrays() if id(a) not in seen.seen and a.size and not a.dtype.hasobject]
    return [a for a in found if not storages.is_memmap(a)]


def _is_known_array(array) -> bool:
    known = _known_arrays.get(id(array))
    return known is not None and known[0]() is array and known[1] == _content(array)


def _content(array) -> int:
    return leaves.zlib.crc32(sys.modules["numpy"].ndarray.tobytes(array))


def _span(array) -> tuple:
    numpy = sys.modules["numpy"]
    bounds = getattr(numpy.lib, "array_utils", numpy)
    return bounds.byte_bounds(array)


def ours() -> list:
    """Where our own objects hang: the names of our modules, the log left out."""
    package, settings = f"{leaves.PACKAGE}.resume", f"{leaves.PACKAGE}.settings."
    skip = {f"{package}.core.log", f"{package}.core.early_log", __name__}
    found: list = []
    for name, module in list(sys.modules.items()):
        if (
            name.startswith((package + ".", settings))
            and name not in skip
            and isinstance(module, types.ModuleType)
        ):
            found += [
                value
                for value in list(vars(module).values())
                if not isinstance(value, (types.ModuleType, type(None)))
            ]
    return found


def behind(roots: list, seen=None) -> set:
    """The ids of all that hangs on these; left out are code, classes, plain values (a split has some 100,000
    indices) and what a walk has gone through."""
    found: set = set()
    level, array = list(roots), getattr(sys.modules.get("numpy"), "ndarray", None)
    while level and len(found) < _REACH:
        fresh = []
        for thing in level:
            if id(thing) not in found and not (seen is not None and seen.knows(thing)):
                found.add(id(thing))
                fresh.append(thing)
        level = []
        for thing in fresh:
            if isinstance(thing, types.FunctionType):
                level += [c for c in (thing.__closure__ or ()) if leaves.is_ours(thing.__code__.co_filename)]
            elif array is not None and isinstance(thing, array):
                # which the garbage collector does not show
                level += [thing.base, *(leaves.attributes(thing) or {}).values()]
            elif not isinstance(thing, walk_heap.CODE) and type(thing) not in leaves.PLAIN:
                level += [part for part in leaves.referents(thing) if type(part) not in leaves.PLAIN]
    return found


def _holder(thing, heap) -> str:
    """Who holds it, in a word."""
    for other in gc.get_referrers(thing):
        if other is heap.objects or isinstance(other, types.FrameType):
            continue
        name = leaves.name_of(type(other))
        if name not in ("builtins.list", "builtins.set"):
            return name
    return "an unknown object"


def strange(seen):
    """(path, class) of a C object that nobody understands and that shields may change:
    it hangs on a module, a dataset, a sampler, a hook, or the code of one of these names it."""
    if not seen.unknown:
        return None
    waiting = {id(thing): (path, name) for path, name, thing in seen.unknown}
    found: set = set()
    roots = walk_settings.library_roots()
    level = [thing for thing, _ in seen.strict] + [
        each for path, each in roots if path.startswith("L:torch.modes") or "._global_" in path
    ]
    level += list(handed)
    while level:
        parts = []
        for thing in level:
            if id(thing) in waiting:
                return waiting[id(thing)]
            if isinstance(thing, types.FunctionType):
                parts += [*(thing.__closure__ or ()), thing.__defaults__, thing.__dict__, *_named(thing)]
            elif isinstance(thing, type):
                own = vars(thing).values() if walk_kinds.is_user_kind(thing) else ()
                parts += [getattr(each, "__func__", each) for each in own]
            elif not isinstance(thing, (types.ModuleType, types.FrameType)):
                parts += gc.get_referents(thing)
                parts += [kind for kind in type(thing).__mro__ if walk_kinds.user_kinds(kind)]
        level = []
        for part in parts:
            if id(part) not in found and (
                id(part) in seen.seen or type(part) in _GONE_THROUGH or isinstance(part, type)
            ):
                found.add(id(part))
                level.append(part)
    return None


_GONE_THROUGH = (dict, collections.OrderedDict, tuple, list, types.CellType, types.FunctionType)


def takes_bytes(seen):
    """(path, class) of a C object that nobody understands and that may have taken up what the script pickled:
    a compressor, a database. As a ghost it would have taken up stand-ins."""
    takers = (
        [(path, name) for path, name, thing in seen.unknown if type(thing) not in walk_kinds.ITERATORS]
        if effects.pickled
        else ()
    )
    return takers[0] if takers else None


def _named(function) -> list:
    """The globals that a function of the user's names, with the functions within it;
    of the user's modules what it names of them."""
    names, codes, home = set(), [function.__code__], function.__globals__
    if leaves.is_library(function.__code__.co_filename):
        return []
    while codes:
        code = codes.pop()
        names.update(code.co_names)
        codes += [c for c in code.co_consts if isinstance(c, types.CodeType)]
    found = [home[name] for name in names if name in home]
    for module in [
        thing
        for thing in found
        if isinstance(thing, types.ModuleType) and leaves.is_user_module(thing.__name__, thing)
    ]:
        found += [vars(module)[name] for name in names if name in vars(module)]
    return found
