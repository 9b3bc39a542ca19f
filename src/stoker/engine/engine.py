"""`Engine`: a plain PyTorch loop that resumes by itself, on one rank or several.

    engine = stoker.Engine(seed=1, accumulate=4, clip=1.0)
    model, opt, sched, train = engine.setup(model, opt, sched, train)
    for epoch in engine.epochs(14):
        for x, y in engine.batches(train):
            loss = F.nll_loss(model(x), y)
            engine.step(loss)
            engine.log(loss=loss)
        sched.step()
"""

from __future__ import annotations

import builtins
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from time import perf_counter
from typing import Any

import torch
from torch import nn
from torch.optim import Optimizer

from stoker.engine import data, seeds
from stoker.engine.config import config
from stoker.engine.core import Core
from stoker.engine.errors import InvalidSpec
from stoker.engine.loops import Batches, Epochs

OUTSIDE = "Call these methods inside `for batch in engine.batches(loader)`."


class Engine:
    """Runs a training and saves it. Arguments, all by keyword: see `stoker.engine.config.Config`.

    Raises InvalidSpec (bad arguments), StateError (the folder is in use,
    or its checkpoint belongs to a different training).
    """

    def __init__(self, **arguments: object) -> None:
        self._core = Core(config(arguments))

    @property
    def device(self) -> torch.device:
        """The device of this rank."""
        return self._core.device

    @property
    def steps(self) -> int:
        """Optimizer steps so far, over all starts of the run.

        With several optimizers: the number of micro-batches in which at least one optimizer stepped."""
        return self._core.steps

    @property
    def rank(self) -> int:
        """The number of this process, from 0."""
        return self._core.world.rank

    @property
    def ranks(self) -> int:
        """The number of processes that train together."""
        return self._core.world.size

    def setup(self, *things: object, compile: bool = False) -> Any:  # one object, or a tuple
        """Move models to the device, register all objects, and restore them when the run resumes.

        things: models, optimizers, schedulers, DataLoaders, anything with state_dict and load_state_dict,
            in any order.
        compile: compile the models in place.
        Returns the same objects in the same order (a single object without a tuple).
        Raises InvalidSpec for other types, StateError if the checkpoint has different objects.
        """
        core = self._core
        models = [thing for thing in things if isinstance(thing, nn.Module)]
        for model in models:
            if not core.objects.knows(model):
                core.prepare(model, compile)
        if models and not any(True for m in models for _ in m.parameters()) and not core.objects.models:
            raise InvalidSpec(f"{type(models[0]).__name__} has no parameters: there is nothing to train.",
                              hint="Lazy layers need one forward before setup.")
        core.remember(things)
        return things[0] if len(things) == 1 else things

    def epochs(self, count: int, name: str | None = None) -> Epochs:
        """Iterate over epochs: `for epoch in engine.epochs(14)` yields 0 to 13, beginning with the epoch that
        the run has reached.

        name: name of the loop in checkpoints; by default its number in the script.
        Raises InvalidSpec for a negative count.
        """
        if not isinstance(count, int) or count < 0:
            raise InvalidSpec(
                f"engine.epochs({count!r}): the number of epochs must be an integer of at least 0."
            )
        return Epochs(self._core, count, name)

    def batches(self, source: Iterable) -> Batches:
        """Iterate over micro-batches of this rank, on the device, from the position of the run:
        `for batch in engine.batches(loader)`.

        source: a DataLoader, a list of batches, or any iterable of batches.
        The seed and the epoch determine the sample order.
        The position of a sample in the epoch determines its random values.
        Inside `engine.eval`, every sample appears exactly once over all ranks.
        A resumed epoch begins at the saved position, where `enumerate` counts from 0 again.
        To count steps, use `engine.steps`.
        """
        return Batches(self._core, self._core.objects.feeds.get(id(source)) or data.feed(source))

    def step(self, loss: torch.Tensor, weight: float | None = None) -> bool:
        """Run backward; at the end of an accumulation, also step all optimizers.
        Returns True if the optimizers stepped.

        loss: a scalar, the mean over the micro-batch; with `weight`, the sum over `weight` units, for
            example tokens.
        Each micro-batch counts by its size or weight, so the step equals the step of one large batch.
        Raises StateError if the loss is not finite.
        """
        optimizers = self._core.objects.optimizers
        self._core.gradients.add(loss, optimizers, self._micro(), weight)
        return self._update(optimizers)

    def backward(
        self,
        loss: torch.Tensor,
        *optimizers: Optimizer,
        weight: float | None = None,
        retain_graph: bool = False,
    ) -> None:
        """Add the gradients of `loss`, as `step` does.
        With `optimizers`, only for the parameters of these optimizers (for GANs)."""
        into = list(optimizers) or self._core.objects.optimizers
        self._core.gradients.add(loss, into, self._micro(), weight, only=bool(optimizers), again=retain_graph)

    def update(self, *optimizers: Optimizer) -> bool:
        """At the end of an accumulation, step these optimizers and clear their gradients.
        Default: all optimizers. Returns True if the optimizers stepped."""
        return self._update(list(optimizers) or self._core.objects.optimizers)

    def _micro(self) -> data.Micro:
        if self._core.micro is None:
            raise InvalidSpec("engine.step, backward and update need a batch.", hint=OUTSIDE)
        return self._core.micro

    def _update(self, optimizers: list[Optimizer]) -> bool:
        micro = self._micro()
        if not micro.last:
            return False
        self._core.apply(optimizers)
        return True

    def log(self, **values: object) -> None:
        """Write metrics to metrics.jsonl, with step and epoch. Never waits for a GPU.
        Only the values of rank 0 are written."""
        if self._core.metrics is not None and not self._core.resuming:
            self._core.metrics.add(self._core.steps, self._core.epoch, values)

    @contextmanager
    def eval(self, *models: nn.Module) -> Iterator[None]:
        """Evaluate inside `with engine.eval(model):`, in evaluation mode and without gradients.
        Default: all models.

        Random numbers drawn inside do not change the random numbers outside.
        """
        began, before = perf_counter(), self._core.spent.total()
        modules = [m for model in models or self._core.objects.models for m in model.modules()]
        modes = [m.training for m in modules]
        for module in modules:
            module.training = False
        self._core.evaluating += 1
        try:
            with seeds.bubble(self._core.device.type == "cuda"), torch.no_grad():
                yield
        finally:
            self._core.evaluating -= 1
            for module, mode in zip(modules, modes, strict=True):
                module.training = mode
            self._core.spent.evaluation += perf_counter() - began - (self._core.spent.total() - before)

    def average(self, value: float | torch.Tensor, weight: float = 1.0) -> float:
        """Return the mean of `value` over all ranks, weighted by `weight` (a number of samples).
        Call on every rank, after a loop."""
        if self._core.world.size > 1 and self._core.evaluating and self._core.inside_batches():
            raise InvalidSpec(
                (
                    "engine.average cannot work inside an evaluation loop: "
                    "the ranks have different numbers of batches."
                ),
                hint="Sum in the loop, then call engine.average(total / count, weight=count).",
            )
        total, weights = self._core.world.add([float(value) * float(weight), float(weight)])
        return total / weights if weights else float("nan")

    def save(self, score: float | None = None) -> None:
        """Save a checkpoint soon: at the next batch after an optimizer step, or at the next epoch.

        score: larger is better. The engine keeps the checkpoint with the best score in addition to the
            newest checkpoint; `export(best=True)` reads the best checkpoint.
        """
        if not self._core.resuming:
            self._core.keeper.want(None if score is None else float(score))

    def keep(self, **values: object) -> Any:  # one value, or a tuple
        """Add values to the checkpoints: `best = engine.keep(best=max(best, accuracy))`.
        Returns the value; for several values, a tuple.

        Lists, dicts, sets, tensors, arrays and objects with state_dict are restored in place.
        For numbers and text, `keep` returns the saved value until a
        resumed run has reached its saved position.
        """
        found = tuple(self._core.kept_value(name, value) for name, value in values.items())
        return found[0] if len(found) == 1 else found

    def print(self, *values: object, **options: object) -> None:
        """Print on rank 0 only. Prints nothing until a resumed run has reached its saved position."""
        if self._core.world.rank == 0 and not self._core.resuming:
            self._core.progress.clear()
            how: dict[str, Any] = {"flush": True, **options}
            builtins.print(*values, **how)

    def barrier(self) -> None:
        """Wait until every rank has reached this call."""
        self._core.world.barrier()

    def export(self, path: str | Path, model: nn.Module | None = None, best: bool = False) -> Path:
        """Write a model's weights as a safetensors file, atomically, on rank 0. Returns the path.

        model: the model to write; by default the first one given to setup.
        best: write the weights of the checkpoint with the best score instead of the current weights.
        Raises StateError if no checkpoint has a score, InvalidSpec for a model that was not passed to setup.
        """
        return self._core.write_weights(
            Path(path), model if model is not None else self._core.objects.models[0], best
        )
