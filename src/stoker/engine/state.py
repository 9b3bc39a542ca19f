"""The state of each kind of object that `setup` and `keep` take:
`collect` returns the state as a tree, `restore` restores it in place.

Optimizer state is stored by parameter name, so that a changed order of parameters is detected.
"""

from __future__ import annotations

from collections import deque
from typing import Any

import numpy
import torch
from torch import nn
from torch.optim import Optimizer
from torch.utils.data import DataLoader

from stoker.engine.errors import InvalidSpec, StateError

OTHER = "The model or optimizer has changed. STOKER_FRESH=1 starts from scratch and renames the old folder."


def kind_of(value: object, place: int) -> str:
    """"model", "optimizer", "loader" or "object". Raises InvalidSpec for an object without state."""
    if isinstance(value, torch.optim.LBFGS):
        raise InvalidSpec(
            (
                "LBFGS calls the model several times per step through a closure, which Engine cannot count "
                "or resume."
            ),
            hint="Use another optimizer, or write the script without Engine: stoker run resumes unmodified "
                 "scripts.",
        )
    if isinstance(value, nn.parallel.DistributedDataParallel | nn.DataParallel):
        raise InvalidSpec(
            f"Argument {place} of engine.setup must not be a {type(value).__name__}.",
            hint="Give engine.setup the plain model; Engine itself adds up the gradients of all ranks.",
        )
    if isinstance(value, nn.Module):
        return "model"
    if isinstance(value, Optimizer):
        return "optimizer"
    if isinstance(value, DataLoader):
        return "loader"
    if callable(getattr(value, "state_dict", None)) and callable(getattr(value, "load_state_dict", None)):
        return "object"
    raise InvalidSpec(
        (
            f"Argument {place} of engine.setup is a {type(value).__name__}: it must have state_dict and "
            "load_state_dict."
        ),
        hint="engine.setup takes objects with both methods, such as models, optimizers and loaders; "
        "engine.keep(name=value) takes plain values.",
    )


class ModelState:
    """Parameters and buffers (also those not in state_dict), frozen parameters,
    and modules in evaluation mode."""

    def __init__(self, name: str, model: nn.Module) -> None:
        self.name = name
        self.model = model

    def collect(self) -> dict:
        """A tree with the model's own tensors, not copies."""
        state = dict(self.model.state_dict())
        return {
            "state": state,
            "loose": self._loose(state),
            "frozen": [n for n, p in self.model.named_parameters() if not p.requires_grad],
            "eval": [n for n, m in self.model.named_modules() if not m.training],
        }

    def _loose(self, state: dict) -> dict[str, torch.Tensor]:
        return {n: b for n, b in self.model.named_buffers() if n not in state}

    def restore(self, tree: dict) -> None:
        """Raises StateError if the tree belongs to a different model;
        the message names the first difference."""
        now = dict(self.model.state_dict())
        _same_names(f"{self.name} ({type(self.model).__name__})", tree["state"], now)
        _same_names(f"{self.name}: buffers", tree["loose"], self._loose(now))
        self.model.load_state_dict(tree["state"])
        with torch.no_grad():
            for name, buffer in self._loose(now).items():
                buffer.copy_(tree["loose"][name])
        for name, parameter in self.model.named_parameters():
            parameter.requires_grad_(name not in tree["frozen"])
        for name, module in self.model.named_modules():
            module.training = name not in tree["eval"]


