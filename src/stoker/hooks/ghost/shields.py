"""The calls that cost something and happen inside libraries: a module, backward, a step of an optimizer, clipping. Each is one event;
what happens inside is not logged. A ghost skips the call and hands out a stand-in of the recorded form.

This file says which calls these are; stand_ins.py what is handed out, gradients.py who gets a gradient.
"""

from __future__ import annotations

import _thread
import collections
import ctypes
import functools
import inspect
import sys
import weakref

from . import fate, gradients, graphs, lazy, leaves, leavings, life, points, stand_ins, transforms, words, written
from .stand_ins import build, own_tensors, template

__all__ = ["build", "in_flight", "install", "own_tensors", "raised", "template"]

_get_ident, _getframe = _thread.get_ident, sys._getframe
raised = ""  # an error that left a shield and that the script may have caught: no image is right after it
_ordinals: dict = {}  # id of a module or optimizer -> (its number in order of first use, a weak reference, notes)
_count = 0
_stepping = False  # within the call of a module: an optimizer whose step calls that of another one makes one step
_kinds: dict = {}
_read: dict = {}  # dtype -> what reads a number of it from an address; None -> torch.Tensor
_UNKNOWN = (-1, lambda: _UNKNOWN, None)


def install() -> None:
    import torch
    _read.update({None: torch.Tensor, torch.float32: ctypes.c_float.from_address, torch.float64: ctypes.c_double.from_address})
    leavings.install()
    for name in ("module", "backward", "loss", "grad", "step", "optimizer state", "raised"):
        _kinds[name] = life.log.kind(name)
    _kinds["closure"] = life.log.kind("closure", placed=False)
    torch.nn.Module.__call__ = _module_call(torch.nn.Module.__call__)
    graphs.backward = torch.autograd.backward
    torch.autograd.backward = _backward(torch.autograd.backward)
    torch.autograd.grad = _grad(torch.autograd.grad)
    torch.optim.Optimizer.profile_hook_step = staticmethod(_step_hook(torch.optim.Optimizer.profile_hook_step))
    utils = torch.nn.utils
    for name in ("clip_grad_norm_", "clip_grad_value_", "clip_grads_with_norm_", "get_total_norm"):
        if hasattr(utils, name):
            guarded = shield(getattr(utils, name), name)
            setattr(utils, name, guarded)
            setattr(utils.clip_grad, name, guarded)
    averaged = torch.optim.swa_utils.AveragedModel
    averaged.update_parameters = shield(averaged.update_parameters, "update_parameters")
    torch.Tensor.retain_grad = _retain_grad(torch.Tensor.retain_grad)
    rewrap_steps(torch.optim)
    lazy.install()
    transforms.install(shield)


def in_flight() -> object:
    """The value on its way back to the caller when an image is taken: none, since images are taken at the start of a line."""
    return None


def end_of_ghost() -> None:
    """The real tensors are back: nobody needs stand-ins any more."""
    stand_ins.forget()
    gradients.forget_stand_ins()


def shield(real: object, name: str, *event: bool) -> object:
    """`real` as one event, the form of its result as value. `event` is for `points.after_event`."""
    kind = life.log.kind(name)

    def ghost(*args: object, **kwargs: object) -> object:
        return _stand_in(life.log.take(kind))

    def record(spot: object, /, *args: object, **kwargs: object) -> object:
        out = real(*args, **kwargs)
        _fenced(name, _put, kind, out, spot)
        return out
    return _shielded(real, ghost, record, *event)


def _shielded(real: object, ghost: object, record: object, *event: bool) -> object:
    """What `real` becomes: from outside of every shield `record`, told where it is called from, is called in its place, or `ghost` while
    this life is one. `event` is for `points.after_event`."""
    @functools.wraps(real)
    def wrapper(*args: object, **kwargs: object) -> object:
        if life.depth or not life.phase or _get_ident() != life.main:
            return real(*args, **kwargs)
        spot = life.enter(_getframe(1))
        try:
            return ghost(*args, **kwargs) if life.phase == life.GHOST else record(spot, *args, **kwargs)
        except BaseException as e:
            _raised(e)
            raise
        finally:
            life.leave()
            points.after_event(*event)
    return wrapper


