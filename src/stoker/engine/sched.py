"""Learning rates over a run: `cosine`, `step` and `linear`, with warm-up, in steps, epochs or samples.

    schedule = stoker.sched.cosine(optimizer, "14ep", warmup="500step")
    schedule.step()    # after each optimizer step; a Trainer does it

A schedule counts only optimizer steps, so accumulation and the number of ranks do not change it.
Sources: cosine, Loshchilov and Hutter 2016 (arXiv 1608.03983), without restarts;
linear warm-up, Goyal et al. 2017 (arXiv 1706.02677).
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sized
from typing import cast

from torch.optim import Optimizer

from stoker.engine.errors import InvalidSpec

Length = str | int
UNITS = {"step": "steps", "ep": "epochs", "sample": "samples"}


class Schedule:
    """A learning rate as a function of optimizer steps. Pass the schedule to `engine.setup`, so that
    checkpoints contain the schedule.

    An Engine or a Trainer sets the length of an epoch with `bind`.
    In a loop without an Engine, call `bind(loader)` if a length is in epochs or samples.
    A resumed run takes the lengths from the current code, and the number of steps so far from the checkpoint.
    So you can make `total` longer when you resume.
    """

    def __init__(
        self, optimizer: Optimizer, lengths: dict[str, Length], shape: Callable[[int, dict[str, int]], float]
    ) -> None:
        """
        lengths: a dict with a length for each name, such as {"total": "14ep", "warmup": "500step"}.
        shape: a function of the step (counted from the end of the warm-up) and of the lengths in steps. The
            function returns the factor of the base rates.
        """
        self.optimizer = optimizer
        self.steps = 0
        self._shape = shape
        self._asked = {name: _parse(name, text) for name, text in lengths.items()}
        self._lengths: dict[str, int] = {}
        self._base = [group["lr"] for group in optimizer.param_groups]
        if all(unit == "steps" for _, unit in self._asked.values()):
            self._measure(0, 0)

    @property
    def bound(self) -> bool:
        """True if the schedule knows all lengths in steps."""
        return bool(self._lengths)

    def bind(self, loader: object, window: int = 1) -> None:
        """Set the length of an epoch from a loader. `window` is the number of batches in one optimizer step.
        Raises InvalidSpec if the schedule has a length in epochs, and the loader has no length.
        Raises InvalidSpec if the schedule has a length in samples, and the loader has no batch size."""
        size = getattr(loader, "batch_size", None) or 0
        try:
            batches = len(cast("Sized", loader))
        except TypeError:
            batches = 0
        self._measure(-(-batches // window), size * window)

    def _measure(self, steps_per_epoch: int, samples_per_step: int) -> None:
        for name, (number, unit) in self._asked.items():
            if (unit == "epochs" and not steps_per_epoch) or (unit == "samples" and not samples_per_step):
                raise InvalidSpec(
                    f"The schedule's {name} is in {unit}, but the loader has no "
                    f"{'length' if unit == 'epochs' else 'batch size'}, so {name} cannot be converted to "
                    "steps.",
                    hint=f'Give {name} in steps, such as "500step".',
                )
            steps = {
                "steps": number,
                "epochs": number * steps_per_epoch,
                "samples": number / max(samples_per_step, 1),
            }[unit]
            self._lengths[name] = math.ceil(steps - 1e-9)
        self._apply()

    def factor(self) -> float:
        """Return the factor by which the base rates are multiplied for the next optimizer step."""
        warm = self._lengths["warmup"]
        if self.steps < warm:
            return (self.steps + 1) / warm
        return self._shape(
            self.steps - warm, {**self._lengths, "total": self._lengths.get("total", 0) - warm}
        )

    def step(self) -> None:
        """Count one optimizer step, and set the learning rates.
        Raises InvalidSpec if a length is in epochs or samples, and nothing has called `bind`."""
        if not self.bound:
            raise InvalidSpec(
                "The schedule has a length in epochs or samples, but does not know the length of an epoch.",
                hint="Give schedule and loader to engine.setup, or call schedule.bind(loader).",
            )
        self.steps += 1
        self._apply()

    def _apply(self) -> None:
        factor = self.factor()
        for group, base in zip(self.optimizer.param_groups, self._base, strict=True):
            rate = base * factor
            if hasattr(group["lr"], "fill_"):
                group["lr"].fill_(rate)
            else:
                group["lr"] = rate

    def get_last_lr(self) -> list[float]:
        """Return the learning rate of each parameter group."""
        return [float(group["lr"]) for group in self.optimizer.param_groups]

    def state_dict(self) -> dict:
        """Return the number of steps so far and the base rates."""
        return {"steps": self.steps, "base": [float(base) for base in self._base]}

    def load_state_dict(self, state: dict) -> None:
        """Restore what `state_dict` returned."""
        self.steps, self._base = state["steps"], list(state["base"])
        if self.bound:
            self._apply()


def cosine(optimizer: Optimizer, total: Length, *, warmup: Length = 0, floor: float = 0.0) -> Schedule:
    """Return a schedule with the shape of half a cosine. During the warm-up (`warmup`), the learning rate
    increases linearly to the base rate, which is the rate that you gave to the optimizer. After the warm-up,
    the rate decreases along half a cosine. At the end of `total`, the rate is `floor` times the base rate.
    `total` includes the warm-up.

    The lengths `total` and `warmup` are texts such as "5000step", "14ep" or "2000000sample". An int
    without a unit is a number of steps. Raises InvalidSpec for a text of another form.
    """
    return Schedule(optimizer, {"total": total, "warmup": warmup},
                    lambda n, of: floor + (1 - floor) * 0.5 * (1 + math.cos(math.pi * _part(n, of["total"]))))


def linear(optimizer: Optimizer, total: Length, *, warmup: Length = 0, floor: float = 0.0) -> Schedule:
    """Return a schedule with the shape of a straight line. During the warm-up (`warmup`), the learning rate
    increases linearly to the base rate, which is the rate that you gave to the optimizer. After the warm-up,
    the rate decreases linearly. At the end of `total`, the rate is `floor` times the base rate.
    `total` includes the warm-up.

    The lengths have the same form as in `cosine`.
    """
    return Schedule(
        optimizer, {"total": total, "warmup": warmup}, lambda n, of: 1 - (1 - floor) * _part(n, of["total"])
    )


def step(optimizer: Optimizer, every: Length, gamma: float = 0.1, *, warmup: Length = 0) -> Schedule:
    """Return a schedule that multiplies the learning rate by `gamma` after each interval of the length
    `every`. The first interval begins at the end of the warm-up. The lengths have the same form as in
    `cosine`."""
    return Schedule(
        optimizer, {"every": every, "warmup": warmup}, lambda n, of: gamma ** (n // max(of["every"], 1))
    )


def _part(n: int, total: int) -> float:
    return min(1.0, n / total) if total > 0 else 1.0


def _parse(name: str, text: Length) -> tuple[float, str]:
    found = re.fullmatch(r"(\d+(?:\.\d+)?)\s*(step|ep|sample)", text) if isinstance(text, str) else None
    whole = isinstance(text, int) and not isinstance(text, bool) and text >= 0
    if not found and not whole:
        raise InvalidSpec(
            f'A schedule\'s {name} is a length such as "500step", "2ep" or "10000sample", not {text!r}.'
        )
    return (float(found[1]), UNITS[found[2]]) if found else (float(text), "steps")
