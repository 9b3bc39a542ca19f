"""Mutation control: with one saved item lost, a resumed training ends otherwise, in the field that was named beforehand.

Without this a green kill test could mean that nothing which it compares depends on what is saved.
"""

from __future__ import annotations

import json

import pytest
import torch
from enginekit import Training, differences

pytestmark = [pytest.mark.slow, pytest.mark.inside, pytest.mark.timeout(400)]

OPTIONS = {"norm": True, "dropout": True, "ema": True, "sampler": True, "die_at": 23, "epochs": 3, "save": "5step", "clip": 1.0}
PLATEAU = {"plateau": True, "precision": "fp16", "die_at": 23, "epochs": 3, "save": "5step"}


def zero(name):
    return lambda doc, tensors: tensors[name].zero_()


def put(path, value):
    def change(doc, tensors):
        *way, last = path.split("/")
        for part in way:
            doc = doc[int(part) if isinstance(doc, list) else part]
        assert (doc[int(last)] if isinstance(doc, list) else doc[last]) != value
        doc[int(last) if isinstance(doc, list) else last] = value
    return change


def drop_row(name):
    return lambda doc, tensors: doc["objects"]["optimizer1"]["state"].pop(name)


# what is lost: (how, the field that shows it)
ITEMS = {
    "parameter": (zero("model1.state.body.0.weight"), "tensor.model1.state.body.0.weight"),
    "buffer": (zero("model1.state.body.1.running_mean"), "tensor.model1.state.body.1.running_mean"),
    "batch counter": (zero("model1.state.body.1.num_batches_tracked"), "tensor.model1.state.body.1.num_batches_tracked"),
    "buffer outside of state_dict": (zero("model1.loose.pull"), "tensor.model1.loose.pull"),
    "frozen parameters": (put("objects/model1/frozen", ["body.0.bias"]), "tensor.model1.state.body.0.bias"),
    "modes": (put("objects/model1/eval", ["body.1"]), "doc.objects.model1.eval.0"),
    "first moment": (zero("optimizer1.state.model1.body.0.weight.exp_avg"), "tensor.model1.state.body.0.weight"),
    "second moment": (zero("optimizer1.state.model1.body.0.weight.exp_avg_sq"), "tensor.optimizer1.state.model1.body.0.weight.exp_avg_sq"),
    "step of the optimizer": (zero("optimizer1.state.model1.body.0.weight.step"), "tensor.optimizer1.state.model1.body.0.weight.step"),
    "state of one parameter": (drop_row("model1.body.0.bias"), "tensor.model1.state.body.0.bias"),
    "option of a group": (put("objects/optimizer1/options/0/weight_decay", 0.5), "doc.objects.optimizer1.options.0.weight_decay"),
    "schedule": (put("objects/object1/last_epoch", 2), "doc.objects.object1.last_epoch"),
    "schedule within a schedule": (put("objects/object1/_schedulers/1/last_epoch", 3), "doc.objects.object1._schedulers.1.last_epoch"),
    "average of weights": (zero("model2.state.module.body.0.weight"), "tensor.model2.state.module.body.0.weight"),
    "counter of the average": (zero("model2.state.n_averaged"), "tensor.model2.state.n_averaged"),
    "counter of a sampler": (put("objects/loader1/values/rounds", 0), "seen"),
    "kept metric": (zero("kept0/running.sum"), "tensor.kept0/running.sum"),
    "kept list": (put("kept/0/history", []), "doc.kept.0.history.2"),
    "kept number": (put("kept/0/total", 0.5), "doc.kept.0.total"),
    "best value so far": (put("kept/0/best", -1.0), "doc.kept.0.best"),
    "best checkpoint": (put("best", {"score": 99.0, "step": 5}), "doc.best.score"),
    "place in the epoch": (None, "doc.step"),
    "epoch": (None, "seen"),
    "steps": (put("step", 3), "doc.step"),
    "samples": (put("samples", 3), "doc.samples"),
    "epochs done": (put("epochs_done", 7), "doc.epochs_done"),
    "length of the log": (lambda doc, tensors: doc["metrics"].update(bytes=0), "curve"),
}
OF_PLATEAU = {
    "best of the plateau": (put("objects/object1/best", 1e-3), "doc.objects.object1.best"),
    "cooldown": (put("objects/object1/cooldown_counter", 5), "doc.objects.object1.cooldown_counter"),
    "scale": (put("precision/scale", 8.0), "doc.precision.scale"),
    "growth tracker": (put("precision/_growth_tracker", 1000), "doc.precision._growth_tracker"),
}


@pytest.fixture(scope="module")
def made(nursery, tmp_path_factory):
    """Name -> (the result of an undisturbed run, one that was killed at step 23)."""
    found = {}
    for name, options in {"usual": OPTIONS, "plateau": PLATEAU}.items():
        folder = tmp_path_factory.mktemp(name)
        straight = Training(nursery, folder / "straight", {**options, "die_at": None}).run()
        killed = Training(nursery, folder / "killed", options)
        assert killed.live() == [-9]
        assert not differences(straight, killed.copy_to(folder / "twin").run()), "as it is, it comes back exactly"
        found[name] = straight, killed
    return found


def check(made, tmp_path, change, field):
    straight, killed = made
    hurt = killed.copy_to(tmp_path / "hurt")
    hurt.edit(change)
    hurt.live()
    try:
        differ = differences(straight, hurt.result())
    except AssertionError as e:
        differ = [f"seen: {e}"]
    assert any(name.startswith(field) for name in differ), f"{field} does not show it; what does: {differ}"


@pytest.mark.parametrize("item", ITEMS)
def test_a_lost_item_shows(made, tmp_path, item):
    change, field = ITEMS[item]
    if item in ("place in the epoch", "epoch"):
        change = _moved(made["usual"][1], item)
    check(made["usual"], tmp_path, change, field)


@pytest.mark.parametrize("item", OF_PLATEAU)
def test_a_lost_item_of_a_plateau_in_fp16_shows(made, tmp_path, item):
    check(made["plateau"], tmp_path, *OF_PLATEAU[item])


def _moved(killed, item):
    """Another position: one step further, or the epoch before."""
    def change(doc, tensors):
        inner = doc["at"]
        if item == "place in the epoch":
            doc["position"][inner] += 1
        else:
            doc["position"] = {"epochs1": doc["position"]["epochs1"] - 1}
            doc["at"] = "epochs1"
    return change


def test_every_item_of_a_checkpoint_is_named_here(made):
    """A new part of the document needs a line above."""
    doc = json.loads((next(iter(sorted(made["usual"][1].root.glob("step-*")))) / "state.json").read_text())
    assert set(doc) == {"objects", "kept", "step", "samples", "epochs_done", "position", "at", "totals", "precision", "metrics", "made", "data", "spent", "at_s", "best"}
    assert set(doc["objects"]) == {"model1", "model2", "optimizer1", "loader1", "loader2", "object1"}
    assert torch.__version__ == doc["made"]["torch"]
