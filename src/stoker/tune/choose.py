"""From single actions to the few whole settings that are worth a race,
and from a race to the one that is kept. Pure."""

from __future__ import annotations

import itertools
import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace

from stoker.tune.findings import Action
from stoker.tune.race import Interval, Result

MEASURED = 0.8  # an action with less chance has a forecast of the models, not of a window of the script
CORES_TAKEN = "not tried: other processes used the cores"  # state of an action
WORTH = 0.97  # a forecast above this is not worth a race
KEPT_BELOW = 0.97  # the least that is kept: 3 % less time, and surely some
NEARLY = 1.02  # within that of the best, the simpler one is taken
# a race meets kept samples warm; a training fills them in its first epoch,
# and holds the memory for all of them
FIRST_EPOCH = 1.04
RISK_ORDER = "ABC"


@dataclass(frozen=True)
class Candidate:
    """One whole setting to race: the actions in it, and the step time it is forecast to bring (new/old)."""

    name: str
    actions: tuple[Action, ...]
    settings: dict
    forecast: float

    @property
    def risk(self) -> str:
        return max((a.risk for a in self.actions), key=RISK_ORDER.index)


def merged(settings: Mapping, change: Mapping) -> dict:
    """`settings` with what `change` says, at each depth."""
    out = dict(settings)
    for key, value in change.items():
        out[key] = merged(out.get(key) or {}, value) if isinstance(value, Mapping) else value
    return out


def without(candidate: Candidate, left: Collection[str]) -> Candidate | None:
    """The candidate less what the hooks left as the script has it ("train.py:12#0 workers", "fused");
    None if nothing of it remains."""
    def less(settings: Mapping) -> dict:
        out = {key: value for key, value in settings.items() if key != "loaders" and key not in left}
        loaders = {name: {knob: value for knob, value in knobs.items() if f"{name} {knob}" not in left}
                   for name, knobs in (settings.get("loaders") or {}).items()}
        loaders = {name: knobs for name, knobs in loaders.items() if knobs}
        return {**out, "loaders": loaders} if loaders else out
    actions = tuple(a for a in candidate.actions if less(a.settings))
    return replace(candidate, actions=actions, settings=less(candidate.settings)) if actions else None


def usable(actions: Sequence[Action], allowed: Collection[str]) -> list[Action]:
    """The actions that may be raced: settings that promise something, class C only where it was allowed."""
    return [
        a
        for a in actions
        if a.cure == "setting"
        and a.settings
        and a.ratio.value < WORTH
        and (a.risk != "C" or permits(a, allowed))
    ]


def permits(action: Action, allowed: Collection[str]) -> bool:
    """Did the user consent to this kind of class C?"""
    return ("precision" in action.settings and "precision" in allowed) or action.name in allowed


def candidates(actions: Sequence[Action], allowed: Collection[str], most: int = 3) -> list[Candidate]:
    """At most so many, the best forecast first.

    Knobs of loaders and knobs of the computation are nearly separable:
    the best of each side go together; beside that the other ways to feed, and the same without what is of
    class C, to fall back on.
    """
    good = sorted(usable(actions, allowed), key=lambda a: a.ratio.value)
    feeding = [a for a in good if "loaders" in a.settings]
    computing = [a for a in good if "loaders" not in a.settings]
    harmless = [a for a in computing if a.risk != "C"]
    ways = [*_ways(feeding), ()]
    found: dict[frozenset, Candidate] = {}
    for way, more in itertools.product(ways[:3] if feeding else [()], (computing, harmless, ())):
        chosen = (*way, *_compatible(more))
        if chosen and (key := frozenset(a.name for a in chosen)) not in found:
            found[key] = _candidate(chosen)
    ranked = sorted(found.values(), key=lambda c: (round(c.forecast, 2), len(c.actions)))
    return _fallback(ranked, most)


