"""The accuracy guard: whether a setting that changes the maths leaves the training as good as it was,
or is not shown to.

Two checks, both must pass. The gradients of a few real batches with and without it must point the same way;
and short trainings in pairs, the same seed and the same batches, must end no worse than by a margin smaller
than what another seed does (one-sided non-inferiority).
The losses compared are those of batches before they are trained on. What cannot be told is not applied.
"""

from __future__ import annotations

import json
import math
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from stoker.base.units import format_duration
from stoker.tune.trial import Command, Ended, Trial

COSINE = {"bf16": 0.99, "tf32": 0.999}
COSINE_ELSE = 0.999
NULL = 0.9999  # the same batch twice without the knob: below this the script is not the same twice
BATCHES = 4
SEEDS, SEEDS_MAX = 3, 6  # pairs; so many where three do not decide it
STEPS_MIN, STEPS_MAX = 200, 1000
BUDGET_S = 180.0  # what the pairs may take when nobody knows how long the training is
UNKNOWN_MAX_S = 600.0  # and what they may never take then
TAIL = 0.4  # of a short training: the window that is compared
MARGIN = 0.005  # of the loss: a difference below that is no harm
CAP = 0.05  # of the loss, or of its fall: however much seeds differ, more than this is a harm
# times the deviation of 2 to 6 seeds: below the real one in 97 of 100 cases (chi square)
_SURE = (0.461, 0.534, 0.579, 0.611, 0.636)
# one-sided 95 % of Student's t, 1 to 10 degrees
_T95 = (6.314, 2.920, 2.353, 2.132, 2.015, 1.943, 1.895, 1.860, 1.833, 1.812)
LOSSES, COSINES = "losses.jsonl", "gradients.jsonl"
SAFE, HARMFUL, UNSHOWN, SKIPPED = "safe", "harmful", "not shown safe", "skipped"


@dataclass(frozen=True)
class Comparison:
    """What pairs of short trainings say. Losses; a positive difference is a worse one."""

    difference: float  # mean of the pairs
    upper: float  # the difference is below this in 95 of 100 cases
    margin: float
    level: float  # mean loss without the setting
    seed_deviation: float

    @property
    def shown(self) -> bool:
        return self.upper < self.margin

    @property
    def harmful(self) -> bool:
        """The loss is worse by more than the margin, and not by chance alone."""
        return not self.shown and self.difference - (self.upper - self.difference) > self.margin


@dataclass
class Verdict:
    """state: SAFE, HARMFUL, UNSHOWN or SKIPPED; only SAFE may be applied.
    `cosines`, `pairs` (seed, without, with): the evidence."""

    state: str
    sentence: str
    cosines: list[float] = field(default_factory=list)
    pairs: list[tuple[int, float, float]] = field(default_factory=list)
    comparison: Comparison | None = None
    seconds: float = 0.0

    @property
    def safe(self) -> bool:
        return self.state == SAFE

    def as_json(self) -> dict[str, Any]:
        """For the report's JSON."""
        c = self.comparison
        return {
            "state": self.state,
            "sentence": self.sentence,
            "cosines": self.cosines,
            "pairs": [list(p) for p in self.pairs],
            "seconds": round(self.seconds, 1),
            **({"difference": c.difference, "upper": c.upper, "margin": c.margin} if c else {}),
        }


@dataclass(frozen=True)
class Plan:
    """How long the short trainings are and what they cost; `why` they are not worth it, if so. more:
    there is time for twice as many."""

    steps: int
    seconds: float
    why: str = ""
    more: bool = False


# ---- what the numbers say

def compare(without: Sequence[float], with_it: Sequence[float], fall: float = 0.0) -> Comparison:
    """Tail losses of the same seeds, in the same order, at least two. fall:
    how far the loss came down, for its scale."""
    differences = [b - a for a, b in zip(without, with_it, strict=True)]
    n = len(differences)
    level, spread = statistics.fmean(without), statistics.stdev(without)
    difference = statistics.fmean(differences)
    upper = difference + _T95[min(n - 2, len(_T95) - 1)] * statistics.stdev(differences) / math.sqrt(n)
    margin = max(
        MARGIN * abs(level), min(_SURE[min(n - 2, len(_SURE) - 1)] * spread, CAP * max(abs(level), abs(fall)))
    )
    return Comparison(difference, upper, margin, level, spread)


def tail(losses: Sequence[float]) -> float:
    """Mean of the last part of a short training."""
    return statistics.fmean(losses[-max(1, round(len(losses) * TAIL)):])


