"""The engine interface of ColossalAI 0.1 on Stoker's Engine:
a script written for it trains, resumes bit-exactly, and runs on CPU ranks.

    from stoker.compat import colossalai
    from stoker.compat.colossalai import CosineAnnealingLR, get_dataloader, get_dist_logger,
    global_context as gpc

    colossalai.launch_from_torch(config="./config.py")
    engine, train, test, _ = colossalai.initialize(model, optimizer, criterion, train, test)
    for epoch in range(gpc.config.NUM_EPOCHS):
        engine.train()
        for images, labels in train:
            engine.zero_grad()
            loss = engine.criterion(engine(images), labels)
            engine.backward(loss)
            engine.step()

`range` over a number of epochs of the configuration is the engine's loop over epochs:
it begins with the epoch that the run has reached.
Source of names and meanings: ColossalAI 0.1, colossalai/initialize.py and engine/_base_engine.py.
"""

from __future__ import annotations

import builtins
import enum
import os
import runpy
import sys
from collections.abc import Callable, Iterable, Iterator, Sized
from pathlib import Path
from types import FrameType, ModuleType
from typing import cast

import torch
from torch import nn
from torch.optim import Optimizer
from torch.optim.lr_scheduler import CosineAnnealingLR as TorchCosine
from torch.optim.lr_scheduler import LRScheduler, ReduceLROnPlateau
from torch.utils.data import DataLoader, Dataset

from stoker.engine import engine as engines
from stoker.engine.errors import InvalidSpec, StateError
from stoker.engine.progress import say

NOT_ONE = ("pipeline", "tensor")  # parts of `parallel` that split a model
NO_LOOP = (
    "this loop does not read its number of epochs from the configuration, so Stoker saves nothing, and a "
    "restart starts from scratch. To make the loop resumable: `for epoch in range(gpc.config.NUM_EPOCHS)`"
)


class AMP_TYPE(enum.Enum):  # ColossalAI's name
    """Kinds of mixed precision. Here, all of them mean float16 with a gradient scaler."""

    APEX = "apex"
    TORCH = "torch"
    NAIVE = "naive"


class Epochs(int):
    """A number of epochs from the configuration."""


class Config(dict):
    """The configuration: a dict whose entries are also attributes."""

    def __getattr__(self, name: str) -> object:
        if name not in self:
            raise AttributeError(f"The configuration has no {name}.")
        return self[name]

    def __setattr__(self, name: str, value: object) -> None:
        self[name] = _entry(name, value)


class Context:
    """The object behind `global_context`."""

    def __init__(self) -> None:
        self.config = Config()
        self.core: engines.Engine | None = None  # Stoker's engine of this run
        self.schedulers: list[LRScheduler] = []

    def engine(self) -> engines.Engine:
        """Stoker's engine. Raises StateError before launch."""
        if self.core is None:
            raise StateError(
                "launch_from_torch was not called yet.",
                hint='colossalai.launch_from_torch(config="./config.py")',
            )
        return self.core

    def get_global_rank(self) -> int:
        """The number of this process, from 0."""
        return self.engine().rank

    def get_local_rank(self, parallel_mode: object = None) -> int:
        """The number of this process on this machine, from 0."""
        return int(os.environ.get("LOCAL_RANK", "0"))

    def get_world_size(self, parallel_mode: object = None) -> int:
        """The number of processes that train together."""
        return self.engine().ranks


global_context = Context()


