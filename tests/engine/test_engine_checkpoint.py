"""Checkpoints on disk: complete or absent, whatever dies, tears or fills up. State in them: the same types come back."""

from __future__ import annotations

import os
import shutil
import signal
from collections import Counter, OrderedDict, deque

import numpy as np
import pytest
import torch
from enginekit import Training
from safetensors.torch import load_file
from scripts import script, usual

from stoker.engine import checkpoint, safefile, tree

POINTS = ["tensors", "state", "manifest", "replaced", "renamed", "latest"]


def write(root, step, value=1.0):
    return checkpoint.write(root, {"step": step, "value": value}, {"w": torch.full((1000,), value)})


@pytest.mark.slow
@pytest.mark.inside
@pytest.mark.parametrize("point", POINTS)
def test_a_kill_during_a_save_leaves_a_whole_checkpoint_and_the_same_end(nursery, tmp_path, point):
    text = usual()
    straight = Training(nursery, tmp_path / "straight", {})
    path = script(straight.folder, text)
    assert straight.live(path) == [0]
    one = Training(nursery, tmp_path / "one", {})
    path = script(one.folder, text)
    if point == "replaced":  # a step is written again where its checkpoint is damaged
        assert one.live(path, STOKER_CRASH_AT="checkpoint-latest:4") == [-signal.SIGKILL], one.text()
        with open(checkpoint.newest(one.root)[0].path / "tensors.safetensors", "r+b") as damaged:
            damaged.truncate(10)
    codes = one.live(path, STOKER_CRASH_AT=f"checkpoint-{point}:{1 if point == 'replaced' else 4}")
    assert codes == [-signal.SIGKILL], one.text()
    saved, _ = checkpoint.newest(one.root)
    assert saved is not None
    if point == "renamed":  # the next start trains no more step before it ends
        assert one.live(path, STOKER_CRASH_AT="checkpoint-renamed:12") == [-signal.SIGKILL], one.text()
    assert one.live(path) == [0], one.text()
    assert (one.root / "latest").read_text() == (straight.root / "latest").read_text()
    assert one.text().splitlines()[-1] == straight.text().splitlines()[-1]


@pytest.mark.parametrize("damage", ["bit", "cut", "no manifest", "no tensors", "manifest torn"])
def test_a_damaged_checkpoint_is_skipped_and_reported(tmp_path, damage):
    write(tmp_path, 3)
    last = write(tmp_path, 5)
    if damage == "bit":
        data = bytearray((last / "tensors.safetensors").read_bytes())
        data[-5] ^= 1
        (last / "tensors.safetensors").write_bytes(data)
    elif damage == "cut":
        os.truncate(last / "tensors.safetensors", 100)
    elif damage == "no manifest":
        (last / "manifest.json").unlink()
    elif damage == "no tensors":
        (last / "tensors.safetensors").unlink()
    else:
        os.truncate(last / "manifest.json", 20)
    saved, skipped = checkpoint.newest(tmp_path)
    assert saved.step == 3
    assert len(skipped) == 1
    assert "step-000000005 skipped" in skipped[0]
    assert last.exists()


def test_a_moved_folder_is_read(tmp_path):
    write(tmp_path / "a", 5)
    os.rename(tmp_path / "a", tmp_path / "b")
    assert checkpoint.newest(tmp_path / "b")[0].step == 5


def test_what_a_kill_between_two_renames_leaves_is_put_back(tmp_path):
    folder = write(tmp_path, 5)
    os.rename(folder, tmp_path / "step-000000005.replaced-77")
    assert checkpoint.newest(tmp_path)[0].step == 5


def test_the_newest_and_the_best_stay(tmp_path):
    for step in range(1, 7):
        write(tmp_path, step)
        checkpoint.prune(tmp_path, 2, best=2)
    assert sorted(p.name for p in tmp_path.glob("step-*")) == [f"step-{n:09d}" for n in (2, 5, 6)]


def test_a_damaged_checkpoint_that_is_newer_costs_no_whole_one(tmp_path):
    os.truncate(write(tmp_path, 9) / "manifest.json", 20)
    for step in (3, 4):
        write(tmp_path, step)
        checkpoint.prune(tmp_path, 1, best=None)
    assert sorted(p.name for p in tmp_path.glob("step-*")) == ["step-000000004", "step-000000009"]
    assert checkpoint.newest(tmp_path)[0].step == 4


