"""Mutation control of the engine's kill tests: `python benchmarks/run.py --only engine-mutation`.

For each item that is saved or derived, a training is killed, that item is lost, and the training goes on.
It has to end otherwise, in the field that is named here beforehand.
Without this, a green kill test could mean that nothing it compares depends on what is saved.
tests/engine/test_engine_mutation.py runs a part of it.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

REPO = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(REPO), str(REPO / "tests" / "engine")]

from enginekit import Nursery, Training, differences  # noqa: E402

from benchmarks.ground import Ground  # noqa: E402
from benchmarks.measure import Row  # noqa: E402

Change = Callable[[dict, dict], None]

# trainings, each killed once
KINDS = {
    "usual": {
        "norm": True,
        "dropout": True,
        "ema": True,
        "sampler": True,
        "die_at": 23,
        "epochs": 3,
        "save": "5step",
        "clip": 1.0,
    },
    "plateau": {"plateau": True, "precision": "fp16", "die_at": 23, "epochs": 3, "save": "5step"},
    "trainer": {"trainer": True, "die_at": 23, "epochs": 3, "save": "5step"},
}


def zero(name: str) -> Change:
    """A tensor becomes zeros."""
    def change(doc: dict, tensors: dict) -> None:
        tensors[name].zero_()
    return change


def put(path: str, value: object) -> Change:
    """An entry of the document becomes another."""
    def change(doc: dict, tensors: dict) -> None:
        *way, last = path.split("/")
        for part in way:
            doc = doc[int(part) if isinstance(doc, list) else part]
        key = int(last) if isinstance(doc, list) else last
        assert doc[key] != value, f"{path} is {value!r} anyway"
        doc[key] = value
    return change


def drop_row(doc: dict, tensors: dict) -> None:
    """An optimizer forgets a parameter."""
    doc["objects"]["optimizer1"]["state"].pop("model1.body.0.bias")


def empty_log(doc: dict, tensors: dict) -> None:
    """Nobody knows how long metrics.jsonl was."""
    doc["metrics"].update(bytes=0)


def one_batch_further(doc: dict, tensors: dict) -> None:
    """The place in the epoch is another."""
    doc["position"][doc["at"]] += 1


def epoch_before(doc: dict, tensors: dict) -> None:
    """The epoch is another."""
    doc["position"], doc["at"] = {"epochs1": doc["position"]["epochs1"] - 1}, "epochs1"


FIRST = "optimizer1.state.model1.body.0.weight"
# kind: what is lost: (how, the field that shows it); a text is code that the resumed training runs instead of
# what derives the item
ITEMS: dict[str, dict[str, tuple[Change | str, str]]] = {
    "usual": {
        "parameter": (zero("model1.state.body.0.weight"), "tensor.model1.state.body.0.weight"),
        "buffer": (zero("model1.state.body.1.running_mean"), "tensor.model1.state.body.1.running_mean"),
        "batch counter": (
            zero("model1.state.body.1.num_batches_tracked"),
            "tensor.model1.state.body.1.num_batches_tracked",
        ),
        "buffer outside of state_dict": (zero("model1.loose.pull"), "tensor.model1.loose.pull"),
        "frozen parameters": (
            put("objects/model1/frozen", ["body.0.bias"]),
            "tensor.model1.state.body.0.bias",
        ),
        "modes": (put("objects/model1/eval", ["body.1"]), "doc.objects.model1.eval.0"),
        "first moment": (zero(f"{FIRST}.exp_avg"), "tensor.model1.state.body.0.weight"),
        "second moment": (zero(f"{FIRST}.exp_avg_sq"), f"tensor.{FIRST}.exp_avg_sq"),
        "step of the optimizer": (zero(f"{FIRST}.step"), f"tensor.{FIRST}.step"),
        "state of one parameter": (drop_row, "tensor.model1.state.body.0.bias"),
        "option of a group": (
            put("objects/optimizer1/options/0/weight_decay", 0.5),
            "doc.objects.optimizer1.options.0.weight_decay",
        ),
        "schedule": (put("objects/object1/last_epoch", 2), "doc.objects.object1.last_epoch"),
        "schedule within a schedule": (
            put("objects/object1/_schedulers/1/last_epoch", 3),
            "doc.objects.object1._schedulers.1.last_epoch",
        ),
        "average of weights": (
            zero("model2.state.module.body.0.weight"),
            "tensor.model2.state.module.body.0.weight",
        ),
        "counter of the average": (zero("model2.state.n_averaged"), "tensor.model2.state.n_averaged"),
        "counter of a sampler": (put("objects/loader1/values/rounds", 0), "seen"),
        "kept metric": (zero("kept0/running.sum"), "tensor.kept0/running.sum"),
        "kept list": (put("kept/0/history", []), "doc.kept.0.history.2"),
        "kept number": (put("kept/0/total", 0.5), "doc.kept.0.total"),
        "best value so far": (put("kept/0/best", -1.0), "doc.kept.0.best"),
        "best checkpoint": (put("best", {"score": 99.0, "step": 5}), "doc.best.score"),
        "place in the epoch": (one_batch_further, "doc.step"),
        "epoch": (epoch_before, "seen"),
        "steps": (put("step", 3), "doc.step"),
        "samples": (put("samples", 3), "doc.samples"),
        "epochs done": (put("epochs_done", 7), "doc.epochs_done"),
        "length of the log": (empty_log, "curve"),
        "order of samples": (
            "feeds.index_batches = lambda *of, f=feeds.index_batches: f(of[0], of[1] + 1, of[2])",
            "seen",
        ),
        "draws of a sample": (
            "feeds.Seeded.__getitems__ = lambda s, o, f=feeds.Seeded.__getitems__: f(s, (o[0] + 1, o[1]))",
            "seen",
        ),
        "draws of the model": (
            "engine._core.seed_all = lambda seed: None",
            "tensor.model1.state.body.0.weight",
        ),
    },
    "plateau": {
        "best of the plateau": (put("objects/object1/best", 1e-3), "doc.objects.object1.best"),
        "cooldown": (put("objects/object1/cooldown_counter", 5), "doc.objects.object1.cooldown_counter"),
        "scale": (put("precision/scale", 8.0), "doc.precision.scale"),
        "growth tracker": (put("precision/_growth_tracker", 1000), "doc.precision._growth_tracker"),
    },
    "trainer": {
        "parameter": (zero("model1.state.0.weight"), "tensor.model1.state.0.weight"),
        "buffer": (zero("model1.state.1.running_var"), "tensor.model1.state.1.running_var"),
        "first moment": (zero("optimizer1.state.model1.0.weight.exp_avg"), "tensor.model1.state.0.weight"),
        "average of weights": (zero("object1.averages.0.weight"), "tensor.object1.averages.0.weight"),
        "updates of the average": (put("objects/object1/updates", 1), "doc.objects.object1.updates"),
        "schedule": (put("objects/object2/steps", 2), "doc.objects.object2.steps"),
        "a callback's counter": (put("objects/object3/moments/step", 0), "doc.objects.object3.moments.step"),
        "a callback's sum": (put("objects/object3/drawn", 0.0), "doc.objects.object3.drawn"),
        "history of scores": (put("kept/0/history", []), "doc.kept.0.history.2"),
        "wish to stop": (put("kept/0/stopping", True), "doc.step"),
        "best checkpoint": (put("best", {"score": 99.0, "step": 5}), "doc.best.score"),
        "place in the epoch": (one_batch_further, "doc.step"),
    },
}


class Killed:
    """A training of one kind: undisturbed, and killed at step 23.
    Raises AssertionError if it does not come back exactly as it is."""

    def __init__(self, nursery: Nursery, folder: Path, kind: str) -> None:
        self.kind = kind
        self.straight = Training(nursery, folder / "straight", {**KINDS[kind], "die_at": None}).run()
        self.killed = Training(nursery, folder / "killed", KINDS[kind])
        assert self.killed.live() == [-9], self.killed.text()
        assert not differences(self.straight, self.killed.copy_to(folder / "twin").run()), (
            "as it is, it does not come back exactly"
        )

    def without(self, item: str, folder: Path) -> list[str]:
        """What differs when the item is lost."""
        change, _ = ITEMS[self.kind][item]
        hurt = self.killed.copy_to(folder)
        if isinstance(change, str):
            hurt.options = {**hurt.options, "hurt": change}
        else:
            hurt.edit(change)
        hurt.live()
        try:
            return differences(self.straight, hurt.result())
        except AssertionError as e:  # a place was seen twice, with other samples
            return [f"seen: {e}"]

    def shown(self, item: str, differ: list[str]) -> bool:
        """Does the field that was named beforehand differ?"""
        return any(name.startswith(ITEMS[self.kind][item][1]) for name in differ)


def rows(ground: Ground, short: bool) -> list[Row]:
    """Items that can be lost without a trace. The short form is in the tests."""
    if short:
        return []
    silent: list[str] = []
    count = 0
    nursery = Nursery()
    try:
        for kind, items in ITEMS.items():
            with tempfile.TemporaryDirectory(prefix="stoker-mutation-") as folder:
                killed = Killed(nursery, Path(folder), kind)
                for number, item in enumerate(items):
                    differ = killed.without(item, Path(folder) / f"hurt{number}")
                    silent += [] if killed.shown(item, differ) else [f"{kind}: {item}"]
                    count += 1
    finally:
        nursery.close()
    return [
        Row(
            name="engine: lost items of a checkpoint that no compared field shows",
            value=len(silent),
            target=0,
            unit="items",
            n=count,
            detail="; ".join(silent) or f"{count} items, each shown by the field that was named beforehand",
        )
    ]
