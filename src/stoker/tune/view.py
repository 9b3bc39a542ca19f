"""The probe's facts, read: windows by phase, the loader that trains, shares of the clock and of the sampler.
What is missing is None."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from functools import cached_property

from stoker.tune.findings import Range
from stoker.tune.model import HANDOVER_S, LoaderModel, StepModel, corrected, fit_step, paired

OPEN = 0.10  # the sum may leave this part of the step unexplained
_WAITING = ("data", "start")
_KINDS = (
    "data",
    "start",
    "transfer",
    "forward",
    "backward",
    "optimizer",
    "save",
    "log",
    "evaluation",
    "other",
)
# kinds of the clock that no change of the computation makes faster
_BESIDE = (*_WAITING, "save", "log")


def _order(kind: str) -> int:
    return _KINDS.index(kind) if kind in _KINDS else len(_KINDS)


@dataclass(frozen=True)
class Line:
    """A line of the user's on which time goes: shares of the training's time. own:
    it was the innermost line of the user's."""

    file: str
    line: int
    call: str
    kind: str
    share: float
    own: float
    path: tuple[tuple[str, int], ...] = ()  # own lines from the outermost one to this


@dataclass(frozen=True)
class View:
    """Facts and card with the questions that rules ask of them."""

    facts: dict
    card: dict

    # --- windows
    # --------------------------------------------------------------------------------------------------------

    def windows(self, phase: str) -> list[dict]:
        return [w for w in self.timed if w.get("phase") == phase]

    @cached_property
    def timed(self) -> list[dict]:
        """The windows that times may be taken from: the sampler did not run in them."""
        return [w for w in self.facts.get("windows") or [] if w.get("steps") and not w.get("sampled")]

    @cached_property
    def phases(self) -> list[str]:
        """All phases that were measured, in their order."""
        return list(dict.fromkeys(w["phase"] for w in self.timed))

    def step_s(self, phase: str) -> float | None:
        """Seconds a step over all windows of a phase."""
        found = self._complete(phase)
        steps = sum(w["steps"] for w in found)
        return sum(w["wall_s"] for w in found) / steps if steps else None

    def _complete(self, phase: str) -> list[dict]:
        """The windows of a phase in which the script did not end; all of them if it ended in each."""
        found = self.windows(phase)
        return [w for w in found if not w.get("cut")] or found

    def per_step(self, phase: str, field: str) -> float | None:
        """A field of the windows (cpu_s, stolen_s, ...), a step."""
        found = [w for w in self.windows(phase) if w.get(field) is not None]
        steps = sum(w["steps"] for w in found)
        return sum(w[field] for w in found) / steps if steps else None

    def ratio(self, phase: str, against: str = "R0") -> Range | None:
        """Step time in a phase as a ratio of that `against`, within the blocks in which both stand."""
        return paired(self.timed, phase, against)

    def computed(self, phase: str) -> Range | None:
        """As `ratio`, of a change that only the computation can gain by:
        no more than the clock's kinds of it gained."""
        whole = self.ratio(phase)
        if whole is None or self.facts.get("cuda"):
            return whole
        inner = [
            {**w, "wall_s": sum(ms for k, ms in w["ms"].items() if k not in (*_BESIDE, "evaluation")) / 1e3}
            for w in self.timed
            if w.get("ms")
        ]
        ratio, share = paired(inner, phase, "R0"), 1 - self.clock_share(*_BESIDE)
        if ratio is None:
            return whole
        least = Range(*(1 - share * (1 - r) for r in (ratio.value, ratio.low, ratio.high)))
        return max(whole, least, key=lambda r: r.value)

    @cached_property
    def clock(self) -> dict[str, float]:
        """ms a step of each kind of the clock, in R0."""
        found = [w for w in self._complete("R0") if w.get("ms")]
        steps = sum(w["steps"] for w in found)
        total: dict[str, float] = defaultdict(float)
        for w in found:
            for kind, ms in w["ms"].items():
                total[kind] += ms
        return {kind: total[kind] / steps for kind in sorted(total, key=_order)} if steps else {}

    def clock_share(self, *kinds: str) -> float:
        """Their part of the step, by the clock; 0 where it was not seen.
        Evaluation is in no step: its part is one of all time."""
        whole = sum(ms for kind, ms in self.clock.items() if kind != "evaluation" or kind in kinds)
        return sum(self.clock.get(k, 0.0) for k in kinds) / whole if whole else 0.0

    @cached_property
    def logged(self) -> float | None:
        """Share of the steps in which the script printed or logged; None where that was not counted."""
        found = [w for w in self.windows("R0") if "logged" in w]
        steps = sum(len(w["step_ms"]) for w in found)
        return sum(w["logged"] for w in found) / steps if steps else None

    @cached_property
    def stall(self) -> Range | None:
        """Share of the step that goes with the input: 1 - T1/T0.
        Without workers no more than the clock saw in the loader."""
        ratio = self.ratio("R1")
        if ratio is None:
            return None
        most = 1.0 if self.workers or not self.clock else self.clock_share(*_WAITING)
        return Range(*(min(most, max(0.0, 1 - r)) for r in (ratio.value, ratio.high, ratio.low)))

    @cached_property
    def copy(self) -> Range | None:
        """Share of the step that goes with copies to the device that nothing hides: (T1 - T2)/T0."""
        one, two = self.ratio("R1"), self.ratio("R2", "R1")
        if one is None or two is None:
            return None
        return Range(
            *(min(1.0, max(0.0, one.value * (1 - part))) for part in (two.value, two.high, two.low))
        )

    @cached_property
    def residual(self) -> float | None:
        """What the sum leaves open, over T0: the clock's wait plus the step with batches from memory,
        against T0."""
        rest = self.ratio("R1")
        if rest is None or not self.clock:
            return None
        return abs(1 - self.clock_share(*_WAITING) - rest.value)

    @cached_property
    def unclear(self) -> bool:
        """Is the noise larger than what the sum leaves open? Without the loader no step takes longer, so a
        ratio above 1 is noise too."""
        rest, left = self.ratio("R1"), self.residual
        if rest is None or left is None or left <= OPEN:
            return False
        return left >= 1 or rest.value > 1 + OPEN or rest.high - rest.low >= left

    # --- loaders
    # --------------------------------------------------------------------------------------------------------

    @cached_property
    def loader(self) -> dict | None:
        """The loader that trains; of several the one with the most steps behind it."""
        found = [d for d in self.facts.get("loaders") or [] if d.get("train")]
        return max(
            found, key=lambda d: (d.get("pass_steps") or 0) * max(1, d.get("passes") or 1), default=None
        )

    @property
    def dataset(self) -> dict:
        return (self.loader or {}).get("dataset") or {}

    @property
    def workers(self) -> int:
        return int((self.loader or {}).get("workers") or 0)

    @cached_property
    def batch(self) -> float | None:
        """Samples a step."""
        samples, steps = 0, 0
        for w in self.windows("R0"):
            samples, steps = samples + (w.get("samples") or 0), steps + w["steps"]
        if samples:
            return samples / steps
        size = (self.facts.get("batch") or {}).get("size") or (self.loader or {}).get("batch_size")
        return float(size) if size else None

    @property
    def samples(self) -> dict:
        return self.facts.get("samples") or {}

    def per_sample(self, field: str) -> float | None:
        """cpu_s, wait_s, collate_s of one sample (the facts hold them for all n together)."""
        n, value = self.samples.get("n"), self.samples.get(field)
        return value / n if n and value is not None else None

    @cached_property
    def cores(self) -> float:
        """Cores that are ours."""
        return float(self.card.get("cores") or self.facts.get("cores") or 1)

    @cached_property
    def loader_model(self) -> LoaderModel | None:
        """From samples made one by one, then corrected by the rates that were measured with workers;
        None without samples."""
        work, wait, batch = self.per_sample("cpu_s"), self.per_sample("wait_s"), self.batch
        if work is None or not batch:
            return None
        size = (self.facts.get("batch") or {}).get("bytes") or (self.samples.get("bytes") or 0) * batch
        # written and read, by two processes
        copy = HANDOVER_S + size / (1e9 * (self.card.get("memcpy_gbs") or 1) / 4)
        together = (self.per_sample("collate_s") or 0.0) * batch
        plain = LoaderModel(work, max(0.0, wait or 0.0), together, batch, self.cores, copy, lock=self._lock)
        dots = [(int(d["workers"]), float(d["rate"])) for d in self.facts.get("alone") or [] if d.get("rate")]
        whole = self.step_s("R0")
        if (
            self.workers
            and whole
            and self.stall
            and self.stall.value >= 0.5
            and self.workers not in dict(dots)
        ):
            dots.append((self.workers, batch / whole))  # the training takes all that they make
        return corrected(plain, dots)

    @cached_property
    def _lock(self) -> float:
        """How much two processes hinder each other at one sample each:
        0 = not at all, 1 = they take turns."""
        alone, beside = self.samples.get("again_s"), self.samples.get("beside_s")
        return min(1.0, max(0.0, beside / alone - 1)) if alone and beside and beside > 1.4 * alone else 0.0

    @cached_property
    def step_model(self) -> StepModel | None:
        """t(B) = a + bB, from windows over batches from memory."""
        sizes = [
            (self.per_step(p, "samples"), self.step_s(p))
            for p in self.phases
            if p == "R1" or p.startswith("batch=")
        ]
        return fit_step([(size, took) for size, took in sizes if size and took])

    # --- the sampler
    # --------------------------------------------------------------------------------------------------------

    @cached_property
    def lines(self) -> list[Line]:
        """Lines of the sampler, the largest first."""
        found = (self.facts.get("stacks") or {}).get("lines") or []
        told = [
            Line(
                d.get("file") or "",
                int(d.get("line") or 0),
                d.get("call") or "",
                d.get("kind") or "",
                float(d.get("share") or 0),
                float(d.get("self", d.get("share")) or 0),
                tuple((str(f), int(n)) for f, n in d.get("path") or ()),
            )
            for d in found
        ]
        return sorted(told, key=lambda line: -line.own)

    @property
    def sampled(self) -> int:
        return int((self.facts.get("stacks") or {}).get("n") or 0)

    # --- the rest
    # --------------------------------------------------------------------------------------------------------

    @property
    def model(self) -> dict:
        return self.facts.get("model") or {}

    @property
    def no_channels_last(self) -> str:
        """Why channels_last is nothing to offer: "none" (no convolutions), "done", "same" (it would change
        nothing); "" where it can be offered. Causes, actions and tips all ask this."""
        if self.model.get("conv2d") == 0:
            return "none"
        return {True: "done", None: "same"}.get(self.model.get("channels_last", False), "")

    @property
    def flags(self) -> dict:
        return self.facts.get("flags") or {}

    @property
    def effects(self) -> dict:
        return self.facts.get("side_effects") or {}

    @cached_property
    def own_step_s(self) -> float | None:
        """Seconds of a step as it is, less what others had the core for."""
        whole = self.step_s("R0")
        return None if whole is None else max(0.2 * whole, whole - (self.per_step("R0", "stolen_s") or 0.0))

    @cached_property
    def foreign(self) -> float:
        """Share of the step for which the main thread stood ready and somebody else's process had the core.

        Where our own processes could take all cores, the wait is our own.
        """
        found = [w for w in self.windows("R0") if w.get("stolen_s") is not None]
        wall = sum(w["wall_s"] for w in found)
        if not wall:
            return 0.0
        busy = sum((w.get("cpu_s") or 0) + (w.get("children_cpu_s") or 0) for w in found)
        return min(sum(w["stolen_s"] for w in found) / wall, max(0.0, 1 - busy / (wall * self.cores)))
