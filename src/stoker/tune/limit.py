"""`--fail-if "data wait > 10%"`: a limit on what was measured, for CI. Read from text, judged on findings."""

from __future__ import annotations

import operator
import re
from dataclasses import dataclass

from stoker.base.errors import InvalidSpec, StateError
from stoker.base.near import near
from stoker.tune.findings import Findings

_TEXT = re.compile(r"\s*([a-z_ ]+?)\s*(>=|<=|>|<)\s*(\d+(?:\.\d+)?)\s*(%|ms|x)?\s*", re.IGNORECASE)
_COMPARE = {">": operator.gt, ">=": operator.ge, "<": operator.lt, "<=": operator.le}
_STAGES = {
    "log": "log",
    "logging": "log",
    "save": "save",
    "saving": "save",
    "evaluation": "evaluation",
    "transfer": "transfer",
    "forward": "forward",
    "backward": "backward",
    "optimizer": "optimizer",
    "worker start": "start",
    "other": "other",
}
NAMES = {  # name -> (unit, what it is)
    "data wait": ("%", "share of the step spent on input"),
    "copy": ("%", "share of the step spent on copies to the device"),
    "step": ("ms", "milliseconds that a step takes"),
    "floor": ("ms", "milliseconds that a step takes with batches from memory"),
    "gain": ("x", "speed-up by the best setting, such as 1.3x"),
    **{name: ("%", "share of the step") for name in _STAGES},
}


@dataclass(frozen=True)
class Limit:
    """name: of NAMES. value: in its unit (per cent as 10, not 0.1)."""

    name: str
    compare: str
    value: float
    unit: str

    def __str__(self) -> str:
        return f"{self.name} {self.compare} {self.value:g}{self.unit}"


def read(text: str) -> Limit:
    """A limit as it is typed. Raises InvalidSpec."""
    match = _TEXT.fullmatch(text)
    if not match:
        raise InvalidSpec(
            f"'{text}' is not a condition.",
            hint='Write the condition as "data wait > 10%", "step > 50ms" or "gain > 1.2x".',
        )
    name = " ".join(match[1].lower().replace("_", " ").split())
    if name not in NAMES:
        close = near(name, NAMES)
        raise InvalidSpec(f"'{name}' is not a measured value.",
                          hint=f"Did you mean '{close[0]}'?" if close else f"Use one of: {', '.join(NAMES)}.")
    unit = NAMES[name][0]
    if match[4] and match[4].lower() != unit:
        raise InvalidSpec(
            f"'{name}' is measured in {unit}, not in {match[4]}.",
            hint=f'Write the condition as "{name} {match[2]} {match[3]}{unit}".',
        )
    return Limit(name, match[2], float(match[3]), unit)


def measured(limit: Limit, found: Findings) -> float | None:
    """What was measured, in the limit's unit; None where it was not."""
    if limit.name in _STAGES:
        share = next(
            (s.share for s in found.stages if s.name == _STAGES[limit.name]), 0.0 if found.stages else None
        )
    elif limit.name in ("data wait", "copy"):
        part = found.stall if limit.name == "data wait" else found.copy
        share = part.value if part else None
        if share is None and limit.name == "data wait" and found.stages:
            share = sum(s.share for s in found.stages if s.name in ("data", "start"))
    elif limit.name == "gain":
        ratios = [(a.confirmed or a.ratio).value for a in found.actions if a.cure == "setting"]
        if found.total is not None:
            ratios = [found.total.value]
        return 1 / max(min(ratios), 0.01) if ratios else 1.0 if found.step_ms else None
    else:
        return found.step_ms if limit.name == "step" else found.floor_ms
    return None if share is None else 100 * share


def broken(limit: Limit, found: Findings) -> str:
    """A sentence where the limit is met, that is where the job is to fail; "" else.
    Raises StateError where nothing was measured."""
    value = measured(limit, found)
    if value is None:
        raise StateError(f"'{limit.name}' could not be measured.", hint=found.verdict)
    if not _COMPARE[limit.compare](value, limit.value):
        return ""
    return f"{limit.name} is {value:.3g}{limit.unit}: the condition '{limit}' is true."
