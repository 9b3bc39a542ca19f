"""Numbers on Weights & Biases: each line once after kills, whether W&B was behind the checkpoint or ahead of it; offline without a key."""

from __future__ import annotations

import json
import struct

import pytest
from enginekit import Training
from scripts import script, usual

pytestmark = [pytest.mark.slow, pytest.mark.inside]

LOGS = usual('folder="run", save="4step", log=SINKS').replace(
    "engine.step(F.cross_entropy(model(a), b))", "loss = F.cross_entropy(model(a), b)\n        engine.step(loss)\n"
    "        engine.log(loss=loss, text='no number')\n        engine._core.metrics.flush()")

# A program in wandb's place: what it was given reaches its server in threes, as W&B's client holds lines back for a while.
STAND_IN = '''
import json, os, pathlib, sys

class Error(Exception):
    pass

class Settings:
    def __init__(self, **words): self.words = words

class Run:
    def __init__(self, path):
        self.path, self.held = path, []
        path.parent.mkdir(parents=True, exist_ok=True)
        self.starting_step = len(path.read_text().splitlines()) if path.exists() else 0
    def define_metric(self, name, step_metric=None): pass
    def log(self, values, step):
        self.held.append(json.dumps([step, values]))
        if len(self.held) == 3: self.send()
    def send(self):
        with open(self.path, "a") as f: f.writelines(line + "\\n" for line in self.held)
        self.held = []
    def finish(self): self.send()

def init(dir, id, project, mode, settings, resume=None):
    import random
    random.random()
    if mode == "online" and os.environ.get("DOWN"): raise Error("no route to host\\nmore")
    if mode == "online": return Run(pathlib.Path(os.environ["SERVER"]) / f"{project}-{id}.jsonl")
    return Run(pathlib.Path(dir) / "wandb" / f"offline-run-{os.getpid()}-{id}" / "rows.jsonl")
'''
KILLED = ("7", "13", "")  # W&B has 6 lines and the checkpoint 4, then 12 and 12; the last start ends


def lives(nursery, folder, sinks='"wandb"', **env):
    """A training that is killed twice, with a program in wandb's place; the lines of metrics.jsonl."""
    (folder / "site").mkdir(parents=True)
    (folder / "site/wandb.py").write_text(STAND_IN)
    training = Training(nursery, folder, {})
    path = script(folder, LOGS.replace("SINKS", sinks))
    words = {"PYTHONPATH": str(folder / "site"), "SERVER": str(folder / "server"), "NETRC": "/dev/null", "WANDB_API_KEY": "", **env}
    for die in KILLED:
        assert training.live(path, DIE=die, **words) == [-9 if die else 0], training.text()
    return training, [json.loads(line) for line in (folder / "run/metrics.jsonl").read_text().splitlines()]


def rows(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


def wanted(lines):
    return [[n, {"step": line["step"], "epoch": line["epoch"], "loss": line["loss"]}] for n, line in enumerate(lines)]


def test_a_server_that_is_behind_or_ahead_gets_each_line_once(nursery, tmp_path):
    training, lines = lives(nursery, tmp_path, WANDB_API_KEY="key")
    assert len(lines) == 15
    server, = (tmp_path / "server").iterdir()
    assert server.name.startswith("train-")
    assert rows(server) == wanted(lines)
    assert "W&B" not in training.text()


def test_without_a_key_it_is_offline_and_says_so(nursery, tmp_path):
    training, lines = lives(nursery, tmp_path, '["tensorboard", "wandb"]')
    folder, = (tmp_path / "run/wandb").iterdir()
    assert rows(folder / "rows.jsonl") == wanted(lines)
    assert training.text().count("no W&B API key: metrics go to run/wandb; `wandb sync` uploads the metrics") == len(KILLED)
    assert list((tmp_path / "run/tensorboard").glob("events.out.*"))


def test_a_server_that_is_down_ends_no_training_and_changes_no_bit(nursery, tmp_path):
    training, lines = lives(nursery, tmp_path / "down", WANDB_API_KEY="key", DOWN="1")
    assert "W&B cannot be used (no route to host): metrics go to run/wandb" in training.text()
    folder, = (tmp_path / "down/run/wandb").iterdir()
    assert rows(folder / "rows.jsonl") == wanted(lines)
    plain = Training(nursery, tmp_path / "plain", {})
    assert plain.live(script(plain.folder, LOGS.replace("SINKS", "None"))) == [0]
    assert plain.text().splitlines()[-1] == training.text().splitlines()[-1]


def test_a_package_that_is_missing_is_named(nursery, tmp_path):
    (tmp_path / "wandb.py").write_text("raise ImportError('No module named wandb')\n")
    training = Training(nursery, tmp_path, {})
    path = script(tmp_path, "try:\n    stoker.Engine(folder='run', log='wandb')\nexcept stoker.base.errors.InvalidSpec as e:\n    print(e, '|', e.hint)\n"
                            "stoker.Engine(folder='run', log=['board'])")
    assert training.live(path) == [1]
    assert 'Engine(log="wandb"): wandb cannot be imported (No module named wandb). | pip install wandb' in training.text()
    assert "log must be \"tensorboard\", \"wandb\", a list of both, or None" in training.text()


def test_the_real_wandb_writes_each_line_once(nursery, tmp_path):
    training = Training(nursery, tmp_path, {})
    path = script(tmp_path, LOGS.replace("SINKS", '"wandb"'))
    for die in KILLED:
        assert training.live(path, DIE=die, NETRC="/dev/null", WANDB_API_KEY="") == [-9 if die else 0], training.text()
    file, = (tmp_path / "run/wandb").glob("offline-run-*/*.wandb")
    lines = [json.loads(line) for line in (tmp_path / "run/metrics.jsonl").read_text().splitlines()]
    assert [[n, {k: v for k, v in values.items() if not k.startswith("_")}] for n, values in history(file)] == wanted(lines)


def history(file):
    """(step, values) of a .wandb file: blocks of 32 kB with records of checksum, length and kind, as in LevelDB."""
    from wandb.proto import wandb_internal_pb2

    data, at, whole = file.read_bytes(), 7, b""
    while at + 7 <= len(data):
        if 32768 - at % 32768 < 7:
            at += 32768 - at % 32768
            continue
        _, length, kind = struct.unpack("<IHB", data[at:at + 7])
        whole += data[at + 7:at + 7 + length]
        at += 7 + length
        if kind in (1, 4):
            record = wandb_internal_pb2.Record.FromString(whole)
            whole = b""
            if record.WhichOneof("record_type") == "history":
                values = {item.key or ".".join(item.nested_key): json.loads(item.value_json) for item in record.history.item}
                yield record.history.step.num, values
