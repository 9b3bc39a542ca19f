"""The context of ColossalAI 0.1, as far as Stoker supports it."""

from stoker.compat.colossalai import global_context

__all__ = ["global_context"]
