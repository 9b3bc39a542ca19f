"""The loaders of ColossalAI 0.1, as far as Stoker supports it."""

from stoker.compat.colossalai import get_dataloader

__all__ = ["get_dataloader"]
