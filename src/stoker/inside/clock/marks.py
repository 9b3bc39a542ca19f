"""The calls that are watched, and what the time between two of them is.
Everything between two marks is counted once, so that the kinds add up to the clock on the wall:
`last` is the moment up to which all is accounted for.

Only one thread counts: the one that trains. In a step of 300 us all of this may take 6.
"""

from __future__ import annotations

import _thread
import os

from ..entry import by_hand, deep, unnumbered
from ..entry.processes import now, record
from ..looks import named_parameters
from . import roots
from .passes import Pass, forget, length_of, size_of
from .passes import passes as _passes
from .passes import trained as _trained
from .wrapping import wrap

KINDS = (
    "data",
    "start",
    "transfer",
    "forward",
    "backward",
    "optimizer",
    "save",
    "log",
    "image",
    "evaluation",
    "other",
)
DATA, START, TRANSFER, FORWARD, BACKWARD, OPTIMIZER, SAVE, LOG, IMAGE, EVALUATION, OTHER = range(len(KINDS))
NOTHING, FETCHED, CALLED, BACK, STEPPED = range(5)  # what the last mark was
ROOTS_MAX = 64
LEARN = 3  # steps after which the script's own modules are known

owner = 0  # the thread that trains; 0: the clock stands still
spent = [0] * len(KINDS)  # ns
last = 0
steps = samples = batches = 0
# whether this process means to train
seen = {"optimizers": 0, "loaders": 0, "batches": 0, "evaluated": 0, "backward": 0, "no_ranks": 0}
durations: list = []  # ns of each step since the last line, evaluation left out
current = None  # the Pass that was asked last
device = None  # a device.Device when the training is on a GPU
# the form for measuring: called after each step, and in place of `step_ends` by hand
each_step = stepped_by_hand = None
write_at = 0  # ns: the next line is due
# book's; `busy` is called as an evaluation or a save begins
write, first_step, busy, pass_over = None, None, int, None

_get_ident = _thread.get_ident
_grad_enabled = _compiling = None
_backwards = by_hand.Backwards()
_inside = False  # in a call that is watched: what happens there is part of it
_after, _evaluating = NOTHING, False
# id of the optimizer whose steps are counted (of several the first that stepped); `steps` at the last line
_lead = _lead_was = 0
_others: dict = {}  # id of another optimizer -> its steps since the last line
_step_from = _evaluated_then = 0
_roots: dict = {}  # classes of modules that the script calls with gradients on
_fetched: list = []  # passes asked since the last backward, with no module called in between
_before: tuple | None = None  # (spent, moment) at the last fetch from a loader that nobody has trained on
_installed = _hooked_at_fork = False


def install() -> bool:
    """Put the marks where every training passes. Nothing is counted before `begin()`.
    False where that is done already."""
    global _installed, _grad_enabled, _compiling
    if _installed:
        return False
    _installed = True
    import torch
    from torch.optim import optimizer
    from torch.utils.data import dataloader
    _grad_enabled = torch.is_grad_enabled
    # the first calls nothing further
    _compiling = getattr(torch.compiler, "is_dynamo_compiling", torch.compiler.is_compiling)
    roots.learning = _module_call(None).__code__
    wrap(torch.nn.Module, "__call__", _module_call)
    wrap(torch.autograd, "backward", _backward)
    wrap(torch.autograd, "grad", lambda real: _backward(real, False))
    wrap(dataloader.DataLoader, "__iter__", _iter)
    wrap(dataloader._BaseDataLoaderIter, "__next__", _next)
    unnumbered.register(optimizer.register_optimizer_step_post_hook, step_ends)
    return True


def begin() -> None:
    """This thread trains, or is going to."""
    global owner, last, _hooked_at_fork
    if not _hooked_at_fork:
        _hooked_at_fork = True
        os.register_at_fork(after_in_child=stop)
    last = now()
    owner = _get_ident()


def inside() -> bool:
    return _inside


