"""Loggers of Lightning, as far as Stoker supports them."""

from stoker.compat.lightning import CSVLogger, Logger, TensorBoardLogger, WandbLogger

__all__ = ["CSVLogger", "Logger", "TensorBoardLogger", "WandbLogger"]
