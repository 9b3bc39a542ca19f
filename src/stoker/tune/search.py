"""The whole loop: card, probe, rules, race, confirmation, guard, keep.
What cannot be tuned is refused with the reason.

Each part may be left early by Ctrl-C: what is known by then is the result,
and nothing is kept that was not measured.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from stoker.base.config import Home
from stoker.base.units import format_duration
from stoker.tune import card as cards
from stoker.tune import choose, guard, keep, reading, refusals, rules, trial
from stoker.tune.findings import NO_GAIN, UNCERTAIN, Action, Findings, Range
from stoker.tune.race import POOL, Entry, Interval, Outcome, Race, Result
from stoker.tune.trial import Command, Ended, Trial

WITHIN = 0.82  # of the time that was asked for is planned: a race with too few pairs takes longer
PROBE_SHARE, CONFIRM_SHARE = 0.45, 0.2  # of the time for the search; the race has the rest
PROBE_MIN_S, RACE_MIN_S, CONFIRM_MIN_S = 6.0, 4.0, 4.0
ENOUGH_S = 3.0  # after Ctrl-C
FIRST_STEP_S = 120.0  # so long a script may prepare before its first step
OVER_S = 60.0  # so long a probe may take over its time to tell
BUSY_NOTE = "Other processes were busy during the measurement"
MEMORY_SHARE = 0.8  # of the free memory: what all live trials may take together
TRY = ("workers", "threads", "bf16", "channels_last", "fused", "batched", "cache")
HINTS = {
    "stdin": "Pass the input as arguments.",
    "network": "Disable these writes for the tuning, or allow them: stoker tune --network ...",
    "error": "Fix the error first, then tune.",
    "hang": "Run the script without Stoker. Does the script reach its first step?",
    "slow_start": "More time: stoker tune --for 10m ...",
    "killed": "SIGKILL often means that memory ran out. To see the reason, type the same command after "
              "`stoker run`.",
    "full": "Free some disk space or memory, then tune again.",
    "unhooked": "Give the training script itself as the command: stoker tune train.py",
    "no_torch": (
        "`stoker tune` supports only PyTorch. For other trainings, `stoker run` shows wall-clock time and "
        "machine use."
    ),
    "no_step": "Type a command that makes training steps: stoker tune train.py --epochs 1",
}


@dataclass(frozen=True)
class Options:
    """What the user asked for. allow: of {"precision"}; network: the trials may write there."""

    seconds: float = 60.0
    allow: frozenset[str] = frozenset()
    network: bool = False
    force: bool = False
    keep: bool = True
    seed: int = 0


@dataclass
class Report:
    """What came of it. state: "kept", "better" (found, not kept), "nothing" (nothing to win), "refused",
    "noisy", "stopped" (Ctrl-C)."""

    state: str
    sentence: str
    hint: str = ""
    lines: list[str] = field(default_factory=list)  # of the script's own error
    found: Findings | None = None
    card: dict = field(default_factory=dict)
    facts: dict = field(default_factory=dict)
    settings: dict = field(default_factory=dict)  # of the winner
    kept: tuple[str, ...] = ()  # the same in words
    total: Interval | None = None  # step time with them, new/old, as confirmed
    forecast: float | None = None  # the same, as it was forecast
    guard: dict | None = None
    trials: list[dict] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    seconds: float = 0.0

    def to_json(self) -> dict:
        """What came of it, without the findings, the card and the facts."""
        total = self.total and {"value": self.total.value, "low": self.total.low, "high": self.total.high}
        return {
            "state": self.state,
            "sentence": self.sentence,
            "hint": self.hint,
            "error": self.lines,
            "settings": self.settings,
            "kept": list(self.kept),
            "total": total,
            "forecast": self.forecast,
            "guard": self.guard,
            "trials": self.trials,
            "notes": self.notes,
            "seconds": round(self.seconds, 1),
        }


class Search:
    """One tuning of one command. `run` gives the report;
    `say` hears in what phase it is, `announce` what takes its own time."""

    def __init__(
        self,
        command: Command,
        options: Options,
        where: Home,
        say: Callable[[str], None] = lambda text: None,
        announce: Callable[[str], None] = lambda text: None,
    ) -> None:
        self._command, self._o, self._where, self._say, self._announce = (
            command,
            options,
            where,
            say,
            announce,
        )
        self._seconds = WITHIN * options.seconds
        self._parent = trial.rooms(where)
        self._report = Report("nothing", "")
        self._best: tuple[choose.Candidate, Interval] | None = None
        self._raced: list[tuple[choose.Candidate, Result]] = []
        self._confirmed = False
        self._stopped = False  # by Ctrl-C
        # other processes that used the cores in a race: name -> cores
        self._neighbours: dict[str, float] = {}

    def run(self) -> Report:
        """Never raises for what the script does.
        Raises StokerError or OSError where nothing can be started at all."""
        began = time.monotonic()
        self._deadline = began + self._seconds
        try:
            self._go()
        except KeyboardInterrupt:
            self._stopped = True
        if self._report.state != "refused":
            self._end(self._stopped)
        self._report.seconds = time.monotonic() - began
        return self._report

    def _left(self) -> float:
        return self._deadline - time.monotonic()

    # -- the loop
    # -----------------------------------------------------------------------------------------------------

    def _go(self) -> None:
        report = self._report
        text = reading.read(self._command.script) if self._command.script else reading.Reading()
        if forbidden := refusals.before(text):
            self._refuse(None, forbidden.text, forbidden.hint)
            return
        self._say("measuring the machine")
        before = time.monotonic()
        report.card = cards.card(self._where, self._command)
        self._deadline += time.monotonic() - before  # measured once a month: not part of the search
        ended = self._probe()
        if self._stopped and ended.how != "facts":
            return
        facts = report.facts = ended.facts or {}
        if self._command.script:
            text = reading.read(self._command.script, facts, report.card["cores"])
        report.found = rules.judge(self._judged(facts), report.card, text)
        whole = report.found.refused("all")
        if whole or ended.how != "facts":
            self._refuse(ended, f"Not tuned: {whole.text}" if whole else "", whole.hint if whole else "")
            return
        if self._stopped:
            return
        if facts.get("ended") == "script" and not self._o.force:
            self._too_short(ended)
            return
        # right for as long as the neighbour stays
        if facts and any(cause.name == "neighbour" for cause in report.found.causes):
            self._change({"threads"}, state=choose.CORES_TAKEN)
        chosen = choose.candidates(
            [a for a in report.found.actions if not a.state], self._o.allow, self._most_lanes() - 1
        )
        if choose.threads_left_out(report.found.actions, chosen):
            report.notes.append(
                "Stoker tried no other number of threads, because other processes used the cores. "
                "Tune again later."
            )
        if not chosen:
            return
        if len(chosen) > 1 and self._left() > self._cost(len(chosen) + 1) + RACE_MIN_S:
            self._race(chosen)
        elif self._left() > self._cost(2) + CONFIRM_MIN_S or self._o.force:
            self._best = chosen[0], Interval(chosen[0].forecast, chosen[0].forecast, chosen[0].forecast)
        else:
            report.notes.append("There was not enough time to try a setting. For more time: --for 3m")
            return
        if self._best:
            self._confirm()
        if self._best and self._confirmed and self._best[0].risk == "C":
            self._guard()

    def _probe(self) -> Ended:
        """Let the script measure itself while it trains."""
        seconds = max(PROBE_MIN_S, PROBE_SHARE * self._seconds)
        tried = sorted(TRY, key=lambda knob: knob != "bf16") if "precision" in self._o.allow else TRY
        order = {
            "mode": "probe",
            "seconds": round(seconds, 1),
            "steps": 0,
            "seed": None,
            "settings": {},
            "try": list(tried),
            "network": self._o.network,
        }
        self._say("starting the script")
        before = time.monotonic()
        probe = Trial(self._command, order, self._parent).start()
        try:
            start_s = max(FIRST_STEP_S, self._seconds)
            ended = probe.wait(start_s + seconds + OVER_S, start_s=start_s, hear=self._hear)
        except KeyboardInterrupt:
            ended, self._stopped = probe.enough(ENOUGH_S), True
        finally:
            probe.end()
            probe.clear()
        assert ended is not None  # it was not told to return before the end
        self._log("probe", ended.seconds, ended.how, ended.why)
        # a script that prepares long is not to blame
        self._deadline += max(0.0, (time.monotonic() - before) - seconds - 10.0)
        return ended

    def _judged(self, facts: dict) -> dict:
        """The facts as the rules are to see them: what was allowed is no reason to refuse."""
        effects = facts.get("side_effects") or {}
        return (
            {**facts, "side_effects": {**effects, "network": []}}
            if self._o.network and effects.get("network")
            else facts
        )

    def _hear(self, told: dict) -> None:
        phase, steps = str(told.get("phase") or ""), told.get("steps")
        what = f"measuring {PHASES.get(phase, phase)}" if phase else str(told.get("text") or "")
        self._say(f"{what}, step {steps:,}" if steps else what)

    def _winner(self) -> tuple[choose.Candidate, Interval]:
        """The best, where there is one."""
        assert self._best is not None
        return self._best

    def _race(self, chosen: list[choose.Candidate]) -> None:
        entries = [Entry("unchanged", {}), *(Entry(c.name, self._whole(c)) for c in chosen)]
        confirm_s = self._cost(2) + CONFIRM_SHARE * self._seconds
        seconds = max(RACE_MIN_S, self._left() - confirm_s - self._cost(len(entries)))
        self._say(f"comparing {len(chosen)} settings with the unchanged script, for "
                  f"{format_duration(seconds)}")
        outcome = self._run_race(entries, seconds)
        if self._died(outcome):
            return
        self._raced = raced = [(c, outcome.of(c.name)) for c in chosen]
        for c, result in raced:
            if result.died:
                self._state(c.actions, f"failed: {result.died}")
            elif len(c.actions) == 1 and result.ratio:
                self._number(c.actions[0], result.ratio)
        self._best = choose.winner(raced)
        if self._best is None:
            self._nothing(outcome, chosen)

    def _confirm(self) -> None:
        candidate, _ = self._winner()
        seconds = max(CONFIRM_MIN_S, self._left() - self._cost(2))
        self._say(
            f"confirming {', '.join(keep.words(candidate.settings))} in new processes, for "
            f"{format_duration(seconds)}"
        )
        outcome = self._run_race(
            [Entry("unchanged", {}), Entry(candidate.name, self._whole(candidate))], seconds
        )
        result = outcome.of(candidate.name)
        if self._died(outcome):
            self._best = None
        elif result.died:
            self._state(candidate.actions, f"failed: {result.died}")
            self._best = None
        elif result.ratio is None or not choose.helps(result.ratio):
            self._best = None
            self._not_confirmed(outcome, candidate)
        else:
            self._left_by_hooks(result.applied)
            applied = choose.without(candidate, result.applied.get("left") or ())
            self._best = (applied, result.ratio) if applied else None
            self._confirmed = applied is not None

    def _guard(self) -> None:
        """Class C: only with a passed guard. If it does not pass, the rest is confirmed without it."""
        candidate, ratio = self._winner()
        critical = [a for a in candidate.actions if a.risk == "C"]
        rest = [a for a in candidate.actions if a.risk != "C"]
        without: dict = {}
        for action in rest:
            without = choose.merged(without, action.settings)
        change: dict = {}
        for action in critical:
            change = choose.merged(change, action.settings)
        self._confirmed = False  # until it has passed
        loaders = self._report.facts.get("loaders") or ()
        loader: dict = next((each for each in loaders if each.get("train")), {})
        self._announce(
            f"{critical[0].name} changes the arithmetic, so Stoker checks that the loss does not become "
            "worse (Ctrl-C ends the check)"
        )
        verdict = guard.check(
            self._command,
            without,
            change,
            critical[0].name,
            parent=self._parent,
            ms=(self._report.found and self._report.found.step_ms) or 100.0,
            ratio=ratio.value,
            setup_s=self._setup_s(),
            epoch_steps=int(loader.get("len") or 0),
            say=self._say,
        )
        self._report.guard = verdict.as_json()
        self._report.notes.append(f"Accuracy guard: {verdict.sentence}")
        if verdict.safe:
            self._confirmed = True
            return
        self._state(critical, verdict.state)
        left = choose.candidates(rest, frozenset(), 1)
        self._best = (
            (left[0], ratio) if left else choose.winner([(c, r) for c, r in self._raced if c.risk != "C"])
        )
        if self._best:
            self._deadline = max(self._deadline, time.monotonic() + self._cost(2) + CONFIRM_MIN_S)
            self._confirm()

    # -- parts
    # --------------------------------------------------------------------------------------------------------

    def _run_race(self, entries: list[Entry], seconds: float) -> Outcome:
        outcome = Race(
            self._command,
            entries,
            self._parent,
            seed=self._o.seed,
            network=self._o.network,
            warm=self._warm(entries),
            start_s=max(FIRST_STEP_S, 3 * self._setup_s()),
            say=self._say,
        ).run(seconds)
        for result in outcome.results:
            self._report.trials.append(
                {
                    "trial": "confirm" if len(entries) == 2 else "race",
                    "name": result.name,
                    "steps": result.steps,
                    "step_ms": round(1e3 * result.step_s, 3),
                    "pairs": result.pairs,
                    "dropped": result.dropped,
                    "died": result.died,
                    "ratio": result.ratio
                    and [round(x, 4) for x in (result.ratio.value, result.ratio.low, result.ratio.high)],
                }
            )
        if outcome.taken > 0.1:
            self._busy_beside(outcome)
        return outcome

    def _busy_beside(self, outcome: Outcome) -> None:
        """One note about other processes, with what the busiest race saw of each."""
        for name, cores in outcome.who:
            self._neighbours[name] = max(cores, self._neighbours.get(name, 0.0))
        names = (
            ", ".join(f"{name} ({cores:.1f} cores)" for name, cores in self._neighbours.items())
            or "other processes"
        )
        told = (
            f"{BUSY_NOTE}: {names}. Stoker corrects the numbers, but the corrected numbers are less certain."
        )
        self._report.notes[:] = [
            *(note for note in self._report.notes if not note.startswith(BUSY_NOTE)),
            told,
        ]

    def _warm(self, entries: list[Entry]) -> int:
        """Steps until queues of workers hold no more than they always do, and kept samples are there."""
        loaders = self._report.facts.get("loaders") or ()
        loader: dict = next((each for each in loaders if each.get("train")), {})
        most = 0
        for entry in entries:
            knobs = [{**loader, **each} for each in (entry.settings.get("loaders") or {"": {}}).values()]
            most = max([most, *(2 * int(k.get("workers") or 0) * int(k.get("prefetch") or 2) for k in knobs)])
            if any(k.get("feed") == "cache" for k in knobs):
                most = max(most, -(-POOL // max(1, int(loader.get("batch_size") or 1))))
        return 4 + most

    def _whole(self, candidate: choose.Candidate) -> dict:
        """Its settings as they go into a file: with the signatures of loaders and the hash of shapes that
        they were measured with."""
        facts = self._report.facts
        settings: dict = {"version": 1, "loaders": {}, **candidate.settings}
        for name, knobs in settings["loaders"].items():
            known: dict = next((each for each in facts.get("loaders") or () if each.get("id") == name), {})
            if known.get("signature"):
                settings["loaders"][name] = {**knobs, "signature": known["signature"]}
        if facts.get("shapes"):
            settings["shapes"] = facts["shapes"]
        if candidate.risk == "C" and self._command.script:
            settings["code"] = keep.code_hash(self._command.script)
        return settings

    def _setup_s(self) -> float:
        facts = self._report.facts
        return float(facts.get("setup_s") or 2.0) + float(facts.get("first_step_s") or 0.1) + 0.3

    def _cost(self, lanes: int) -> float:
        """Seconds until so many trials are warm."""
        at_once = max(1, min(lanes, int(self._report.card["cores"])))
        return self._setup_s() * -(-lanes // at_once) * (1.3 if at_once > 1 else 1.0) + 0.5

    def _most_lanes(self) -> int:
        """Live trials that fit into the memory at once; four are enough."""
        each = max((size for _, size in self._report.facts.get("memory") or ()), default=0)
        free = self._report.card.get("memory_free") or 0
        if not each or not free:
            return 4
        return max(2, min(4, int(MEMORY_SHARE * free / each)))

    def _log(self, what: str, seconds: float, how: str, why: str) -> None:
        self._report.trials.append(
            {"trial": what, "seconds": round(seconds, 1), "how": how, **({"why": why} if why else {})}
        )

    # -- what becomes of actions
    # --------------------------------------------------------------------------------------

    def _change(self, names: Collection[str], **changes: Any) -> None:
        found = self._report.found
        if found:
            self._report.found = replace(
                found,
                actions=tuple(
                    replace(a, **changes) if a.name in names and a.cure == "setting" else a
                    for a in found.actions
                ),
            )

    def _state(self, actions: Collection[Action], state: str) -> None:
        self._change({a.name for a in actions}, state=state)

    def _number(self, action: Action, ratio: Interval) -> None:
        self._change({action.name}, confirmed=Range(ratio.value, ratio.low, ratio.high))

    def _died(self, outcome: Outcome) -> bool:
        """Did the unchanged script not come through? Then nothing can be compared with it."""
        why = outcome.results[0].died
        if why:
            self._report.state, self._report.sentence = (
                "noisy",
                f"The unchanged script failed in its second run: {why}.",
            )
            self._report.hint = (
                "Run the script twice without Stoker. Does the second run depend on files of the first run?"
            )
        return bool(why)

    def _nothing(self, outcome: Outcome, chosen: list[choose.Candidate]) -> None:
        if outcome.noisy and not any(outcome.of(c.name).ratio for c in chosen):
            if not any(outcome.of(c.name).dropped for c in chosen):
                self._report.state = "noisy"
                self._report.sentence = "The time was too short to compare settings."
                self._report.hint = "More time: --for 5m"
                return
            names = (
                ", ".join(f"{name} ({cores:.1f} cores)" for name, cores in outcome.who)
                or "an unknown process"
            )
            self._report.state = "noisy"
            self._report.sentence = f"The machine was too busy for a measurement, because {names} also ran."
            self._report.hint = "Try again later, or with more time: --for 5m"
            return
        for c in chosen:
            ratio = outcome.of(c.name).ratio
            if ratio and ratio.value < choose.KEPT_BELOW:  # perhaps, but its interval holds "no gain" too
                self._state(c.actions, UNCERTAIN)
                self._report.state = "noisy"
                self._report.sentence = (
                    f"With {', '.join(keep.words(c.settings))}, training may be faster "
                    f"({1 / ratio.value:.2f} times as fast; uncertainty: {1 / ratio.high:.2f} to "
                    f"{1 / ratio.low:.2f}), but the gain is too uncertain to save the setting."
                )
                self._report.hint = "Try again when the machine is idle, or with more time: --for 5m"
            elif not outcome.of(c.name).died:
                self._state(c.actions, NO_GAIN)

    def _not_confirmed(self, outcome: Outcome, candidate: choose.Candidate) -> None:
        """It won a race, and not its confirmation: the newer number is told."""
        ratio = outcome.of(candidate.name).ratio
        if ratio and len(candidate.actions) == 1:
            self._number(candidate.actions[0], ratio)
        self._nothing(outcome, [candidate])

    def _left_by_hooks(self, applied: Mapping) -> None:
        for knob, why in (applied.get("left") or {}).items():
            self._report.notes.append(f"Not applied: {knob}: {why}")

    # -- ends
    # --------------------------------------------------------------------------------------------------------

    def _refuse(self, ended: Ended | None, text: str = "", hint: str = "") -> None:
        report = self._report
        report.state = "refused"
        if ended is None:
            report.sentence, report.hint = f"Not tuned: {text}", hint
            return
        report.lines = ended.lines if ended.how == "error" else []
        why = {
            "no_step": "the script ended without an optimizer step: nothing was trained",
            "stdin": "the script asks for input at its start",
            "ended": "the script ended before anything was measured",
            "stopped": "the script trained, but nothing could be measured",
        }
        report.sentence = text or f"Not tuned: {why.get(ended.how) or ended.why or ended.how}."
        report.hint = HINTS.get(ended.how, "") if ended.how == "network" else hint or HINTS.get(ended.how, "")

    def _too_short(self, ended: Ended) -> None:
        report, steps = self._report, self._report.facts.get("steps_seen")
        report.state = "refused"
        report.sentence = (f"Not tuned: the whole training takes about {format_duration(ended.seconds)}"
                           f"{f' ({steps:,} steps)' if steps else ''}. Tuning would take longer.")
        report.hint = (
            "Tuning saves time only if the training takes about 10 minutes or more. To tune anyway: "
            "stoker tune --force ..."
        )

    def _end(self, stopped: bool) -> None:
        """The sentence, and what is kept."""
        report = self._report
        for action in report.found.actions if report.found else ():
            if (
                action.risk == "C"
                and action.cure == "setting"
                and not action.state
                and not choose.permits(action, self._o.allow)
            ):
                self._change({action.name}, state=f"{rules.ASKS}: --allow precision")
        if self._best and self._confirmed:
            self._keep()
        elif stopped:
            report.state, report.sentence = (
                "stopped",
                "You stopped the search before Stoker confirmed a setting, so no setting is saved.",
            )
            if self._best and report.found:
                report.sentence += f" Best so far: {', '.join(keep.words(self._best[0].settings))}."
        elif not report.sentence:
            report.sentence = "No setting that Stoker tried makes the training faster by 3 % or more."
            if (
                self._o.keep
                and self._command.script
                and not report.notes
                and keep.forget(self._where, self._command.script)
            ):
                report.notes.append("The settings that Stoker saved earlier no longer help, so Stoker "
                                    "deleted these settings.")
        if report.found:
            told = report.total
            total = Range(told.value, told.low, told.high) if told else None
            found = replace(
                report.found,
                kept=report.kept,
                total=total,
                outcome=report.sentence,
                trials=tuple(report.trials),
            )
            report.found = rules.told_again(found, self._judged(report.facts), report.card)

    def _keep(self) -> None:
        report, (candidate, ratio) = self._report, self._winner()
        report.settings, report.total, report.forecast = self._whole(candidate), ratio, candidate.forecast
        report.kept = tuple(keep.words(report.settings))
        fast = (
            f"{1 / ratio.value:.2f} times as fast [{1 / ratio.high:.2f} to {1 / ratio.low:.2f}] with "
            f"{', '.join(report.kept)}"
        )
        self._change({a.name for a in candidate.actions}, state=rules.KEPT if self._o.keep else rules.WORTH)
        if len(candidate.actions) == 1:
            self._number(candidate.actions[0], ratio)
        script = self._command.script
        if self._o.keep and script:
            keep.put(
                self._where,
                Path(script),
                report.settings,
                gain={"value": ratio.value, "low": ratio.low, "high": ratio.high},
                actions=[{"name": a.name, "risk": a.risk} for a in candidate.actions],
                arguments=keep.arguments(self._command.words, script),
            )
            report.state, report.sentence = "kept", f"{fast}."
            report.hint = (
                f"stoker run {' '.join(self._command.words)}   will use these settings (to disable: "
                "--no-settings)"
            )
        else:
            report.state, report.sentence = "better", f"{fast}; not saved."


PHASES = {
    "R0": "the unchanged script",
    "R1": "with batches from memory",
    "R2": "with batches on the device",
    "R4": "with a busy loader",
    "samples": "single samples",
    "alone": "the loader alone",
    "stacks": "time per line",
    "bf16": "with bfloat16",
    "channels_last": "with channels_last",
    "fused": "with a fused optimizer",
    "batched": "with whole batches",
    "cache": "with cached samples",
}
