"""What a script hands to TensorBoard, written beside as one JSON line a call. Seen where the library has made plain numbers of it.

Nothing of the script's is touched: no tensor is read, no value converted, no argument changed.
"""

from __future__ import annotations


def watch() -> None:
    """Once for a script, before it begins. Costs nothing where no such library is imported."""
    from ..entry import imports
    for name in ("torch.utils.tensorboard.writer", "tensorboardX.writer"):
        imports.after(name, _tensorboard_is_here)


def _tensorboard_is_here(module: object) -> None:
    from . import board
    board.install(module)
