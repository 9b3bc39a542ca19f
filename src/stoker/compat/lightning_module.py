"""`LightningModule` and `LightningDataModule` of PyTorch Lightning, without Lightning:
the base classes of a user's module."""

from __future__ import annotations

import inspect
import sys
from argparse import Namespace
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import nn
from torch.optim import Optimizer

from stoker.engine.errors import StateError
from stoker.engine.weights import load

if TYPE_CHECKING:
    from stoker.compat.lightning import Trainer


class Hparams(Namespace):
    """Hyperparameters: a dict whose entries are also attributes."""

    def __getitem__(self, name: str) -> object:
        return getattr(self, name)

    def __contains__(self, name: str) -> bool:
        return name in vars(self)

    def get(self, name: str, default: object = None) -> object:
        """The value, or `default`."""
        return getattr(self, name, default)

    def items(self) -> object:
        """Names and values."""
        return vars(self).items()


class Remembers:
    """`save_hyperparameters`: the arguments of __init__ as `self.hparams`."""

    def save_hyperparameters(
        self,
        *names: str | Namespace | Mapping[str, object],
        ignore: str | Iterable[str] | None = (),
        logger: bool = True,
    ) -> None:
        """Store the arguments of the calling __init__; with `names`, only these arguments.
        A Namespace or dict is stored as it is."""
        left = {ignore} if isinstance(ignore, str) else set(ignore or ())
        given = names[0] if names else ""
        if not isinstance(given, str):
            found = dict(vars(given) if isinstance(given, Namespace) else given)
        else:
            arguments = inspect.getargvalues(sys._getframe(1))
            found = {name: arguments.locals[name] for name in arguments.args[1:]}
            found.update(arguments.locals.get(arguments.keywords, {}) if arguments.keywords else {})
            found = {name: value for name, value in found.items() if not names or name in names}
        self.__dict__["_hparams"] = Hparams(
            **{**vars(self.hparams), **{n: v for n, v in found.items() if n not in left}}
        )

    @property
    def hparams(self) -> Hparams:
        """The hyperparameters."""
        return self.__dict__.setdefault("_hparams", Hparams())

    @hparams.setter
    def hparams(self, value: object) -> None:
        self.__dict__["_hparams"] = Hparams(**(dict(value) if isinstance(value, dict) else vars(value)))