def begin_anew() -> None:
    """In a forked process that trains: nothing of its parent's counts."""
    global steps, current, _backwards, _lead, _lead_was, _step_from, _evaluated_then, _after, _before, _inside
    steps = _lead = _lead_was = _step_from = _evaluated_then = 0
    _after, _before, _inside, current, _backwards = NOTHING, None, False, None, by_hand.Backwards()
    _passes.clear()
    _fetched.clear()
    _others.clear()
    seen.update(dict.fromkeys(seen, 0), optimizers=1)
    begin()


def stop() -> None:
    """Count nothing any more: in a forked child, and after a fault of ours."""
    global owner
    owner = 0


def broke(error: Exception) -> None:
    """A fault of ours: the clock is taken out, the script goes on."""
    stop()
    record(clock=f"stopped: {type(error).__name__}: {error}")


# ---- modules

def _module_call(real: object) -> object:
    """Until it is known which modules the script calls itself: those within are not slowed down later.
    Exact resume comes here for all."""
    def __call__(self, *args, **kwargs):
        global _inside, last, _after
        if _inside or _get_ident() != owner:
            at = deep.level
            if at >= deep.FROM:
                deep.goes_in(at)
            deep.level = at + 1
            try:
                return real(self, *args, **kwargs)
            finally:
                deep.level = at
                if at >= deep.FROM:
                    deep.goes_out(at)
        # `_call_begins`, without the call
        if steps >= LEARN and device is None and not _evaluating and _grad_enabled():
            kind, moment = FORWARD, now()
            spent[OPTIMIZER if _after == BACK else OTHER] += moment - last
            last = moment
        else:
            kind = _call_begins(self)
            if steps < LEARN and type(self) not in _roots and _grad_enabled():
                _learn(self)
        _inside = True
        try:
            return real(self, *args, **kwargs)
        finally:
            moment = now()
            spent[kind] += moment - last
            last, _after, _inside = moment, CALLED, False
    return __call__


def _learn(module: object) -> None:
    """The script calls this module itself, and it can be trained: its class is watched from now on."""
    try:
        if not named_parameters(module) or len(_roots) >= ROOTS_MAX:
            return
        _roots[(kind := type(module))] = True
        roots.watch(kind, _root_call)
    except Exception as e:
        broke(e)


def _root_call(base: object) -> object:
    """For a class of the script's own modules.
    Whoever replaces the call of all modules later is asked as before."""
    def __call__(self, *args, **kwargs):
        global _inside, last, _after
        if _compiling():
            return base.__call__(self, *args, **kwargs)
        if _inside or _get_ident() != owner:
            at = deep.level
            if at >= deep.FROM:
                deep.goes_in(at)
            deep.level = at + 1
            try:
                return base.__call__(self, *args, **kwargs)
            finally:
                deep.level = at
                if at >= deep.FROM:
                    deep.goes_out(at)
        if _grad_enabled() and device is None and not _evaluating:  # `_call_begins`, without the call
            kind, moment = FORWARD, now()
            spent[OPTIMIZER if _after == BACK else OTHER] += moment - last
            last = moment
        else:
            kind = _call_begins(self)
        _inside = True
        try:
            return base.__call__(self, *args, **kwargs)
        finally:
            moment = now()
            spent[kind] += moment - last
            last, _after, _inside = moment, CALLED, False
    return __call__


def _call_begins(module: object) -> int:
    """The gap before a module of the script's is its own code;
    between a backward and a module it is an optimizer with a closure.
    Evaluation: without gradients, of a module that is trained elsewhere."""
    global last, _evaluating
    moment = now()
    try:
        if not _step_from:
            _start(moment)
        kind, gap = FORWARD, OPTIMIZER if _after == BACK else OTHER
        if _grad_enabled():
            _evaluating = False
        elif not module.training and type(module) in _roots:
            if not _evaluating:
                busy(moment)
            kind, gap, _evaluating = EVALUATION, EVALUATION if _evaluating else OTHER, True
        elif not steps:
            seen["evaluated"] += 1
        spent[gap] += moment - last
        last = moment
        if device is not None and kind == FORWARD:
            device.begins()
            device.forward_begins()
        return kind
    except Exception as e:
        broke(e)
    return FORWARD


