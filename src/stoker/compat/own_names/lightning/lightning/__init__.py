"""The name `lightning`, provided by `stoker run --compat lightning`."""

from stoker.compat.check import lend
from stoker.compat.lightning import (
    Callback,
    LightningDataModule,
    LightningModule,
    Trainer,
    seed_everything,
)

LENT = lend("lightning", __file__)
__all__ = ["Callback", "LightningDataModule", "LightningModule", "Trainer", "seed_everything"]
