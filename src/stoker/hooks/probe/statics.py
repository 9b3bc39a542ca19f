"""What the script has built and switched on: model, optimizers, loaders, flags. Looked at, never changed."""

from __future__ import annotations


def watch(torch: object) -> None:
    """Stand where flags pass by."""
