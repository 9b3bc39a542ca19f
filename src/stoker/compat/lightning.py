"""PyTorch Lightning's interface on Stoker's Trainer:
a LightningModule trains without Lightning, and resumes bit-exactly.

    from stoker.compat import lightning as pl

    class Net(pl.LightningModule):
        def training_step(self, batch, batch_idx): ...
        def configure_optimizers(self): ...

    pl.Trainer(max_epochs=10, accumulate_grad_batches=4, precision=16).fit(Net(), loader)

The arguments of all versions are known. An argument that would change the training,
but is not supported, is refused.
Source of names and meanings: PyTorch Lightning 0.5 to 2.6.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path

import numpy
import torch
from torch.optim import Optimizer
from torch.optim.lr_scheduler import ReduceLROnPlateau

from stoker.compat.lightning_callbacks import (
    Callback,
    CSVLogger,
    EarlyStopping,
    Logger,
    ModelCheckpoint,
    TensorBoardLogger,
    WandbLogger,
)
from stoker.compat.lightning_module import LightningDataModule, LightningModule, data_loader
from stoker.compat.lightning_parts import (
    call_with,
    check,
    check_hooks,
    loader_of,
    numbers,
    only_loader,
    overrides,
    split,
)
from stoker.compat.lightning_words import Plan, plan
from stoker.engine import seeds
from stoker.engine.data import rows
from stoker.engine.engine import Engine
from stoker.engine.errors import InvalidSpec, StateError
from stoker.engine.progress import say
from stoker.engine.task import Task
from stoker.engine.trainer import Trainer as OurTrainer
from stoker.engine.weights import start_from

__all__ = [
    "CSVLogger",
    "Callback",
    "EarlyStopping",
    "LightningDataModule",
    "LightningModule",
    "Logger",
    "ModelCheckpoint",
    "TensorBoardLogger",
    "Trainer",
    "WandbLogger",
    "data_loader",
    "seed_everything",
]
_seed = 0


def seed_everything(seed: int | None = None, workers: bool = False, verbose: bool = True) -> int:
    """Seed torch, random, numpy and the runs of Trainers created afterwards. Returns the seed."""
    global _seed
    _seed = 0 if seed is None else int(seed)
    random.seed(_seed)
    numpy.random.seed(_seed & 0xFFFFFFFF)
    torch.manual_seed(_seed)
    return _seed


class Trainer:
    """Trains LightningModules. Arguments: see `stoker.compat.lightning_words`.

    callback_metrics: the newest value of each logged name. Raises InvalidSpec for unsupported arguments.
    """

    def __init__(self, **words: object) -> None:
        self.plan: Plan = plan(words)
        self.callbacks = list(self.plan.callbacks)
        self.inner = OurTrainer(
            seed=_seed,
            epochs=self.plan.epochs,
            steps=self.plan.steps,
            precision=self.plan.precision,
            accumulate=self.plan.accumulate,
            clip=self.plan.clip,
            eval_every=self.plan.eval_every,
            callbacks=[_Moments(self)],
            engine={"device": self.plan.device},
            log=self.plan.log,
        )
        self.inner._most_train, self.inner._most_test = self.plan.most_train, self.plan.most_validated
        self.logger = self.plan.logger
        self.logger.engine = self.engine
        self.callback_metrics: dict[str, torch.Tensor] = {}
        self.task: _ModuleTask | None = None
        self._validates = False
        self.checkpoint_callback = next(
            (each for each in self.callbacks if isinstance(each, ModelCheckpoint)), None
        )
        for each in self.callbacks:
            if isinstance(each, ModelCheckpoint):
                each.folder = str(self.engine._core.keeper.root)

    @property
    def engine(self) -> Engine:
        """Stoker's engine."""
        return self.inner.engine

    @property
    def current_epoch(self) -> int:
        """The epoch, from 0."""
        return self.inner.epoch

    @property
    def global_step(self) -> int:
        """Optimizer steps so far."""
        return self.engine.steps

    @property
    def global_rank(self) -> int:
        """The number of this process, from 0."""
        return self.engine.rank

    @property
    def world_size(self) -> int:
        """The number of processes that train together."""
        return self.engine.ranks

    @property
    def is_global_zero(self) -> bool:
        """True on rank 0."""
        return self.engine.rank == 0

    @property
    def max_epochs(self) -> int | None:
        """The requested number of epochs."""
        return self.plan.epochs

    @property
    def evaluated(self) -> bool:
        """True if this epoch had an evaluation, or the training has no evaluations."""
        return self.running.evaluated or not self._validates

    @property
    def running(self) -> _ModuleTask:
        """The module's task. Raises InvalidSpec before `fit`."""
        if self.task is None:
            raise InvalidSpec("The trainer has no model yet.", hint="trainer.fit(model, loader)")
        return self.task

    @property
    def logged_metrics(self) -> dict[str, torch.Tensor]:
        """Same as `callback_metrics`."""
        return self.callback_metrics

    @property
    def should_stop(self) -> bool:
        """True if the training ends after this epoch."""
        return self.inner._stopping

    @should_stop.setter
    def should_stop(self, value: bool) -> None:
        if value:
            self.inner.stop()

    def fit(
        self,
        model: LightningModule,
        train_dataloaders: object = None,
        val_dataloaders: object = None,
        datamodule: LightningDataModule | None = None,
        ckpt_path: str | Path | None = None,
        **old: object,
    ) -> None:
        """Train, or resume the run. Loaders come from the arguments, the datamodule or the module.

        Raises InvalidSpec for a module without training_step or optimizers,
        or one that replaces parts of the loop.
        """
        if isinstance(train_dataloaders, LightningDataModule):
            datamodule, train_dataloaders = train_dataloaders, None
        if ckpt_path not in (None, "last", "best"):
            raise InvalidSpec(
                f"fit(ckpt_path={ckpt_path!r}): Stoker reads only its own checkpoints.",
                hint="Remove ckpt_path. To load only weights: model = Net.load_from_checkpoint(path)",
            )
        check(model)
        for each in self.callbacks:
            check_hooks(each)
        if not model.automatic_optimization and self.plan.accumulate > 1:
            raise InvalidSpec(
                (
                    "Trainer(accumulate_grad_batches=...) with automatic_optimization = False: "
                    "the module must accumulate gradients by itself."
                ),
                hint="Remove accumulate_grad_batches.",
            )
        source = self._prepared(model, datamodule, "fit")
        train = train_dataloaders if train_dataloaders is not None else old.get("train_dataloader")
        train = train if train is not None else loader_of(source, "train_dataloader", "tng_dataloader")
        test = val_dataloaders if val_dataloaders is not None else loader_of(source, "val_dataloader")
        if train is None:
            raise InvalidSpec(f"{type(model).__name__} cannot be trained, because there is no "
                              "train_dataloader.",
                              hint="trainer.fit(model, loader)")
        self._validates = (
            test is not None and overrides(model, "validation_step") and self.plan.most_validated != 0
        )
        self.task = _ModuleTask(self, model, "validation")
        self.inner.fit(self.task, only_loader(train, "train"), only_loader(test) if self._validates else None)

    def validate(
        self,
        model: LightningModule | None = None,
        dataloaders: object = None,
        datamodule: LightningDataModule | None = None,
        ckpt_path: str | Path | None = None,
        **options: object,
    ) -> list[dict[str, float]]:
        """Evaluate with validation_step. Returns a list with the means. ckpt_path: as for `test`."""
        return self._evaluate(model, dataloaders, datamodule, "validation", ckpt_path)

    def test(
        self,
        model: LightningModule | None = None,
        dataloaders: object = None,
        datamodule: LightningDataModule | None = None,
        ckpt_path: str | Path | None = None,
        **options: object,
    ) -> list[dict[str, float]]:
        """Evaluate with test_step. Returns a list with the means.
        Uses the current weights, or those of the given module.

        ckpt_path: "best" loads the best checkpoint of this run into the module; a path loads that checkpoint.
        Raises StateError if there is no such checkpoint.
        """
        dataloaders = dataloaders if dataloaders is not None else options.get("test_dataloaders")
        return self._evaluate(model, dataloaders, datamodule, "test", ckpt_path)

    def _evaluate(self, model: LightningModule | None, loaders: object,
                  datamodule: LightningDataModule | None, kind: str,
                  ckpt_path: str | Path | None) -> list[dict[str, float]]:
        module = model if model is not None else self.task.model if self.task else None
        if module is None:
            raise InvalidSpec(
                "The trainer has no model yet.",
                hint=f"trainer.{'test' if kind == 'test' else 'validate'}(model, loader)",
            )
        source = self._prepared(module, datamodule, "test" if kind == "test" else "validate")
        loader = (
            loaders
            if loaders is not None
            else loader_of(source, f"{'val' if kind == 'validation' else kind}_dataloader")
        )
        if loader is None or not overrides(module, f"{kind}_step"):
            raise InvalidSpec(f"{type(module).__name__} has no method {kind}_step, or {kind}_step has no "
                              "loader.")
        before, self.task = self.task, _ModuleTask(self, module, kind)
        self.task.engine = self.engine
        if not self.engine._core.objects.knows(module):
            module.to(self.engine.device)
        if ckpt_path not in (None, "last"):
            self._load(ckpt_path, module)
        self.inner.task = self.task
        self.inner._most_test = self.plan.most_tested if kind == "test" else self.plan.most_validated
        try:
            with self.engine.eval(module):
                scores = self.inner.evaluate(only_loader(loader))
            self.tell(f"on_{kind}_end")
        finally:
            self.task = self.inner.task = before or self.task
            self.inner._most_test = self.plan.most_validated
        self.engine.print("  ".join(f"{name} {value:.4f}" for name, value in scores.items()))
        return [scores]

    def _load(self, asked: str | Path, module: LightningModule) -> None:
        """Put the weights of a checkpoint into the module."""
        core = self.engine._core
        if asked == "best":
            core.keeper.wait()
            self.engine.barrier()
            if core.keeper.best is None:
                raise StateError(
                    'ckpt_path="best": this run has no best checkpoint.',
                    hint="To save the best checkpoint, use the callback ModelCheckpoint(monitor=...).",
                )
        said = start_from(core.keeper.root if asked == "best" else Path(asked), [module])
        if self.is_global_zero:
            say(said)

    def predict(
        self,
        model: LightningModule | None = None,
        dataloaders: object = None,
        datamodule: LightningDataModule | None = None,
        **options: object,
    ) -> list[object]:
        """Returns the results of predict_step (or of the model itself) for each batch of this rank.
        Raises InvalidSpec without a loader."""
        module = model if model is not None else self.running.model
        module.to(self.engine.device)
        source = self._prepared(module, datamodule, "predict")
        loader = dataloaders if dataloaders is not None else loader_of(source, "predict_dataloader")
        if loader is None:
            raise InvalidSpec("There is no predict_dataloader.", hint="trainer.predict(model, loader)")
        step: Callable[..., object] = (
            module.predict_step if hasattr(module, "predict_step") else lambda batch, n: module(batch)
        )
        with self.engine.eval(module):
            return [
                call_with(step, batch, n, 0)
                for n, batch in enumerate(self.engine.batches(only_loader(loader, "predict")))
            ]

    def save_checkpoint(self, filepath: str | Path, *args: object, **options: object) -> None:
        """Write the module's weights to this safetensors file, for `load_from_checkpoint`.
        Stoker writes the run's checkpoints itself."""
        self.engine.export(filepath, self.running.model)

    def log_value(
        self, name: str, value: object, on_step: bool | None, on_epoch: bool | None, size: int | None
    ) -> None:
        """See LightningModule.log."""
        self.running.log_value(name, value, on_step, on_epoch, size)

    def _prepared(self, model: LightningModule, datamodule: LightningDataModule | None, stage: str) -> object:
        """What gives the loaders, after its prepare_data and setup."""
        model.__dict__["_trainer"] = self
        if datamodule is not None:
            datamodule.trainer = self
        for each in (datamodule, model):
            if each is not None:
                if self.is_global_zero:
                    each.prepare_data()
                self.engine.barrier()
                call_with(each.setup, stage)
        for each in self.callbacks:
            if hasattr(each, "setup"):
                call_with(each.setup, self, model, stage)
        return datamodule if datamodule is not None else model

    def tell(self, moment: str, *values: object) -> None:
        """Call a hook of the module and of each callback that defines it."""
        model = self.running.model
        if hasattr(model, moment):
            call_with(getattr(model, moment), *values)
        for each in self.callbacks:
            if hasattr(each, moment):
                call_with(getattr(each, moment), self, model, *values)


