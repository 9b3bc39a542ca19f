"""The name `pytorch_lightning`, provided by `stoker run --compat lightning`."""

from stoker.compat.check import lend
from stoker.compat.lightning import (
    Callback,
    LightningDataModule,
    LightningModule,
    Trainer,
    data_loader,
    seed_everything,
)

from . import callbacks, loggers

LENT = lend("pytorch_lightning", __file__)
__all__ = [
    "Callback",
    "LightningDataModule",
    "LightningModule",
    "Trainer",
    "callbacks",
    "data_loader",
    "loggers",
    "seed_everything",
]
