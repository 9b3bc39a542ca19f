"""From losses to one optimizer step: weighted sums over micro-batches and ranks, divided once, clipped,
checked, applied."""

from __future__ import annotations

import math

import torch
from torch.optim import Optimizer

from stoker.engine.data import Micro
from stoker.engine.dist import World
from stoker.engine.errors import InvalidSpec, StateError
from stoker.engine.precision import Precision


class Gradients:
    """The sums since the last step of each optimizer. `wishes`:
    numbers that every rank adds to an exchange."""

    def __init__(self, world: World, precision: Precision, clip: float | None, nan: str) -> None:
        self.world = world
        self.precision = precision
        self.clip = clip
        self.skips = nan != "stop"
        self.weights: dict[int, float] = {}  # id of an optimizer -> weight added up
        self.buffers: list[torch.Tensor] = []  # of all models: rank 0's are everybody's after a step
        self.loss: torch.Tensor | None = None
        self.skipped = 0
        self.bad = ""  # about the last step that was skipped
        self.bad_ranks = 0
        self._before: torch.Tensor | None = None
        # id of an optimizer -> the micro-batch whose weight is in already
        self._counted: dict[int, Micro] = {}

    def add(self, loss: torch.Tensor, optimizers: list[Optimizer], micro: Micro, weight: float | None, *,
            only: bool = False, again: bool = False) -> None:
        """backward. loss: the mean over the micro-batch, or with `weight` the sum over that many units.

        only: compute gradients only for the parameters of these optimizers. again:
        keep the graph for another backward.
        """
        if not isinstance(loss, torch.Tensor) or not loss.requires_grad:
            raise InvalidSpec(
                "The loss has no gradient, because the loss does not depend on any parameter.",
                hint=(
                    "Compute the loss from the model's output, outside of torch.no_grad() and without "
                    ".item() or .detach()."
                ),
            )
        if loss.numel() != 1:
            raise InvalidSpec(f"The loss has shape {tuple(loss.shape)}; a loss must be a scalar.",
                              hint="Use loss.mean(). Or use loss.sum(), and pass the number of entries as "
                                   "`weight`.")
        share = micro.share if weight is None else 0.0 if micro.ghost else float(weight)
        self.loss = loss.detach() / weight if weight else loss
        if micro.slots == 1 and weight is None:
            scaled = loss
        elif weight is None:
            scaled = loss if share == 1.0 else loss * share
        else:
            scaled = loss * 0.0 if micro.ghost else loss
        inputs = [p for o in optimizers for p in _parameters(o) if p.requires_grad] if only else None
        self.precision.scale(scaled).backward(inputs=inputs, retain_graph=again)
        for optimizer in optimizers:
            # two losses of one micro-batch are a sum
            if weight is not None or self._counted.get(id(optimizer)) is not micro:
                self.weights[id(optimizer)] = self.weights.get(id(optimizer), 0.0) + share
            self._counted[id(optimizer)] = micro

    def apply(self, optimizers: list[Optimizer], wishes: list[float], step: int) -> list[float]:
        """Step these optimizers with the accumulated gradients. Returns the sums of the wishes.

        Raises StateError for a loss or gradient that is not finite.
        """
        for optimizer in optimizers:
            if id(optimizer) not in self.weights:
                raise InvalidSpec(f"Call backward before update({type(optimizer).__name__}).",
                                  hint="engine.backward(loss, optimizer), then engine.update(optimizer).")
        weights = [self.weights[id(o)] for o in optimizers]
        for optimizer in optimizers:
            self.forget(optimizer)
        alone = self.world.size == 1
        sums = weights if alone else self._exchange(optimizers, [*weights, *wishes])
        for optimizer, weight in zip(optimizers, sums, strict=False):
            if weight != 1.0:
                _divide(_parameters(optimizer), weight)
            self.precision.unscale(optimizer)
        norm = torch.nn.utils.clip_grad_norm_(_all(optimizers), self.clip) if self.clip is not None else None
        if self._finite(norm, optimizers, step):
            for optimizer in optimizers:
                self.precision.step(optimizer)
        for optimizer in optimizers:
            optimizer.zero_grad(set_to_none=True)
        if not alone:
            self.world.same_everywhere(self.buffers)
        return sums[len(weights):]

    def _exchange(self, optimizers: list[Optimizer], numbers: list[float]) -> list[float]:
        """Sum gradients and numbers over the ranks,
        and learn whether a rank has a loss that is not finite."""
        bad = not self.skips and self.loss is not None and not math.isfinite(self.loss.item())
        *sums, bad_ranks = self.world.sum_gradients(_all(optimizers), [*numbers, float(bad)])
        self.bad_ranks = int(bad_ranks)
        return sums

    def forget(self, optimizer: Optimizer) -> None:
        """Forget the sums of this optimizer, after they were used or dropped."""
        self.weights.pop(id(optimizer), None)
        self._counted.pop(id(optimizer), None)

    def drop(self, optimizers: list[Optimizer]) -> bool:
        """Drop the sums without a step. Returns True if there were any."""
        pending = bool(self.weights)
        if pending:
            self.weights.clear()
            self._counted.clear()
            for optimizer in optimizers:
                optimizer.zero_grad(set_to_none=True)
        return pending

    def _finite(self, norm: torch.Tensor | None, optimizers: list[Optimizer], step: int) -> bool:
        """May the step be made? With a scaler it decides by itself."""
        if self.precision.scales:
            return True
        if self.skips and norm is None:
            norm = torch.nn.utils.get_total_norm([p.grad for p in _all(optimizers) if p.grad is not None])
        seen = norm if norm is not None else self.loss
        # one step late: nothing waits for the device
        if seen is not None and seen.is_cuda and not self.skips:
            now = seen.detach().clone()
            seen, self._before = self._before, now
        own = self.world.size == 1 or norm is not None  # else the exchange has told about every rank's loss
        if not self.bad_ranks and (seen is None or not own or math.isfinite(seen.item())):
            return True
        if self.skips:
            self.skipped += 1
            self.bad = self.first_bad(_all(optimizers))
            return False
        what = "The gradient" if norm is not None else "The loss"
        value = "on some rank" if seen is None or math.isfinite(seen.item()) else seen.item()
        raise StateError(
            f"{what} of step {step:,} is not finite ({value}). {self.first_bad(_all(optimizers))}",
            hint='The last checkpoint is not affected. Engine(nan="skip") skips such steps. '
            "A lower learning rate or clip=1.0 often prevents NaN and infinite values.",
        )

    def first_bad(self, parameters: list[torch.Tensor]) -> str:
        """A sentence that names the first parameter with a value or gradient that is not finite.
        The engine sets `names`."""
        for p in parameters:
            if not p.isfinite().all():
                return f"{self.names.get(p, 'A parameter')} is not finite."
        for p in reversed(parameters):
            if p.grad is not None and not p.grad.isfinite().all():
                return (
                    "Starting from the loss, the first bad gradient is at "
                    f"{self.names.get(p, 'a parameter')}."
                )
        return "All parameters and gradients are finite."

    names: dict[torch.Tensor, str] = {}  # noqa: RUF012  # replaced by the engine's own


def _parameters(optimizer: Optimizer) -> list[torch.Tensor]:
    return [p for group in optimizer.param_groups for p in group["params"]]


def _all(optimizers: list[Optimizer]) -> list[torch.Tensor]:
    """The parameters of all of them, each once."""
    return list(dict.fromkeys(p for o in optimizers for p in _parameters(o)))


def _divide(parameters: list[torch.Tensor], weight: float) -> None:
    grads = [p.grad for p in parameters if p.grad is not None]
    if grads and weight:
        torch._foreach_div_(grads, weight)
