"""Callbacks and loggers of PyTorch Lightning:
early stopping, the best checkpoint, and numbers in metrics.jsonl."""

from __future__ import annotations

import math
import os
from typing import TYPE_CHECKING

from stoker.engine.errors import InvalidSpec
from stoker.engine.progress import say

if TYPE_CHECKING:
    from stoker.compat.lightning import Trainer
    from stoker.compat.lightning_module import LightningModule
    from stoker.engine.engine import Engine


COUNTERS = ("best", "wait_count", "stopped_epoch")


class Callback:
    """Base class of callbacks. Stoker calls the methods below, and saves and restores the callback with
    state_dict and load_state_dict."""

    def on_fit_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Called once per start."""

    def on_fit_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Called when the training is over."""

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Called before the first step of a start."""

    def on_train_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Called after the last step."""

    def on_train_epoch_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Called before an epoch's first step."""

    def on_train_epoch_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Called after an epoch."""

    def on_train_batch_start(
        self, trainer: Trainer, pl_module: LightningModule, batch: object, batch_idx: int
    ) -> None:
        """Called before each micro-batch."""

    def on_train_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, outputs: object, batch: object, batch_idx: int
    ) -> None:
        """Called after each micro-batch."""

    def on_validation_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Called before an evaluation."""

    def on_validation_epoch_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Called before an evaluation, after `on_validation_start`."""

    def on_validation_epoch_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Called after an evaluation's batches."""

    def on_validation_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Called after an evaluation."""

    def on_test_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Called before a test."""

    def on_test_epoch_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Called before a test, after `on_test_start`."""

    def on_test_epoch_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Called after a test's batches."""

    def on_test_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Called after a test."""

    def state_dict(self) -> dict:
        """The state for a checkpoint."""
        return {}

    def load_state_dict(self, state_dict: dict) -> None:
        """Restore what `state_dict` returned."""


class _Watches(Callback):
    """Looks at one metric after each epoch that had an evaluation;
    after each epoch where there is none at all."""

    def __init__(self, monitor: str | None, mode: str) -> None:
        if mode not in ("min", "max", "auto"):
            raise InvalidSpec(f"{type(self).__name__}(mode={mode!r}): mode must be min or max.")
        self.monitor = monitor
        self.mode = mode if mode != "auto" else "max" if "acc" in (monitor or "") else "min"
        self.best: float | None = None

    def _value(self, trainer: Trainer) -> float:
        if self.monitor not in trainer.callback_metrics:
            logged = ", ".join(trainer.callback_metrics) or "nothing"
            raise InvalidSpec(
                (
                    f"{type(self).__name__} watches {self.monitor!r}, which is not logged. Logged values: "
                    f"{logged}."
                ),
                hint=f"In validation_step, add: self.log({self.monitor!r}, value)",
            )
        return float(trainer.callback_metrics[self.monitor])

    def on_train_epoch_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        if trainer.evaluated:
            self.look(trainer)

    def look(self, trainer: Trainer) -> None:
        """An epoch is over, and its metrics are there."""

    def _signed(self, value: float) -> float:
        """Larger is better."""
        return value if self.mode == "max" else -value

    def state_dict(self) -> dict:
        """The best value so far, and other counters."""
        return {name: vars(self)[name] for name in COUNTERS if name in vars(self)}

    def load_state_dict(self, state_dict: dict) -> None:
        """Restore what `state_dict` returned."""
        vars(self).update(state_dict)


class EarlyStopping(_Watches):
    """Stops the training when `monitor` has not improved by more than `min_delta` in `patience` evaluations,
    or when it is not finite."""

    def __init__(
        self,
        monitor: str = "val_loss",
        min_delta: float = 0.0,
        patience: int = 3,
        verbose: bool = False,
        mode: str = "auto",
        **options: object,
    ) -> None:
        super().__init__(monitor, mode)
        self.min_delta = abs(min_delta)
        self.patience = patience
        self.wait_count = 0
        self.stopped_epoch = 0

    def look(self, trainer: Trainer) -> None:
        value = self._value(trainer)
        if not math.isfinite(value):
            trainer.should_stop = True
            return
        if self.best is None or self._signed(value) - self._signed(self.best) > self.min_delta:
            self.best, self.wait_count = value, 0
            return
        self.wait_count += 1
        if self.wait_count >= self.patience:
            self.stopped_epoch = trainer.current_epoch
            trainer.should_stop = True

    @property
    def best_score(self) -> float | None:
        """The best value so far."""
        return self.best


class ModelCheckpoint(_Watches):
    """Keeps the checkpoint with the best `monitor`, in addition to the newest checkpoints, which Stoker
    always keeps. Stoker chooses the file names."""

    def __init__(
        self,
        dirpath: object = None,
        filename: object = None,
        monitor: str | None = None,
        verbose: bool = False,
        mode: str = "auto",
        **options: object,
    ) -> None:
        super().__init__(monitor, mode)

    def look(self, trainer: Trainer) -> None:
        if self.monitor is None:
            return
        value = self._value(trainer)
        trainer.engine.save(score=self._signed(value))
        if self.best is None or self._signed(value) > self._signed(self.best):
            self.best = value

    @property
    def best_model_score(self) -> float | None:
        """The best value so far."""
        return self.best

    @property
    def best_model_path(self) -> str:
        """The folder of the run's checkpoints: `load_from_checkpoint` loads the best checkpoint in it."""
        return self.folder

    folder = ""


