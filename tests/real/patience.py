"""Waiting for what real parts do."""

from __future__ import annotations

import time
from collections.abc import Callable


def until(condition: Callable, what: str, timeout_s: float = 40.0):
    """The first true value of `condition`; fails with what was waited for."""
    deadline = time.monotonic() + timeout_s
    while not (value := condition()):
        assert time.monotonic() < deadline, f"waited {timeout_s} s in vain for {what}"
        time.sleep(0.02)
    return value
