"""The calls that cost something and happen inside libraries:
a module, backward, a step of an optimizer, clipping. Each is one event; what happens inside is not logged.
A ghost skips the call and hands out a stand-in of the recorded form.

This file says which calls these are, steps.py does so for optimizers;
stand_ins.py what is handed out, gradients.py who gets a gradient.
"""

from __future__ import annotations

import _thread
import collections
import ctypes
import functools
import inspect
import sys
import time

from ...entry import deep
from ...looks import isinstance
from ..core import leaves, outcome, pace, phases, words
from . import gradients, graphs, lazy, places, side_effects, stand_ins, steps, transforms
from . import shield_parts as parts
from .shield_parts import fenced, kinds, known, leaves_by_error, modules, not_put, ordinal
from .stand_ins import build, template

_get_ident, _getframe, _identity = _thread.get_ident, sys._getframe, phases.identity
_read: dict = {}  # dtype -> what reads a number of it from an address; None -> torch.Tensor
_LAST = 1000  # modules that are called from one place and remembered
_MISSING = object()
_monotonic = getattr(time.monotonic, "__wrapped__", time.monotonic)  # the real one


def install() -> None:
    import torch

    _read.update(
        {
            None: torch.Tensor,
            torch.float32: ctypes.c_float.from_address,
            torch.float64: ctypes.c_double.from_address,
        }
    )
    side_effects.install()
    parts.name_kinds()
    torch.nn.Module.__call__ = _module_call(torch.nn.Module.__call__)
    graphs.backward = torch.autograd.backward
    torch.autograd.backward = _backward(torch.autograd.backward)
    torch.autograd.grad = _grad(torch.autograd.grad)
    utils = torch.nn.utils
    for name in ("clip_grad_norm_", "clip_grad_value_", "clip_grads_with_norm_", "get_total_norm"):
        if hasattr(utils, name):
            guarded = shield(getattr(utils, name), name)
            setattr(utils, name, guarded)
            setattr(utils.clip_grad, name, guarded)
    averaged = torch.optim.swa_utils.AveragedModel
    averaged.update_parameters = shield(averaged.update_parameters, "update_parameters")
    torch.Tensor.retain_grad = _retain_grad(torch.Tensor.retain_grad)
    steps.install()
    lazy.install()
    transforms.install(shield)


def end_of_ghost() -> None:
    """The real tensors are back: nobody needs stand-ins any more."""
    stand_ins.forget()
    gradients.forget_stand_ins()


def shield(real: object, name: str, *event: bool) -> object:
    """`real` as one event, the form of its result as value. `event` is for `places.after_event`."""
    kind = phases.log.kind(name)

    def ghost(*args: object, **kwargs: object) -> object:
        return _stand_in(phases.log.take(kind))

    def record(spot: object, /, *args: object, **kwargs: object) -> object:
        out = real(*args, **kwargs)
        fenced(name, _put, kind, out, spot)
        return out
    return _shielded(real, ghost, record, *event)


def _shielded(real: object, ghost: object, record: object, *event: bool) -> object:
    """What `real` becomes: from outside of every shield `record`, told where it is called from, is called in
    its place, or `ghost` while this life is one. `event` is for `places.after_event`."""
    @functools.wraps(real)
    def wrapper(*args: object, **kwargs: object) -> object:
        if phases.depth or not phases.phase or _get_ident() != phases.main:
            return real(*args, **kwargs)
        spot = phases.enter(_getframe(1))
        try:
            return ghost(*args, **kwargs) if phases.phase == phases.GHOST else record(spot, *args, **kwargs)
        except BaseException as e:
            leaves_by_error(e)
            raise
        finally:
            phases.leave()
            places.after_event(*event)
    return wrapper


# -- one wrapper each

