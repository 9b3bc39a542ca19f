"""On which axis the points of one kind of line lie:
a step, a position within an epoch, an epoch, else their order. Pure.

An axis is never invented: what is not sure of its place is numbered in the order in which it came.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

SEGMENTS_MAX = 5  # restarts of an axis that are told apart; with more of them it is no axis of the whole
PARALLEL_MAX = 3  # values of one step that are told apart


@dataclass(slots=True)
class Place:
    """Position information on one line. near: from the lines before it."""

    step: float | None = None
    step_name: str = ""
    epoch: float | None = None
    place: int | None = None
    of: int | None = None
    first: int | None = None
    near_epoch: float | None = None
    near_step: float | None = None
    turn: int = 0  # which pass of a bar it is


@dataclass(frozen=True, slots=True)
class Axis:
    """at: position of each place, or None for a place without a position. part: the series that each place
    belongs to."""

    name: str
    at: list[float]
    part: list[int]
    guessed: bool = False  # a count such as [640/1600], taken for steps: it may be of samples


def choose(places: Sequence[Place], drawn: bool) -> Axis:
    """Return the first axis that fits. drawn: the lines are frames of a progress bar, and the last frame
    of a position counts."""
    for name, values in _candidates(places, drawn):
        if all(value is not None for value in values):
            parts = _parts(values, places, drawn, name)
            if parts is not None:
                guessed = name == "step" and places[0].place is not None
                return Axis(name, [float(v) for v in values], parts, guessed)
    return Axis("order", [float(i + 1) for i in range(len(places))], [0] * len(places))


def _candidates(places: Sequence[Place], drawn: bool) -> list[tuple[str, list]]:
    found: list[tuple[str, list]] = []
    if places[0].step_name:
        found.append((places[0].step_name, [p.step for p in places]))
    turns = [float(p.turn) for p in places] if drawn else []
    spots = [(p.place, p.of) for p in places if p.place is not None and p.of]
    for told in ([p.epoch for p in places], [p.near_epoch for p in places], turns):
        epochs = [e for e in told if e is not None]
        if len(epochs) == len(spots) == len(places):
            if not _restarts(epochs, [place for place, _ in spots]):
                found.append(("step", [p.place for p in places]))
                break
            base = 0 if drawn and epochs == turns else min(1, int(epochs[0]))
            steps = [(e - base) * of + place for e, (place, of) in zip(epochs, spots, strict=True)]
            found.append(("step", steps))
    found.append(("step", [p.place for p in places]))
    if not any(p.place is not None or p.step is not None for p in places):
        found.append(("number at the begin", [p.first for p in places]))
        found.append(("epoch", [p.epoch for p in places]))
        found.append(("step", [p.near_step for p in places]))
        found.append(("epoch", [p.near_epoch for p in places]))
    return found


def _restarts(epochs: Sequence[float], places: Sequence[int]) -> bool:
    """Whether the position begins again with each epoch, as far as is seen."""
    pairs = [(b < a or b <= 1 or a == b, d > c) for a, b, c, d in
             zip(places, places[1:], epochs, epochs[1:], strict=False) if c != d]
    return not pairs or sum(fell for fell, _ in pairs) * 2 >= len(pairs)


def _parts(values: Sequence[float], places: Sequence[Place], drawn: bool, name: str) -> list[int] | None:
    """The series to which each point belongs; None where this is no axis."""
    segment, segments = 0, []
    for i, value in enumerate(values):
        if i and value < values[i - 1]:
            epochs = (places[i].epoch, places[i - 1].epoch) if name != "epoch" else (None, None)
            if epochs[0] is not None and epochs[0] != epochs[1]:
                return None  # it counts within an epoch
            near = (places[i].near_epoch, places[i - 1].near_epoch)
            if name != "epoch" and near[0] is not None and near[0] != near[1]:
                return None
            segment += 1
        segments.append(segment)
    if (
        segment >= SEGMENTS_MAX
        or (segment and len(values) < 2 * (segment + 1))
        or len(set(values)) == 1 < len(values)
    ):
        return None
    if name == "number at the begin" and segment:
        return None
    if drawn:
        return segments
    counts = Counter(zip(segments, values, strict=True))
    most = max(counts.values())
    if most == 1:
        return segments
    whole = [count for key, count in counts.items() if key != (segments[-1], values[-1])]
    if most > PARALLEL_MAX or (whole and min(whole) != most):
        return None
    seen: Counter = Counter()
    parts = []
    for key in zip(segments, values, strict=True):
        parts.append(key[0] * PARALLEL_MAX + seen[key])
        seen[key] += 1
    return parts
