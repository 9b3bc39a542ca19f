"""`stoker board`: the numbers of runs in event files, and TensorBoard over them."""

from __future__ import annotations

import json
import signal
import socket
import subprocess
import sys
import urllib.request
from pathlib import Path

import pytest
from benchmarks.ground import Ground, until

from stoker.base.errors import InvalidSpec
from stoker.cli.event_files import Events

TRAIN = """
import sys, time
for epoch in range(1, 4):
    print(f"epoch {epoch} train loss {1 / epoch:.4f} val loss {2 / epoch:.4f}", flush=True)
"""


def read(folder: Path) -> dict[str, list]:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
    found = EventAccumulator(str(folder)).Reload()
    return {tag: [(each.step, pytest.approx(each.value)) for each in found.Scalars(tag)] for tag in found.Tags()["scalars"]}


def series(name: str, *points: tuple, source: str = "printed") -> dict:
    return {"name": name, "source": source, "points": [[at, value, 1.0] for at, value in points]}


def test_points_are_added_and_replaced(tmp_path: Path):
    events = Events(tmp_path)
    assert events.update([series("loss", (0, 1.0), (1, 0.5)), series("loss", (7, 2.0), source="tqdm")]) == []
    events.update([series("loss", (0, 1.0), (1, 0.5), (2, 0.25)), series("loss", (7, 2.0), source="tqdm")])
    assert read(tmp_path) == {"loss": [(0, 1.0), (1, 0.5), (2, 0.25)], "loss (tqdm)": [(7, 2.0)]}
    events.update([series("loss", (0, 1.0), (1, 0.75))])
    assert read(tmp_path)["loss"] == [(0, 1.0), (1, 0.75)]
    assert events.update([series("fine", (0.25, "nan"), (0.5, 4.0))]) == ["fine"]
    events.close()
    assert [step for step, _ in read(tmp_path)["fine"]] == [1, 2]


def test_without_tensorboard_it_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(sys.modules, "tensorboard.summary.writer.event_file_writer", None)
    with pytest.raises(InvalidSpec, match="TensorBoard cannot be imported") as e:
        Events(tmp_path)
    assert e.value.hint == "Install it: pip install tensorboard"


@pytest.mark.slow
def test_tensorboard_over_a_run(ground: Ground):
    ground.script("train.py", TRAIN)
    ground.stoker("run", "--name", "base", "train.py").ok()
    ground.stoker("board", "base", "--export", "events").ok()
    assert read(ground.work / "events" / "base") == {"train/loss": [(1, 1.0), (2, 0.5), (3, 0.3333)], "val/loss": [(1, 2.0), (2, 1.0), (3, 0.6667)]}
    assert ground.stoker("board", "base", "--export", "events").code == 2
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        assert ground.stoker("board", "base", "--port", str(taken.getsockname()[1])).code == 2
    proc = ground.start_stoker("board", "base", "--json", stdout=subprocess.PIPE, text=True)
    told = json.loads(proc.stdout.readline())
    assert told["runs"] == ["base"] and told["url"].startswith("http://127.0.0.1:")

    def tags() -> dict:
        with urllib.request.urlopen(f"{told['url']}data/plugin/scalars/tags", timeout=30) as answer:
            return json.load(answer)
    assert sorted(until(tags, 60, "the curves")["base"]) == ["train/loss", "val/loss"]
    proc.send_signal(signal.SIGINT)
    assert proc.wait(60) == 0
    with socket.socket() as probe:
        assert probe.connect_ex(("127.0.0.1", int(told["url"].rstrip("/").rpartition(":")[2])))
