"""Does the tuner need each of its parts? `python benchmarks/takeouts.py [--probes FOLDER] [--seconds S]`.

Every script of the dev half is probed once (kept in FOLDER, and read from there when it is there already). Then each hook's facts and each
model is taken out, one at a time, and all scripts are judged again: a part whose absence no planted fault notices is a part too many.
"""

from __future__ import annotations

import argparse
import contextlib
import copy
import json
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from unittest import mock

REPO = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(REPO))

from benchmarks import diagnosis  # noqa: E402
from stoker.tune import reading, rules  # noqa: E402
from stoker.tune.view import View  # noqa: E402

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
    "other numbers of workers": phase("workers="), "other numbers of threads": phase("threads="),
    "bfloat16 tried": phase("bf16"), "channels_last tried": phase("channels_last"), "a fused optimizer tried": phase("fused"),
    "anomaly mode off tried": phase("anomaly"), "batches of twice the size": phase("batch="),
    "kept samples tried": phase("cache"), "whole batches tried": phase("batched"),
    "single samples": keys("samples"), "the same sample twice": keys("samples.same", "samples.again_s"),
    "two samples at once": keys("samples.beside_s"), "slow samples": keys("samples.max_s", "samples.p90_s"),
    "collating": keys("samples.collate_s"), "waiting of a sample": keys("samples.wait_s"),
    "the loader alone": keys("alone"), "starting of workers": keys("loaders.start_s"),
    "proofs of the feeds": keys("loaders.proof"), "reading twice": keys("loaders.replay"), "own __iter__": keys("loaders.own_iter"),
    "changes of the dataset": keys("loaders.dataset.changed"), "samples that come several times": keys("loaders.duplicates"),
    "order of the labels": keys("loaders.labels_sorted"), "the loaders": keys("loaders"),
    "the sampler of stacks": keys("stacks"), "the clock": keys("windows.ms"), "time that others took": keys("windows.stolen_s"),
    "CPU of a window": keys("windows.cpu_s"), "padding": keys("batch.padding"), "the model": keys("model"),
    "the optimizers": keys("optimizers"), "flags": keys("flags"), "memory": keys("memory"), "growth of backward": keys("growth"),
    "side effects": keys("side_effects"), "steps": keys("steps_seen"),
}
MODELS = {"model: the loader's rate": "loader_model", "model: t(B) = a + bB": "step_model", "model: the stall": "stall",
          "model: what others took": "foreign"}
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


def outcomes(found: dict[str, dict], out: Out = lambda facts: None, *, text: bool = True) -> dict[str, str]:
    """What is wrong about each script's verdict, in words; "" where nothing is."""
    told = {}
    for case in diagnosis.suite().cases("dev"):
        each = found[case.name]
        facts = copy.deepcopy(each["facts"])
        out(facts)
        how = each["how"]
        judged = rules.judge(facts, each["card"], reading.read(case.path, facts, each["card"]["cores"]) if text else reading.Reading())
        verdict = diagnosis.judged(case, how, judged)
        helps = [a.name for a in judged.actions if a.cure == "setting"]
        if not verdict.right:
            told[case.name] = f"said {verdict.said[0] if verdict.said else 'nothing'}"
        elif verdict.wrongly_refused:
            told[case.name] = "refused"
        elif case.cure == "setting" and not set(helps) & set(case.helps):
            told[case.name] = f"offers {', '.join(helps) or 'nothing'}"
        else:
            told[case.name] = ""
    return told


def taken_out(found: dict[str, dict]) -> Iterator[tuple[str, dict[str, str]]]:
    """Each part, and what is wrong without it that was right with it."""
    whole = outcomes(found)
    yield "nothing", {name: said for name, said in whole.items() if said}

    def changed(without: dict[str, str]) -> dict[str, str]:
        return {name: said for name, said in without.items() if said and not whole[name]}

    for name, out in FACTS.items():
        yield name, changed(outcomes(found, out))
    yield "the text of the script", changed(outcomes(found, text=False))
    for name, attribute in MODELS.items():
        with contextlib.ExitStack() as stack:
            stack.enter_context(mock.patch.object(View, attribute, _ABSENT.get(attribute)))
            yield name, changed(outcomes(found))


def main() -> int:
    """Print each part with the scripts that need it; 1 where one is not needed."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--probes", type=Path, help="keep the probes here, and use what is kept")
    parser.add_argument("--seconds", type=float, default=diagnosis.SECONDS, help="of each probe")
    o = parser.parse_args()
    folder = o.probes or Path(tempfile.mkdtemp(prefix="stoker-takeouts-"))
    idle = []
    for name, wrong in taken_out(probes(folder, o.seconds)):
        if name != "nothing" and not wrong:
            idle.append(name)
        print(f"{name:<34} {'; '.join(f'{script}: {said}' for script, said in wrong.items()) or '-'}", flush=True)
    print(f"\n{len(FACTS) + len(MODELS) + 1} parts, {len(idle)} that no planted fault needs{': ' + ', '.join(idle) if idle else ''}")
    return 1 if idle else 0


if __name__ == "__main__":
    sys.exit(main())
