"""Does the tuner need each of its parts? `python benchmarks/takeouts.py [--probes FOLDER] [--seconds S]`.

Every script of the dev half is probed once (kept in FOLDER, and read from there when it is there already).
Then each hook's facts and each model is taken out, one at a time, and judged again are:
the scripts, the facts by hand of tests/tune/shown.py (which have the faults that only the sealed half plants,
too), and the forecasts of settings. A part whose absence nothing notices is a part too many.
"""

from __future__ import annotations

import argparse
import copy
import json
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest import mock

REPO = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(REPO), str(REPO / "tests" / "tune")]

import shown  # noqa: E402
from made_facts import CARD  # noqa: E402

from benchmarks import diagnosis  # noqa: E402
from stoker.tune import reading, rules  # noqa: E402
from stoker.tune.findings import Findings  # noqa: E402
from stoker.tune.view import View  # noqa: E402

MOVED = 0.05  # of a forecast
Out = Callable[[dict], None]  # takes something out of the facts


def phase(*names: str) -> Out:
    """Windows of these phases were never measured."""
    def out(facts: dict) -> None:
        facts["windows"] = [w for w in facts.get("windows") or [] if not str(w["phase"]).startswith(names)]
    return out


def keys(*paths: str) -> Out:
    """Facts that were never told, by their paths; those of lists in each of its items."""
    def out(facts: dict) -> None:
        for path in paths:
            _remove(facts, path.split("."))
    return out


def _remove(found: object, path: list[str]) -> None:
    for each in found if isinstance(found, list) else [found]:
        if not isinstance(each, dict):
            continue
        if len(path) == 1:
            each.pop(path[0], None)
        else:
            _remove(each.get(path[0]), path[1:])


FACTS: dict[str, Out] = {
    "batches from memory": phase("R1", "batch="),
    "other numbers of workers": phase("workers="),
    "other numbers of threads": phase("threads="),
    "bfloat16 tried": phase("bf16"),
    "channels_last tried": phase("channels_last"),
    "a fused optimizer tried": phase("fused"),
    "anomaly mode off tried": phase("anomaly"),
    "batches of twice the size": phase("batch="),
    "kept samples tried": phase("cache"),
    "whole batches tried": phase("batched"),
    "single samples": keys("samples"),
    "the same sample twice": keys("samples.same", "samples.again_s"),
    "two samples at once": keys("samples.beside_s"),
    "slow samples": keys("samples.max_s", "samples.p90_s"),
    "collating": keys("samples.collate_s"),
    "waiting of a sample": keys("samples.wait_s"),
    "the loader alone": keys("alone"),
    "starting of workers": keys("loaders.start_s"),
    "proofs of the feeds": keys("loaders.proof"),
    "reading twice": keys("loaders.replay"),
    "own __iter__": keys("loaders.own_iter"),
    "changes of the dataset": keys("loaders.dataset.changed"),
    "samples that come several times": keys("loaders.duplicates"),
    "order of the labels": keys("loaders.labels_sorted"),
    "the loaders": keys("loaders"),
    "the sampler of stacks": keys("stacks"),
    "the clock": keys("windows.ms"),
    "time that others took": keys("windows.stolen_s"),
    "CPU of a window": keys("windows.cpu_s"),
    "padding": keys("batch.padding"),
    "the model": keys("model"),
    "the optimizers": keys("optimizers"),
    "flags": keys("flags"),
    "memory": keys("memory"),
    "growth of backward": keys("growth"),
    "side effects": keys("side_effects"),
    "steps": keys("steps_seen"),
}
MODELS = {
    "model: the loader's rate": "loader_model",
    "model: t(B) = a + bB": "step_model",
    "model: the stall": "stall",
    "model: what others took": "foreign",
}
_ABSENT = {"foreign": 0.0}


def probes(folder: Path, seconds: float) -> dict[str, dict]:
    """Facts and card of each script by name; measured where the folder has none."""
    folder.mkdir(parents=True, exist_ok=True)
    wanted = [case.name for case in diagnosis.suite().cases("dev")]
    missing = [name for name in wanted if not (folder / f"{name}.json").exists()]
    if missing:
        for probed in diagnosis.probed("dev", missing, seconds):
            told = {"facts": probed.facts, "card": probed.card, "how": probed.how}
            (folder / f"{probed.case.name}.json").write_text(json.dumps(told))
            print(f"probed {probed.case.name}: {probed.how}", file=sys.stderr, flush=True)
    return {name: json.loads((folder / f"{name}.json").read_text()) for name in wanted}


@dataclass(frozen=True)
class Judged:
    """What is said of one case: what is wrong about it, "" where nothing is;
    and what each setting offered would bring, new/old."""

    wrong: str
    forecasts: dict[str, float]


def all_judged(
    found: dict[str, dict], out: Out = lambda facts: None, *, text: bool = True
) -> dict[str, Judged]:
    """Each script of the dev half, and each cause and refusal of the facts by hand."""
    return {
        **{case.name: _script(case, found[case.name], out, text) for case in diagnosis.suite().cases("dev")},
        **_by_hand(out, text),
    }


