"""`Task`: what a `Trainer` trains. Only `loss` is required; every other method has a default."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import nn
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler, ReduceLROnPlateau

from stoker.engine.ema import EMA
from stoker.engine.engine import Engine
from stoker.engine.errors import InvalidSpec
from stoker.engine.sched import Schedule


class Task:
    """A model, its optimizers and its loss.

    These attributes are set up, saved and restored:
    models, optimizers, schedules, `EMA`s, objects with state_dict and load_state_dict, and lists of these.
    `engine` is the Trainer's Engine; it can be used in `build` and later.

    watch: the score for the best checkpoint and for a ReduceLROnPlateau: "accuracy", or "-loss" if
        smaller is better.
    """

    watch: str | None = None
    engine: Engine

    def build(self) -> None:
        """Make models and optimizers as attributes. Called once, after the random seed is set."""

    def loss(self, batch: object) -> torch.Tensor:
        """Return the mean loss over the micro-batch, as one number.

        batch: a batch of the loader, on the device.
        """
        raise InvalidSpec(
            f"{type(self).__name__} has no loss.",
            hint="Define a method loss(self, batch) that returns one number with a gradient.",
        )

    def score(self, batch: object) -> dict[str, torch.Tensor]:
        """Return the scores of an evaluation batch by name: one value per sample, or the batch mean.
        The Trainer averages them."""
        return {"loss": self.loss(batch)}

    def after_evaluation(self, scores: dict[str, float]) -> dict[str, float]:
        """The Trainer calls this method on every rank, with the mean scores of an evaluation.
        Return the final scores. Here you can add scores that are not means."""
        return scores

    def step(self, batch: object) -> None:
        """Train on one micro-batch. With several optimizers, override `step` instead of `loss`
        (engine.backward, engine.update)."""
        loss = self.loss(batch)
        self.engine.step(loss)
        self.engine.log(loss=loss)

    def after_step(self) -> None:
        """Called after each optimizer step: steps the schedules of `stoker.sched` and updates EMAs."""
        for part in parts(self):
            if isinstance(part, Schedule):
                part.step()
            elif isinstance(part, EMA):
                part.update()

    def after_epoch(self, scores: dict[str, float]) -> None:
        """Called after each epoch and its evaluation. Steps torch's schedulers, and gives a ReduceLROnPlateau
        the watched score.

        scores: the scores of this epoch, empty in an epoch without evaluation. A ReduceLROnPlateau does not
            count such an epoch.
        """
        for part in parts(self):
            if isinstance(part, ReduceLROnPlateau):
                if scores:
                    _plateau(self, part, scores)
            elif isinstance(part, LRScheduler):
                part.step()


def watched(task: Task, scores: dict[str, float]) -> float:
    """The watched score, larger is better; by default the negative of the first score.
    Raises InvalidSpec if there is no such score."""
    name = task.watch or f"-{next(iter(scores))}"
    if name.removeprefix("-") not in scores:
        raise InvalidSpec(
            f"{type(task).__name__}.watch is {name!r}, but the scores are: {', '.join(scores)}."
        )
    return -scores[name[1:]] if name.startswith("-") else scores[name]


def _plateau(task: Task, scheduler: ReduceLROnPlateau, scores: dict[str, float]) -> None:
    smaller = task.watch is None or task.watch.startswith("-")
    if (scheduler.mode == "min") != smaller:
        raise InvalidSpec(
            f"ReduceLROnPlateau(mode={scheduler.mode!r}), but {type(task).__name__}.watch is {task.watch!r}.",
            hint=(
                'If a larger score is better: mode="max". If a smaller score is better: '
                'mode="min" and watch = "-loss".'
            ),
        )
    scheduler.step(watched(task, scores) * (-1 if smaller else 1))


def parts(task: Task) -> Iterator[object]:
    """What `engine.setup` takes, among the task's attributes."""
    for value in vars(task).values():
        for each in value if isinstance(value, list | tuple) else (value,):
            if isinstance(each, nn.Module | Optimizer) or (_stateful(each) and not isinstance(each, Engine)):
                yield each


def _stateful(value: object) -> bool:
    return callable(getattr(value, "state_dict", None)) and callable(getattr(value, "load_state_dict", None))
