"""Which of several sources of one metric is shown. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from stoker.plane.numbers import words
from stoker.plane.numbers.curves import Curve

# The first one counts: closer to the training, with more digits.
RANKED = (
    "engine",
    "lightning",
    "transformers",
    "tensorboard",
    "wandb",
    "mlflow",
    "keras",
    "accelerate",
    "tqdm",
)
CALLS = "tqdm"  # captured from a bar: better than the printed bar, but not than other lines of that name


def best(curves: Sequence[Curve]) -> list[Curve]:
    """For each metric, the curves of its best source, in the given order."""
    rank = {source: i for i, source in enumerate(RANKED)}
    first: dict[tuple, int] = {}
    for curve in curves:
        own = rank.get(curve.source, len(RANKED))
        key = words.key(curve.name)
        first[key] = min(own, first.get(key, own))
    return [curve for curve in curves if first[words.key(curve.name)] == rank.get(curve.source, len(RANKED))]


def known(curves: Iterable[Curve], bars: bool) -> set[tuple]:
    """Metrics that need not be read from the log; bars: from the text of progress bars."""
    return {words.key(curve.name) for curve in curves if bars or curve.source != CALLS}
