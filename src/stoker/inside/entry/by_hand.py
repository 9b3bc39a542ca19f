"""When a backward counts as a step: a script without an optimizer changes its weights by hand (`p -= lr *
p.grad`) after each one."""

from __future__ import annotations

import gc
import sys

# backwards that may come before the first step of an optimizer (accumulation); then one is looked for
FIRST = 8


class Backwards:
    """The backwards of one process. `steps`: how many of them were steps."""

    def __init__(self) -> None:
        self._made = 0  # -1: there is an optimizer
        self.steps = 0

    def is_step(self, optimizer: object) -> bool:
        """After a backward. `optimizer`: true if one is known of."""
        if self._made < 0:
            return False
        if optimizer or (self._made == FIRST and _optimizer_is_there()):
            self._made = -1
            return False
        self._made += 1
        if self._made > FIRST:
            self.steps += 1
        return self._made > FIRST


def _optimizer_is_there() -> bool:
    """Whether the process has made one, which may step only after many a backward."""
    optimizer = sys.modules["torch"].optim.Optimizer
    return any(issubclass(type(each), optimizer) for each in gc.get_objects())