def launch_from_torch(
    config: str | Path | dict,
    host: object = None,
    port: object = None,
    backend: str | None = None,
    seed: int = 1024,
    verbose: bool = True,
) -> None:
    """Read the configuration, join the ranks that torchrun started, and set the random numbers.

    config: a dict, or a Python file whose variables are the entries. Supported entries: `fp16`,
        `gradient_accumulation`, `clip_grad_norm`; `parallel` must not split the model.
        host, port, backend and verbose are accepted without effect:
        the launcher's environment and the device decide.
    Raises InvalidSpec for a configuration that Stoker does not support.
    """
    context = global_context
    context.config = read(config)
    asked = context.config
    split = asked.get("parallel") or {}
    sizes = [
        part.get("size", 1) if isinstance(part, dict) else part
        for part in (split.get(name, 1) for name in NOT_ONE)
    ]
    if any(size and size > 1 for size in sizes) or "zero" in asked:
        raise InvalidSpec(
            "The configuration splits the model (parallel or zero), which Stoker's engine does not do.",
            hint=(
                "Remove `parallel` and `zero`: each rank then trains the whole model on its part of the "
                "data."
            ),
        )
    context.core = engines.Engine(
        seed=seed,
        precision="fp16" if asked.get("fp16") else "fp32",
        clip=asked.get("clip_grad_norm") or None,
        accumulate=asked.get("gradient_accumulation", 1),
        save=asked.get("stoker_save", "1min"),
    )
    context.schedulers = []
    if context.core.device.type == "cuda":
        torch.cuda.set_device(context.core.device)
    else:
        _stay_on_cpu()


def read(config: str | Path | dict) -> Config:
    """The configuration. Raises InvalidSpec if there is no such file."""
    if isinstance(config, dict):
        found = dict(config)
    elif os.path.isfile(config):
        values = runpy.run_path(os.fspath(config))
        found = {
            k: v
            for k, v in values.items()
            if not k.startswith("_") and not isinstance(v, ModuleType | type | Callable)
        }
    else:
        raise InvalidSpec(
            f"There is no configuration file {config}.",
            hint="launch_from_torch takes a Python file or a dict.",
        )
    return Config({name: _entry(name, value) for name, value in found.items()})


def _entry(name: str, value: object) -> object:
    if isinstance(value, dict):
        return Config({key: _entry(str(key), each) for key, each in value.items()})
    return Epochs(value) if type(value) is int and "EPOCH" in name.upper() else value


def _stay_on_cpu() -> None:
    """`.cuda()` gives the object itself; said at its first call."""
    told: list[bool] = []

    def cuda(self: object, *args: object, **options: object) -> object:
        if not told and global_context.get_global_rank() == 0:
            say("there is no GPU, so .cuda() has no effect: tensors and models stay on the CPU")
        told.append(True)
        return self

    torch.Tensor.cuda = cuda
    nn.Module.cuda = cuda


def get_dataloader(
    dataset: Dataset,
    shuffle: bool = False,
    seed: int = 1024,
    add_sampler: bool = True,
    drop_last: bool = False,
    pin_memory: bool = False,
    num_workers: int = 0,
    **options: object,
) -> DataLoader:
    """A DataLoader. The order of samples is derived from the seed of `launch_from_torch`.

    add_sampler: in an evaluation, distribute the samples over the ranks;
    otherwise every rank gets all samples. In training, the samples are always distributed. options:
    as for torch's DataLoader (batch_size, collate_fn, ...), per rank.
    """
    loader = DataLoader(
        dataset,
        shuffle=shuffle,
        drop_last=drop_last,
        pin_memory=pin_memory,
        num_workers=num_workers,
        **options,
    )
    loader.stoker_shares = add_sampler
    return loader


class CosineAnnealingLR(TorchCosine):
    """Half a cosine over `total_steps` calls of step(), from the optimizer's rate to `eta_min`.
    Saved and restored by the engine."""

    def __init__(
        self, optimizer: Optimizer, total_steps: int, eta_min: float = 0.0, last_epoch: int = -1
    ) -> None:
        super().__init__(optimizer, int(total_steps), eta_min=eta_min, last_epoch=last_epoch)
        global_context.schedulers.append(self)