def ordinal(thing: object) -> int:
    """The number of a module or optimizer, in order of first use: the same in each life."""
    global _count
    number, known, _ = _ordinals.get(id(thing), _UNKNOWN)
    if known() is thing:
        return number
    number, _count = _count, _count + 1
    _ordinals[id(thing)] = (number, weakref.ref(thing), [0, 0, 0])
    if hasattr(thing, "param_groups"):
        gradients.know(params_of(thing))
    elif hasattr(thing, "parameters"):
        gradients.know(thing.parameters())
    return number


def params_of(optimizer: object) -> list:
    return [p for group in optimizer.param_groups for p in group["params"]]


# -- one wrapper each

def _module_call(real: object) -> object:
    """As `_shielded`, flat: modules are called inside of modules, and each further call is felt at steps of 300 us."""
    kind = _kinds["module"]
    code = getattr(inspect.unwrap(real, stop=lambda f: not _is_of_the_clock(f)), "__code__", None)
    direct = code is not None and code.co_names == ("_compiled_call_impl", "_call_impl")  # torch's own, around which only the clock stands

    @functools.wraps(real)
    def wrapper(self: object, *args: object, **kwargs: object) -> object:
        if life.depth and direct and self._compiled_call_impl is None:
            return self._call_impl(*args, **kwargs)  # what `real` would do: the clock does not look within a call either
        if life.depth or not life.phase or _get_ident() != life.main:
            return real(self, *args, **kwargs)
        spot = life.enter(_getframe(1))
        try:
            if life.phase == life.GHOST:
                return _module_stand_in(self, args, lazy.call(life.log.take(kind), real, self, args, kwargs))
            leavings.begins(self)
            table = _table(args[0]) if args else None
            given = None if table is None else dict(table)
            out = real(self, *args, **kwargs)
            if life.phase:
                try:
                    _put_module(kind, self, (args, given), out, spot)
                except Exception as e:
                    _not_put(type(self).__name__, e)
            return out
        except BaseException as e:
            _raised(e)
            raise
        finally:
            life.leave()
            points.after_event(leavings.steps > 0)
    return wrapper


def _is_of_the_clock(function: object) -> bool:
    return leaves.is_ours(getattr(getattr(function, "__code__", None), "co_filename", ""))


def _put_module(kind: int, module: object, asked: tuple, out: object, spot: object) -> None:
    """`asked`: the arguments, and what the first of them held, if it is a dictionary."""
    args, given = asked
    value = _told(module, args, out, given)
    if lazy.made or lazy.joined:
        value = lazy.told(value, module)
    life.log.put_at(kind, value, spot)
    leavings.told(module, out, args)


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
            fate.diverged(words.OTHER_MODULE.format(then=number, now=ordinal(module), type=type(module).__name__))
        if form != "is":
            for arg in args:
                gradients.know_input(arg)
        out = _filled(args[value[2]], value[3]) if form == "is" else build(form)
        leavings.hand_out(module, (out, *args))
        return out
    except Exception as e:
        fate.broke(e)


def _parts(out: object, given: dict | None) -> list | None:
    """(key, form; None if it was there before) of what stands in the dictionary that a module was given, and gives back; None of others."""
    table = None if given is None else _table(out)
    if table is None or not leaves.all_plain(table):
        return None
    found = []
    for key, value in table.items():
        try:
            found.append((key, None if key in given and given[key] is value else template(value)))
        except stand_ins.NotUnderstood:  # as long as the script does nothing with it in its loop, it need not be there
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
    """A dictionary, or the one within a dictionary written in Python (BatchEncoding of transformers); None of others."""
    kind = type(thing)
    if kind is dict:
        return thing
    inner = thing.data if collections.UserDict in kind.__mro__ else None
    return inner if type(inner) is dict else None


def _backward(real: object) -> object:
    kind = _kinds["backward"]

    def ghost(tensors: object, *args: object, **kwargs: object) -> None:
        try:
            reach = gradients.before(tensors, _getframe(2))
            value = life.log.take(kind)
            gradients.stand_in(value[1] if type(value) is tuple else None, reach)
            leavings.hand_out_of_backward(_modules, _count)
        except Exception as e:
            fate.broke(e)

    def record(spot: object, /, tensors: object, *args: object, **kwargs: object) -> object:
        try:
            reach, loss, looked = gradients.before(tensors, _getframe(2)), _bits(tensors), leavings.backward_begins(_modules, _count)
        except Exception as e:
            fate.broke(e)
            return real(tensors, *args, **kwargs)
        out = real(tensors, *args, **kwargs)
        _fenced("backward", _put_backward, kind, loss, reach, looked, spot)
        return out
    return _shielded(real, ghost, record, False, True)


