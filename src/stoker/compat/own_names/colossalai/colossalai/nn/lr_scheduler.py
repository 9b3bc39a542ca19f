"""The schedules of ColossalAI 0.1, as far as Stoker supports it."""

from stoker.compat.colossalai import CosineAnnealingLR

__all__ = ["CosineAnnealingLR"]
