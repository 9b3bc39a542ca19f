"""Who gets a gradient from a backward: recorded as a pattern over the known leaves, so that a ghost can give
stand-ins to the same."""

from __future__ import annotations

import os
import sys
import weakref

from ...looks import isinstance
from ..core import bytecode, leaves, outcome, phases, words
from . import stand_ins

_TORCH = f"{os.sep}torch{os.sep}"
_identity = phases.identity
# number -> weak reference to a parameter of a module or optimizer, in order of first use;
# dead ones go now and then
_leaves: dict = {}
_known: dict = {}  # id -> number in _leaves
_count = 0
_odd = False  # whether some are of a class of the script's
_purge_at = 1000
# id -> a leaf that was handed to a module since the last backward (an attack on an image, weights of
# functional_call)
_inputs: dict = {}
_INPUTS = 1000
_patterns: dict = {}  # pattern -> its number
_by_number: list = []
_last = None  # the pattern of the last backward
# weak references to the leaves that are not known to be dead; a new list each time that there are others
_living: list = []
# what `_look` gave of those before a backward and after it -> pattern, as far as it is about them
_moves: dict = {}
_MOVES = 64  # kept; a training has a few
# (identity of the code, place in it) that backward is called from -> what `_place` gives,
# one for all places of a call
_places: dict = {}
_grads: dict = {}  # number in _leaves -> stand-in
# number in _leaves -> (sparse dimensions,
# whether coalesced) of those whose gradient was sparse in a new pattern
_sparse: dict = {}
_skipped: dict = {}  # identity -> code of torch or of ours


def know(params: object) -> None:
    global _count, _odd, _living
    for p in params:
        if not _is_known(p) and _keeps_grad(p):
            _known[id(p)], _living = _count, []
            _odd = _odd or type(p) not in _plain_kinds()
            _leaves[_count] = weakref.ref(p)
            _count += 1
    if len(_leaves) > _purge_at:
        _purge()


@leaves.quietly
def _keeps_grad(p: object) -> bool:
    """Parameters of a copy that a library has updated (MAML) are no leaves:
    a backward leaves them nothing, and torch warns who asks."""
    return p.is_leaf or p.retains_grad


def _purge() -> None:
    """A script that trains one model after the other leaves many dead leaves behind."""
    global _purge_at
    for i in [i for i, leaf in _leaves.items() if leaf() is None]:
        del _leaves[i]
        _grads.pop(i, None)
    for number in [number for number, i in _known.items() if i not in _leaves]:
        del _known[number]
    _purge_at = max(1000, 2 * len(_leaves))


def know_input(arg: object) -> None:
    """An argument of a module: if it is a leaf that asks for a gradient,
    the next backward may give it one."""
    if not isinstance(arg, sys.modules["torch"].Tensor):
        return
    if type(arg) in _plain_kinds():
        _know_input(arg)
    else:
        leaves.quietly(_know_input)(arg)


def _plain_kinds() -> tuple:
    torch = sys.modules["torch"]
    return torch.Tensor, torch.nn.Parameter


def _know_input(arg: object) -> None:
    if arg.requires_grad and arg.is_leaf and not _is_known(arg):
        _inputs[id(arg)] = arg
        if len(_inputs) > _INPUTS:
            del _inputs[next(iter(_inputs))]


def before(tensors: object, caller: object) -> tuple:
    """What `after` and `stand_in` are to be told:
    leaves, beside the known ones, that this backward may reach, while the graph is there;
    which of the known ones have a gradient already; and what is known of the place. `caller`:
    the frame that called the backward."""
    place = _place(caller)
    count = place[0] = place[0] + 1
    found = _beside(tensors, place) if _inputs or place[1] or count < 4 or not count & (count - 1) else ()
    return found, _look(), _living, place


def _beside(tensors: object, place: list) -> list:
    found = [*_inputs.values()]
    _inputs.clear()
    if place[0] < 4 or not place[0] & (place[0] - 1) or place[1]:
        handed = set(map(id, found))
        more = [
            leaf
            for leaf in leaves.quietly(_of_graph)(tensors)
            if not _is_known(leaf) and id(leaf) not in handed
        ]
        place[1] = place[1] or bool(more)
        found += more
    return found


def _place(frame: object) -> list:
    """[how often a backward was called from here, whether its graphs lead to leaves that nobody knows]:
    outside of torch and of us. Python makes an object of each frame that is asked for:
    the way begins where it can."""
    while True:
        code = frame.f_code
        number = _identity(code)
        place = _places.get((number, frame.f_lasti))
        if place is not None:
            return place
        if frame.f_back is None or not (number in _skipped or _is_skipped(code)):
            call = number, -1 - bytecode.call_at(code, frame.f_lasti)
            place = _places[number, frame.f_lasti] = _places.setdefault(call, [0, False])
            return place
        frame = frame.f_back


def _is_skipped(code: object) -> bool:
    if not (leaves.is_ours(code.co_filename) or _TORCH in code.co_filename):
        return False
    _skipped[_identity(code)] = code
    return True


def _look() -> list:
    """Of each leaf in `_living` whether it has no gradient."""
    if _living and not _odd:
        try:
            return [leaf().grad is None for leaf in _living]
        except AttributeError:  # one of them has died
            pass
    return leaves.quietly(_look_closely)()


def _look_closely() -> list:
    global _living
    alive = [(leaf, p) for leaf in _leaves.values() if (p := leaf()) is not None]
    if len(alive) != len(_living):  # nothing comes back to life: as many are the same
        _living = [leaf for leaf, _ in alive]
        _moves.clear()
    return [p.grad is None for _, p in alive]