class Loader:
    """A wrapped DataLoader for the script; it has the attributes of the DataLoader."""

    _engine: Engine
    _loader: Iterable

    def __init__(self, engine: Engine, loader: Iterable) -> None:
        self.__dict__.update(_engine=engine, _loader=loader)

    def __len__(self) -> int:
        shared = self._engine.training or self._engine.shares(self._loader)
        ranks = self._engine.stoker.ranks if shared else 1
        return (len(cast(Sized, self._loader)) + ranks - 1) // ranks

    def __iter__(self) -> Iterator:
        return (
            self._engine.training_loop(self._loader)
            if self._engine.training
            else self._engine.evaluation_loop(self._loader)
        )

    def __getattr__(self, name: str) -> object:
        return getattr(self.__dict__["_loader"], name)


class Engine:
    """The engine object of a script: `train`, `eval`, `zero_grad`, `criterion`, `backward`, `step`;
    calling it calls the model."""

    def __init__(
        self, stoker: engines.Engine, model: nn.Module, optimizer: Optimizer, criterion: Callable | None
    ) -> None:
        self.stoker = stoker
        self.model = model
        self.optimizer = optimizer
        self._criterion = criterion
        self.training = True

    def train(self) -> None:
        """Switch to training mode."""
        self.training = True
        self.model.train()

    def eval(self) -> None:
        """Switch to evaluation mode: loaders return all samples and do not
        change the random numbers of the training."""
        self.training = False
        self.model.eval()

    def __call__(self, *inputs: object, **named: object) -> object:
        return self.model(*inputs, **named)

    def criterion(self, *args: object) -> torch.Tensor:
        """Compute the loss. Raises InvalidSpec if initialize got no criterion."""
        if self._criterion is None:
            raise InvalidSpec(
                "initialize needs a criterion.",
                hint="colossalai.initialize(model, optimizer, criterion, ...)",
            )
        return self._criterion(*args)

    def zero_grad(self) -> None:
        """No effect: gradients are cleared after each step, and kept within an accumulation."""

    def backward(self, loss: torch.Tensor) -> None:
        """Add the gradients of the loss (the mean over the micro-batch)."""
        self.stoker.backward(loss)

    def step(self) -> bool:
        """Step the optimizer at the end of an accumulation. Returns True if it stepped."""
        return self.stoker.update()

    @staticmethod
    def shares(loader: Iterable) -> bool:
        """True if the samples of an evaluation are distributed over the ranks."""
        return getattr(loader, "stoker_shares", True)

    def training_loop(self, loader: Iterable) -> Iterator:
        """This rank's micro-batches."""
        core = self.stoker._core
        if not core.in_epochs() and not core.keeper.off:
            say(NO_LOOP)
            core.keeper.off = True
        return iter(self.stoker.batches(loader))

    def evaluation_loop(self, loader: Iterable) -> Iterator:
        """All samples once: distributed over the ranks, or complete on each rank."""
        with self.stoker.eval(self.model):
            if not self.shares(loader):
                yield from loader
                return
            batches = self.stoker.batches(loader)
            try:
                yield from batches
            finally:
                del batches


def initialize(
    model: nn.Module,
    optimizer: Optimizer,
    criterion: Callable | None = None,
    train_dataloader: Iterable | None = None,
    test_dataloader: Iterable | None = None,
    lr_scheduler: object = None,
    verbose: bool = True,
) -> tuple[Engine, Loader | None, Loader | None, object]:
    """Returns (engine, training loader, test loader, scheduler).
    Moves the model to the device and registers all objects; a resumed run restores them.

    Also registered: schedulers of this module, and torch schedulers of this optimizer in the caller's
    variables. With `gradient_accumulation`, the returned scheduler counts optimizer steps, as in ColossalAI.
    Raises StateError before launch_from_torch, InvalidSpec for objects that cannot be saved.
    """
    stoker = global_context.engine()
    caller = sys._getframe(1)
    mine = [lr_scheduler, *global_context.schedulers, *_schedulers_of(caller, optimizer)]
    schedulers = list({id(each): each for each in mine if each is not None}.values())
    loaders = [loader for loader in (train_dataloader, test_dataloader) if isinstance(loader, DataLoader)]
    stoker.setup(model, optimizer, *schedulers, *loaders)
    engine = Engine(stoker, model, optimizer, criterion)
    _give_range(caller)
    wrapped = [
        None if loader is None else Loader(engine, loader) for loader in (train_dataloader, test_dataloader)
    ]
    counted = lr_scheduler is not None and stoker._core.config.accumulate > 1
    return engine, wrapped[0], wrapped[1], ByStep(stoker, lr_scheduler) if counted else lr_scheduler