class Experiment:
    """The object `logger.experiment`: it keeps scalars. Images and graphs are left out, with one notice."""

    def __init__(self, logger: Logger) -> None:
        self._logger = logger
        self._told = False

    def add_scalar(
        self, tag: str, value: object, global_step: int | None = None, *args: object, **options: object
    ) -> None:
        """Write a number to metrics.jsonl."""
        self._logger.log_metrics({tag: value})

    def log(self, values: dict[str, object], *args: object, **options: object) -> None:
        """Write numbers to metrics.jsonl, called as in W&B; other values are left out."""
        self._logger.log_metrics(
            {name: value for name, value in values.items() if isinstance(value, int | float)}
        )

    def __getattr__(self, name: str) -> object:
        if not name.startswith(("add_", "log")):
            raise AttributeError(name)

        def left_out(*args: object, **options: object) -> None:
            if not self._told:
                say(f"logger.experiment.{name} is ignored: Stoker stores only scalars")
            self._told = True
        return left_out


class Logger:
    """Base class of loggers: numbers go to metrics.jsonl of the run."""

    def __init__(
        self, save_dir: object = None, name: str | None = "default", version: object = None, **options: object
    ) -> None:
        self.save_dir = save_dir
        self.name = name
        self.version = version
        self.experiment = Experiment(self)
        self.engine: Engine | None = None

    def log_metrics(self, metrics: dict[str, object], step: int | None = None) -> None:
        """Write numbers."""
        if self.engine is not None:
            self.engine.log(**metrics)

    def log_hyperparams(self, params: object = None, *args: object, **options: object) -> None:
        """No effect: Stoker keeps the run's command and code."""

    @property
    def log_dir(self) -> object:
        """The folder given by the script."""
        return self.save_dir


class TensorBoardLogger(Logger):
    """Like `Logger`, and also writes event files in tensorboard/ beside the checkpoints."""


class CSVLogger(Logger):
    """As `Logger`."""


class WandbLogger(Logger):
    """Like `Logger`, and also sends the numbers to Weights & Biases.
    WANDB_PROJECT and WANDB_NAME override project and name."""

    def __init__(
        self,
        name: str | None = None,
        save_dir: object = None,
        version: object = None,
        offline: bool = False,
        project: str | None = None,
        **options: object,
    ) -> None:
        super().__init__(save_dir, name, version, **options)
        wanted = {"WANDB_PROJECT": project, "WANDB_NAME": name, "WANDB_MODE": "offline" if offline else None}
        for variable, value in wanted.items():
            if value:
                os.environ.setdefault(variable, value)
