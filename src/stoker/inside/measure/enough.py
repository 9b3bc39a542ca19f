"""How a process that was started for a guard or a batch ends:
all that was asked is known, or a fault of ours."""

from __future__ import annotations

from . import order, telling


def reached(**more: object) -> None:
    """All that was asked is known. This process was started for it alone:
    it ends here, and does not come back."""
    order.facts.update(more, steps_seen=telling.steps())
    order.finish("enough")


def failed(kind: str, error: Exception) -> None:
    """A fault of ours: told, and the script goes on alone until it is ended."""
    order.facts.update(fault=f"{kind}: {type(error).__name__}: {error}", steps_seen=telling.steps())
    order.write("enough")


def fenced(kind: str, give_up: object, what: object, *args: object) -> bool:
    """Call `what`. A fault of ours ends the measuring and not the script:
    it gives up, the fault is told, and the answer is False."""
    try:
        what(*args)
        return True
    except Exception as e:
        give_up()
        failed(kind, e)
        return False
