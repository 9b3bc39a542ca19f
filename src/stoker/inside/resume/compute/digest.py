"""A fingerprint of what training made: parameters, buffers and optimizer state, at the end or at a named
step. For `verify-resume`, which compares runs that were killed with runs that were not;
it works with and without a recording."""

from __future__ import annotations

import atexit
import functools
import hashlib
import os
import time

from ...entry import by_hand, unnumbered
from ...looks import isinstance
from ..core import phases

_optimizers: list = []  # in the order of their first step; held, so that the end still finds them
_modules: list = []
# optimizers whose step goes on: one of a script's own may call that of another, and both are one step
_within: list = []
_path = ""
_stop_step = 0
_stop_s = 0.0
_begun = time.monotonic()
_steps = 0
_backwards = by_hand.Backwards()


def install(_process: object) -> None:
    """From the environment: STOKER_DIGEST is the file to write, STOKER_DIGEST_AT is `end`, a step ("500"), or
    a time ("60s"); at a step or a time the process ends there, with exit code 0, as if its power were cut."""
    global _path, _stop_step, _stop_s
    _path = os.environ["STOKER_DIGEST"]
    phases.on_ghost_step.append(_count_ghost_steps)
    phases.also_held.append(_held)
    at = os.environ.get("STOKER_DIGEST_AT", "end")
    _stop_step = int(at) if at.isdigit() else 0
    _stop_s = float(at[:-1]) if at.endswith("s") else 0.0
    from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook
    unnumbered.register(register_optimizer_step_pre_hook, _begins)
    unnumbered.register(register_optimizer_step_post_hook, _ends)
    import torch
    torch.autograd.backward = _counted(torch.autograd.backward)
    pid = os.getpid()
    atexit.register(lambda: write() if os.getpid() == pid else None)


def write(early: bool = False) -> None:
    """The fingerprint so far, as JSON: `{"steps": int, "ended": bool, "tensors": int, "digest": hex}`;
    whole or absent; nothing for a process that made no step."""
    import json

    if not _steps:
        return
    before, phases.depth = phases.depth, 1  # what is read out of tensors here is no event of the script's
    try:
        names = sorted(_tensors())
    finally:
        phases.depth = before
    whole = hashlib.blake2b(
        "\n".join(f"{name} {digest}" for name, digest in names).encode(), digest_size=16
    ).hexdigest()
    with open(f"{_path}.new", "w", encoding="ascii") as f:
        json.dump({"steps": _steps, "ended": not early, "tensors": len(names), "digest": whole}, f)
    os.replace(f"{_path}.new", _path)


def _held() -> list:
    """What is kept alive for the end, in an order that all lives share;
    a walk over everything that is reachable begins here too."""
    return [*_optimizers, *_modules]


def _count_ghost_steps(optimizer: object, made: int) -> None:
    """Steps that were skipped in the ghost phase count as if they were made; without an optimizer:
    within the call of a module."""
    global _steps
    if optimizer is None:
        _steps += made
    else:
        _stepped(optimizer)


def _begins(optimizer: object, args: tuple, kwargs: dict) -> None:
    same = [n for n, each in enumerate(_within) if each is optimizer]
    del _within[same[0] if same else len(_within):]  # that step raised
    _within.append(optimizer)


def _ends(optimizer: object, args: tuple, kwargs: dict) -> None:
    while _within and _within.pop() is not optimizer:
        pass
    if not _within:
        _stepped(optimizer)


def _stepped(optimizer: object) -> None:
    global _steps
    if optimizer is None and _steps == 0:
        _remember_modules(None)
    elif optimizer is not None and not any(each is optimizer for each in _optimizers):
        import torch
        held = [each for each in vars(optimizer).values() if isinstance(each, torch.optim.Optimizer)]
        _optimizers.extend(
            each for each in (optimizer, *held) if not any(each is known for known in _optimizers)
        )
        _remember_modules(optimizer)
    _steps += 1
    if (_stop_step and _steps >= _stop_step) or (_stop_s and time.monotonic() - _begun >= _stop_s):
        if phases.phase == phases.GHOST:
            return
        write(early=True)
        import sys
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
        os._exit(0)


def _counted(real: object) -> object:
    """A backward of a script that has no optimizer is a step: it changes its weights by hand."""
    @functools.wraps(real)
    def backward(*args: object, **kwargs: object) -> object:
        out = real(*args, **kwargs)
        if _backwards.is_step(_steps > _backwards.steps):
            _stepped(None)
        return out
    return backward


def _remember_modules(optimizer: object) -> None:
    import gc

    import torch
    if optimizer is None:
        modules = [each for each in gc.get_objects() if issubclass(type(each), torch.nn.Module)]
        params = [p for each in modules for p in (each.__dict__.get("_parameters") or {}).values()]
    else:
        params = [p for group in optimizer.param_groups for p in group["params"]]
    order = {id(p): n for n, p in enumerate(params)}
    gc.collect()  # what waits to be collected does so in one life longer than in another
    found = []
    for each in gc.get_objects():
        if issubclass(type(each), torch.nn.Module) and not any(each is m for m in _modules):
            theirs, buffers = each.__dict__.get("_parameters") or {}, each.__dict__.get("_buffers") or {}
            first = min((order[id(p)] for p in theirs.values() if id(p) in order), default=len(order))
            if buffers or first < len(order):
                shapes = [
                    (name, *t.size())
                    for held in (theirs, buffers)
                    for name, t in held.items()
                    if t is not None
                ]
                found.append(((first, type(each).__name__, repr(shapes)), each))
    _modules.extend(each for _, each in sorted(found, key=lambda pair: pair[0]))


def _tensors() -> list[tuple[str, str]]:
    found = []
    for module in _modules:
        held = {**module.__dict__["_parameters"], **module.__dict__["_buffers"]}
        found += [
            (f"{type(module).__name__}.{name}", _hash(tensor))
            for name, tensor in held.items()
            if tensor is not None
        ]
    for n, optimizer in enumerate(_optimizers):
        params = [p for group in optimizer.param_groups for p in group["params"]]
        for i, param in enumerate(params):
            found.append((f"optimizer {n} parameter {i}", _hash(param)))
            found += [
                (f"optimizer {n} state {i} {key}", _hash(value))
                for key, value in optimizer.state.get(param, {}).items()
            ]
    return found


def _hash(value: object) -> str:
    import torch
    if not isinstance(value, torch.Tensor) or torch.nn.parameter.is_lazy(value):
        return repr(value)
    flat = (
        value.detach().cpu().contiguous().reshape(-1).view(torch.uint8)
        if value.layout == torch.strided
        else value.detach().to_dense()
    )
    return (
        hashlib.blake2b(memoryview(flat.numpy()), digest_size=16).hexdigest()
        + f" {value.dtype} {tuple(value.shape)}"
    )