def _module_call(real: object) -> object:
    """As `_shielded`, flat: modules are called inside of modules,
    and each further call is felt at steps of 300 us.

    A call that is in all that can be seen as the last one of this module from this place leaves the same
    event: it is put down as it was (`last`) without working it out again.
    Whatever is otherwise goes the long way, which `_put_module` is."""
    kind, log = kinds["module"], phases.log
    append, append_value, record = log.append, log.append_value, phases.RECORD
    within = inspect.unwrap(real, stop=lambda f: not _is_of_the_clock(f))  # torch's own
    tensor, hooks = _read[None], sys.modules["torch.utils.hooks"].RemovableHandle
    left, looked, joined, instead = side_effects.left, side_effects.looked, lazy.joined, lazy.instead
    transform_level, forward_ad = (
        sys.modules["torch"]._C._functorch.maybe_current_level,
        sys.modules["torch"].autograd.forward_ad,
    )

    @functools.wraps(real)
    def wrapper(self: object, *args: object, **kwargs: object) -> object:
        if phases.depth or not phases.phase or _get_ident() != phases.main:
            call = within if phases.depth else real  # the clock does not look within a call either
            at = deep.level
            if at >= deep.FROM:
                deep.goes_in(at)
            deep.level = at + 1
            try:
                return call(self, *args, **kwargs)
            finally:
                deep.level = at
                if at >= deep.FROM:
                    deep.goes_out(at)
        spot = phases.enter(_getframe(1))
        try:
            last = spot.last.get(_identity(self))
            if (
                last is not None
                and last[0]() is self
                and hooks.next_id == last[1]
                and args
                and type(args[0]) is tensor
                and phases.phase == record
                and not (left or looked or joined or instead)
            ):
                side_effects.numbers, side_effects.steps = last[1], 0
                out = real(self, *args, **kwargs)
                if (
                    type(out) is tensor
                    and not (left or joined or lazy.made or side_effects.steps)
                    and hooks.next_id == last[1]
                    and phases.phase == record
                    and (
                        out.shape,
                        out.dtype,
                        out.layout,
                        out.is_cpu or out.device,
                        out.requires_grad,
                        out.is_leaf,
                        out.stride(),
                    )
                    == last[2]
                    and transform_level() is None
                    and forward_ad._current_level < 0
                ):
                    for arg in args:
                        if arg is out or type(arg) is not tensor or arg.requires_grad:
                            break
                    else:
                        append_value(last[3])
                        append(last[4])
                        if _monotonic() > log.flush_at:
                            log.flush()
                        return out
                given = None
            else:
                if phases.phase == phases.GHOST:
                    return _module_stand_in(self, args, lazy.call(log.take(kind), real, self, args, kwargs))
                side_effects.begins(self)
                table = _table(args[0]) if args else None
                given = None if table is None else dict(table)
                out = real(self, *args, **kwargs)
            if phases.phase:
                try:
                    _put_module(kind, self, (args, given), out, spot)
                except Exception as e:
                    not_put(type(self).__name__, e)
            return out
        except BaseException as e:
            leaves_by_error(e)
            raise
        finally:
            phases.leave()
            if _monotonic() >= pace.not_before:
                places.after_event(side_effects.steps > 0)
    return wrapper


def _is_of_the_clock(function: object) -> bool:
    return leaves.is_ours(getattr(getattr(function, "__code__", None), "co_filename", ""))


def _put_module(kind: int, module: object, asked: tuple, out: object, spot: object) -> None:
    """`asked`: the arguments, and what the first of them held, if it is a dictionary."""
    args, given = asked
    value = _told(module, args, out, given)
    if lazy.made or lazy.joined:
        value = lazy.told(value, module)
    phases.log.put_at(kind, value, spot)
    entry = spot.entries.get(kind)  # none yet where this event was the last one that the tail compared
    plain = type(value) is int and type(out) is _read[None]
    if side_effects.told(module, out, args) and plain and entry is not None and phases.phase == phases.RECORD:
        if len(spot.last) > _LAST:
            spot.last.clear()
        spot.last[_identity(module)] = (
            known(module)[1],
            side_effects.numbers,
            stand_ins.key_of(out),
            value,
            entry,
        )


def _told(module: object, args: tuple, out: object, given: dict | None) -> object:
    number, tensor = ordinal(module), _read[None]
    for arg in args:
        if arg is out:
            return (number, "is", next(i for i, each in enumerate(args) if each is out), _parts(out, given))
    for arg in args:
        if type(arg) is not tensor or arg.requires_grad:
            gradients.know_input(arg)
    form = template(out)
    return (number << 32) + form if type(form) is int else (number, form)


def _module_stand_in(module: object, args: tuple, value: object) -> object:
    try:
        number, form = (value >> 32, value & 0xFFFFFFFF) if type(value) is int else value[:2]
        if ordinal(module) != number:
            outcome.diverged(
                words.OTHER_MODULE.format(then=number, now=ordinal(module), type=type(module).__name__)
            )
        if form != "is":
            for arg in args:
                gradients.know_input(arg)
        out = _filled(args[value[2]], value[3]) if form == "is" else build(form)
        side_effects.hand_out(module, (out, *args))
        return out
    except Exception as e:
        outcome.broke(e)


