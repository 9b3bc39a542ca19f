"""Until it is known which modules the script calls itself, the call of each module is watched."""

from __future__ import annotations

import sys

from .wrapping import dressed

learning = None  # the code of that watch; set by marks


def watch(kind: type, call: object) -> None:
    """This class of the script's has a watch of its own from now on: `call(torch.nn.Module)`."""
    base = sys.modules["torch"].nn.Module
    if kind.__call__ is base.__call__ and is_learning(base):
        kind.__call__ = dressed(base.__call__, call(base))


def learned() -> None:
    """The modules are known: all others are called as if we were not there."""
    module = sys.modules["torch"].nn.Module
    if not is_learning(module):
        return
    ours = module.__call__
    module.__call__ = ours.__wrapped__
    known = sys.modules.get("torch._dynamo.utils")
    # it was imported since, and took ours for torch's own
    if getattr(known, "unpatched_nn_module_call", None) is ours:
        known.unpatched_nn_module_call = ours.__wrapped__


def is_learning(module: object) -> bool:
    """Whether nobody stands around us. Exact resume does:
    what is outside of it is part of the script for it."""
    return getattr(module.__call__, "__code__", None) is learning
