"""What the script's text says beside the measurements:
the doctor's lints, and where the lines stand that the sampler named.

Never runs it; what cannot be read is left out.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import dropwhile, pairwise
from pathlib import Path

from stoker.doctor import lints, source
from stoker.tune.places import Place, Sites, Spot


@dataclass(frozen=True)
class Lint:
    """A lint of the doctor's table and its lines. file: absolute."""

    name: str
    file: str
    lines: tuple[int, ...]


@dataclass(frozen=True)
class Reading:
    """The script's text, as far as it could be read.
    Spots are (file, line) of what was found, None where nothing was."""

    lints: tuple[Lint, ...] = ()
    places: dict[tuple[str, int], Place] = field(default_factory=dict)
    sources: dict[str, str] = field(default_factory=dict)  # by absolute path
    epochs: bool = False  # the loop over batches stands in another loop
    # several optimizers step, each after a backward of its own; None: no several are seen
    turns: bool | None = None
    batch_pairs: Spot | None = None  # samples of one batch are compared with each other
    sets_on_dataset: Spot | None = None  # something is set on the data set between epochs
    takes_away: Spot | None = None  # the data set removes what it has read
    distributed: Spot | None = None  # it starts ranks, or becomes one
    fine: Spot | None = None  # it needs the digits of float32
    debugs: Spot | None = None  # a debugging mode is turned on
    draws: Spot | None = None  # samples are drawn with random numbers

    def lint(self, *names: str) -> Lint | None:
        """The first lint of these names."""
        return next((found for found in self.lints if found.name in names), None)

    def place(self, file: str, line: int) -> Place:
        """What is known of a line; nothing of a file that was not read."""
        return self.places.get((os.path.realpath(file), line)) or Place()

    def along(self, file: str, line: int, path: Sequence[Spot]) -> Place:
        """A line's place with what is true of the lines that led to it:
        those of the training loop and of what it calls."""
        place = self.place(file, line)
        place = replace(place, loops=place.loops | place.runs)
        outer = [
            p
            for p in (self.place(f, n) for f, n in path)
            if p.in_step or p.forward or p.reports or p.evaluates
        ]
        whole = [*path] if (file, line) in path else [*path, (file, line)]
        within = dropwhile(lambda p: not p.in_step, (self.place(f, n) for f, n in whole))
        return replace(
            place,
            chain=self._chain(whole),
            loops=place.loops.union(*(p.loops for p in outer)),
            reports=any(p.reports for p in [place, *outer]),
            logs=any(p.logs for p in within),
            evaluates=any(p.evaluates for p in [place, *outer]),
            forward=any(p.forward for p in [place, *outer]),
            seldom=any(p.seldom for p in [place, *outer]),
            in_step=any(p.in_step for p in [place, *outer]),
        )


    def _chain(self, path: Sequence[Spot]) -> tuple[str, ...]:
        """The names of the calls from one line of a path to the next, as the lines write them."""
        found = []
        places = [self.place(f, n) for f, n in path]
        for place, inner in pairwise(places):
            named = [c for c in place.calls if c.rpartition(".")[2] == inner.function]
            # a method that Python or torch calls: all that the line calls may be it
            implied = inner.function.startswith("__")
            if place.in_step or place.forward or inner.in_step:
                found += named or ([*place.calls, *(["__bool__"] if place.asks else [])] if implied else [])
        return tuple(found)


def read(script: str | os.PathLike, facts: dict | None = None, cpus: float | None = None) -> Reading:
    """Read a script, the user's own files that it imports, and those that the sampler named. cpus:
    cores that are ours."""
    path = Path(script).absolute()
    files = {os.path.realpath(s.path): s for s in source.family(path, [os.fspath(path.parent), os.getcwd()])}
    for name in _named(facts or {}):
        real = os.path.realpath(name)
        if real not in files and real.endswith(".py") and (found := source.load(Path(real))):
            files[real] = found
    merged = Reading()
    for real, one in files.items():
        merged = _joined(merged, _one(real, one, cpus or lints.own_cpus()))
    return merged


def _named(facts: dict) -> Iterator[str]:
    for line in (facts.get("stacks") or {}).get("lines") or []:
        yield line.get("file") or ""
        yield from (str(file) for file, _ in line.get("path") or ())


def _one(real: str, one: source.Source, cpus: float) -> Reading:
    if one.tree is None:
        return Reading(sources={real: one.text})
    try:
        found = tuple(Lint(lint.name, real, tuple(lines)) for lint, lines in lints.lint_lines(one, cpus))
        sites = Sites(real, one)
        return Reading(
            found,
            sites.places(),
            {real: one.text},
            sites.epochs(),
            sites.turns(),
            sites.batch_pairs(),
            sites.sets_on_dataset(),
            sites.takes_away(),
            sites.distributed(),
            sites.fine(),
            sites.debugs(),
            sites.draws(),
        )
    except RecursionError:  # generated code may nest without end
        return Reading(sources={real: one.text})


def _joined(a: Reading, b: Reading) -> Reading:
    turns = b.turns if a.turns is None else a.turns or b.turns
    return Reading(
        a.lints + b.lints,
        a.places | b.places,
        a.sources | b.sources,
        a.epochs or b.epochs,
        turns,
        a.batch_pairs or b.batch_pairs,
        a.sets_on_dataset or b.sets_on_dataset,
        a.takes_away or b.takes_away,
        a.distributed or b.distributed,
        a.fine or b.fine,
        a.debugs or b.debugs,
        a.draws or b.draws,
    )