def _script(case: Any, probed: dict, out: Out, text: bool) -> Judged:
    facts = copy.deepcopy(probed["facts"])
    out(facts)
    said = rules.judge(
        facts,
        probed["card"],
        reading.read(case.path, facts, probed["card"]["cores"]) if text else reading.Reading(),
    )
    verdict, forecasts = diagnosis.judged(case, probed["how"], said), _forecasts(said)
    if not verdict.right:
        return Judged(f"said {verdict.said[0] if verdict.said else 'nothing'}", forecasts)
    if verdict.wrongly_refused:
        return Judged("refused", forecasts)
    missed = case.cure == "setting" and not forecasts.keys() & set(case.helps)
    return Judged(f"offers {', '.join(forecasts) or 'nothing'}" if missed else "", forecasts)


def _by_hand(out: Out, text: bool) -> dict[str, Judged]:
    told = {}
    with tempfile.TemporaryDirectory() as folder:
        script = Path(folder, "train.py")
        script.write_text(shown.SCRIPT)
        read = reading.read(script) if text else reading.Reading()
        for cause, made in shown.SHOWS.items():
            facts, known = copy.deepcopy(made), cause in shown.KNOWS_TEXT
            for line in (facts.get("stacks") or {}).get("lines") or [] if known else []:
                line["file"] = str(script)
            out(facts)
            said = rules.judge(facts, CARD, read if known else reading.Reading(epochs=True))
            first = said.causes[0].name if said.causes else "nothing"
            told[f"{cause} by hand"] = Judged("" if first == cause else f"said {first}", _forecasts(said))
    for name, (cause, (action, ratio), made) in shown.FURTHER.items():
        facts = copy.deepcopy(made)
        out(facts)
        said = rules.judge(facts, CARD)
        first, forecast = (
            said.causes[0].name if said.causes else "nothing",
            {a.name: a.ratio.value for a in said.actions}.get(action, 1.0),
        )
        right = first == cause and abs(forecast - ratio) < MOVED
        told[name] = Judged("" if right else f"said {first}, {action} {forecast:.2f}", {})
    for reason, knobs, made in shown.REFUSES:
        facts = copy.deepcopy(made)
        out(facts)
        said = rules.judge(facts, CARD)
        kept = all((refusal := said.refused(knob)) and refusal.reason == reason for knob in knobs)
        told[f"{reason} by hand"] = Judged("" if kept else "not refused", {})
    return told


def _forecasts(said: Findings) -> dict[str, float]:
    return {a.name: a.ratio.value for a in said.actions if a.cure == "setting"}


def taken_out(found: dict[str, dict]) -> Iterator[tuple[str, dict[str, Judged], dict[str, Judged]]]:
    """Each part, with all judged with it and without it."""
    whole = all_judged(found)
    for name, out in FACTS.items():
        yield name, whole, all_judged(found, out)
    yield "the text of the script", whole, all_judged(found, text=False)
    for name, attribute in MODELS.items():
        with mock.patch.object(View, attribute, _ABSENT.get(attribute)):
            yield name, whole, all_judged(found)


def noticed(whole: dict[str, Judged], without: dict[str, Judged]) -> tuple[list[str], list[str]]:
    """What is wrong only without a part; and the forecasts that move by MOVED or more, or are gone or new."""
    wrong = [
        f"{name}: {each.wrong}" for name, each in without.items() if each.wrong and not whole[name].wrong
    ]
    moved = []
    for name, each in without.items():
        before = whole[name].forecasts
        for action in before.keys() | each.forecasts.keys():
            old, new = before.get(action, 1.0), each.forecasts.get(action, 1.0)
            if abs(new / old - 1) >= MOVED:
                moved.append(f"{name}: {action} {old:.2f} to {new:.2f}")
    return wrong, moved


def main() -> int:
    """Print each part with what needs it; 1 where one is not needed."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--probes", type=Path, help="keep the probes here, and use what is kept")
    parser.add_argument("--seconds", type=float, default=diagnosis.SECONDS, help="of each probe")
    o = parser.parse_args()
    folder = o.probes or Path(tempfile.mkdtemp(prefix="stoker-takeouts-"))
    idle, before = [], {}
    for name, whole, without in taken_out(probes(folder, o.seconds)):
        wrong, moved = noticed(whole, without)
        before = whole
        idle += [] if wrong or moved else [name]
        shown_of = "; ".join((wrong or sorted(moved))[:4]) or "-"
        print(f"{name:<34} wrong {len(wrong):>2}, forecasts moved {len(moved):>2}   {shown_of}", flush=True)
    print(
        "with all parts wrong:",
        "; ".join(f"{name}: {each.wrong}" for name, each in before.items() if each.wrong) or "nothing",
    )
    print(
        f"{len(FACTS) + len(MODELS) + 1} parts, {len(idle)} that nothing "
        f"needs{': ' + ', '.join(idle) if idle else ''}"
    )
    return 1 if idle else 0


if __name__ == "__main__":
    sys.exit(main())
