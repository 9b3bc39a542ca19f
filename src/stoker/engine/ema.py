"""The exponential moving average of a model's weights,
kept in addition to the model and resumed with the model."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import nn

from stoker.engine.errors import InvalidSpec


class EMA:
    """Averaged weights of a model. Pass the EMA to `engine.setup`, and call `update` after each optimizer
    step. If you use a Trainer, the Trainer makes these two calls.

        ema = stoker.EMA(model, decay=0.999)
        with ema.applied():      # here, the model computes with the averages
            ...

    The decay of update `n` is at most `(1 + n) / (10 + n)`, so that the averages change quickly
    during the first updates.
    TensorFlow's ExponentialMovingAverage uses the same limit.
    The EMA averages parameters and floating-point buffers. The EMA copies other buffers.
    """

    def __init__(self, model: nn.Module, decay: float = 0.999) -> None:
        """decay: the factor of the previous average in each update. The factor of the current value is
            `1 - decay`. The decay is at least 0 and below 1.
        Raises InvalidSpec if `decay` is outside this range."""
        if not 0 <= decay < 1:
            raise InvalidSpec(f"EMA(decay={decay!r}): decay must be at least 0 and below 1.")
        self.model = model
        self.decay = decay
        self.updates = 0
        self._averages: dict[str, torch.Tensor] = {}

    def _current(self) -> dict[str, torch.Tensor]:
        return {name: t.detach() for name, t in [*self.model.named_parameters(), *self.model.named_buffers()]}

    @torch.no_grad()
    def update(self) -> None:
        """Move the averages towards the current weights. The first update copies the weights."""
        self.updates += 1
        decay = min(self.decay, (1 + self.updates) / (10 + self.updates))
        for name, now in self._current().items():
            held = self._averages.get(name)
            if held is None or not now.is_floating_point():
                self._averages[name] = now.clone()
            else:
                held.lerp_(now, 1 - decay)

    @contextmanager
    def applied(self) -> Iterator[None]:
        """Inside the `with` block, the model has the averaged weights. After the block, the model has its own
        weights again.

        Before the first update, there are no averages, and the model keeps its own weights."""
        current = self._current()
        own = {name: current[name].clone() for name in self._averages}
        self._put(self._averages)
        try:
            yield
        finally:
            self._put(own)

    @torch.no_grad()
    def _put(self, values: dict[str, torch.Tensor]) -> None:
        current = self._current()
        for name, value in values.items():
            current[name].copy_(value)

    def state_dict(self) -> dict:
        """Return the number of updates, and the averages by name."""
        return {"updates": self.updates, "averages": dict(self._averages)}

    def load_state_dict(self, state: dict) -> None:
        """Restore what `state_dict` returned.
        Raises InvalidSpec if a name or a shape in the averages differs from the model."""
        current = self._current()
        strangers = [
            name
            for name, value in state["averages"].items()
            if name not in current or current[name].shape != value.shape
        ]
        if strangers:
            raise InvalidSpec(
                f"The averages belong to a different model: {strangers[0]} is not in "
                f"{type(self.model).__name__}, "
                "or has another shape."
            )
        self.updates = state["updates"]
        self._averages = {name: value.to(current[name].device) for name, value in state["averages"].items()}
