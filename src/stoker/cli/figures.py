"""Values of metrics as people read them. Imported by lists: nothing heavy here."""

from __future__ import annotations

import math

from stoker.cli import output


def figure(value: float | str, unit: str = "") -> str:
    """The value of a metric as text for users."""
    number = float(value)
    if not math.isfinite(number):
        return str(number)
    return f"{number:.4g}" + (" %" if unit == "%" else "")


def now_words(numbers: dict | None) -> str:
    """"epoch 3/15  loss 0.1021  acc 97.2 %"; empty if nothing is known."""
    if not numbers:
        return ""
    parts = []
    if numbers.get("epoch") is not None:
        of = f"/{numbers['epochs']}" if numbers.get("epochs") else ""
        parts.append(f"epoch {numbers['epoch']:g}{of}")
    return "  ".join(
        [*parts, *(f"{output.shown(name)} {figure(*told)}" for name, told in numbers["values"].items())]
    )
