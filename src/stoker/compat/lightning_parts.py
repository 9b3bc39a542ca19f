"""Interpret what a LightningModule returns and defines:
optimizers and schedulers, loaders, steps with more or fewer arguments."""

from __future__ import annotations

import functools
import inspect
import sys
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch.optim import Optimizer

from stoker.compat.lightning_callbacks import Callback
from stoker.compat.lightning_module import LightningModule
from stoker.engine.errors import InvalidSpec

REPLACED = (
    "optimizer_step",
    "optimizer_zero_grad",
    "backward",
    "lr_scheduler_step",
    "configure_gradient_clipping",
    "tbptt_split_batch",
    "transfer_batch_to_device",
    "training_end",
    "training_step_end",
    "validation_step_end",
    "test_step_end",
    "configure_callbacks",
    "configure_model",
    "configure_sharded_model",
)  # parts of a loop that is Stoker's here
CALLED = {name for name in dir(Callback) if name.startswith("on_")}
TAKE_IT_OUT = "Remove the method, or write the loop with stoker.Engine."


def split(found: object) -> tuple[list[Optimizer], list[dict]]:
    """(optimizers, scheduler entries) from the result of configure_optimizers. Raises InvalidSpec."""
    if isinstance(found, Optimizer):
        return [found], []
    if isinstance(found, dict):
        if found.get("frequency", 1) != 1:
            raise InvalidSpec(
                "configure_optimizers: Stoker does not support `frequency` (optimizers that take turns).",
                hint="Set automatic_optimization = False, and step the optimizers in training_step.",
            )
        own = found.get("lr_scheduler")
        return [found["optimizer"]], [] if own is None else [_entry(own, found.get("monitor"))]
    if (
        isinstance(found, list | tuple)
        and len(found) == 2
        and all(isinstance(each, list | tuple) for each in found)
    ):
        return list(found[0]), [_entry(each, None) for each in found[1]]
    if isinstance(found, list | tuple) and found:
        parts = [split(each) for each in found]
        return [each for optimizers, _ in parts for each in optimizers], [
            each for _, entries in parts for each in entries
        ]
    raise InvalidSpec(
        f"configure_optimizers returned {type(found).__name__}: it must return an optimizer, a list of "
        "optimizers, "
        "or two lists (optimizers, schedulers)."
    )


def _entry(given: object, monitor: str | None) -> dict:
    own = dict(given) if isinstance(given, dict) else {"scheduler": given}
    return {"interval": "epoch", "frequency": 1, "monitor": monitor, **own}


def check(model: LightningModule) -> None:
    """Raises InvalidSpec for a module that cannot be trained here."""
    if not isinstance(model, LightningModule) or not hasattr(model, "training_step"):
        raise InvalidSpec(
            f"trainer.fit takes a LightningModule with a training_step, not a {type(model).__name__}."
        )
    for name in REPLACED:
        if hasattr(model, name):
            raise InvalidSpec(
                (
                    f"{type(model).__name__}.{name} replaces a part of Lightning's loop; Stoker's "
                    "Trainer never calls this method."
                ),
                hint=TAKE_IT_OUT,
            )
    check_hooks(model)


def check_hooks(thing: object) -> None:
    """Raises InvalidSpec if a module or a callback defines a hook that is never called here."""
    kind = type(thing)
    for name in dir(kind):
        if name.startswith("on_") and name not in CALLED and callable(getattr(kind, name)):
            raise InvalidSpec(
                f"{kind.__name__}.{name} is a hook that Stoker's Trainer does not call, so "
                "the hook would never run.",
                hint=TAKE_IT_OUT,
            )


def overrides(model: object, name: str) -> bool:
    """True if the module defines this method."""
    return callable(getattr(model, name, None))


def call_with(function: Callable[..., Any], *values: object) -> Any:
    """Call the function with as many of the values as it accepts."""
    plain = getattr(function, "__func__", function)
    return function(*values[:_places(plain) - (plain is not function)])


@functools.cache
def _places(function: Callable[..., Any]) -> int:
    """How many arguments by position it takes."""
    parameters = inspect.signature(function).parameters.values()
    if any(p.kind is p.VAR_POSITIONAL for p in parameters):
        return sys.maxsize
    return sum(p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD) for p in parameters)


def loader_of(source: object, *names: str) -> Iterable | None:
    """The first value that is not None from these methods or attributes."""
    for name in names:
        found = getattr(source, name, None)
        found = found() if callable(found) and not hasattr(found, "dataset") else found
        if found is not None:
            return found
    return None


def only_loader(loaders: Any, use: str = "evaluate") -> Iterable:
    """The loader, also from a list or dict with a single loader. Raises InvalidSpec for several loaders."""
    several = list(loaders.values()) if isinstance(loaders, dict) else loaders
    if isinstance(several, list | tuple) and several and hasattr(several[0], "dataset"):
        if len(several) > 1:
            raise InvalidSpec(
                f"Stoker's Trainer can {use} with only one loader, but the script passes {len(several)} "
                "loaders.",
                hint="To join the datasets: torch.utils.data.ConcatDataset",
            )
        return several[0]
    return loaders


def numbers(result: dict) -> dict[str, object]:
    """The entries that are single numbers."""
    single = {
        name: value
        for name, value in result.items()
        if isinstance(value, torch.Tensor) and value.numel() == 1
    }
    return {**{name: value for name, value in result.items() if isinstance(value, int | float)}, **single}