def _put_backward(kind: int, loss: object, reach: tuple, looked: list, spot: object) -> None:
    pattern = gradients.after(reach)
    life.log.put_at(kind, loss if pattern is None else (loss, pattern), spot)
    if looked:
        leavings.put(written.told(looked, ()))


def _retain_grad(real: object) -> object:
    """No leaf, but it gets a gradient from the next backward as one does."""
    @functools.wraps(real)
    def retain_grad(self: object) -> None:
        real(self)
        if life.here():
            gradients.know([self])
    return retain_grad


def _modules() -> list:
    """(number, module) of those that the script has called, as far as they are still there."""
    found = ((number, known()) for number, known, _ in _ordinals.values())
    return sorted(((number, each) for number, each in found if isinstance(each, stand_ins.torch_module())), key=lambda pair: pair[0])


def _grad(real: object) -> object:
    kind, loss_kind = _kinds["grad"], _kinds["loss"]

    def ghost(outputs: object, *args: object, **kwargs: object) -> object:
        life.log.take(loss_kind)
        return _stand_in(life.log.take(kind))

    def record(spot: object, /, outputs: object, *args: object, **kwargs: object) -> object:
        loss = _bits(outputs)
        out = real(outputs, *args, **kwargs)
        _fenced("autograd.grad", life.log.put_at, loss_kind, loss, spot)
        _fenced("autograd.grad", _put, kind, out, spot)
        return out
    return _shielded(real, ghost, record, False, True)


def _bits(tensors: object) -> object:
    """The value of a loss, None if there is no single one."""
    try:
        if isinstance(tensors, (list, tuple)):
            tensors = tensors[0] if tensors else None
        return _number(tensors) if type(tensors) is _read[None] else leaves.quietly(_number)(tensors)
    except Exception:  # whatever is no loss is for the real backward to complain about
        return None


def _number(loss: object) -> object:
    if loss is None or loss.numel() != 1:
        return None
    if loss.is_cpu and type(loss) is _read[None] and loss.dtype in _read:
        address = loss.data_ptr()
        if address:  # as it lies in memory: of `z.imag` that may be the negative, in each life
            return _read[loss.dtype](address).value
    return loss.item()  # the long way, through kernels of ours


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
    at = _place_of_closure(real)

    def ghost(self: object, *args: object, **kwargs: object) -> object:
        return _ghost_step(self, _closure(args, kwargs, at), [])

    def record(spot: object, /, self: object, *args: object, **kwargs: object) -> object:
        closure, results = _closure(args, kwargs, at) if args or kwargs else None, ()
        if closure is not None:
            results = []
            logged = _logged_closure(closure, results)
            if "closure" in kwargs:
                kwargs = {**kwargs, "closure": logged}
            else:
                args = (*args[:at], logged, *args[at + 1:])
        out = real(self, *args, **kwargs)
        _fenced("the state of an optimizer", _put_step, self, out, results, spot)
        if results:
            results.clear()  # with the losses live their graphs
        return out

    @functools.wraps(real)
    def within(self: object, *args: object, **kwargs: object) -> object:
        global _stepping
        if not life.depth or _stepping or _get_ident() != life.main:
            return real(self, *args, **kwargs)
        _stepping = True
        try:
            out = real(self, *args, **kwargs)
        finally:
            _stepping = False
        leavings.steps += 1
        return out
    return _shielded(within, ghost, record, True)


def _place_of_closure(step: object) -> int:
    """Which argument of an optimizer's step it is; -1: none. Optimizers of the script's own may take others, or others before it."""
    for n, (name, parameter) in enumerate(list(inspect.signature(step).parameters.items())[1:]):
        if name == "closure" or parameter.kind is parameter.VAR_POSITIONAL:
            return n
    return -1


