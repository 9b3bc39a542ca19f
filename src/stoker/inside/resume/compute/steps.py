"""The steps of optimizers as events, and the closures that they call back. A ghost makes no step:
it finds the state that the recorded one made, as stand-ins, and calls a closure as often as it was called.
"""

from __future__ import annotations

import _thread
import functools
import inspect
import sys
import time

from ...looks import isinstance
from ..core import outcome, pace, phases, words
from . import places, side_effects
from .shield_parts import kinds, known, leaves_by_error, not_put, params_of
from .stand_ins import build, template

_get_ident, _getframe = _thread.get_ident, sys._getframe
_monotonic = getattr(time.monotonic, "__wrapped__", time.monotonic)  # the real one
# within the call of a module: an optimizer whose step calls that of another one makes one step
_stepping = False


def install() -> None:
    """Once torch is imported."""
    import torch

    torch.optim.Optimizer.profile_hook_step = staticmethod(
        _step_hook(torch.optim.Optimizer.profile_hook_step)
    )
    rewrap_steps(torch.optim)


def _step_hook(real_hook: object) -> object:
    def profile_hook_step(func: object) -> object:
        return _step(real_hook(func))
    return profile_hook_step


def rewrap_steps(namespace: object) -> None:
    """Optimizers that were made before us have their steps hooked already."""
    for thing in list(vars(namespace).values()):
        if isinstance(thing, type) and getattr(vars(thing).get("step"), "hooked", False):
            thing.step = _step(thing.step)
            thing.step.hooked = True


def _step(real: object) -> object:
    """As `_shielded`, flat."""
    at = _place_of_closure(real)

    @functools.wraps(real)
    def wrapper(self: object, *args: object, **kwargs: object) -> object:
        if phases.depth or not phases.phase or _get_ident() != phases.main:
            return _step_within(real, self, args, kwargs)
        spot = phases.enter(_getframe(1))
        try:
            closure, results = _closure(args, kwargs, at) if args or kwargs else None, []
            if phases.phase == phases.GHOST:
                return _ghost_step(self, closure, results)
            if closure is not None:
                args, kwargs = _with_closure(_logged_closure(closure, results), args, kwargs, at)
            out = real(self, *args, **kwargs)
            if phases.phase:
                try:
                    _put_step(self, out, results, spot)
                except Exception as e:
                    not_put("the state of an optimizer", e)
            if results:
                results.clear()  # with the losses live their graphs
            return out
        except BaseException as e:
            leaves_by_error(e)
            raise
        finally:
            phases.leave()
            if _monotonic() >= pace.not_before:
                places.after_event(True)
    return wrapper


def _with_closure(closure: object, args: tuple, kwargs: dict, at: int) -> tuple:
    """The arguments of a step with `closure` in the place of the script's."""
    if "closure" in kwargs:
        return args, {**kwargs, "closure": closure}
    return (*args[:at], closure, *args[at + 1:]), kwargs


def _step_within(real: object, optimizer: object, args: tuple, kwargs: dict) -> object:
    """A step that the call of a module makes;
    a step of its own that calls that of another optimizer is one."""
    global _stepping
    if not phases.depth or _stepping or _get_ident() != phases.main:
        return real(optimizer, *args, **kwargs)
    _stepping = True
    try:
        out = real(optimizer, *args, **kwargs)
    finally:
        _stepping = False
    side_effects.steps += 1
    return out


def _place_of_closure(step: object) -> int:
    """Which argument of an optimizer's step it is; -1: none.
    Optimizers of the script's own may take others, or others before it."""
    for n, (name, parameter) in enumerate(list(inspect.signature(step).parameters.items())[1:]):
        if name == "closure" or parameter.kind is parameter.VAR_POSITIONAL:
            return n
    return -1


def _closure(args: tuple, kwargs: dict, at: int) -> object:
    found = kwargs["closure"] if "closure" in kwargs else args[at] if 0 <= at < len(args) else None
    return found if callable(found) else None


def _logged_closure(closure: object, results: list) -> object:
    def logged() -> object:
        phases.log.put(kinds["closure"])
        _outside(closure, results)
        return results[-1]
    return logged


def _outside(closure: object, results: list) -> None:
    places.held += 1
    phases.leave()
    try:
        results.append(closure())
    finally:
        places.held -= 1
        phases.enter(_getframe(1))


def _put_step(optimizer: object, out: object, results: object, spot: object) -> None:
    number, _, notes = known(optimizer)
    count = notes[0] = notes[0] + 1  # of steps; then entries of its state, keys in them
    if not count % 50 or count <= 3 or len(optimizer.state) != notes[1]:
        _put_state(optimizer, notes, spot)
    if out is not None:
        same = [i for i, result in enumerate(results) if out is result]
        number = (number, "is", same[0]) if same else (number, template(out))
    phases.log.put_at(kinds["step"], number, spot)
    phases.steps += 1


def _put_state(optimizer: object, notes: list, spot: object) -> None:
    entries, keys = len(optimizer.state), _keys(optimizer)
    if [entries, keys] != notes[1:]:
        notes[1:] = entries, keys
        phases.log.put_at(kinds["optimizer state"], template(_by_number(optimizer)), spot)


def _keys(optimizer: object) -> int:
    return sum(len(s) if isinstance(s, dict) else 1 for s in optimizer.state.values())


def _by_number(optimizer: object) -> dict:
    numbers = {id(p): i for i, p in enumerate(params_of(optimizer))}
    return {
        numbers.get(id(key), key): dict(entry) if isinstance(entry, dict) else entry
        for key, entry in optimizer.state.items()
    }


def _ghost_step(optimizer: object, closure: object, results: list) -> object:
    import torch
    log, result = phases.log, None
    while closure is not None and log.peek() == kinds["closure"]:
        log.take(kinds["closure"])
        with torch.enable_grad():
            _outside(closure, results)
    try:
        described = (
            build(log.take(kinds["optimizer state"])) if log.peek() == kinds["optimizer state"] else {}
        )
        what = log.take(kinds["step"])
        number = what if type(what) is int else what[0]
        now, _, notes = known(optimizer)
        if now != number:
            outcome.diverged(words.OTHER_MODULE.format(then=number, now=now, type=type(optimizer).__name__))
        notes[0] += 1
        if described:
            params = params_of(optimizer)
            for key, entry in described.items():
                optimizer.state[params[key] if type(key) is int else key] = entry
            notes[1:] = len(optimizer.state), _keys(optimizer)
        phases.steps += 1
        for call in phases.on_ghost_step:
            call(optimizer, 1)
        if type(what) is not int:
            result = results[what[2]] if what[1] == "is" else build(what[1])
    except Exception as e:
        outcome.broke(e)
    return result
