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

    The Trainer sets up, saves and restores attributes of these kinds: models, optimizers, schedules, EMAs,
    other objects with state_dict and load_state_dict, and lists of such objects.
    The attribute `engine` is the Trainer's Engine. The task can use `engine` in `build` and in later methods.

    watch: the name of the score that selects the best checkpoint, such as "accuracy". If a smaller score is
        better, put a minus before the name: "-loss". A ReduceLROnPlateau uses this score too.
    """

    watch: str | None = None
    engine: Engine

    def build(self) -> None:
        """Make models and optimizers, and assign them to attributes. The Trainer sets the random seed, and
        then calls this method once."""

    def loss(self, batch: object) -> torch.Tensor:
        """Return the mean loss over the micro-batch, as one number.

        batch: a batch of the loader, on the device.
        """
        raise InvalidSpec(
            f"{type(self).__name__} has no loss.",
            hint="Define a method loss(self, batch) that returns one number with a gradient.",
        )

    def score(self, batch: object) -> dict[str, torch.Tensor]:
        """Return the scores of an evaluation batch by name. A score is one value per sample, or the mean of
        the batch. The Trainer computes the mean over all samples."""
        return {"loss": self.loss(batch)}

    def after_evaluation(self, scores: dict[str, float]) -> dict[str, float]:
        """Return the final scores of an evaluation. The Trainer calls this method on every rank, with the
        mean scores. In this method, you can add scores that are not means."""
        return scores

    def step(self, batch: object) -> None:
        """Train on one micro-batch. If the task has several optimizers, override `step` instead of `loss`. In
        `step`, call engine.backward and engine.update."""
        loss = self.loss(batch)
        self.engine.step(loss)
        self.engine.log(loss=loss)

    def after_step(self) -> None:
        """Call `step` of each schedule of `stoker.sched`, and update each EMA. The Trainer calls this method
        after each optimizer step."""
        for part in parts(self):
            if isinstance(part, Schedule):
                part.step()
            elif isinstance(part, EMA):
                part.update()

    def after_epoch(self, scores: dict[str, float]) -> None:
        """Call `step` of each scheduler of torch. A ReduceLROnPlateau gets the score that `watch` names. The
        Trainer calls this method after each epoch and its evaluation.

        scores: the scores of this epoch. In an epoch without evaluation, this dict is empty. After such an
            epoch, `step` of a ReduceLROnPlateau is not called.
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
