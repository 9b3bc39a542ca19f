"""When a backward counts as a step: a script without an optimizer changes its weights by hand (`p -= lr * p.grad`) after each one."""

from __future__ import annotations

import gc
import sys

FIRST = 8  # backwards that may come before the first step of an optimizer (accumulation); then one is looked for


class Backwards:
    """The backwards of one process. `steps`: how many of them were steps; `made`: how many there were; -1: there is an optimizer, none
    of them is one any more."""

    def __init__(self) -> None:
        self.made = 0
        self.steps = 0

    def is_step(self, optimizer: object) -> bool:
        """After a backward. `optimizer`: true if one is known of."""
        if self.made < 0:
            return False
        if optimizer or (self.made == FIRST and _optimizer_is_there()):
            self.made = -1
            return False
        self.made += 1
        if self.made > FIRST:
            self.steps += 1
        return self.made > FIRST


def _optimizer_is_there() -> bool:
    """Whether the process has made one, which may step only after many a backward."""
    optimizer = sys.modules["torch"].optim.Optimizer
    return any(issubclass(type(each), optimizer) for each in gc.get_objects())
