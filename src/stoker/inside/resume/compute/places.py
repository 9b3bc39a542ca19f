"""Where an image may be taken, as far as the shielded calls know:
behind each of them, and not within a step that calls the script back."""

from __future__ import annotations

# > 0: inside a step that calls the script back; what is half done there has no place to come back to
held = 0


def after_event(step: bool = False, graph_freed: bool = False) -> None:
    """Called by each shielded call as it returns.
    Once exact resume is put together, image/points.py stands here."""
