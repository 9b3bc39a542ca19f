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
    """Runs a training and saves it. `stoker.engine.config.Config` describes the keyword arguments.

    Raises InvalidSpec (bad arguments), StateError (the folder is in use,
    or its checkpoint belongs to a different training).
    """

    def __init__(self, **arguments: object) -> None:
        self._core = Core(config(arguments))

    @property
    def device(self) -> torch.device:
        """The device on which this rank trains."""
        return self._core.device

    @property
    def steps(self) -> int:
        """The number of optimizer steps so far, over all starts of the run.

        With several optimizers, this is the number of micro-batches in which at least one optimizer made a
        step."""
        return self._core.steps

    @property
    def rank(self) -> int:
        """The rank of this process. The first rank is 0."""
        return self._core.world.rank

    @property
    def ranks(self) -> int:
        """The number of processes that train together."""
        return self._core.world.size

    def setup(self, *things: object, compile: bool = False) -> Any:  # one object, or a tuple
        """Move models to the device, register all objects, and restore them when the run resumes.

        things: models, optimizers, schedulers, DataLoaders, and other objects with state_dict and
            load_state_dict, in any order.
        compile: True compiles the models in place.
        Returns the same objects as a tuple, in the same order. For a single object, returns the object.
        Raises InvalidSpec for an object of another type.
        Raises StateError if the checkpoint contains different objects.
        """
        core = self._core
        models = [thing for thing in things if isinstance(thing, nn.Module)]
        for model in models:
            if not core.objects.knows(model):
                core.prepare(model, compile)
        if models and not any(True for m in models for _ in m.parameters()) and not core.objects.models:
            raise InvalidSpec(f"{type(models[0]).__name__} has no parameters: there is nothing to train.",
                              hint="Lazy layers need one forward pass before engine.setup.")
        core.remember(things)
        return things[0] if len(things) == 1 else things

    def epochs(self, count: int, name: str | None = None) -> Epochs:
        """Iterate over epochs. `for epoch in engine.epochs(14)` yields the numbers 0 to 13. A resumed run
        begins with the epoch that the run has reached.

        name: the name of this loop in checkpoints. The default is the number of the loop in the script.
        Raises InvalidSpec for a negative count.
        """
        if not isinstance(count, int) or count < 0:
            raise InvalidSpec(
                f"engine.epochs({count!r}): the number of epochs must be an integer of at least 0."
            )
        return Epochs(self._core, count, name)

    def batches(self, source: Iterable) -> Batches:
        """Iterate over the micro-batches of this rank: `for batch in engine.batches(loader)`. The Engine
        moves each batch to the device.

        source: a DataLoader, a list of batches, or another iterable of batches.
        The seed and the epoch determine the order of the samples.
        The position of a sample in the epoch determines the random values of the sample.
        Inside `engine.eval`, each sample goes to exactly one rank.
        A resumed epoch begins at the saved position. In this epoch, `enumerate` starts from 0 at the saved
        position, so use `engine.steps` to count steps.
        """
        return Batches(self._core, self._core.objects.feeds.get(id(source)) or data.feed(source))

    def step(self, loss: torch.Tensor, weight: float | None = None) -> bool:
        """Run backward for one micro-batch. For the last micro-batch of an optimizer step, `engine.step` also
        calls `step` of all optimizers.
        Returns True if the optimizers made a step.

        loss: a scalar, the mean loss over the micro-batch. If you pass `weight`, `loss` is a sum of losses.
        weight: the number of losses in this sum, for example the number of tokens.
        The Engine weights each micro-batch by its size or by `weight`. So an optimizer step over several
        micro-batches has the same result as a step over one large batch.
        With `Engine(nan="stop")`, raises StateError if the loss or a gradient is not finite.
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
        """Run backward for one micro-batch, without a step of the optimizers.
        With `optimizers`, compute gradients only for the parameters of these optimizers (for GANs)."""
        into = list(optimizers) or self._core.objects.optimizers
        self._core.gradients.add(loss, into, self._micro(), weight, only=bool(optimizers), again=retain_graph)

    def update(self, *optimizers: Optimizer) -> bool:
        """Call `step` of these optimizers and clear their gradients. Without arguments, do this for all
        optimizers. If more micro-batches of the same optimizer step follow, `update` does nothing. Returns
        True if the optimizers made a step."""
        return self._update(list(optimizers) or self._core.objects.optimizers)

    def _micro(self) -> data.Micro:
        if self._core.micro is None:
            raise InvalidSpec("engine.step, engine.backward and engine.update need a batch.", hint=OUTSIDE)
        return self._core.micro

    def _update(self, optimizers: list[Optimizer]) -> bool:
        micro = self._micro()
        if not micro.last:
            return False
        self._core.apply(optimizers)
        return True

    def log(self, **values: object) -> None:
        """Write metrics to metrics.jsonl, with the step and the epoch. This call never waits for a GPU.
        Only rank 0 writes its values."""
        if self._core.metrics is not None and not self._core.resuming:
            self._core.metrics.add(self._core.steps, self._core.epoch, values)

    @contextmanager
    def eval(self, *models: nn.Module) -> Iterator[None]:
        """Evaluate models inside `with engine.eval(model):`. Inside this block, the models are in evaluation
        mode, and torch computes no gradients.
        Without arguments, all models are in evaluation mode.

        Random numbers that the script draws inside the block do not change later random numbers.
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
        """Return the mean of `value` over all ranks. `weight` is the weight of this rank, such as the number
        of its samples. Call this method on every rank. If you sum values in a loop over batches, call this
        method after the loop."""
        if self._core.world.size > 1 and self._core.evaluating and self._core.inside_batches():
            raise InvalidSpec(
                (
                    "engine.average cannot work inside an evaluation loop: "
                    "the ranks can have different numbers of batches."
                ),
                hint="Sum in the loop, then call engine.average(total / count, weight=count).",
            )
        total, weights = self._core.world.add([float(value) * float(weight), float(weight)])
        return total / weights if weights else float("nan")

    def save(self, score: float | None = None) -> None:
        """Request a checkpoint. The Engine saves before the first micro-batch of the next optimizer step, or
        at the end of the epoch, whichever comes first.

        score: a number for how good the model is. A larger score is better. The Engine keeps the checkpoint
            with the best score in addition to the newest checkpoints. `export(best=True)` reads this
            checkpoint.
        """
        if not self._core.resuming:
            self._core.keeper.want(None if score is None else float(score))

    def keep(self, **values: object) -> Any:  # one value, or a tuple
        """Add values to the checkpoints: `best = engine.keep(best=max(best, accuracy))`.
        Returns the value. For several values, returns a tuple.

        A resumed run restores lists, dicts, sets, tensors, arrays and objects with state_dict in place.
        For a number or a text, `keep` returns the saved value until the resumed run has reached its saved
        position.
        """
        found = tuple(self._core.kept_value(name, value) for name, value in values.items())
        return found[0] if len(found) == 1 else found

    def print(self, *values: object, **options: object) -> None:
        """Print on rank 0 only. In a resumed run, this call prints nothing before the run has reached the
        saved position."""
        if self._core.world.rank == 0 and not self._core.resuming:
            self._core.progress.clear()
            how: dict[str, Any] = {"flush": True, **options}
            builtins.print(*values, **how)

    def barrier(self) -> None:
        """Wait until every rank has reached this call."""
        self._core.world.barrier()

    def export(self, path: str | Path, model: nn.Module | None = None, best: bool = False) -> Path:
        """Write a model's weights to a safetensors file. Only rank 0 writes. The write is atomic. Returns the
        path.

        model: the model whose weights are written. The default is the first model that was passed to setup.
        best: True writes the weights of the checkpoint with the best score, instead of the current weights.
        Raises StateError for `best=True` if no checkpoint has a score.
        Raises InvalidSpec for a model that was not passed to setup.
        """
        return self._core.write_weights(
            Path(path), model if model is not None else self._core.objects.models[0], best
        )
