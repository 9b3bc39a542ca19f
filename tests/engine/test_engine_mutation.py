"""Mutation control: with one saved item lost, a resumed training ends otherwise, in the field that was named beforehand.

The items and their fields are in benchmarks/engine_mutation.py, whose long form loses every one of them.
"""

from __future__ import annotations

import json

import pytest
import torch
from benchmarks.engine_mutation import ITEMS, Killed

pytestmark = [pytest.mark.slow, pytest.mark.inside, pytest.mark.timeout(400)]

SHORT = {
    "usual": ("parameter", "buffer", "buffer outside of state_dict", "frozen parameters", "first moment", "state of one parameter", "option of a group",
              "schedule within a schedule", "average of weights", "counter of a sampler", "kept metric", "kept list", "best checkpoint", "place in the epoch",
              "epoch", "length of the log", "order of samples", "draws of a sample", "draws of the model"),
    "plateau": ("best of the plateau", "scale", "growth tracker"),
    "trainer": ("average of weights", "schedule", "a callback's counter", "history of scores", "wish to stop"),
}


@pytest.fixture(scope="module")
def made(nursery, tmp_path_factory):
    """Kind -> a training that was killed; made when it is asked for first."""
    found = {}

    def get(kind):
        if kind not in found:
            found[kind] = Killed(nursery, tmp_path_factory.mktemp(kind), kind)
        return found[kind]
    return get


@pytest.mark.parametrize(("kind", "item"), [(kind, item) for kind, items in SHORT.items() for item in items])
def test_a_lost_item_shows(made, tmp_path, kind, item):
    killed = made(kind)
    differ = killed.without(item, tmp_path / "hurt")
    assert killed.shown(item, differ), f"{ITEMS[kind][item][1]} does not show it; what does: {differ}"


def test_every_item_of_a_checkpoint_is_named_there(made):
    """A new part of the document needs a line in benchmarks/engine_mutation.py."""
    doc = json.loads((next(iter(sorted(made("usual").killed.root.glob("step-*")))) / "state.json").read_text())
    assert set(doc) == {"objects", "kept", "step", "samples", "epochs_done", "position", "at", "totals", "precision", "metrics", "made", "data", "spent", "at_s", "best"}
    assert set(doc["objects"]) == {"model1", "model2", "optimizer1", "loader1", "loader2", "object1"}
    assert torch.__version__ == doc["made"]["torch"]
