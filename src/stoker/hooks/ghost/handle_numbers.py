"""torch's row of numbers for hooks, a part of each image: a hook that a model's call registers takes one, and a ghost does not make that
call. A life that went on with a smaller number could give the number of a hook that is there to another one.
"""

from __future__ import annotations

import sys


def save(_store: object = None) -> int:
    return _handle().next_id


def load(number: int, _store: object = None) -> None:
    _handle().next_id = number


def _handle() -> type:
    return sys.modules["torch.utils.hooks"].RemovableHandle
