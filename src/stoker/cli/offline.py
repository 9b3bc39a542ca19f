"""A run as an offline run of W&B, which `wandb sync` uploads.
The package wandb is optional, and is imported here only."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from stoker.base.errors import InvalidSpec

PROJECT = "stoker"


def write(folder: Path, name: str, run: dict, series: Sequence[dict]) -> None:
    """Write an offline W&B run into folder/wandb. Each axis is a metric that its curves refer to. Raises
    InvalidSpec without wandb."""
    try:
        import wandb
    except ImportError as e:
        raise InvalidSpec(f"wandb cannot be imported ({e}).", hint="pip install --upgrade wandb") from None
    settings = wandb.Settings(
        console="off",
        silent=True,
        disable_code=True,
        disable_git=True,
        save_code=False,
        x_disable_stats=True,
        x_disable_meta=True,
    )
    made = wandb.init(
        dir=str(folder),
        project=PROJECT,
        name=name,
        mode="offline",
        config=run["parameters"],
        reinit="create_new",
        tags=[tag for tag in run.get("tags") or () if 0 < len(tag) <= 64],
        notes=run.get("note") or None,
        settings=settings,
    )
    for one in series:
        made.define_metric(one["axis"])
        made.define_metric(_escaped(one["name"]), step_metric=one["axis"])
    for (axis, at), values in rows(series):
        made.log({**values, axis: at})
    made.finish()


def rows(series: Sequence[dict]) -> list[tuple[tuple[str, float], dict[str, float]]]:
    """The values at each position of each axis, in order; a repeated value at one position begins a new
    row."""
    found: dict[tuple[str, float, int], dict[str, float]] = {}
    for one in series:
        seen: dict[float, int] = {}
        for at, value, _ in one["points"]:
            nth = seen[at] = seen.get(at, 0) + 1
            found.setdefault((one["axis"], at, nth), {})[one["name"]] = float(value)
    return [((axis, at), found[axis, at, nth]) for axis, at, nth in sorted(found)]


def _escaped(name: str) -> str:
    """A name that is no pattern for define_metric."""
    return name.replace("*", "\\*") if "*" in name else name
