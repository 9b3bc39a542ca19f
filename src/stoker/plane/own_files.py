"""Which files of its folder a run wrote: those that its processes were seen to open for writing, by the hooks
or by the agent. Pure."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from typing import NamedTuple

CLOCK_S = 2.0  # clocks of file systems are coarse
OTHERS_MAX = 50  # runs in the same folder whose records are read


class Beside(NamedTuple):
    """Another run that worked in the folder at the same time. `begun`, `over`: Unix seconds; inf while it
    is active."""

    begun: float
    over: float


def tell_apart(
    changed: dict, own: Iterable[str], others: Iterable[str], beside: Sequence[Beside]
) -> list[dict]:
    """Those files of `changed` (the agent's answer of that name) that may belong to this run. `own`,
    `others`: paths that this run and the runs beside it were seen to write.
    `uncertain`: the run's processes were not seen to write the file, and either another run worked in the
    folder then, or this run was seen to write other files."""
    own = set(own)
    others = set(others) - own
    told = []
    for file in changed.get("files") or ():
        path = os.path.join(changed["top"], file["path"])
        if path in others:
            continue
        together = any(each.begun - CLOCK_S <= file["mtime"] <= each.over + CLOCK_S for each in beside)
        told.append({"path": file["path"], "bytes": file["size"], "change": file["kind"],
                     "uncertain": path not in own and (bool(own) or together)})
    return told