def _pattern(living: list, had: list, has: list) -> tuple:
    """Numbers of the leaves that got a gradient and of those that lost one, and nothing about others."""
    numbers = {id(leaf): i for i, leaf in _leaves.items()}
    then = {numbers.get(id(leaf)) for leaf, empty in zip(living, had) if not empty}  # noqa: B905 - Python 3.9
    now = {numbers[id(leaf)] for leaf, empty in zip(_living, has) if not empty}  # noqa: B905
    alive = {numbers[id(leaf)] for leaf in _living}
    return (
        tuple(i for i in _leaves if i in now and i not in then),
        tuple(i for i in _leaves if i in then and i in alive - now),
        (),
    )


def after(told: tuple) -> object:
    """Whose gradient came or went with this backward:
    None if the same as with the last one, else the pattern's number, with the pattern if it is new.

    What the backward did not change is left out, for leaves that nobody can reach any more are among it, and
    when the garbage collector takes those is not the same in two lives."""
    global _last
    found, had, living, place = told
    has = _look()
    seen = tuple(had), tuple(has)
    pattern = _moves.get(seen) if living is _living else None
    if pattern is None:
        pattern = _pattern(living, had, has)
        if living is _living and len(_moves) < _MOVES:
            _moves[seen] = pattern
    if found:
        pattern = *pattern[:2], tuple([leaf.grad is not None for leaf in found]), place[1]
    if pattern is _last:
        return None
    if pattern == _last:
        _last = pattern
        return None
    _last = pattern
    number = _patterns.get(pattern)
    if number is not None:
        return number
    sparse = _look_for_sparse(
        {i: leaf.grad for i in pattern[0] if (leaf := _leaves[i]()) is not None},
        [leaf.grad for leaf in found],
    )
    _sparse.update(sparse)
    return _new(pattern), pattern, tuple(sparse.items())


def stand_in(pattern: object, told: tuple) -> None:
    """Give gradients to those who got one at this place in the record, and take them from those who lost
    theirs. A ghost's graph may lead to no leaves:
    whether it is to be looked at from this place is known from the record."""
    global _last
    if type(pattern) is tuple:
        _, _last, sparse = pattern
        _new(_last)
        _sparse.update(sparse)
    elif pattern is not None:
        _last = _by_number[pattern]
    found, _, _, place = told
    came, went, others, *beside = _last
    place[1] = place[1] or any(beside)
    for i in came:
        p = _alive(i)
        if p is not None and p.grad is None:
            p.grad = _stand_in_of(i, p)
    for i in went:
        p = _alive(i)
        if p is not None:
            p.grad = None
    for has, leaf in zip(others, found):  # noqa: B905 - Python 3.9
        if has and leaf.grad is None:
            leaf.grad = _nan_like(leaf)


def _alive(i: int) -> object:
    leaf = _leaves.get(i)
    return leaf() if leaf is not None else None


def _stand_in_of(i: int, p: object) -> object:
    if i in _sparse:
        return _sparse_nan(p, *_sparse[i])
    grad = _grads.get(i)
    if grad is None or grad.shape != p.shape or grad.dtype != p.dtype or grad.device != p.device:
        grad = _grads[i] = _nan_like(p)
    return grad


def _sparse_nan(p: object, dims: int, coalesced: bool) -> object:
    """One row of NaN; how many there are is not the same in each step."""
    import torch
    with torch.inference_mode(False), torch.no_grad():
        where = torch.zeros((dims, 1), dtype=torch.int64, device=p.device)
        row = torch.full((1, *p.shape[dims:]), float("nan"), dtype=p.dtype, device=p.device)
        return torch.sparse_coo_tensor(where, row, p.shape, is_coalesced=coalesced)


def drop_sparse() -> None:
    """Before the image: sparse stand-ins have another number of rows than the gradients that it brings."""
    for i in _sparse:
        leaf = _alive(i)
        if leaf is not None and leaf.grad is not None and leaf.grad.is_sparse:
            leaf.grad = None


def forget_stand_ins() -> None:
    """After the image: the real gradients are back."""
    _grads.clear()


def _nan_like(p: object) -> object:
    import torch
    with torch.inference_mode(False):
        return torch.full_like(p, float("nan"), requires_grad=False)


def _new(pattern: tuple) -> int:
    _patterns[pattern] = len(_by_number)
    _by_number.append(pattern)
    return _patterns[pattern]


def _is_known(leaf: object) -> bool:
    i = _known.get(id(leaf))
    return i is not None and _alive(i) is leaf


def _look_for_sparse(known: dict, others: list) -> dict:
    """{number: (sparse dimensions, whether coalesced)} of sparse gradients;
    a ghost can give them only to leaves that have a number."""
    import torch

    odd = [grad for grad in others if grad is not None] + [
        grad for grad in known.values() if not grad.is_sparse
    ]
    if any(grad.layout != torch.strided for grad in odd):
        outcome.refuse(words.SPARSE_GRAD)
    return {i: (grad.sparse_dim(), grad.is_coalesced()) for i, grad in known.items() if grad.is_sparse}


def _of_graph(tensors: object) -> list:
    """The leaves of a graph, in the order of a walk over it; at most 20,000 nodes are looked at."""
    todo = [
        t.grad_fn
        for t in (tensors if isinstance(tensors, (list, tuple)) else (tensors,))
        if getattr(t, "grad_fn", None) is not None
    ]
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
