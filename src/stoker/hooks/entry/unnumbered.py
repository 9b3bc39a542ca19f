"""Hooks of ours on torch's objects. torch numbers all hooks of a process in one row, and scripts keep the numbers of theirs: ours come from
another row, so that a script's are the same with us and without, and in each life of a run.
"""

from __future__ import annotations

_next = 1 << 40


def register(call: object, *args: object) -> object:
    """What `call(*args)` gives, one of torch's `register_...` functions."""
    global _next
    from torch.utils.hooks import RemovableHandle

    theirs, RemovableHandle.next_id = RemovableHandle.next_id, _next
    try:
        return call(*args)
    finally:
        _next, RemovableHandle.next_id = RemovableHandle.next_id, theirs
