"""`save_checkpoint` and `load_checkpoint` for loops without an Engine.
Each call succeeds completely or changes nothing.

    first = stoker.load_checkpoint("checkpoint", 0, model, optimizer, schedule=schedule)
    for epoch in range(first, 10):
        ...
        stoker.save_checkpoint("checkpoint", epoch, model, optimizer, schedule=schedule)

The path is a folder of checkpoints as Engine writes them:
complete or absent, with checksums, in safetensors and JSON, never pickle.
"""

from __future__ import annotations

import os
import random
from collections import deque
from collections.abc import Sequence
from pathlib import Path
from typing import Any, TypeAlias

import numpy
import torch
from torch import nn
from torch.optim import Optimizer

from stoker.engine import checkpoint, safefile, tree
from stoker.engine.errors import InvalidSpec, StateError
from stoker.engine.progress import say
from stoker.engine.state import KeptValue, ModelState, ObjectState, OptimizerState

KEPT = 2  # checkpoints in the folder: a damaged one leaves the one before
CONTAINERS = (list, dict, set, deque, torch.Tensor, numpy.ndarray)
Modules: TypeAlias = nn.Module | Sequence[nn.Module]
Optimizers: TypeAlias = Optimizer | Sequence[Optimizer]
States: TypeAlias = dict[str, ModelState | OptimizerState | ObjectState | KeptValue]


def save_checkpoint(
    path: str | Path,
    epoch: int,
    modules: Modules,
    optimizers: Optimizers = (),
    safe_replacement: bool = True,
    **more: object,
) -> None:
    """Save a checkpoint with these objects, and with the random states of torch, random and numpy.
    If saving fails, the previous checkpoint does not change.

    path: the folder for checkpoints.
    epoch: the number of the epoch that has just ended.
    modules: one module, or a list of modules.
    optimizers: one optimizer, or a list of optimizers.
    more: schedulers and other objects with state_dict, and lists, dicts, sets, tensors and arrays. To save a
        number, put it into a dict.
    safe_replacement: no effect, because Stoker always replaces a checkpoint safely.
    With several ranks, only rank 0 writes.
    Raises InvalidSpec for an object that a checkpoint cannot contain.
    Raises StateError if Stoker cannot write the checkpoint.
    """
    if not safe_replacement:
        say("safe_replacement=False has no effect: save_checkpoint always replaces a checkpoint safely")
    states = _states(modules, optimizers, more)
    root = _folder(path)
    if _other_rank():
        return
    tensors: dict[str, torch.Tensor] = {}
    try:
        body = {name: tree.encode(state.collect(), tensors, name) for name, state in states.items()}
    except tree.Unsaveable as e:
        raise InvalidSpec(f"{e.args[0]} has the type {e.args[1]}, which a checkpoint cannot store.") from None
    odd = next((name for name, tensor in tensors.items() if not safefile.known(tensor)), None)
    if odd is not None:
        raise InvalidSpec(
            f"{odd} is a tensor of {tensors[odd].dtype}, {tensors[odd].layout}, which a checkpoint cannot "
            "store."
        )
    try:
        root.mkdir(parents=True, exist_ok=True)
        checkpoint.remove_unfinished(root)
        doc = {"step": checkpoint.following(root), "epoch": epoch, "objects": body}
        checkpoint.write(root, doc, {name: t.cpu().contiguous() for name, t in tensors.items()})
    except OSError as e:
        raise StateError(
            f"The checkpoint of epoch {epoch} could not be written to {root} ({e.strerror or e}).",
            hint="The previous checkpoint is complete.",
        ) from e
    checkpoint.prune(root, KEPT, None)


