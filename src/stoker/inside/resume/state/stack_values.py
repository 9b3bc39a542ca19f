"""What a walk finds besides names: loops and loaders that only the value stack of a running frame holds,
`for x in work():`.

Python does not show that stack, so they come from the garbage collector, whose order no two lives share:
each is numbered by what holds it and by what it holds.
"""

from __future__ import annotations

import types
import weakref

from ...looks import isinstance
from ..core import bytecode, internals, leaves
from ..core.leaves import PLAIN
from . import reachability, walk_heap, walk_kinds

# iterator over a DataLoader -> what is known about it (data/loader_state.py)
loaders = weakref.WeakKeyDictionary()
_COMPILER = "/numba/core/"  # which keeps loops over what it has compiled; what comes of it does not change


def add(walk) -> None:
    """Walk on from open loaders, then from loops and iterators that no path has reached. `walk.inside`:
    the ids of all that hangs on the iterators of loaders and on no path;
    a ghost does not have it, the loaders' part brings it back."""
    _loaders(walk)
    walk.heap = walk_heap.Heap()
    _collected(walk)
    counts: dict = {}
    for path, thing, told in _in_order(walk, _strays(walk)):
        if id(thing) not in walk.seen:  # an outer one may have led to it
            _add(walk, thing, path, told, counts)
    walk.inside = _inside(walk)


def _collected(walk) -> None:
    """What a comprehension has collected so far, `[train(k) for k in folds]`:
    a list that only the value stack of its frame holds."""
    frames = [frame for frame in walk.stack if bytecode.collects(frame)]
    if len(frames) != 1:  # of several points.py takes no image
        return
    found = [
        each
        for each in walk.heap.lists_of_nobody()
        if id(each) not in walk.seen and id(each) not in walk.inside
    ]
    found = internals.in_frame(frames[0], found)
    if len(found) == 1:
        code = frames[0].f_code
        walk.add(found[0], f"B:{code.co_filename}:{code.co_name}")
        walk.drain()
    else:
        walk.refusals.append("the items that a comprehension has collected so far")


def _loaders(walk) -> None:
    """Walk what open iterators of loaders read, `for x in DataLoader(Data()):`,
    or those that a path has reached."""
    reached = set(map(id, walk.leave_out))
    for iterator, track in sorted(list(loaders.items()), key=lambda pair: pair[1].number):
        if track.may_go_on() or id(iterator) in reached:
            walk.leave_out.append(iterator)
            walk.add(track.twin, f"D:loader {track.number}")
    walk.drain()
    walk.inside = _inside(walk)


def _inside(walk) -> set:
    return reachability.behind(leaves.referents(*walk.leave_out), walk) if walk.leave_out else set()


def _strays(walk) -> list:
    """[(path, thing)] of suspended generators, C iterators, and iterators and contexts of the script's own
    that were not reached."""
    found = []
    for g in walk.heap.pick(walk_heap.GENERATOR):
        if id(g) in walk.seen or id(g) in walk.inside or g.gi_frame is None or g.gi_running:
            continue
        code = g.gi_code
        if (
            not leaves.is_ours(code.co_filename)
            and not walk_kinds.is_loader_file(code.co_filename)
            and _COMPILER not in code.co_filename
        ):
            found.append((f"Y:{code.co_filename}:{code.co_name}:{g.gi_frame.f_lineno}", g))
    for head, code in (("Z", walk_heap.ITERATOR), ("X", walk_heap.KEEPER)):
        found += [(f"{head}:{leaves.name_of(type(thing))}", thing) for thing in walk.heap.pick(code)
                  if id(thing) not in walk.seen and id(thing) not in walk.inside]
    return found


def _in_order(walk, strays: list) -> list:
    """Those that matter, outer ones before what they hold:
    `zip(a(), b())` tells which of the two loops is the first."""
    ids = {id(thing): n for n, (_, thing) in enumerate(strays)}
    holds = [
        {ids[id(part)] for part in _near(thing) if id(part) in ids} - {n}
        for n, (_, thing) in enumerate(strays)
    ]
    loops = {n for n, (path, _) in enumerate(strays) if path[0] == "Y"}
    matter = {
        n
        for n, (_, thing) in enumerate(strays)
        if n in loops or _leads(n, holds, loops) or walk.heap.holds_memory(thing, walk.seen, walk.inside)
    }
    inner = set().union(*(holds[n] for n in matter))
    told = [(*strays[n], signature(walk, strays[n][1])) for n in matter - inner]
    rings = [(*strays[n], "") for n in matter & inner]  # the others of these are reached by then
    return sorted(told, key=lambda stray: (stray[0], stray[2])) + rings


def _leads(n: int, holds: list, loops: set) -> bool:
    level, done = {n}, set()
    while level:
        done |= level
        level = set().union(*(holds[m] for m in level)) - done
        if level & loops:
            return True
    return False


def _near(thing) -> list:
    """What an iterator holds itself, or in a tuple or list of its own."""
    parts = leaves.referents(thing) + list((leaves.attributes(thing) or {}).values())
    return parts + [p for part in parts if type(part) in (tuple, list) and len(part) < 100 for p in part]


def signature(walk, thing, deep: int = 3) -> str:
    """What can be told about a loop in the same words in each life: what it stands on, by paths."""
    if type(thing) in PLAIN:
        return repr(leaves.text(thing) if type(thing) is str else thing)
    if walk.seen.get(id(thing)):
        return walk.seen[id(thing)]
    if not deep or isinstance(thing, walk_heap.CODE):
        return leaves.name_of(type(thing))
    if type(thing) is types.GeneratorType:
        inner = walk.locals_of(thing.gi_frame) if thing.gi_frame is not None else {}
    else:
        inner = leaves.attributes(thing) or dict(enumerate(leaves.parts(thing)[:16]))
    at = leaves.position(thing) if type(thing) in walk_kinds.ITERATORS else ""
    parts = [
        f"{name}={signature(walk, value, deep - 1)}"
        for name, value in sorted(inner.items(), key=lambda pair: str(pair[0]))
    ]
    return f"{leaves.name_of(type(thing))} {at}({', '.join(parts)})"


def _add(walk, thing, path: str, told: str, counts: dict) -> None:
    numbered = counts.setdefault(path, [])
    numbered.append(told)
    before = len(walk.tensors) + len(walk.arrays)
    walk.add(thing, f"{path}#{len(numbered)}")
    walk.drain()
    if numbered.count(told) > 1 and len(walk.tensors) + len(walk.arrays) > before:
        walk.refusals.append(
            f"two loops that hold tensors and that Stoker cannot distinguish ({path.rpartition('/')[2]})"
        )