def test_a_full_disk_leaves_the_ones_before(tmp_path, monkeypatch):
    write(tmp_path, 3)
    limit = __import__("resource")
    before = limit.getrlimit(limit.RLIMIT_FSIZE)
    ignored = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    limit.setrlimit(limit.RLIMIT_FSIZE, (1500, before[1]))
    try:
        with pytest.raises(OSError):
            write(tmp_path, 4)
    finally:
        limit.setrlimit(limit.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, ignored)
    assert [p.name for p in tmp_path.glob("step-*")] == ["step-000000003"]


DTYPES = [torch.float64, torch.float32, torch.float16, torch.bfloat16, torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8, torch.bool,
          torch.float8_e4m3fn, torch.float8_e5m2]


def test_the_file_is_one_that_safetensors_reads(tmp_path):
    wanted = {str(d): torch.arange(6).reshape(2, 3).to(d) for d in DTYPES} | {"empty": torch.zeros(0, 3), "number": torch.tensor(2.5)}
    entry = safefile.write(tmp_path / "t.safetensors", wanted)
    found = load_file(tmp_path / "t.safetensors")
    assert entry["bytes"] == (tmp_path / "t.safetensors").stat().st_size
    assert entry["sha256"] == safefile.sha256(tmp_path / "t.safetensors")
    for name, tensor in wanted.items():
        assert found[name].dtype == tensor.dtype
        assert found[name].shape == tensor.shape
        assert torch.equal(found[name].view(torch.uint8) if tensor.dim() else found[name], tensor.view(torch.uint8) if tensor.dim() else tensor)


VALUES = [None, True, 3, -(10**30), 0.1 + 0.2, float("inf"), "text", b"bytes", [1, [2]], (1, (2, "x")), {"a": 1}, {1: "one", "1": "text", (2, 3): 4},
          {"~": "marked"}, {3, 1}, frozenset("ab"), deque([1, 2], 5), Counter("aab"), OrderedDict(b=1, a=2), torch.float16, torch.device("cpu"),
          torch.Size([2, 3]), np.float32(0.1), np.int64(7)]


@pytest.mark.parametrize("value", VALUES, ids=[f"{type(value).__name__}-{i}" for i, value in enumerate(VALUES)])
def test_values_come_back_as_they_were(value):
    import json

    tensors = {}
    body = json.loads(json.dumps(tree.encode(value, tensors, "p")))
    found = tree.decode(body, tensors)
    assert type(found) is type(value)
    assert found == value
    if isinstance(value, OrderedDict):
        assert list(found) == list(value)


def test_tensors_go_back_to_the_device_that_they_were_on():
    body = tree.encode({"here": torch.ones(2), "there": [torch.ones(2, device="meta")]}, {}, "p")
    read = {"p.here": torch.ones(2), "p.there.0": torch.ones(2)}
    found = tree.decode(body, read, torch.device("meta"))
    assert (found["here"].device.type, found["there"][0].device.type) == ("cpu", "meta")
    assert tree.decode(body, read)["there"][0] is read["p.there.0"]


def test_tensors_under_keys_that_read_alike_stay_apart():
    tensors = {}
    body = tree.encode({1: torch.ones(1), "1": torch.zeros(1)}, tensors, "p")
    found = tree.decode(body, tensors)
    assert found[1].item() == 1
    assert found["1"].item() == 0


def test_what_cannot_be_saved_is_named():
    with pytest.raises(tree.Unsaveable) as e:
        tree.encode({"a": [object()]}, {}, "model1")
    assert e.value.args == ("model1.a.0", "builtins.object")


def test_a_folder_that_cannot_be_written_is_refused_at_the_start(tmp_path):
    from stoker.engine import place
    from stoker.engine.errors import StateError

    (tmp_path / "file").write_text("")
    with pytest.raises(StateError, match="cannot be written"):
        place.claim(tmp_path / "file" / "run")
    assert shutil.disk_usage(tmp_path).free == pytest.approx(place.free_bytes(tmp_path), rel=0.5)
