"""The name `lightning.pytorch`, provided by `stoker run --compat lightning`."""

from stoker.compat.lightning import (
    Callback,
    LightningDataModule,
    LightningModule,
    Trainer,
    seed_everything,
)

from . import callbacks, loggers

__all__ = [
    "Callback",
    "LightningDataModule",
    "LightningModule",
    "Trainer",
    "callbacks",
    "loggers",
    "seed_everything",
]