class ByStep:
    """A wrapped scheduler whose step() does nothing within an accumulation;
    it has the attributes of the scheduler."""

    _stoker: engines.Engine
    _scheduler: LRScheduler | ReduceLROnPlateau

    def __init__(self, stoker: engines.Engine, scheduler: object) -> None:
        self.__dict__.update(_stoker=stoker, _scheduler=scheduler)

    def step(self, *args: object, **options: object) -> None:
        """Step the scheduler after the last micro-batch of an optimizer step,
        and outside of loops over batches."""
        micro = self._stoker._core.micro
        if micro is None or micro.last:
            self._scheduler.step(*args, **options)

    def __getattr__(self, name: str) -> object:
        return getattr(self.__dict__["_scheduler"], name)


def _schedulers_of(frame: FrameType, optimizer: Optimizer) -> list[object]:
    values = [*frame.f_locals.values(), *frame.f_globals.values()]
    return [
        each
        for each in values
        if isinstance(each, LRScheduler | ReduceLROnPlateau) and each.optimizer is optimizer
    ]


class _Range(type):
    """What calls and isinstance do with `EpochsOrNumbers`."""

    def __call__(cls, *limits: int) -> Iterable[int]:
        first = limits[0] if len(limits) == 2 else 0
        if limits and len(limits) <= 2 and type(limits[-1]) is Epochs and first == 0:
            return global_context.engine().epochs(int(limits[-1]))
        return builtins.range(*limits)

    def __instancecheck__(cls, value: object) -> bool:
        return isinstance(value, builtins.range)


class EpochsOrNumbers(metaclass=_Range):
    """Replaces `range` in the module that calls initialize:
    for a number of epochs from the configuration, it is the engine's loop."""


def _give_range(frame: FrameType) -> None:
    frame.f_globals.setdefault("range", EpochsOrNumbers)


class DistributedLogger:
    """Prints messages with their level on the given ranks;
    silent until a resumed run has reached its position."""

    def _print(self, level: str, message: object, ranks: Iterable[int] | None) -> None:
        stoker = global_context.core
        rank = stoker.rank if stoker is not None else int(os.environ.get("RANK", "0"))
        if (ranks is None or rank in ranks) and (stoker is None or not stoker._core.resuming):
            print(f"{level}: {message}", flush=True)

    def info(self, message: object, parallel_mode: object = None, ranks: Iterable[int] | None = None) -> None:
        """Print a message. ranks: print only on these ranks; all by default."""
        self._print("INFO", message, ranks)

    def warning(
        self, message: object, parallel_mode: object = None, ranks: Iterable[int] | None = None
    ) -> None:
        """As `info`."""
        self._print("WARNING", message, ranks)

    def error(
        self, message: object, parallel_mode: object = None, ranks: Iterable[int] | None = None
    ) -> None:
        """As `info`."""
        self._print("ERROR", message, ranks)

    def debug(
        self, message: object, parallel_mode: object = None, ranks: Iterable[int] | None = None
    ) -> None:
        """Print nothing."""


_logger = DistributedLogger()


def get_dist_logger(name: str = "colossalai") -> DistributedLogger:
    """The logger; all callers share one logger."""
    return _logger