def _ends(kind: int, what: int) -> None:
    """A watched call is over: what is not accounted for yet was it."""
    global last, _after
    moment = now()
    spent[kind] += moment - last
    last, _after = moment, what


def _start(moment: int) -> None:
    """The first call of a loop: what came before was preparation, and belongs to no step."""
    global last, write_at, _step_from
    spent[:] = [0] * len(KINDS)
    first_step(moment, moment - last)
    last = _step_from = moment
    write_at = moment + 1_000_000_000


# ---- backward

def _backward(real: object, is_step: bool = True) -> object:
    """What came before, from the module on, was the loss. What was fetched is trained on. `is_step`:
    where there is no optimizer."""
    def backward(*args, **kwargs):
        global _inside, last, _after, _evaluating
        if _inside or _get_ident() != owner:
            return real(*args, **kwargs)
        moment = now()
        if _step_from:
            spent[FORWARD] += moment - last
        else:
            _start(moment)
        last, _inside = moment, True
        if _evaluating:
            _evaluating = False
        if _before is not None or _fetched or not steps:
            _trained_on()
            seen["backward"] += 1
        if device is not None:
            device.backward_begins()
        try:
            return real(*args, **kwargs)
        finally:
            moment = now()
            spent[BACKWARD] += moment - last
            last, _after, _inside = moment, BACK, False
            if device is not None:
                device.backward_ends()
            if is_step and _backwards.is_step(seen["optimizers"]):
                (stepped_by_hand or step_ends)(None, (), {})
    return backward


def _trained_on() -> None:
    global _before
    _before = None
    for each in _fetched:
        each.is_trained_on()
    _fetched.clear()


# ---- optimizers

def step_ends(optimizer: object, args: object, kwargs: object) -> None:
    """A step is done. What was between it and the last mark, clipping and unscaling included,
    was the optimizer's."""
    global owner, last, steps, _after, _lead, _step_from, _evaluated_then
    if _get_ident() != owner:
        if steps or not owner or _compiling():
            return
        owner = _get_ident()  # the loop is not in the main thread
    try:
        moment = now()
        if not _step_from:
            _start(moment)
        spent[OPTIMIZER] += moment - last
        last, _after = moment, STEPPED
        if _before is not None or _fetched:
            _trained_on()
        if id(optimizer) != _lead:
            if _lead:
                _others[id(optimizer)] = _others.get(id(optimizer), 0) + 1
                if moment >= write_at:
                    line_is_due(moment)
                return
            _lead = id(optimizer)
        steps += 1
        durations.append(moment - _step_from - spent[EVALUATION] + _evaluated_then)
        _step_from, _evaluated_then = moment, spent[EVALUATION]
        if device is not None:
            device.step_ends()
        if each_step is not None:
            each_step()
        if steps <= LEARN or moment >= write_at:
            if steps == LEARN:
                roots.learned()
            if steps == 1 or moment >= write_at:
                line_is_due(moment)
    except Exception as e:
        broke(e)


def line_is_due(moment: int) -> None:
    """Write what was counted, and begin anew."""
    global _lead, _lead_was, _evaluated_then, steps
    if steps == _lead_was and _others:  # another optimizer has taken over
        _lead = max(_others, key=_others.get)
        steps += _others[_lead]
    _others.clear()
    write(moment)
    _lead_was, _evaluated_then = steps, 0


# ---- loaders

def _iter(real: object) -> object:
    def __iter__(self):
        global _inside
        if _inside or _get_ident() != owner:
            return real(self)
        began = _iter_begins(self)
        _inside = True
        try:
            iterator = real(self)
        finally:
            _inside = False
            _ends(START, FETCHED)
        try:
            forget(id(iterator))
            Pass(iterator, self, length_of(self), began, seen["loaders"])
        except Exception as e:
            broke(e)
        return iterator
    return __iter__