def head(losses: Sequence[float]) -> float:
    """Mean of the first few losses."""
    return statistics.fmean(losses[:max(1, len(losses) // 20)])


def gradients(lines: Sequence[Mapping], knob: str) -> tuple[str, str, list[float]]:
    """(state, sentence, cosines) of the first check; SAFE: it passes."""
    compared = [line for line in lines if line.get("same")]
    if len(compared) < BATCHES:
        return (
            UNSHOWN,
            "Stoker could not repeat a step with the same batch, because the script carries state from batch "
            "to batch",
            [],
        )
    if any((line.get("null") or 1.0) < NULL for line in compared):
        return UNSHOWN, "the script computes different results from the same batch", []
    cosines = [line["cosine"] for line in compared if line.get("cosine") is not None]
    if not all(line.get("finite") for line in compared):
        return HARMFUL, f"with {knob} a loss or a gradient is not finite", cosines
    least = COSINE.get(knob, COSINE_ELSE)
    if len(cosines) < len(compared) or min(cosines) <= least:
        low = f"{min(cosines):.4f}" if cosines else "not available"
        return (
            HARMFUL,
            f"with {knob} the gradients differ too much (cosine {low}, required {least:g})",
            cosines,
        )
    return SAFE, f"gradient cosine {min(cosines):.4f} or better on {len(compared)} batches", cosines


def plan(
    *,
    ms: float,
    ratio: float,
    setup_s: float,
    remaining_s: float | None = None,
    epoch_steps: int = 0,
    seeds: int = SEEDS,
) -> Plan:
    """ms: of a step now; ratio: the step with the setting over that; remaining_s:
    of the training, as it would go on now."""
    each = ms / 1000 * (1 + ratio)  # seconds of one step in both of a pair
    setup = (2 * seeds + 1) * setup_s
    saves = None if remaining_s is None else max(0.0, remaining_s * (1 - ratio))
    allowed = BUDGET_S if saves is None else min(saves / 4, 2 * BUDGET_S)
    steps = max(STEPS_MIN, min(STEPS_MAX, int((allowed - setup) / max(1e-9, each * seeds))))
    if epoch_steps >= STEPS_MIN:
        steps = min(steps, epoch_steps)
    seconds = setup + seeds * steps * each + 3 * 5 * ms / 1000
    if saves is not None and seconds > saves:
        return Plan(
            steps,
            seconds,
            (
                f"the accuracy guard would take {format_duration(seconds)}, but the setting saves only "
                f"{format_duration(saves)}"
            ),
        )
    if saves is None and seconds > UNKNOWN_MAX_S:
        return Plan(
            steps,
            seconds,
            (
                f"the accuracy guard would take {format_duration(seconds)}, and Stoker does not know how "
                "long the training takes"
            ),
        )
    return Plan(steps, seconds, more=2 * seconds < (UNKNOWN_MAX_S if saves is None else saves))


# ---- trials

def check(
    command: Command,
    settings: Mapping,
    change: Mapping,
    knob: str,
    *,
    parent: Path,
    ms: float,
    ratio: float,
    setup_s: float = 3.0,
    remaining_s: float | None = None,
    epoch_steps: int = 0,
    seeds: int = SEEDS,
    steps: int = 0,
    say: Callable[[str], None] = lambda text: None,
) -> Verdict:
    """Guard one setting of class C. Starts the user's command 2 * seeds + 1 times;
    2 * SEEDS_MAX + 1 times where that decides nothing.

    settings: what is applied in both of a pair; change: the fragment of settings that is judged; knob:
        its name ("bf16", "tf32");
    parent: folder for the rooms; ms, ratio: see `plan`; steps: of each short training (0: as the plan says).
    KeyboardInterrupt goes through; every trial is ended before.
    """
    todo = plan(
        ms=ms, ratio=ratio, setup_s=setup_s, remaining_s=remaining_s, epoch_steps=epoch_steps, seeds=seeds
    )
    steps = steps or todo.steps
    if todo.why:
        return Verdict(SKIPPED, todo.why)
    about = format_duration(todo.seconds) + (
        "; twice as long if the result is not clear" if todo.more else ""
    )
    say(
        f"accuracy guard for {knob}: {BATCHES} batches, then {2 * seeds} trainings of {steps} steps, about "
        f"{about}"
    )
    guard = _Guard(command, dict(settings), merged(settings, change), knob, parent, steps, setup_s, ms, say)
    verdict = guard.run(seeds, max(seeds, SEEDS_MAX) if todo.more else seeds)
    verdict.seconds = guard.seconds
    return verdict


def merged(settings: Mapping, change: Mapping) -> dict:
    """`settings` with what `change` says, at each depth."""
    out = dict(settings)
    for key, value in change.items():
        out[key] = merged(out.get(key) or {}, value) if isinstance(value, Mapping) else value
    return out


@dataclass
class _Guard:
    command: Command
    without: dict
    with_it: dict
    knob: str
    parent: Path
    steps: int
    setup_s: float
    ms: float
    say: Callable[[str], None]
    seconds: float = 0.0

    def run(self, seeds: int, most: int) -> Verdict:
        ended, lines = self._trial({"try": [self.knob], "seed": 0, "settings": self.without}, COSINES)
        if why := _unusable(ended):
            return Verdict(UNSHOWN, f"Stoker cannot show that {self.knob} is safe: {why}")
        state, sentence, cosines = gradients(lines, self.knob)
        self.say(sentence)
        if state != SAFE:
            return Verdict(state, sentence, cosines)
        pairs: list[tuple[int, float, float]] = []
        falls: list[float] = []
        for until in dict.fromkeys((seeds, most)):
            while len(pairs) < until:
                if failed := self._pair(pairs, falls):
                    return Verdict(*failed, cosines, pairs)
                self.say(
                    f"comparison {len(pairs)} of {until}: loss {pairs[-1][1]:.4g} without {self.knob}, "
                    f"{pairs[-1][2]:.4g} with {self.knob}"
                )
            comparison = compare([a for _, a, _ in pairs], [b for _, _, b in pairs], statistics.fmean(falls))
            if comparison.shown or comparison.difference > comparison.margin:
                break
        state, sentence = _words(comparison, self.knob, len(pairs))
        if statistics.fmean(falls) < comparison.margin:
            sentence += "; but the loss hardly changed during these trainings, so the comparison is weak"
        return Verdict(state, sentence, cosines, pairs, comparison)

    def _pair(self, pairs: list, falls: list) -> tuple[str, str] | None:
        """One more pair; or how it failed."""
        seed, both = len(pairs), []
        for settings in (self.without, self.with_it):
            ended, lines = self._trial(
                {"try": [], "seed": seed, "settings": settings, "steps": self.steps}, LOSSES
            )
            if failed := self._not_to_be_judged(ended, lines, settings is self.with_it):
                return failed
            both.append([line["loss"] for line in lines])
        if len(both[0]) != len(both[1]):
            return UNSHOWN, (
                f"Stoker cannot show that {self.knob} is safe: the script computed {len(both[0])} losses "
                f"without {self.knob} and {len(both[1])} losses with {self.knob}"
            )
        pairs.append((seed, tail(both[0]), tail(both[1])))
        falls.append(head(both[0]) - tail(both[0]))
        return None

    def _trial(self, order: dict, name: str) -> tuple[Ended, list[dict]]:
        trial = Trial(self.command, {"mode": "guard", **order}, self.parent)
        try:
            ended = trial.start().wait(60 + 10 * self.setup_s + self.steps * self.ms / 1000 * 10)
            lines = _lines(trial.room / name)
        finally:
            trial.end()
            trial.clear()
        assert ended is not None
        self.seconds += ended.seconds
        return ended, lines

    def _not_to_be_judged(self, ended: Ended, lines: list[dict], changed: bool) -> tuple[str, str] | None:
        if changed and ended.how in ("error", "killed", "hang"):
            return HARMFUL, f"with {self.knob} the script failed: {ended.why}"
        if why := _unusable(ended):
            return UNSHOWN, f"Stoker cannot show that {self.knob} is safe: {why}"
        left = ended.settings.get("left") or {}
        if changed and left:
            return UNSHOWN, f"{self.knob} was not applied: {next(iter(left.values()))}"
        if (ended.facts or {}).get("turns"):
            return (
                UNSHOWN,
                "several optimizers take turns, so their losses do not measure the quality of the training",
            )
        if len(lines) < min(self.steps, STEPS_MIN) // 2:
            return UNSHOWN, (
                f"Stoker cannot show that {self.knob} is safe: Stoker saw only {len(lines)} losses"
            )
        if not all(line.get("finite") for line in lines):
            return (
                (HARMFUL, f"with {self.knob} the loss is not finite")
                if changed
                else (UNSHOWN, f"the loss is not finite even without {self.knob}")
            )
        return None


def _unusable(ended: Ended) -> str:
    """Why a trial says nothing; "" for one that does."""
    facts = ended.facts or {}
    if facts.get("odd"):
        return str(facts["odd"])
    if facts.get("fault"):
        return f"an internal error in Stoker's accuracy check ({facts['fault']})"
    if ended.how in ("facts", "ended") or (ended.how == "stopped" and facts):
        return ""
    return ended.why or ended.how


def _words(c: Comparison, knob: str, seeds: int) -> tuple[str, str]:
    numbers = (
        f"loss {c.level:.4g}, difference {c.difference:+.2g} (upper bound {c.upper:+.2g}, "
        f"allowed {c.margin:.2g}), {seeds} comparisons"
    )
    if c.shown:
        return SAFE, f"{knob} trains equally well ({numbers})"
    if c.harmful:
        return HARMFUL, f"{knob} trains worse ({numbers})"
    return UNSHOWN, f"{knob} may not train equally well ({numbers})"


def _lines(path: Path) -> list[dict]:
    try:
        return [
            json.loads(line)
            for line in path.read_text("utf-8").splitlines()
            if line.startswith("{") and line.endswith("}")
        ]
    except (OSError, ValueError):
        return []
