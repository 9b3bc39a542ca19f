"""Hooks of ours on torch's objects. torch numbers all hooks of a process in one row, and scripts keep the
numbers of theirs: ours come from another row, so that a script's are the same with us and without, and in
each life of a run.
"""

from __future__ import annotations

_next = 1 << 40  # no script registers so many


def register(call: object, *args: object) -> object:
    """What `call(*args)` gives, one of torch's `register_...` functions."""
    global _next
    from torch.utils.hooks import RemovableHandle

    # a torch that counts elsewhere: exact resume turns itself off there, others do without
    if not hasattr(RemovableHandle, "next_id"):
        return call(*args)
    theirs, RemovableHandle.next_id = RemovableHandle.next_id, _next
    try:
        return call(*args)
    finally:
        _next, RemovableHandle.next_id = RemovableHandle.next_id, theirs
