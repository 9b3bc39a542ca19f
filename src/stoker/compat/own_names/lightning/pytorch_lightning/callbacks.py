"""Callbacks of Lightning, as far as Stoker supports them."""

from stoker.compat.lightning import Callback, EarlyStopping, ModelCheckpoint

__all__ = ["Callback", "EarlyStopping", "ModelCheckpoint"]