def _iter_begins(loader: object) -> int:
    global last, _before
    moment = now()
    try:
        if not _step_from:
            _start(moment)
        _settle(moment)
        spent[EVALUATION if _evaluating else OTHER] += moment - last
        last = moment
        if _trained.get(loader) is None:
            _before = spent[:], moment
    except Exception as e:
        broke(e)
    return moment


def _next(real: object) -> object:
    def __next__(self):
        global _inside, last, batches, samples, _after
        if _inside or _get_ident() != owner:
            return real(self)
        moment, way = now(), current
        if way is None or way.key != id(self):
            way = _passes.get(id(self))
        if way is not None and way.steady and _before is None and moment < write_at:
            spent[OTHER] += moment - last
            last = moment
        else:
            way = _fetch_begins(self, moment)
        _inside = True
        try:
            data = real(self)
        except StopIteration:
            _inside = False
            _pass_ends(way)
            raise
        finally:
            _inside = False
        if way is None or not way.steady:
            _fetch_ends(way, data)
            return data
        moment = now()
        spent[DATA] += moment - last
        last, _after = moment, FETCHED
        way.batches += 1
        batches += 1
        samples += way.each if way.batches < way.last else size_of(data)
        if device is not None:
            device.begins()
        return data
    return __next__


def _fetch_begins(iterator: object, moment: int) -> Pass | None:
    """The long form, for a loader that nobody has trained on, and for the first batch of a pass."""
    global last, current, _before
    try:
        if not _step_from:
            _start(moment)
        way = _passes.get(id(iterator))
        if way is None:
            way = Pass(iterator, None, None, moment, seen["loaders"])
        if _before is not None and not way.first:
            _settle(moment)
        spent[OTHER] += moment - last
        last = moment
        if _before is None:
            if moment >= write_at:
                line_is_due(moment)
            if not way.trained:
                _before = spent[:], moment
        if _after != FETCHED and _fetched:
            _fetched.clear()
        current = way
        return way
    except Exception as e:
        broke(e)
        return None


def _settle(moment: int) -> None:
    """The last batch came from a loader that nobody has trained on, and was not trained on either:
    all of that was evaluation."""
    global last, _before
    if _before is None:
        return
    apart = {kind: spent[kind] for kind in (SAVE, LOG, IMAGE)}
    known = sum(apart.values()) - sum(_before[0][kind] for kind in apart)
    spent[:] = _before[0]
    for kind, ns in apart.items():
        spent[kind] = ns
    spent[EVALUATION] += moment - _before[1] - known
    last, _before = moment, None


def _fetch_ends(way: Pass | None, data: object) -> None:
    global batches, samples
    if way is None:
        return
    try:
        # workers come up, and nothing has been prefetched
        _ends(START if way.first and way.workers else DATA, FETCHED)
        way.first = False
        way.batches += 1
        seen["batches"] += 1
        if way.trained:
            size = size_of(data)
            batches += 1
            samples += size
            way.sized(size)
            way.steady = True
        else:
            _fetched.append(way)
        if device is not None:
            device.begins()
    except Exception as e:
        broke(e)


def _pass_ends(way: Pass | None) -> None:
    """There is no further batch."""
    global last, _before, _after
    if way is None:
        return
    try:
        moment = now()
        spent[DATA if way.trained else EVALUATION] += moment - last
        last, _before, _after = moment, None, NOTHING
        _fetched.clear()
        if way.trained:
            pass_over(way, moment)
    except Exception as e:
        broke(e)


def settle_all() -> None:
    """The process ends: what was not decided is, and what came after the last mark is the script's own."""
    global last
    moment = now()
    _settle(moment)
    spent[OTHER] += moment - last
    last = moment
