"""The checked arguments of `Engine`, and durations such as "30s", "200step", "1ep"."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from stoker.engine.errors import InvalidSpec

PRECISIONS = ("fp32", "tf32", "bf16", "fp16", "auto")
ON_NAN = ("stop", "skip", "back")
SINKS = ("tensorboard", "wandb")
UNITS = {
    "s": ("seconds", 1),
    "min": ("seconds", 60),
    "h": ("seconds", 3600),
    "step": ("steps", 1),
    "ep": ("epochs", 1),
}
SEE = "See the arguments of Engine in docs/how-to/engine.md."


@dataclass(frozen=True)
class Every:
    """An interval in seconds, optimizer steps or epochs. Exactly one of the three is not 0."""

    seconds: float = 0.0
    steps: int = 0
    epochs: int = 0


@dataclass(frozen=True, kw_only=True)
class Config:
    """All arguments of `Engine` are keyword arguments: `stoker.Engine(folder="runs/first", seed=1)`.

    folder: the folder for checkpoints. If `stoker run` started the script, the default is checkpoints/ in
        the run folder. Otherwise, the default is a folder in runs/ whose name contains the script's name and
        a hash of the script's arguments.
    seed: the random seed for sample order, augmentation and dropout.
    precision: "fp32", "tf32", "bf16", "fp16" or "auto". With "auto", the Engine chooses the precision at the
        first start, according to the hardware.
    accumulate: the number of micro-batches per rank in one optimizer step.
    clip: the maximum norm of all gradients of one update. With None, the Engine does not clip gradients.
    save: the time or the number of steps or epochs between two saves: "30s", "5min", "200step", "1ep".
    keep_last: the number of newest checkpoints that the Engine keeps. The Engine also keeps the checkpoint
        with the best score.
    nan: what the Engine does if a loss or a gradient is not finite. "stop" raises an error. "skip" skips the
        optimizer step. "back" skips the step, and restores models, optimizers and schedulers from the last
        checkpoint. Then the training continues with the next batch.
    device: "cpu", "cuda" or "cuda:1". By default, the Engine uses a GPU if the machine has a GPU.
    log: where the Engine writes metrics in addition to metrics.jsonl: "tensorboard", "wandb", a list of both,
        or None. For "tensorboard", the Engine writes to the folder tensorboard/ next to the checkpoints. For
        "wandb" without an API key, W&B works offline.
    """

    folder: str | None = None
    seed: int = 0
    precision: str = "fp32"
    accumulate: int = 1
    clip: float | None = None
    save: str = "1min"
    keep_last: int = 2
    nan: str = "stop"
    device: str | None = None
    log: str | Sequence[str] | None = None

    def __post_init__(self) -> None:
        _need(isinstance(self.seed, int) and not isinstance(self.seed, bool), "seed", self.seed, "an integer")
        _need(self.precision in PRECISIONS, "precision", self.precision, " or ".join(PRECISIONS))
        _need(
            isinstance(self.accumulate, int) and self.accumulate >= 1,
            "accumulate",
            self.accumulate,
            "an integer of at least 1",
        )
        _need(self.clip is None or self.clip > 0, "clip", self.clip, "a number above 0, or None")
        _need(
            isinstance(self.keep_last, int) and self.keep_last >= 1,
            "keep_last",
            self.keep_last,
            "an integer of at least 1",
        )
        _need(self.nan in ON_NAN, "nan", self.nan, " or ".join(ON_NAN))
        _need(
            all(sink in SINKS for sink in self.sinks),
            "log",
            self.log,
            '"tensorboard", "wandb", a list of both, or None',
        )
        every(self.save)

    @property
    def sinks(self) -> tuple[str, ...]:
        """The logs in addition to metrics.jsonl, without duplicates."""
        named = (self.log,) if self.log is None or isinstance(self.log, str) else self.log
        return tuple(dict.fromkeys(sink for sink in named if sink is not None))


def config(given: dict[str, Any]) -> Config:
    """The `Config` of these keyword arguments.
    Raises InvalidSpec for an unknown argument; the message lists the known arguments."""
    names = [field.name for field in dataclasses.fields(Config)]
    for name in given:
        if name not in names:
            raise InvalidSpec(f"Engine has no argument {name!r}. The arguments are: "
                              f"{', '.join(names)}.", hint=SEE)
    return Config(**given)


def every(text: str) -> Every:
    """"30s", "5min", "1h", "200step", "1ep" as an `Every`. Raises InvalidSpec."""
    found = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([a-z]+)", text) if isinstance(text, str) else None
    unit, factor = UNITS.get(found[2] if found else "", ("", 0))
    number = float(found[1]) * factor if found else 0.0
    whole = unit == "seconds" or number == int(number)
    _need(
        bool(unit) and number > 0 and whole,
        "save",
        text,
        'a duration such as "30s", "5min", "200step" or "1ep"',
    )
    length: dict[str, Any] = {unit: number if unit == "seconds" else int(number)}
    return Every(**length)


def _need(good: bool, name: str, value: object, wanted: str) -> None:
    if not good:
        raise InvalidSpec(f"Engine({name}={value!r}): {name} must be {wanted}.", hint=SEE)