class _Moments:
    """The callback that turns the moments of Stoker's Trainer into Lightning's.
    Its state is that of the user's callbacks."""

    def __init__(self, front: Trainer) -> None:
        self.front = front

    def start(self, trainer: OurTrainer) -> None:
        self.front.tell("on_fit_start")
        self.front.tell("on_train_start")

    def epoch(self, trainer: OurTrainer, epoch: int) -> None:
        self.front.tell("on_train_epoch_end")
        self.front.running.evaluated = False

    def end(self, trainer: OurTrainer) -> None:
        self.front.tell("on_train_end")
        self.front.tell("on_fit_end")

    def state_dict(self) -> dict:
        states = [each.state_dict() if hasattr(each, "state_dict") else {} for each in self.front.callbacks]
        return {
            "callbacks": states,
            "metrics": {name: float(value) for name, value in self.front.callback_metrics.items()},
        }

    def load_state_dict(self, state: dict) -> None:
        for each, own in zip(self.front.callbacks, state["callbacks"], strict=True):
            if hasattr(each, "load_state_dict"):
                each.load_state_dict(own)
        self.front.callback_metrics.update(
            {name: torch.tensor(value) for name, value in state["metrics"].items()}
        )


class ByHand:
    """A wrapped optimizer for a module with `automatic_optimization = False`;
    it has the attributes of the optimizer."""

    _engine: Engine
    optimizer: Optimizer

    def __init__(self, engine: Engine, optimizer: Optimizer) -> None:
        self.__dict__.update(_engine=engine, optimizer=optimizer)

    def step(self, closure: Callable[[], object] | None = None, **options: object) -> None:
        """Step the optimizer with the accumulated gradients; losses are not scaled.
        A closure is called first."""
        if closure is not None:
            closure()
        weights = self._engine._core.gradients.weights
        if id(self.optimizer) in weights:
            weights[id(self.optimizer)] = self._engine._micro().share
        self._engine.update(self.optimizer)

    def zero_grad(self, *args: object, **options: object) -> None:
        """Clear its gradients."""
        self._engine._core.gradients.forget(self.optimizer)
        self.optimizer.zero_grad()

    def __getattr__(self, name: str) -> object:
        return getattr(self.__dict__["optimizer"], name)


