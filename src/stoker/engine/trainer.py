"""`Trainer`: the training loop for a `Task`, written with the public `Engine`.

    class Digits(stoker.Task):
        def build(self):
            self.model = Net()
            self.opt = torch.optim.AdamW(self.model.parameters(), lr=1e-3)

        def loss(self, batch):
            images, labels = batch
            return F.cross_entropy(self.model(images), labels)

    stoker.Trainer("runs/digits", epochs=14).fit(Digits(), train, test)
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sized
from contextlib import ExitStack
from pathlib import Path
from typing import cast

import torch
from torch import nn
from torch.utils.data import DataLoader

from stoker.engine.data import rows
from stoker.engine.ema import EMA
from stoker.engine.engine import Engine
from stoker.engine.errors import InvalidSpec
from stoker.engine.progress import say
from stoker.engine.sched import Schedule
from stoker.engine.task import Task, parts, watched
from stoker.engine.weights import start_from

MOMENTS = ("start", "step", "epoch", "evaluate", "save", "end")


class Trainer:
    """Trains, evaluates and saves a task. To resume bit-exactly, type the same command again, as with Engine.

    The arguments `folder`, `seed`, `precision`, `accumulate`, `clip`, `save` and `log` have the same meaning
    as in Engine.

    epochs: the length of the training in epochs. Give either `epochs` or `steps`.
    steps: the length of the training in optimizer steps.
    engine: other arguments of Engine, as a dict: {"nan": "skip"}.
    eval_every: the number of epochs between two evaluations. The Trainer also evaluates after the last epoch.
    callbacks: objects with at least one of the methods start(trainer), step(trainer), epoch(trainer, epoch),
        evaluate(trainer, scores), save(trainer), end(trainer).
    The Trainer calls `step` after each optimizer step, and `save` before each checkpoint, on every rank.
    The Trainer saves and restores callbacks that have state_dict and load_state_dict.
    Callbacks can read these attributes of the Trainer: `engine`, `task`, `epoch` (the first epoch is 0),
    `epochs` and `steps` (the arguments), `scores` (of the last evaluation), and `history` (the scores of all
    evaluations).
    Raises InvalidSpec for bad arguments.
    """

    def __init__(
        self,
        folder: str | None = None,
        *,
        epochs: int | None = None,
        steps: int | None = None,
        seed: int = 0,
        precision: str = "fp32",
        accumulate: int = 1,
        clip: float | None = None,
        save: str = "1min",
        log: str | list[str] | None = None,
        eval_every: int = 1,
        callbacks: Iterable[object] = (),
        engine: dict[str, object] | None = None,
    ) -> None:
        if (epochs is None) == (steps is None):
            raise InvalidSpec(
                "Trainer needs exactly one of the arguments `epochs` and `steps`.",
                hint="stoker.Trainer(epochs=10)",
            )
        if not isinstance(eval_every, int) or eval_every < 1:
            raise InvalidSpec(
                f"Trainer(eval_every={eval_every!r}): the number of epochs between two evaluations must be "
                "at least 1."
            )
        self.callbacks = list(callbacks)
        for each in self.callbacks:
            if not any(callable(getattr(each, moment, None)) for moment in MOMENTS):
                raise InvalidSpec(
                    f"The callback {type(each).__name__} has none of the methods {', '.join(MOMENTS)}."
                )
        self.engine = Engine(
            folder=folder,
            seed=seed,
            precision=precision,
            accumulate=accumulate,
            clip=clip,
            save=save,
            log=log,
            **(engine or {}),
        )
        self.engine._core.before_save.append(lambda: self._call("save"))
        self.epochs = epochs
        self.steps = steps
        self.eval_every = eval_every
        self.epoch = 0
        self.scores: dict[str, float] = {}  # of the last evaluation
        self.history: list[dict[str, float]] = []  # one entry per evaluation, with its epoch
        self.task: Task | None = None
        self._stopping = False
        self._most_train: int | float | None = None  # batches of an epoch; a float is a share of them
        self._most_test: int | float | None = None

    def fit(self, task: Task, train: Iterable, test: Iterable | None = None, *,
            init_from: str | Path | None = None) -> list[dict[str, float]]:
        """Train a task, or continue from the last checkpoint. Returns the history: a list with the scores and
        the epoch of each evaluation. The first epoch is 0.

        train: a DataLoader or a list of batches, for training.
        test: a DataLoader or a list of batches, for evaluation.
        init_from: the initial weights of a new run, for fine-tuning: a .safetensors file, a checkpoint, or
            the folder of a run. `fit` loads each tensor that has the same name and shape in the model, and
            prints the names of the other tensors.
        If the task has an `EMA`, evaluation uses the averaged weights.
        Raises StateError if no tensor of `init_from` fits the model.
        """
        engine = self.engine
        self.task = task
        task.engine = engine
        task.build()
        found = list(parts(task))
        if init_from is not None and not engine._core.resuming:
            say(start_from(Path(init_from), [part for part in found if isinstance(part, nn.Module)]))
        loaders = [each for each in (train, test) if isinstance(each, DataLoader)]
        stateful = [
            each
            for each in self.callbacks
            if hasattr(each, "state_dict") and hasattr(each, "load_state_dict")
        ]
        engine.setup(*found, *loaders, *stateful)
        for part in found:
            if isinstance(part, Schedule) and not part.bound:
                part.bind(train, engine._core.window)
        self.history = engine.keep(history=self.history)
        self._stopping = engine.keep(stopping=False)
        self._call("start")
        self._run(train, test)
        self._call("end")
        return self.history

    def _task(self) -> Task:
        if self.task is None:
            raise InvalidSpec("The Trainer has no task yet.", hint="Call trainer.fit(task, train) first.")
        return self.task

    def _run(self, train: Iterable, test: Iterable | None) -> None:
        engine = self.engine
        epochs = self._epochs(train)
        for epoch in engine.epochs(epochs):
            self.epoch = epoch
            self._train(train)
            over = self._reached()
            self.scores = {}
            if test is not None and (over or epoch + 1 == epochs or (epoch + 1) % self.eval_every == 0):
                self._evaluate(test)
            self._task().after_epoch(self.scores)
            self._call("epoch", epoch)
            if self._stopping or over:
                self._stopping = engine.keep(stopping=False)
                break

    def _train(self, train: Iterable) -> None:
        engine, task = self.engine, self._task()
        last = self._last(train, self._most_train)
        for batch in engine.batches(train):
            before = engine.steps
            task.step(batch)
            if engine.steps != before:
                task.after_step()
                self._call("step")
            if self._reached() or engine._micro().number >= last:
                break

    def _last(self, loader: Iterable, most: int | float | None) -> float:
        """The number, over all ranks, of the micro-batch after which a loop ends;
        infinite without a limit."""
        if most is None:
            return float("inf")
        batches = len(cast(Sized, loader)) * most if isinstance(most, float) else most * self.engine.ranks
        return max(1, int(batches)) - 1

    def _reached(self) -> bool:
        return self.steps is not None and self.engine.steps >= self.steps

    def _epochs(self, train: Iterable) -> int:
        if self.epochs is not None:
            return self.epochs
        try:
            per_epoch = -(-len(cast(Sized, train)) // self.engine._core.window)
        except TypeError:
            raise InvalidSpec("Trainer(steps=...) needs a loader that has a length.",
                              hint="Use Trainer(epochs=...), or give the dataset a __len__.") from None
        assert self.steps is not None  # epochs is None: exactly one of the two is given
        return -(-self.steps // per_epoch) if per_epoch else 0

    def _evaluate(self, test: Iterable) -> None:
        self.scores = self.evaluate(test)
        self.history.append({"epoch": self.epoch, **self.scores})
        self.engine.log(**self.scores)
        self.engine.print(
            f"epoch {self.epoch + 1}  "
            + "  ".join(f"{name} {value:.4f}" for name, value in self.scores.items())
        )
        task = self._task()
        if task.watch is not None:
            self.engine.save(score=watched(task, self.scores))
        self._call("evaluate", self.scores)

    def evaluate(self, loader: Iterable) -> dict[str, float]:
        """Return the means of `task.score` over a loader. Each sample is evaluated on exactly one rank.
        Call this method on every rank, after or inside `fit`."""
        task = self._task()
        totals: dict[str, torch.Tensor] = {}
        counts: dict[str, int] = {}
        with ExitStack() as stack:
            stack.enter_context(self.engine.eval())
            for part in parts(task):
                if isinstance(part, EMA):
                    stack.enter_context(part.applied())
            last = self._last(loader, self._most_test)
            for batch in self.engine.batches(loader):
                for name, given in task.score(batch).items():
                    value = torch.as_tensor(given, dtype=torch.float64)
                    weight = value.numel() if value.dim() else rows(batch)
                    totals[name] = totals.get(name, 0.0) + (value.sum() if value.dim() else value * weight)
                    counts[name] = counts.get(name, 0) + weight
                if self.engine._micro().number >= last:
                    break
            means = self._means({name: (float(total), counts[name]) for name, total in totals.items()})
            return task.after_evaluation(means)

    def _means(self, mine: dict[str, tuple[float, float]]) -> dict[str, float]:
        """Over all ranks; one that had no batch knows no names."""
        everywhere = [json.loads(part) for part in self.engine._core.world.gather(json.dumps(mine).encode())]
        names = dict.fromkeys(name for part in everywhere for name in part)
        sums = {
            name: [
                sum(column)
                for column in zip(*(part[name] for part in everywhere if name in part), strict=True)
            ]
            for name in names
        }
        return {name: total / weight if weight else float("nan") for name, (total, weight) in sums.items()}

    def stop(self) -> None:
        """End the training after the current epoch. The run is then finished.
        This method is for callbacks. A callback must call this method on every rank."""
        self._stopping = self.engine.keep(stopping=True)

    def _call(self, moment: str, *values: object) -> None:
        for each in self.callbacks:
            method = getattr(each, moment, None)
            if callable(method):
                method(self, *values)
