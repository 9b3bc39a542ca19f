"""The loader by itself: how many samples a second it makes with so many workers when nobody trains."""

from __future__ import annotations

import time

from ..clock.passes import size_of
from . import feed

_now = time.monotonic


def rate(loader: object, workers: int, seconds: float) -> dict | None:
    """`{"workers","rate","start_s"}`; None where it cannot be made with so many.
    What lay ready before is not counted."""
    from ..settings import loaders
    try:
        beside = loaders.sibling(loader, workers=workers)
    except loaders.Unfit:
        return None
    began = _now()
    iterator = feed._iter(beside)
    try:
        return _run(iterator, beside, workers, began, seconds)
    finally:
        shut = getattr(iterator, "_shutdown_workers", None)
        if shut is not None:
            shut()


def _run(iterator: object, beside: object, workers: int, began: float, seconds: float) -> dict | None:
    first = next(iterator, None)
    if first is None:
        return None
    start = _now() - began
    skip = workers * (beside.prefetch_factor or 2) if workers else 0
    until, samples, since = _now() + seconds, 0, _now()
    latest = since
    while _now() < until or not samples:
        batch = next(iterator, None)
        if batch is None:
            break
        if skip:
            skip -= 1
            since, until = _now(), _now() + seconds if not skip else until
            if _now() > latest + 3 * seconds:
                return None
            continue
        samples += size_of(batch)
    took = _now() - since
    if not samples or took <= 0:
        return None
    return {"workers": workers, "rate": round(samples / took, 2), "start_s": round(start, 4)}
