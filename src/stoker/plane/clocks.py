"""Times of another machine by the clock here: its clock may be wrong by hours, and ages are told by ours."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from stoker.backends.base import Observation

SURE_S = 2.0  # an answer that took longer tells nothing; a smaller difference is none
TIMES = ("started_at", "ended_at")


def offset_of(seen: Observation, asked: float, answered: float) -> float | None:
    """Seconds by which the machine's clock is ahead of the local clock, if an answer tells. `asked`,
    `answered`: Unix seconds."""
    beat, age_s = seen.heartbeat_at, seen.heartbeat_age_s
    if not isinstance(beat, int | float) or not isinstance(age_s, int | float):
        return None
    if seen.phase not in ("running", "stopping") or not 0 <= answered - asked <= SURE_S:
        return None
    return beat + age_s - (asked + answered) / 2


def settled(before: float, found: float) -> float:
    """The offset to use from now on: it changes only if the new offset is clearly different."""
    if abs(found - before) <= SURE_S:
        return before
    return found if abs(found) > SURE_S else 0.0


def by_ours(seen: Observation, offset: float) -> Observation:
    """The observation with its times converted to the local clock."""
    if not offset:
        return seen
    return replace(
        seen,
        exit=_exit_by_ours(seen.exit, offset),
        stalled=_shifted(seen.stalled, offset, "since"),
        started_at=_less(seen.started_at, offset),
        heartbeat_at=_less(seen.heartbeat_at, offset),
    )


def _exit_by_ours(exit_: dict | None, offset: float) -> dict | None:
    if not exit_:
        return exit_
    again = _shifted(exit_.get("restart"), offset, "at")
    return {**(_shifted(exit_, offset, *TIMES) or {}), "restart": again}


def _shifted(body: dict | None, offset: float, *names: str) -> dict | None:
    if not isinstance(body, dict):
        return body
    return {**body, **{name: _less(body[name], offset) for name in names if name in body}}


def _less(moment: Any, offset: float) -> Any:
    return moment - offset if isinstance(moment, int | float) and moment else moment
