"""Who gets a gradient from a backward: recorded as a pattern over the known leaves, so that a ghost can give stand-ins to the same."""

from __future__ import annotations

import os
import sys
import weakref

from . import fate, stand_ins, words

_TORCH = f"{os.sep}torch{os.sep}"
_OURS = os.path.dirname(os.path.abspath(__file__))
_leaves: list = []  # weak references to parameters of modules and optimizers, in order of first use
_known: dict = {}  # id -> place in _leaves
_inputs: list = []  # leaves that were handed to a module since the last backward (an attack on an image, a style transfer)
_patterns: dict = {}  # pattern -> its number
_by_number: list = []
_last = None  # the pattern of the last backward
_places: dict = {}  # where backward is called from -> [how often, whether its graphs lead to leaves that nobody knows]
_grads: dict = {}  # place in _leaves -> stand-in


def know(params: object) -> None:
    for p in params:
        i = _known.get(id(p))
        if i is None or _leaves[i]() is not p:
            _known[id(p)] = len(_leaves)
            _leaves.append(weakref.ref(p))


def know_input(arg: object) -> None:
    """An argument of a module: if it is a leaf that asks for a gradient, the next backward may give it one."""
    if getattr(arg, "requires_grad", False) and arg.is_leaf and not _is_known(arg) and not any(arg is each for each in _inputs):
        _inputs.append(arg)
        del _inputs[:-16]


def before(tensors: object) -> list:
    """Leaves, beside the known ones, that this backward may reach. While the graph is there."""
    place = _places.setdefault(_place(), [0, False])
    place[0] += 1
    found = list(_inputs)
    _inputs.clear()
    if place[1] or place[0] < 4 or not place[0] & (place[0] - 1):
        more = [leaf for leaf in _of_graph(tensors) if not _is_known(leaf) and not any(leaf is each for each in found)]
        place[1] = place[1] or bool(more)
        found += more
    return found


def _place() -> tuple:
    frame = sys._getframe(2)
    while frame.f_back is not None and (frame.f_code.co_filename.startswith(_OURS) or _TORCH in frame.f_code.co_filename):
        frame = frame.f_back
    return id(frame.f_code), frame.f_lasti


def after(found: list) -> object:
    """Who has a gradient now: None if the same as after the last backward, else the pattern's number, with the pattern if it is new."""
    global _last
    pattern = bytes([0 if (p := leaf()) is None or p.grad is None else 1 for leaf in _leaves])
    if found:
        pattern += b"/" + bytes([leaf.grad is not None for leaf in found])
    if pattern == _last:
        return None
    _last = pattern
    number = _patterns.get(pattern)
    if number is not None:
        return number
    _refuse_sparse(found)
    return _new(pattern), pattern


def stand_in(told: object, found: list) -> None:
    """Give gradients to those who had one at this place in the record."""
    global _last
    if type(told) is tuple:
        _new(told[1])
        _last = told[1]
    elif told is not None:
        _last = _by_number[told]
    known, _, others = _last.partition(b"/")  # the bytes are 0 and 1
    for i, has in enumerate(known):
        p = _leaves[i]() if has else None
        if p is not None and p.grad is None:
            p.grad = _stand_in_of(i, p)
    for has, leaf in zip(others, found):  # noqa: B905 - Python 3.9
        if has and leaf.grad is None:
            leaf.grad = _nan_like(leaf)


def _stand_in_of(i: int, p: object) -> object:
    grad = _grads.get(i)
    if grad is None or grad.shape != p.shape or grad.dtype != p.dtype or grad.device != p.device:
        grad = _grads[i] = _nan_like(p)
    return grad


def forget_stand_ins() -> None:
    """After the image: the real gradients are back."""
    _grads.clear()


def _nan_like(p: object) -> object:
    import torch
    with torch.inference_mode(False):
        return torch.full_like(p, float("nan"), requires_grad=False)


def _new(pattern: bytes) -> int:
    _patterns[pattern] = len(_by_number)
    _by_number.append(pattern)
    return _patterns[pattern]


def _is_known(leaf: object) -> bool:
    i = _known.get(id(leaf))
    return i is not None and _leaves[i]() is leaf


def _refuse_sparse(found: list) -> None:
    import torch
    for leaf in [*[leaf() for leaf in _leaves], *found]:
        if leaf is not None and leaf.grad is not None and leaf.grad.layout != torch.strided:
            fate.refuse(words.SPARSE_GRAD)
            return


def _of_graph(tensors: object) -> list:
    """The leaves of a graph, in the order of a walk over it; at most 20,000 nodes are looked at."""
    todo = [t.grad_fn for t in (tensors if isinstance(tensors, (list, tuple)) else (tensors,)) if getattr(t, "grad_fn", None) is not None]
    seen, found, ours = set(), [], {id(t) for t in stand_ins.own_tensors()}
    while todo and len(seen) < 20_000:
        node = todo.pop()
        if node in seen:
            continue
        seen.add(node)
        leaf = getattr(node, "variable", None)
        if leaf is not None and id(leaf) not in ours:
            found.append(leaf)
        todo += [each for each, _ in node.next_functions if each is not None]
    return found