def _fallback(ranked: list[Candidate], most: int) -> list[Candidate]:
    """The first ones; where all of them are of class C, or rest on an action whose forecast was not measured,
    the best one that does not takes the last place."""
    chosen = ranked[:most]
    for doubtful in (_critical, _guessed):
        if chosen and all(doubtful(c) for c in chosen):
            other = next((c for c in ranked[most:] if not doubtful(c)), None)
            chosen = [*chosen[:most - 1], other] if other and most > 1 else chosen
    return chosen


def _critical(candidate: Candidate) -> bool:
    return candidate.risk == "C"


def _guessed(candidate: Candidate) -> bool:
    return any(a.chance < MEASURED for a in candidate.actions)


def _ways(feeding: list[Action]) -> list[tuple[Action, ...]]:
    """Ways to feed: each by itself, and those that turn different knobs of one loader together (workers that
    fetch whole batches)."""
    ways: list[tuple[Action, ...]] = [(a,) for a in feeding]
    for a, b in itertools.combinations(feeding, 2):
        if (
            not _same_knob(a, b)
            and "cache" not in (a.name, b.name)
            and not (_no_workers(a, b) or _no_workers(b, a))
        ):
            ways.append((a, b))  # a cache by itself: each worker would have one of its own
    return sorted(ways, key=_forecast)


def _no_workers(a: Action, b: Action) -> bool:
    """Does `a` leave no workers, that `b` would have do something?"""
    none = any(knobs.get("workers") == 0 for knobs in (a.settings.get("loaders") or {}).values())
    return none and b.name in ("prefetch", "persistent_workers")


def _same_knob(a: Action, b: Action) -> bool:
    mine, other = a.settings.get("loaders") or {}, b.settings.get("loaders") or {}
    return any(mine[name].keys() & other[name].keys() for name in mine.keys() & other.keys())


def _compatible(actions: Sequence[Action]) -> list[Action]:
    """Of actions that turn the same knob (bf16 and tf32) only the best."""
    taken: set[str] = set()
    chosen = []
    for action in actions:
        if not taken & action.settings.keys():
            chosen.append(action)
            taken |= action.settings.keys()
    return chosen


def _forecast(actions: Sequence[Action]) -> float:
    """Of all together. What they save overlaps (two ways to feed, two ways to compute the same product):
    the best one counts whole, of each further one the root of its ratio."""
    best, *others = sorted(a.ratio.value for a in actions) or [1.0]
    return max(0.01, best * math.sqrt(math.prod(min(1.0, other) for other in others)))


def _candidate(actions: Sequence[Action]) -> Candidate:
    settings: dict = {}
    for action in actions:
        settings = merged(settings, action.settings)
    return Candidate(" + ".join(a.name for a in actions), tuple(actions), settings, _forecast(actions))


def helps(ratio: Interval | None) -> bool:
    """Whether a setting is kept: it takes clearly less time, and its interval holds no "no gain"."""
    return ratio is not None and ratio.value < KEPT_BELOW and ratio.high < 1.0


def winner(raced: Sequence[tuple[Candidate, Result]]) -> tuple[Candidate, Interval] | None:
    """The one to keep: the fastest that is surely faster;
    of nearly equal ones the one of the lower class, then the one that does less."""
    good = [(c, r.ratio) for c, r in raced if not r.died and r.ratio is not None and helps(r.ratio)]
    if not good:
        return None
    best = min(_worth(c, ratio) for c, ratio in good)
    near = [(c, ratio) for c, ratio in good if _worth(c, ratio) <= best * NEARLY]
    return min(near, key=lambda pair: (RISK_ORDER.index(pair[0].risk), len(pair[0].actions), _worth(*pair)))


def _worth(candidate: Candidate, ratio: Interval) -> float:
    return ratio.value * (FIRST_EPOCH if any(a.name == "cache" for a in candidate.actions) else 1.0)


def threads_left_out(actions: Collection[Action], chosen: Collection[Candidate]) -> bool:
    """Whether no setting that is tried changes the number of threads, because others used the cores."""
    return any(a.name == "threads" and a.state == CORES_TAKEN for a in actions) and not any(
        "threads" in candidate.settings for candidate in chosen
    )
