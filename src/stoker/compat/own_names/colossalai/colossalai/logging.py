"""The logger of ColossalAI 0.1, as far as Stoker supports it."""

from stoker.compat.colossalai import get_dist_logger

__all__ = ["get_dist_logger"]