class OptimizerState:
    """Everything in an optimizer's state_dict, by parameter name. `names`:
    parameter -> name, for all models that are set up."""

    def __init__(self, name: str, optimizer: Optimizer, names: dict[torch.Tensor, str]) -> None:
        self.name = name
        self.optimizer = optimizer
        self.names = names

    def _groups(self) -> list[list[str]]:
        return [[self.names.get(p, f"group{n}.{place}") for place, p in enumerate(group["params"])]
                for n, group in enumerate(self.optimizer.param_groups)]

    def collect(self) -> dict:
        """A tree with the optimizer's own tensors, not copies."""
        body = self.optimizer.state_dict()
        groups = self._groups()
        by_number = [name for group in groups for name in group]
        options = [{k: v for k, v in group.items() if k != "params"} for group in body["param_groups"]]
        rest = {k: v for k, v in body.items() if k not in ("state", "param_groups")}
        return {
            "groups": groups,
            "options": options,
            "state": {by_number[n]: dict(s) for n, s in body["state"].items()},
            "rest": rest,
        }

    def restore(self, tree: dict) -> None:
        """Raises StateError if the parameters or their groups differ."""
        groups = self._groups()
        if len(groups) != len(tree["groups"]):
            raise StateError(
                f"{self.name} has {len(groups)} parameter groups; the checkpoint has {len(tree['groups'])}.",
                hint=OTHER,
            )
        for n, (now, then) in enumerate(zip(groups, tree["groups"], strict=True)):
            _same_names(f"{self.name} (group {n})", dict.fromkeys(then), dict.fromkeys(now))
        number = {name: n for n, name in enumerate(name for group in groups for name in group)}
        packed = [
            {**options, "params": [number[name] for name in group]}
            for options, group in zip(tree["options"], groups, strict=True)
        ]
        state = {number[name]: {k: _own(v) for k, v in each.items()} for name, each in tree["state"].items()}
        self.optimizer.load_state_dict({**tree["rest"], "state": state, "param_groups": packed})
        self._exact_kinds(
            tree,
            {
                name: p
                for group, of in zip(groups, self.optimizer.param_groups, strict=True)
                for name, p in zip(group, of["params"], strict=True)
            },
        )

    def _exact_kinds(self, tree: dict, parameters: dict[str, torch.Tensor]) -> None:
        """load_state_dict casts state to the dtype of its parameter: put back the dtype that was saved."""
        for name, saved in tree["state"].items():
            state = self.optimizer.state[parameters[name]]
            for key, value in saved.items():
                now = state.get(key)
                if (
                    isinstance(value, torch.Tensor)
                    and isinstance(now, torch.Tensor)
                    and now.dtype != value.dtype
                ):
                    state[key] = _own(value).to(now.device)


class ObjectState:
    """Any object with state_dict and load_state_dict:
    schedulers, metrics, samplers, the user's own objects."""

    def __init__(self, name: str, value: Any) -> None:
        self.name = name
        self.value = value

    def collect(self) -> Any:
        """Its state_dict."""
        return self.value.state_dict()

    def restore(self, tree: Any) -> None:
        """Restore the state; tensors are copies that the object may keep."""
        self.value.load_state_dict(_own(tree))


def _own(value: Any) -> Any:
    """The same nest with tensors of its own, so that an object may change them."""
    if isinstance(value, torch.Tensor):
        return value.clone()
    if isinstance(value, dict):
        copied = {k: _own(v) for k, v in value.items()}
        return copied if type(value) is dict else type(value)(copied)
    if type(value) in (list, tuple, set, frozenset):
        return type(value)(_own(v) for v in value)
    return value


class KeptValue:
    """A value given to `keep`. Containers and arrays are restored in place; `keep` returns plain values."""

    def __init__(self, name: str, value: Any) -> None:
        self.name = name
        self.value = value

    def collect(self) -> Any:
        """Its state: state_dict if it has this method, otherwise the value itself."""
        return self.value.state_dict() if hasattr(self.value, "state_dict") else self.value

    def restore(self, tree: Any) -> None:
        """Restore the saved state in the object; a plain value replaces the current value."""
        mine = _own(tree)
        if hasattr(self.value, "load_state_dict"):
            self.value.load_state_dict(mine)
        elif isinstance(self.value, list | deque):
            self.value.clear()
            self.value.extend(mine)
        elif isinstance(self.value, dict | set):
            self.value.clear()
            self.value.update(mine)
        elif isinstance(self.value, torch.Tensor):
            with torch.no_grad():
                self.value.copy_(mine)
        elif isinstance(self.value, numpy.ndarray):
            self.value[...] = mine
        else:
            self.value = mine


def _same_names(what: str, then: dict, now: dict) -> None:
    for name in then:
        if name not in now:
            raise StateError(f"{what} has no {name!r}, which the checkpoint has.", hint=OTHER)
    for name, value in now.items():
        if name not in then:
            raise StateError(f"{what} has {name!r}, which the checkpoint does not have.", hint=OTHER)
        if isinstance(value, torch.Tensor) and value.shape != then[name].shape:
            raise StateError(
                (
                    f"{what}: {name!r} has shape {tuple(value.shape)}; in the checkpoint "
                    f"{tuple(then[name].shape)}."
                ),
                hint=OTHER,
            )
    if list(then) != list(now):
        first = next((a, b) for a, b in zip(then, now, strict=True) if a != b)
        raise StateError(
            (
                f"{what} has the entries of the checkpoint in a different order: {first[1]!r} is at the "
                f"place where the checkpoint has {first[0]!r}."
            ),
            hint=OTHER,
        )
