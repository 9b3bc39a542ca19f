"""What the shields share: the kinds of their events, the numbers of modules and optimizers,
and what becomes of errors."""

from __future__ import annotations

import sys
import weakref

from ... import looks
from ...looks import isinstance
from ..core import outcome, phases, words
from . import gradients, stand_ins

_identity = phases.identity
kinds: dict = {}  # name -> kind of event
raised = ""  # an error that left a shield and that the script may have caught: no image is right after it
count = 0  # of modules and optimizers that have a number
_UNKNOWN = (-1, lambda: _UNKNOWN, None)
_ordinals: dict = {}  # identity of a module or optimizer -> what `known` gives


def name_kinds() -> None:
    """Once there is a log. The same numbers in each life."""
    for name in ("module", "backward", "loss", "grad", "step", "optimizer state", "raised"):
        kinds[name] = phases.log.kind(name)
    kinds["closure"] = phases.log.kind("closure", placed=False)


def known(thing: object) -> tuple:
    """(number of a module or optimizer, in order of first use: the same in each life;
    a weak reference to it; notes about it)."""
    global count
    found = _ordinals.get(_identity(thing), _UNKNOWN)
    if found[1]() is thing:
        return found
    found = _ordinals[_identity(thing)] = (count, weakref.ref(thing), [0, 0, 0])
    count += 1
    if "param_groups" in looks.attributes(thing):
        gradients.know(params_of(thing))
    else:
        gradients.know([parameter for _, parameter in looks.named_parameters(thing)])
        _refuse_compiled(thing)
    return found


def _refuse_compiled(module: object) -> None:
    """Its calls are of no event that is known, and what it keeps is seen by nobody."""
    compiled = sys.modules["torch"].jit.ScriptModule
    if phases.phase and any(isinstance(each, compiled) for _, each in looks.named_modules(module)):
        outcome.refuse(words.JIT)


def ordinal(thing: object) -> int:
    return known(thing)[0]


def params_of(optimizer: object) -> list:
    return [p for group in looks.attributes(optimizer)["param_groups"] for p in group["params"]]


def modules() -> list:
    """(number, module) of those that the script has called, as far as they are still there."""
    found = ((number, reference()) for number, reference, _ in _ordinals.values())
    return sorted(
        ((number, each) for number, each in found if isinstance(each, stand_ins.torch_module())),
        key=lambda pair: pair[0],
    )


def fenced(what: str, put: object, *args: object) -> None:
    """Record what a call gave; a fault of ours is not the script's."""
    if not phases.phase:
        return
    try:
        put(*args)
    except Exception as e:
        not_put(what, e)


def not_put(what: str, error: Exception) -> None:
    if isinstance(error, stand_ins.NotUnderstood):
        outcome.refuse(words.UNKNOWN_OUTPUT.format(what=what, type=error))
    else:
        outcome.broke(error)


def leaves_by_error(error: BaseException) -> None:
    """An error leaves a shield. The script may catch it and go on;
    a ghost could not raise it, so no image is taken any more."""
    global raised
    if phases.phase in (phases.RECORD, phases.TAIL):
        raised = type(error).__name__
        phases.log.put(kinds["raised"], raised)
    elif phases.phase == phases.GHOST and not isinstance(error, (KeyboardInterrupt, SystemExit)):
        outcome.diverged(f"{type(error).__name__}: {error}")
