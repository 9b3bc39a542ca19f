"""The values of `stoker sweep --param`, and the combinations that are run. Pure:
what is drawn at random depends on the seed alone."""

from __future__ import annotations

import itertools
import math
import random
import re
from collections.abc import Sequence
from dataclasses import dataclass

from stoker.base.errors import InvalidSpec

RUNS_MAX = 1000
_NUMBER = r"[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?"
_RANGE = re.compile(rf"({_NUMBER})\.\.({_NUMBER})(?::(log)?(\d+)?)?")
_WHOLE = re.compile(r"[-+]?\d+")
_EXAMPLES = "--param lr=0.1,0.01   --param lr=1e-4..1e-1:log4   --param lr=1e-4..1e-1:log --random 20"


@dataclass(frozen=True, kw_only=True)
class Param:
    """One --param. values: of a list, or of a range with a number of values; empty for a range to draw
    from."""

    name: str
    values: tuple[str, ...] = ()
    low: float = 0.0
    high: float = 0.0
    log: bool = False
    whole: bool = False

    def draw(self, source: random.Random) -> str:
        """Draw a random value: uniformly from the list, from the range, or from the logarithms of the
        range."""
        if self.values:
            return source.choice(self.values)
        return _between(self, source.random())


def parse(text: str) -> Param:
    """Parse `lr=0.1,0.01` (a list), `p=0.0..0.5:6` and `lr=1e-4..1:log5` (this many values), `n=1..8` and
    `lr=1e-4..1:log` (to draw from).
    Raises InvalidSpec."""
    name, found, given = text.partition("=")
    if not found or not name.strip("-") or not given or name != name.strip():
        raise InvalidSpec(f"--param takes NAME=VALUES, not {text!r}.", hint=_EXAMPLES)
    match = _RANGE.fullmatch(given)
    if match is None:
        values = tuple(dict.fromkeys(given.split(",")))
        if "" in values:
            raise InvalidSpec(f"--param {name} has an empty value.", hint=_EXAMPLES)
        return Param(name=name, values=values)
    low, high, log, count = match.groups()
    made = Param(
        name=name,
        low=float(low),
        high=float(high),
        log=bool(log),
        whole=bool(_WHOLE.fullmatch(low) and _WHOLE.fullmatch(high)),
    )
    if not made.low < made.high or not math.isfinite(made.high - made.low):
        raise InvalidSpec(f"--param {name}: {low} is not smaller than {high}.", hint=_EXAMPLES)
    if made.log and made.low <= 0:
        raise InvalidSpec(f"--param {name}: a logarithmic range must begin above 0.", hint=_EXAMPLES)
    if count is None:
        return made
    if not 2 <= int(count) <= RUNS_MAX:
        raise InvalidSpec(f"--param {name}: a range must have 2 to {RUNS_MAX} values.", hint=_EXAMPLES)
    places = (i / (int(count) - 1) for i in range(int(count)))
    return Param(name=name, values=tuple(dict.fromkeys(_between(made, place) for place in places)))


def combinations(params: Sequence[Param], draws: int | None, seed: int) -> list[dict[str, str]]:
    """All combinations, the last parameter changing fastest; or `draws` different random ones. Raises
    InvalidSpec."""
    names = [each.name for each in params]
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise InvalidSpec(f"--param {twice[0]} appears twice.", hint=_EXAMPLES)
    open_ranges = [each.name for each in params if not each.values]
    if draws is not None:
        return _drawn(params, draws, random.Random(seed))
    if open_ranges:
        raise InvalidSpec(
            f"--param {open_ranges[0]}: a range without a number of values needs --random.", hint=_EXAMPLES
        )
    count = math.prod(len(each.values) for each in params)
    if count > RUNS_MAX:
        raise InvalidSpec(
            f"These parameters give {count:,} runs; a sweep has at most {RUNS_MAX:,}.",
            hint="--random 40 draws 40 of these runs.",
        )
    return [
        dict(zip(names, values, strict=True))
        for values in itertools.product(*(each.values for each in params))
    ]


def _drawn(params: Sequence[Param], draws: int, source: random.Random) -> list[dict[str, str]]:
    found: dict[tuple[str, ...], None] = {}
    for _ in range(100 * draws):  # of a few values there are not so many combinations
        if len(found) == draws:
            break
        found.setdefault(tuple(each.draw(source) for each in params))
    return [dict(zip((each.name for each in params), values, strict=True)) for values in found]


def _between(param: Param, place: float) -> str:
    """The value at `place` (0 to 1) of a range, as one would type it."""
    if param.log:
        value = math.exp(math.log(param.low) + place * (math.log(param.high) - math.log(param.low)))
    else:
        value = param.low + place * (param.high - param.low)
    return str(round(value)) if param.whole else f"{value:.6g}"


def command_of(command: Sequence[str], values: dict[str, str]) -> tuple[str, ...]:
    """The command with the values: replaces `{lr}` in a word, and appends other parameters as `--lr 0.1`."""
    words = list(command)
    for name, value in values.items():
        place = f"{{{name}}}"
        if any(place in word for word in command):
            words = [word.replace(place, value) for word in words]
        else:
            words += [name if name.startswith("-") else f"--{name}", value]
    return tuple(words)
