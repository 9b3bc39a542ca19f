"""Kinds of precision of ColossalAI 0.1, as far as Stoker supports it."""

from stoker.compat.colossalai import AMP_TYPE

__all__ = ["AMP_TYPE"]
