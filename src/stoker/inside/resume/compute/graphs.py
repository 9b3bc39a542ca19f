"""Autograd graphs at an image: which are still of use, which the script keeps but never goes back through,
and the guard over those that a resumed life finds around itself:
theirs are a ghost's, and whoever goes back through one of them ends that life.
"""

from __future__ import annotations

import _thread
import gc
import os
import re
import sys
import time
import weakref

from ...entry import unnumbered
from ...looks import isinstance
from ..core import leaves, outcome, own, phases
from ..state import walk_heap
from . import stand_ins

# before unsupported.py looks at who starts threads
_get_ident, _start_thread = _thread.get_ident, _thread.start_new_thread
_monotonic = getattr(time.monotonic, "__wrapped__", time.monotonic)  # the real one
FOLDER = "graphs"  # in phases.folder: a file for each image whose graphs were let go
_NODES = 20_000  # of the graphs at one point that are looked at; more: they count as usable
_KEPT = 64  # usable graphs at one point that are watched; more: none is
# graphs behind one name that went without a backward through them, before the next ones are expected to
_UNUSED = 2
# that long after a point with usable graphs the next is put off, unless one of them is used or let go
_WAIT_S = 3.0
_FREED, _HOLDS, _EMPTY = range(3)
_SAVED, _LEAF, _GRAD = range(3)  # kinds of tensors that a graph holds
# how a graph comes to a leaf: not at all, without saved tensors, with them
_NOWHERE, _PLAIN, _USABLE = range(3)
_saved_names: dict = {}  # kind of node -> names of what it may save
_unused: dict = {}  # name -> how many graphs behind it were let go without a backward
_shown: list = []  # (kind, tensor, references to it) of the graphs that were looked at
_trusted: list = []  # watches over the graphs that are no obstacle at this point
# token of an image -> how many of its graphs are still alive; gone when one of them was used
_waiting: dict = {}
_used: set = set()  # names behind which a graph was used
_wait_until = 0.0
backward = None  # torch.autograd.backward, without our shield around it; set by shields.install()
# kind -> references to a tensor that nothing but a graph holds, once it was asked for
_held_by_none: dict = {}


def alive(seen: object) -> str:
    """The path of a tensor through whose graph a backward may still go, or "".

    Nobody knows what a script will do with a graph that it keeps.
    But if the last few graphs behind the same name were let go unused (`val_loss = criterion(model(x), y)`
    without no_grad), this one will be too. An image is taken then, and is of use as soon as these graphs were
    let go (`kept`, `let_go`): a life that comes back to it does the same.
    """
    global _wait_until
    _trusted.clear()
    known: dict = {}
    _shown.clear()
    roots = [(path, t.grad_fn) for path, t in seen.tensors.items() if t.grad_fn is not None]
    kept = [(path, root) for path, root in roots if _level(root, known) == _USABLE]
    _shown.extend(_ends([root for _, root in roots]))
    _know_hidden(seen)
    unsure = ""
    for path, node in kept[:_KEPT]:
        name = re.sub(r"\[[^]]*\]", "[]", path)
        if name in _used or _unused.get(name, 0) < _UNUSED:
            unsure = unsure or path
        _trusted.append(_watch(name, node))
    unsure = unsure or (kept[_KEPT][0] if len(kept) > _KEPT else "")
    if unsure:
        _trusted.clear()
    _wait_until = _monotonic() + _WAIT_S if unsure else 0.0
    return unsure


def kept() -> str:
    """For the image that is taken at this point:
    what `let_go` is to be asked about before the image may be used; "" if nothing."""
    if not _trusted:
        return ""
    token = f"{phases.attempt}-{os.getpid()}-{phases.log.n}"
    _waiting[token] = len(_trusted)
    for watch in _trusted:
        weakref.finalize(watch, _one_less, token).atexit = False
        watch.tokens.append(token)
    _trusted.clear()
    return token


def let_go(token: str) -> bool:
    """Whether the recorded life let all graphs go that were alive at an image,
    without a backward through one of them."""
    return not token or os.path.exists(os.path.join(phases.folder, FOLDER, token))


def undecided() -> bool:
    """The graphs that were in the way at the last point are still there: another look would see the same."""
    return bool(_wait_until) and _monotonic() < _wait_until


@leaves.quietly
def guard() -> None:
    """The image is restored: the graphs of all tensors there are were made by a ghost, and hold its NaN in
    the place of what was saved.
    Those that hold nothing are right as they are (`w.t()`, made before training);
    what they come to has its own guard."""
    import torch
    known: dict = {}
    for thing in gc.get_objects():
        if (
            issubclass(type(thing), torch.Tensor)
            and thing.grad_fn is not None
            and _level(thing.grad_fn, known) == _USABLE
        ):
            unnumbered.register(thing.grad_fn.register_prehook, stand_ins.poison)
    _shown.clear()  # or the next image would find these tensors held by nothing of the script's


class _Watch:
    """Hangs on a node of a graph, and dies with it."""

    __slots__ = ("__weakref__", "name", "tokens")

    def __init__(self, name: str) -> None:
        self.name, self.tokens = name, []

    def __call__(self, *_: object) -> None:
        global _wait_until
        _wait_until = 0.0
        _used.add(self.name)
        for token in self.tokens:
            _waiting.pop(token, None)