def _closure(args: tuple, kwargs: dict, at: int) -> object:
    found = kwargs["closure"] if "closure" in kwargs else args[at] if 0 <= at < len(args) else None
    return found if callable(found) else None


def _logged_closure(closure: object, results: list) -> object:
    def logged() -> object:
        life.log.put(_kinds["closure"])
        _outside(closure, results)
        return results[-1]
    return logged


def _outside(closure: object, results: list) -> None:
    points.held += 1
    life.leave()
    try:
        results.append(closure())
    finally:
        points.held -= 1
        life.enter(_getframe(1))


def _put_step(optimizer: object, out: object, results: object, spot: object) -> None:
    number, notes = ordinal(optimizer), _ordinals[id(optimizer)][2]  # steps, entries of its state, keys in them
    notes[0] += 1
    if len(optimizer.state) != notes[1] or notes[0] <= 3 or not notes[0] % 50:
        _put_state(optimizer, notes, spot)
    if out is not None:
        same = [i for i, result in enumerate(results) if out is result]
        number = (number, "is", same[0]) if same else (number, template(out))
    life.log.put_at(_kinds["step"], number, spot)
    life.steps += 1


def _put_state(optimizer: object, notes: list, spot: object) -> None:
    entries, keys = len(optimizer.state), _keys(optimizer)
    if [entries, keys] != notes[1:]:
        notes[1:] = entries, keys
        life.log.put_at(_kinds["optimizer state"], template(_by_number(optimizer)), spot)


def _keys(optimizer: object) -> int:
    return sum(len(s) if isinstance(s, dict) else 1 for s in optimizer.state.values())


def _by_number(optimizer: object) -> dict:
    numbers = {id(p): i for i, p in enumerate(params_of(optimizer))}
    return {numbers.get(id(key), key): dict(entry) if isinstance(entry, dict) else entry for key, entry in optimizer.state.items()}


def _ghost_step(optimizer: object, closure: object, results: list) -> object:
    import torch
    log, result = life.log, None
    while closure is not None and log.peek() == _kinds["closure"]:
        log.take(_kinds["closure"])
        with torch.enable_grad():
            _outside(closure, results)
    try:
        described = build(log.take(_kinds["optimizer state"])) if log.peek() == _kinds["optimizer state"] else {}
        what = log.take(_kinds["step"])
        number = what if type(what) is int else what[0]
        if ordinal(optimizer) != number:
            fate.diverged(words.OTHER_MODULE.format(then=number, now=ordinal(optimizer), type=type(optimizer).__name__))
        notes = _ordinals[id(optimizer)][2]
        notes[0] += 1
        if described:
            params = params_of(optimizer)
            for key, entry in described.items():
                optimizer.state[params[key] if type(key) is int else key] = entry
            notes[1:] = len(optimizer.state), _keys(optimizer)
        life.steps += 1
        digest = sys.modules.get(f"{__package__}.digest")
        if digest is not None:
            digest.count_ghost_step(optimizer)
        if type(what) is not int:
            result = results[what[2]] if what[1] == "is" else build(what[1])
    except Exception as e:
        fate.broke(e)
    return result


# -- common

def _fenced(what: str, put: object, *args: object) -> None:
    """Record what a call gave; a fault of ours is not the script's."""
    if not life.phase:
        return
    try:
        put(*args)
    except Exception as e:
        _not_put(what, e)


def _not_put(what: str, error: Exception) -> None:
    if isinstance(error, stand_ins.NotUnderstood):
        fate.refuse(words.UNKNOWN_OUTPUT.format(what=what, type=error))
    else:
        fate.broke(error)


def _put(kind: int, out: object, spot: object) -> None:
    life.log.put_at(kind, template(out), spot)


def _stand_in(value: object) -> object:
    try:
        return build(value)
    except Exception as e:
        fate.broke(e)


def _raised(error: BaseException) -> None:
    """An error leaves a shield. The script may catch it and go on; a ghost could not raise it, so no image is taken any more."""
    global raised
    if life.phase in (life.RECORD, life.TAIL):
        raised = type(error).__name__
        life.log.put(_kinds["raised"], raised)
    elif life.phase == life.GHOST and not isinstance(error, (KeyboardInterrupt, SystemExit)):
        fate.diverged(f"{type(error).__name__}: {error}")