def _parts(out: object, given: dict | None) -> list | None:
    """(key, form; None if it was there before) of what stands in the dictionary that a module was given, and
    gives back; None of others."""
    table = None if given is None else _table(out)
    if table is None or not leaves.all_plain(table):
        return None
    found = []
    for key, value in table.items():
        try:
            found.append((key, None if key in given and given[key] is value else template(value)))
        except stand_ins.NotUnderstood:
            # as long as the script does nothing with it in its loop, it need not be there
            found.append((key, None))
    return found


def _filled(given: object, parts: list | None) -> object:
    """The same for a ghost."""
    if parts is not None:
        table = _table(given)
        for key in table.keys() - {key for key, _ in parts}:
            del table[key]
        for key, form in parts:
            if form is not None:
                table[key] = build(form)
    return given


def _table(thing: object) -> dict | None:
    """A dictionary, or the one within a dictionary written in Python (BatchEncoding of transformers);
    None of others."""
    kind = type(thing)
    if kind is dict:
        return thing
    inner = thing.data if collections.UserDict in kind.__mro__ else None
    return inner if type(inner) is dict else None


def _backward(real: object) -> object:
    """As `_shielded`, flat."""
    kind, log = kinds["backward"], phases.log

    @functools.wraps(real)
    def wrapper(tensors: object = _MISSING, *args: object, **kwargs: object) -> object:
        if tensors is _MISSING:
            return real(*args, **kwargs)
        if phases.depth or not phases.phase or _get_ident() != phases.main:
            return real(tensors, *args, **kwargs)
        caller = _getframe(1)
        spot = phases.enter(caller)
        try:
            if phases.phase == phases.GHOST:
                return _ghost_backward(tensors, caller)
            try:
                reach, loss, looked = (
                    gradients.before(tensors, caller),
                    _bits(tensors),
                    side_effects.backward_begins(modules, parts.count),
                )
            except Exception as e:
                # the real one is called behind this handler:
                # what it raises is not raised while handling a fault of ours
                outcome.broke(e)
            out = real(tensors, *args, **kwargs)
            if phases.phase:
                try:
                    pattern = gradients.after(reach)
                    log.put_at(kind, loss if pattern is None else (loss, pattern), spot)
                    side_effects.told_of_backward(looked, modules)
                except Exception as e:
                    not_put("backward", e)
            return out
        except BaseException as e:
            leaves_by_error(e)
            raise
        finally:
            phases.leave()
            places.after_event(False, True)
    return wrapper


def _ghost_backward(tensors: object, caller: object) -> None:
    try:
        reach = gradients.before(tensors, caller)
        value = phases.log.take(kinds["backward"])
        gradients.stand_in(value[1] if type(value) is tuple else None, reach)
        side_effects.hand_out_of_backward(modules, parts.count)
    except Exception as e:
        outcome.broke(e)


def _retain_grad(real: object) -> object:
    """No leaf, but it gets a gradient from the next backward as one does."""
    @functools.wraps(real)
    def retain_grad(self: object, *args: object) -> None:
        real(self, *args)
        if phases.here():
            gradients.know([self])
    return retain_grad


def _grad(real: object) -> object:
    kind, loss_kind = kinds["grad"], kinds["loss"]

    def ghost(outputs: object, *args: object, **kwargs: object) -> object:
        phases.log.take(loss_kind)
        return _stand_in(phases.log.take(kind))

    def record(spot: object, /, outputs: object, *args: object, **kwargs: object) -> object:
        loss = _bits(outputs)
        out = real(outputs, *args, **kwargs)
        fenced("autograd.grad", phases.log.put_at, loss_kind, loss, spot)
        fenced("autograd.grad", _put, kind, out, spot)
        return out
    return _shielded(real, ghost, record, False, True)


def _bits(tensors: object) -> object:
    """The value of a loss, None if there is no single one."""
    try:
        if type(tensors) is not _read[None]:
            if isinstance(tensors, (list, tuple)):
                tensors = tensors[0] if tensors else None
            if type(tensors) is not _read[None]:
                return None if tensors is None else leaves.quietly(_number)(tensors)
        if tensors.is_cpu and tensors.numel() == 1 and tensors.dtype in _read:
            address = tensors.data_ptr()
            if address:  # as it lies in memory: of `z.imag` that may be the negative, in each life
                return _read[tensors.dtype](address).value
        return _number(tensors)
    except Exception:  # whatever is no loss is for the real backward to complain about
        return None


def _number(loss: object) -> object:
    """The long way, through kernels of ours."""
    return loss.item() if loss.numel() == 1 else None


# -- common

def _put(kind: int, out: object, spot: object) -> None:
    phases.log.put_at(kind, template(out), spot)


def _stand_in(value: object) -> object:
    try:
        return build(value)
    except Exception as e:
        outcome.broke(e)