def _watch(name: str, node: object) -> _Watch:
    watch = node.metadata.get("stoker")
    if watch is None:
        watch = node.metadata["stoker"] = _Watch(name)
        unnumbered.register(node.register_prehook, watch)
        weakref.finalize(watch, _gone, name).atexit = False
    return watch


def _one_less(token: str) -> None:
    left = _waiting.pop(token, 0) - 1
    if left > 0:
        _waiting[token] = left
    elif not left:
        _mark(token)


def _mark(token: str) -> None:
    main, before = _get_ident() == phases.main, phases.depth
    if main:
        phases.depth = 1
    try:
        own.make(os.path.join(phases.folder, FOLDER))
        own.write(os.path.join(phases.folder, FOLDER, token), b"")
    except OSError as e:
        outcome.say(f"an image cannot be used: {e}")
    finally:
        if main:
            phases.depth = before


def _gone(name: str) -> None:
    global _wait_until
    _wait_until = 0.0
    _unused[name] = _unused.get(name, 0) + 1


def _look_at_one_of_ours() -> None:
    """In a thread of its own: there no hooks of the script's for saved tensors are in force,
    which would be called."""
    done = _thread.allocate_lock()
    done.acquire()
    _start_thread(_look_there, (done,))
    done.acquire()


def _look_there(done: object) -> None:
    try:
        _look()
    finally:
        done.release()


def _look() -> None:
    import torch
    with torch.inference_mode(False), torch.enable_grad():
        root = torch.ones(1, requires_grad=True).exp().exp()
        # not by Tensor's: that may be the script's
        (backward or torch.autograd.backward)(root, root.detach(), True)
    tensor = root.grad_fn.next_functions[0][0]._raw_saved_result.data
    _held_by_none[_SAVED] = sys.getrefcount(tensor)
    _held_by_none.update({kind: references for kind, _, references in _ends([root.grad_fn])})


def _level(root: object, known: dict) -> int:
    """How a backward from this node could come to a leaf.
    A node whose saved tensors were freed ends the way: backward raises there, in the plain run too.
    `known`: node -> level, shared by all graphs of one point."""
    todo, states = [root], {}
    while todo:
        node = todo[-1]
        if node in known:
            todo.pop()
            continue
        if len(known) + len(states) > _NODES:
            return _USABLE
        behind = [n for n, _ in node.next_functions if n is not None]
        state = states.get(node)
        if state is None:
            state = states[node] = _state(node)
            if state != _FREED:
                todo += [n for n in behind if n not in known]
        if todo[-1] is node:  # all behind it is known
            level = _NOWHERE if state == _FREED else max([known[n] for n in behind], default=_PLAIN)
            known[todo.pop()] = _USABLE if level and state == _HOLDS else level
            del states[node]
    return known[root]


def _state(node: object) -> int:
    kind = type(node)
    names = _saved_names.get(kind)
    if names is None:
        names = _saved_names[kind] = [n[5:] for n in dir(kind) if n.startswith("_raw_saved_")]
    state = _EMPTY
    for name in names:
        try:
            if _holds(getattr(node, "_raw_" + name)):
                state = _HOLDS
            elif state == _EMPTY:
                # raises if there was something
                getattr(node, name if name == "saved_tensors" else "_" + name)
        except RuntimeError:
            return _FREED
    return state


def _holds(saved: object) -> bool:
    """Not by unpacking: with checkpoints that would run a part of the script."""
    if isinstance(saved, (tuple, list)):
        return any([_holds(each) for each in saved])
    if saved is None or saved.unpack_hook is not None:
        return saved is not None
    tensor = saved.data
    references = sys.getrefcount(tensor)
    if tensor is None:
        return False
    _shown.append((_SAVED, tensor, references))
    base = tensor._base  # of a view that an operation made itself (a linear layer of one sample)
    if base is not None:
        references = sys.getrefcount(base)
        _shown.append((_SAVED, base, references))
    return True


def _ends(roots: list) -> list:
    """[(kind, tensor, references to it)] where these graphs end, past what was freed too:
    `x.requires_grad_()` of a gradient penalty, and its gradient."""
    known, found = set(), []
    while roots and len(known) < _NODES:
        node = roots.pop()
        if node not in known:
            known.add(node)
            roots += [n for n, _ in node.next_functions if n is not None]
            if type(node).__name__ == "AccumulateGrad":
                leaf = node.variable
                grad = leaf.grad
                found.append((_LEAF, leaf, sys.getrefcount(leaf)))
                if grad is not None:
                    found.append((_GRAD, grad, sys.getrefcount(grad)))
    return found


def _know_hidden(seen: object) -> None:
    """What only a graph holds is no lost tensor: without the graph nobody comes to it.
    The heap of the walk may hold it besides."""
    if _shown and not _held_by_none:
        _look_at_one_of_ours()
    in_heap = set(map(id, seen.heap.pick(walk_heap.TENSOR))) if _shown else ()
    for kind, tensor, references in _shown:
        if references <= _held_by_none[kind] + (id(tensor) in in_heap):
            seen.seen.setdefault(id(tensor), "")
            seen.keep.append(tensor)
    _shown.clear()