class _ModuleTask(Task):
    """A LightningModule as a task."""

    def __init__(self, front: Trainer, module: LightningModule, kind: str) -> None:
        self.front = front
        self.model = module
        self.kind = kind
        self.optimizers: list[Optimizer] = []
        self.schedulers: list[object] = []
        self._rules: list[dict] = []  # of each scheduler: interval, frequency, monitor
        self._phase = ""
        self._batch: object = None
        self._logged: dict[str, torch.Tensor] = {}  # in this evaluation batch
        self.evaluated = False  # in this epoch
        self._outputs: list[object] = []  # of the evaluation
        self._epoch: int | None = None

    def build(self) -> None:
        self.optimizers, entries = split(self.model.configure_optimizers())
        self.schedulers = [entry["scheduler"] for entry in entries]
        self._rules = entries
        keep = self.engine.keep
        self._means: dict[str, list[float]] = keep(lightning_means={})  # name -> [sum, weight], of this epoch
        self._kept_outputs: list[dict] = keep(lightning_outputs=[])
        self._passes: dict[str, int] = keep(lightning_passes={"epochs": 0})
        self._collects = overrides(self.model, "training_epoch_end")

    def by_hand(self) -> object:
        """The optimizers for a module that steps them itself."""
        found = [ByHand(self.engine, optimizer) for optimizer in self.optimizers]
        return found[0] if len(found) == 1 else found

    def _autocast(self) -> AbstractContextManager:
        """Around the module's steps, which may call its parts without calling itself."""
        dtype = getattr(self.engine._core.precision, "dtype", None)
        return nullcontext() if dtype is None else torch.autocast(self.engine.device.type, dtype)

    def step(self, batch: object) -> None:
        core = self.engine._core
        if self._epoch != self.front.current_epoch:
            self._epoch = self.front.current_epoch
            with seeds.bubble(core.moves):
                self.front.tell("on_train_epoch_start")
        number = self.engine._micro().number // self.engine.ranks
        self._phase, self._batch = "training", batch
        self.front.tell("on_train_batch_start", batch, number, 0)
        outputs = (
            self._by_hand(batch, number)
            if not self.model.automatic_optimization
            else self._by_rule(batch, number)
        )
        if self._collects:
            self._kept_outputs.append(outputs)
        self.front.tell("on_train_batch_end", outputs, batch, number, 0)
        self._phase = ""

    def _by_hand(self, batch: object, number: int) -> dict:
        with self._autocast():
            result = call_with(self.model.training_step, batch, number)
        if self.engine._core.moved:  # else the module accumulates
            self.engine._core.gradients.drop(self.optimizers)  # what no optimizer took
        return self._output(result)[1]

    def _by_rule(self, batch: object, number: int) -> dict:
        several = len(self.optimizers) > 1
        core = self.engine._core
        named = len(core.objects.optimizers) > 1  # those of an earlier fit are known to the engine too
        output: dict = {}
        for n, optimizer in enumerate(self.optimizers):
            if several:
                self.model.toggle_optimizer(optimizer)
            with self._autocast():
                result = call_with(self.model.training_step, batch, number, *([n] if several else []))
            loss, output = self._output(result)
            if loss is not None:
                self.engine.backward(loss, *([optimizer] if named else []))
                self.engine.log(**{f"loss{n}" if several else "loss": loss})
            if several:
                self.model.untoggle_optimizer(optimizer)
            if id(optimizer) in core.gradients.weights:
                self.engine.update(optimizer)
        return output

    def _output(self, result: torch.Tensor | dict | None) -> tuple[torch.Tensor | None, dict]:
        """(loss, what an epoch's end gets) of what a training step returned.
        Old entries `log` and `progress_bar` are logged."""
        if not isinstance(result, dict):
            return result, {} if result is None else {"loss": result.detach()}
        for name, value in {**result.get("progress_bar", {}), **result.get("log", {})}.items():
            self.log_value(name, value, None, None, None)
        own = {
            name: value.detach() if isinstance(value, torch.Tensor) else value
            for name, value in result.items()
        }
        return result.get("loss"), {
            name: value for name, value in own.items() if name not in ("log", "progress_bar")
        }

    def score(self, batch: object) -> dict[str, torch.Tensor]:
        number = self.engine._micro().number // self.engine.ranks
        if not self._phase:
            self._phase = self.kind
            self._outputs.clear()
            self.front.tell(f"on_{self.kind}_start")
            self.front.tell(f"on_{self.kind}_epoch_start")
        self._batch, self._logged = batch, {}
        with self._autocast():
            result = call_with(getattr(self.model, f"{self.kind}_step"), batch, number, 0)
        self._outputs.append(result)
        return dict(self._logged)

    def after_evaluation(self, scores: dict[str, float]) -> dict[str, float]:
        """The module's own summary of an evaluation is added: means over the ranks of what it logs."""
        self.front.callback_metrics.update({name: torch.tensor(value) for name, value in scores.items()})
        self._phase, self._logged, self.evaluated = "summary", {}, True
        old = [name for name in (f"{self.kind}_epoch_end", f"{self.kind}_end") if hasattr(self.model, name)]
        for name in old:
            result = getattr(self.model, name)(self._outputs)
            if isinstance(result, dict):
                self._logged.update(
                    {n: torch.as_tensor(v) for n, v in {**numbers(result), **result.get("log", {})}.items()}
                )
        self.front.tell(f"on_{self.kind}_epoch_end")
        self._phase, self._outputs = "", []
        found = {
            name: self.engine.average(value.float().mean().item()) for name, value in self._logged.items()
        }
        self.front.callback_metrics.update({name: torch.tensor(value) for name, value in found.items()})
        return {**scores, **found}

    def log_value(
        self, name: str, value: object, on_step: bool | None, on_epoch: bool | None, size: int | None
    ) -> None:
        number = torch.as_tensor(value).detach()
        if self._phase == "training":
            step, epoch = on_step is None or on_step, bool(on_epoch)
            self.front.callback_metrics[name] = number
            if step:
                self.engine.log(**{f"{name}_step" if epoch else name: number})
            if epoch:
                self._add(f"{name}_epoch" if step else name, number, size or rows(self._batch))
        elif self._phase in ("summary", self.kind):
            mean = number.float().mean()
            self._logged[name] = mean.expand(size) if size else mean  # one entry a sample: that is its weight
        else:
            self.front.callback_metrics[name] = number
            self.engine.log(**{name: number})

    def _add(self, name: str, value: torch.Tensor, weight: int) -> None:
        if self.engine._micro().ghost:
            return
        total, weights = self._means.get(name, [0.0, 0])
        self._means[name] = [total + value.double().mean() * weight, weights + weight]

    def after_step(self) -> None:
        self._step_schedules("step", self.engine.steps)

    def after_epoch(self, scores: dict[str, float]) -> None:
        self.end_epoch()
        if self.evaluated:
            self.front.tell("on_validation_end")
        self._passes["epochs"] += 1
        self._step_schedules("epoch", self._passes["epochs"])

    def end_epoch(self) -> None:
        """Means of what was logged with on_epoch, and the old training_epoch_end."""
        found = self.front.inner._means(
            {name: (float(total), weight) for name, (total, weight) in self._means.items()}
        )
        self._means.clear()
        for name, value in found.items():
            self.front.callback_metrics[name] = self.front.callback_metrics[name.removesuffix("_epoch")] = (
                torch.tensor(value)
            )
        if found:
            self.engine.log(**found)
        if self._collects:
            self.model.training_epoch_end(list(self._kept_outputs))
            self._kept_outputs.clear()

    def _step_schedules(self, interval: str, done: int) -> None:
        for rule in self._rules:
            if rule["interval"] != interval or done % rule["frequency"]:
                continue
            if isinstance(rule["scheduler"], ReduceLROnPlateau):
                metric = rule["monitor"] or "val_loss"
                if metric in self.front.callback_metrics:
                    rule["scheduler"].step(float(self.front.callback_metrics[metric]))
            else:
                rule["scheduler"].step()