def load_checkpoint(
    path: str | Path,
    default_epoch: int,
    modules: Modules,
    optimizers: Optimizers = (),
    verbose: bool = True,
    **more: object,
) -> int:
    """Restore the objects from the checkpoint that `save_checkpoint` wrote. Returns the number of the epoch
    after the saved epoch. If there is no checkpoint, returns `default_epoch`.

    verbose: True prints a message that names the loaded checkpoint, or says that there is no checkpoint.

    The other arguments have the same meaning as in `save_checkpoint`.
    If a checkpoint is damaged, this function prints a message, and uses the previous checkpoint.
    If the checkpoint contains different objects, this function raises StateError and changes nothing.
    """
    states = _states(modules, optimizers, more)
    root = _folder(path)
    saved, skipped = checkpoint.newest(root)
    for sentence in skipped:
        say(sentence)
    if saved is None:
        if verbose:
            say(f"{root} has no checkpoint: beginning with epoch {default_epoch}")
        return default_epoch
    body = saved.doc["objects"]
    if not _other_rank():
        checkpoint.correct_latest(saved)
    missing = [name for name in states if name not in body] + [name for name in body if name not in states]
    if missing:
        only = "the checkpoint has" if missing[0] in body else "the arguments have"
        raise StateError(f"The checkpoint {saved.path} and the arguments of load_checkpoint do not agree: "
                         f"only {only} {missing[0]}.")
    _all_or_nothing(
        states, {name: tree.decode(each, saved.tensors, _home(states[name])) for name, each in body.items()}
    )
    if verbose:
        say(f"loaded epoch {saved.doc['epoch']} from {saved.path}")
    return saved.doc["epoch"] + 1


def _home(state: object) -> torch.device | None:
    """Where tensors that were on a GPU go.
    Models and optimizers copy theirs from the CPU to their own place."""
    copies = isinstance(state, ModelState | OptimizerState) or not torch.cuda.is_available()
    return None if copies else torch.device("cuda", torch.cuda.current_device())


def _all_or_nothing(states: States, values: dict[str, Any]) -> None:
    """Restore each; after a failure everything is as it was."""
    tensors: dict[str, torch.Tensor] = {}
    before = {name: tree.encode(state.collect(), tensors, name) for name, state in states.items()}
    kept = {name: t.clone() for name, t in tensors.items()}
    try:
        for name, state in states.items():
            state.restore(values[name])
    except Exception:
        for name, state in states.items():
            state.restore(tree.decode(before[name], kept))
        raise


class _Random:
    """The generators of torch (CPU, and this process's GPU), random and numpy."""

    def state_dict(self) -> dict:
        gpu = torch.cuda.get_rng_state() if torch.cuda.is_available() else None
        return {
            "torch": torch.get_rng_state(),
            "random": random.getstate(),
            "numpy": numpy.random.get_state(),
            "gpu": gpu,
        }

    def load_state_dict(self, state: dict) -> None:
        torch.set_rng_state(state["torch"])
        random.setstate(state["random"])
        numpy.random.set_state(state["numpy"])
        if state["gpu"] is not None and torch.cuda.is_available():
            torch.cuda.set_rng_state(state["gpu"])


def _states(modules: Modules, optimizers: Optimizers, more: dict[str, object]) -> States:
    """Name -> what collects and restores it."""
    models = [modules] if isinstance(modules, nn.Module) else list(modules)
    movers = [optimizers] if isinstance(optimizers, Optimizer) else list(optimizers)
    names: dict[torch.Tensor, str] = {}
    states: States = {}
    for n, model in enumerate(models, 1):
        if not isinstance(model, nn.Module):
            raise InvalidSpec(
                f"The argument `modules` contains a {type(model).__name__}, but takes one torch module or "
                "a list of torch modules."
            )
        names |= {p: f"module{n}.{name}" for name, p in model.named_parameters()}
        states[f"module{n}"] = ModelState(f"module{n}", model)
    for n, optimizer in enumerate(movers, 1):
        if not isinstance(optimizer, Optimizer):
            raise InvalidSpec(
                f"The argument `optimizers` contains a {type(optimizer).__name__}, but takes one torch "
                "optimizer or a list of torch optimizers."
            )
        states[f"optimizer{n}"] = OptimizerState(f"optimizer{n}", optimizer, names)
    for name, value in more.items():
        if callable(getattr(value, "state_dict", None)) and callable(getattr(value, "load_state_dict", None)):
            states[f"more.{name}"] = ObjectState(name, value)
        elif isinstance(value, CONTAINERS):
            states[f"more.{name}"] = KeptValue(name, value)
        else:
            raise InvalidSpec(f"{name} is a {type(value).__name__}, which load_checkpoint cannot change.",
                              hint=f"Put the value into a dict: extra={{'{name}': {name}}}.")
    return {**states, "random": ObjectState("random", _Random())}


def _other_rank() -> bool:
    """Is the folder written by another process?"""
    return os.environ.get("RANK", "0") != "0"


def _folder(path: str | Path) -> Path:
    root = Path(path)
    if root.exists() and not root.is_dir():
        raise StateError(
            f"{root} is a file; checkpoints go into a folder.",
            hint="Name another path, or move the file away.",
        )
    return root