class LightningModule(Remembers, nn.Module):
    """A model with its training. Stoker calls: training_step, validation_step, test_step, predict_step,
    configure_optimizers, the
    *_dataloader methods, prepare_data, setup, the on_* hooks below,
    and the *_epoch_end methods of Lightning 1."""

    automatic_optimization = True

    def __init__(self, *args: object, **options: object) -> None:
        super().__init__()
        self.__dict__["_trainer"] = None

    @property
    def trainer(self) -> Trainer:
        """The Trainer of this module. Raises StateError if there is none."""
        found = self.__dict__.get("_trainer")
        if found is None:
            raise StateError(
                f"{type(self).__name__}.trainer does not exist before the model is given to a trainer.",
                hint="trainer.fit(model)",
            )
        return found

    @property
    def device(self) -> torch.device:
        """The device of its parameters."""
        return next((p.device for p in self.parameters()), torch.device("cpu"))

    @property
    def current_epoch(self) -> int:
        """The epoch, from 0."""
        return self.trainer.current_epoch

    @property
    def global_step(self) -> int:
        """Optimizer steps so far."""
        return self.trainer.global_step

    @property
    def global_rank(self) -> int:
        """The number of this process, from 0."""
        return self.trainer.global_rank

    @property
    def logger(self) -> object:
        """The logger of the Trainer."""
        return self.trainer.logger

    def log(
        self,
        name: str,
        value: object,
        prog_bar: bool = False,
        logger: bool = True,
        on_step: bool | None = None,
        on_epoch: bool | None = None,
        *,
        batch_size: int | None = None,
        **options: object,
    ) -> None:
        """Write a number to metrics.jsonl; in an evaluation, the mean over all samples and ranks.

        on_step: at each step (default in training). on_epoch: the mean over the epoch. With both, the
            names end in _step and _epoch.
        batch_size: weight in the mean; by default the batch's first dimension. options:
        accepted without effect; means are always over all ranks.
        """
        self.trainer.log_value(name, value, on_step, on_epoch, batch_size)

    def log_dict(self, values: dict[str, object], *args: Any, **options: Any) -> None:
        """Call `log` for each entry."""
        for name, value in values.items():
            self.log(name, value, *args, **options)

    def print(self, *values: object, **options: object) -> None:
        """`print` on rank 0; silent until a resumed run has reached its position."""
        self.trainer.engine.print(*values, **options)

    def optimizers(self) -> object:
        """The optimizers (a single optimizer without a list),
        for a module with `automatic_optimization = False`."""
        return self.trainer.running.by_hand()

    def lr_schedulers(self) -> object:
        """The schedulers (a single scheduler without a list; None if there are none)."""
        found = self.trainer.running.schedulers
        return found[0] if len(found) == 1 else found or None

    def manual_backward(self, loss: torch.Tensor, *args: object, **options: object) -> None:
        """Add the gradients of the loss."""
        self.trainer.engine.backward(loss, retain_graph=bool(options.get("retain_graph")))

    def toggle_optimizer(self, optimizer: Optimizer, optimizer_idx: int | None = None) -> None:
        """Until `untoggle_optimizer`, only the parameters of this optimizer need gradients."""
        own = {p for group in optimizer.param_groups for p in group["params"]}
        self.__dict__["_toggled"] = [p for p in self.parameters() if p.requires_grad and p not in own]
        for p in self.__dict__["_toggled"]:
            p.requires_grad_(False)

    def untoggle_optimizer(self, optimizer: object = None) -> None:
        """Undo `toggle_optimizer`."""
        for p in self.__dict__.pop("_toggled", []):
            p.requires_grad_(True)

    def freeze(self) -> None:
        """Switch to evaluation mode without gradients."""
        self.requires_grad_(False)
        self.eval()

    def unfreeze(self) -> None:
        """Switch to training mode; all parameters need gradients."""
        self.requires_grad_(True)
        self.train()

    @classmethod
    def load_from_checkpoint(
        cls, checkpoint_path: str | Path, map_location: object = None, strict: bool = True, **hparams: object
    ) -> LightningModule:
        """Create a module with these arguments of __init__, and load weights from a file of
        `Trainer.save_checkpoint` or from a checkpoint.
        Raises StateError if the weights belong to a different module;
        with strict=False, loads the weights that fit.
        """
        module = cls(**hparams)
        said, left = load(Path(checkpoint_path), [module])
        if strict and left:
            raise StateError(f"The checkpoint is from a different {cls.__name__}: {said}.")
        return module

    # what a module may define; by default nothing

    def configure_optimizers(self) -> Optimizer | None:
        """Return one or several optimizers, with or without schedulers."""

    def train_dataloader(self) -> object:
        """The loader to train with."""

    def val_dataloader(self) -> object:
        """The loader to evaluate with."""

    def test_dataloader(self) -> object:
        """The loader to test with."""

    def predict_dataloader(self) -> object:
        """The loader to predict with."""

    def prepare_data(self) -> None:
        """Called first, on rank 0."""

    def setup(self, stage: str | None = None) -> None:
        """Called before the loaders are created."""

    def on_fit_start(self) -> None:
        """Called once per start."""

    def on_fit_end(self) -> None:
        """Called when the training is over."""

    def on_train_start(self) -> None:
        """Called before the first step of a start."""

    def on_train_end(self) -> None:
        """Called after the last step."""

    def on_train_epoch_start(self) -> None:
        """Called before the first step of an epoch, and before the first step of a resumed run."""

    def on_train_epoch_end(self) -> None:
        """Called after an epoch."""

    def on_validation_start(self) -> None:
        """Called before an evaluation."""

    def on_validation_epoch_start(self) -> None:
        """Called before an evaluation, after `on_validation_start`."""

    def on_validation_epoch_end(self) -> None:
        """Called after an evaluation's batches."""

    def on_validation_end(self) -> None:
        """Called after an evaluation."""

    def on_test_start(self) -> None:
        """Called before a test."""

    def on_test_epoch_start(self) -> None:
        """Called before a test, after `on_test_start`."""

    def on_test_epoch_end(self) -> None:
        """Called after a test's batches."""

    def on_test_end(self) -> None:
        """Called after a test."""


class LightningDataModule(Remembers):
    """A group of loaders."""

    def __init__(self, *args: object, **options: object) -> None:
        self.trainer: Trainer | None = None

    def prepare_data(self) -> None:
        """Called first, on rank 0."""

    def setup(self, stage: str | None = None) -> None:
        """Called before the loaders are created."""

    def train_dataloader(self) -> object:
        """The loader to train with."""

    def val_dataloader(self) -> object:
        """The loader to evaluate with."""

    def test_dataloader(self) -> object:
        """The loader to test with."""

    def predict_dataloader(self) -> object:
        """The loader to predict with."""


def data_loader(function: Callable) -> Callable:
    """The decorator of Lightning 0.5: changes nothing."""
    return function
