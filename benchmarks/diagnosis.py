"""Does the tuner name the right cause? `python benchmarks/diagnosis.py [--half dev] [--short] [--seconds S]
[--json FILE] [NAME ...]`.

Each script of tests/faults is probed as `stoker tune` does it (no race, no setting tried in the end), and
what the rules say is compared with the truth beside it.
On a machine that others use "another process uses the cores" is true of every script, and passed over where
it was not planted. The sealed half is for one run, when no rule is changed any more.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any

REPO = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(REPO))

from benchmarks.ground import Ground  # noqa: E402
from benchmarks.measure import Row  # noqa: E402
from stoker.base.config import Home  # noqa: E402
from stoker.tune import card as cards  # noqa: E402
from stoker.tune import reading, rules, search, trial  # noqa: E402
from stoker.tune.findings import Findings  # noqa: E402

SECONDS = search.PROBE_SHARE * search.Options().seconds  # what a search of a minute gives its probe
SHORT = ("debug_left", "asks_first")  # a fault, and a script to be left alone
RIGHT_FIRST, REFUSED = 0.9, 1.0  # P3c, P3e: shares of the cases of a kind
# a trial that came to no facts
_HOW = {"stdin": "needs_stdin", "network": "network_writes", "error": "fails_itself"}


@dataclass
class Verdict:
    """What was said of one script, and whether that is so."""

    name: str
    kind: str
    truth: str
    said: list[str] = field(default_factory=list)  # causes, or reasons of refusals
    right: bool = False
    wrongly_refused: bool = False  # a good script, or a knob that helps it, was refused
    shares: list[float | None] = field(default_factory=list)
    how: str = ""  # how the probe ended
    disturbed: bool = False  # other processes had the cores: that was said, is so, and is passed over


def suite() -> ModuleType:
    """tests/faults/suite.py, which is no package."""
    path = REPO / "tests" / "faults" / "suite.py"
    spec = importlib.util.spec_from_file_location("planted_faults", path)
    module = importlib.util.module_from_spec(spec)
    sys.modules["planted_faults"] = module
    spec.loader.exec_module(module)
    return module


@dataclass
class Probed:
    """One script and what it told of itself."""

    case: Any
    facts: dict
    card: dict
    how: str

    def verdict(self) -> Verdict:
        text = reading.read(self.case.path, self.facts, self.card["cores"])
        return judged(self.case, self.how, rules.judge(self.facts, self.card, text))


def probed(half: str, names: list[str], seconds: float) -> Iterator[Probed]:
    """Each script of a half (or those named), one at a time."""
    faults = suite()
    with tempfile.TemporaryDirectory(prefix="stoker-diagnosis-") as folder:
        where = Home(Path(folder))
        parent = trial.rooms(where)
        card: dict = {}
        for case in faults.cases(half):
            if names and case.name not in names:
                continue
            env = {"OMP_NUM_THREADS": "1", **os.environ}  # as the truth was measured
            command = trial.read([sys.executable, os.fspath(case.path), *case.args], Path(folder), env)
            card = card or cards.card(where, command)
            with faults.neighbour(case.neighbour):
                ended = _probe(command, seconds, parent)
            yield Probed(case, ended.facts or {}, {**card, "now": cards.now(card["cores"])}, ended.how)


def _probe(command: trial.Command, seconds: float, parent: Path) -> trial.Ended:
    order = {
        "mode": "probe",
        "seconds": seconds,
        "steps": 0,
        "seed": None,
        "settings": {},
        "try": list(search.TRY),
        "network": False,
    }
    probe = trial.Trial(command, order, parent).start()
    try:
        return probe.wait(search.FIRST_STEP_S + seconds + search.OVER_S, start_s=search.FIRST_STEP_S)
    finally:
        probe.end()
        probe.clear()


def judged(case: object, how: str, found: Findings) -> Verdict:
    """The verdict on one case. A fault: is its first cause the first that was named? Optimal:
    was none? To be refused: all its knobs?"""
    refused = {(r.knob, r.reason) for r in found.refusals}
    if how in _HOW and not any(k == "all" for k, _ in refused):
        refused.add(("all", _HOW[how]))
    if case.kind == "refuse":
        right = all({(knob, case.reason), ("all", case.reason)} & refused for knob in case.refuse)
        return Verdict(
            case.name, case.kind, case.reason, sorted({reason for _, reason in refused}), right, how=how
        )
    disturbed = not case.neighbour and any(c.name == "neighbour" for c in found.causes)
    causes = [c for c in found.causes if c.name != "neighbour" or case.neighbour]
    right = (
        not causes
        if case.kind == "optimal"
        else bool(causes) and causes[0].name in (case.cause, *case.accept)
    )
    wrongly = any(knob == "all" or knob in case.helps for knob, _ in refused)
    shares = [round(c.share.value, 3) if c.share else None for c in causes]
    return Verdict(
        case.name,
        case.kind,
        case.cause,
        [c.name for c in causes],
        right and how == "facts",
        wrongly,
        shares,
        how,
        disturbed,
    )


def scored(verdicts: list[Verdict]) -> list[Row]:
    """P3c and P3e as rows."""
    kinds = {kind: [v for v in verdicts if v.kind == kind] for kind in ("fault", "optimal", "refuse")}
    found = []
    if faults := kinds["fault"]:
        found.append(_row("tuner: right first cause", faults, RIGHT_FIRST))
    if good := kinds["optimal"]:
        bad = [v for v in good if v.said]
        found.append(
            Row(
                name="tuner: optimal scripts with an invented cause",
                value=len(bad),
                target=0,
                unit="",
                n=len(good),
                detail=", ".join(f"{v.name}: {v.said[0]}" for v in bad),
            )
        )
    if to_refuse := kinds["refuse"]:
        found.append(_row("tuner: refused, with the right reason", to_refuse, REFUSED))
    if tunable := kinds["fault"] + kinds["optimal"]:
        bad = [v for v in tunable if v.wrongly_refused]
        found.append(
            Row(
                name="tuner: good scripts refused",
                value=len(bad),
                target=0,
                unit="",
                n=len(tunable),
                detail=", ".join(v.name for v in bad),
            )
        )
    return found


def _row(name: str, verdicts: list[Verdict], target: float) -> Row:
    missed = [
        f"{v.name}: {v.truth}, said {v.said[0] if v.said else v.how or 'nothing'}"
        for v in verdicts
        if not v.right
    ]
    right = sum(v.right for v in verdicts)
    busy = sum(v.disturbed for v in verdicts)
    missed += [f"{busy} while other processes had the cores"] if busy else []
    return Row(
        name=name,
        value=100 * right / len(verdicts),
        target=100 * target,
        unit="%",
        best="high",
        n=len(verdicts),
        detail="; ".join([f"{right} of {len(verdicts)}", *missed]),
    )


def rows(ground: Ground, short: bool) -> list[Row]:
    """For benchmarks/run.py: the half that rules may be written by."""
    return scored(
        [each.verdict() for each in probed("dev", list(SHORT) if short else [], 10.0 if short else SECONDS)]
    )


def main() -> None:
    """Print each verdict as it comes, then the score."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*")
    parser.add_argument("--half", default="dev", choices=("dev", "sealed"))
    parser.add_argument("--short", action="store_true", help="two scripts, ten seconds each")
    parser.add_argument("--seconds", type=float, default=SECONDS, help="of each probe")
    parser.add_argument("--json", type=Path, help="write verdicts and rows here")
    o = parser.parse_args()
    verdicts = []
    for each in probed(o.half, o.names or (list(SHORT) if o.short else []), 10.0 if o.short else o.seconds):
        verdict = each.verdict()
        verdicts.append(verdict)
        mark = "right" if verdict.right and not verdict.wrongly_refused else "WRONG"
        said = (
            ", ".join(
                f"{n} {s:.0%}" if s is not None else n
                for n, s in zip(verdict.said, verdict.shares, strict=False)
            )
            if verdict.shares
            else ", ".join(verdict.said)
        )
        how = verdict.how + (", disturbed" if verdict.disturbed else "")
        print(
            (
                f"{mark}  {verdict.name:<16} {verdict.truth or '(nothing)':<18} said: "
                f"{said or '(nothing)'}   [{how}]"
            ),
            flush=True,
        )
    told = scored(verdicts)
    for row in told:
        print(row.line())
    if o.json:
        o.json.write_text(
            json.dumps(
                {"verdicts": [asdict(v) for v in verdicts], "rows": [r.to_json() for r in told]}, indent=2
            )
        )


if __name__ == "__main__":
    main()
