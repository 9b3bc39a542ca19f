"""`stoker export` and `plot --png`: files that other programs open hold what the runs said."""

from __future__ import annotations

import csv
import json

from benchmarks.ground import Ground, until
from PIL import Image

from stoker.cli import offline

TRAIN = """
import sys
for epoch in range(1, 5):
    print(f"Epoch {epoch}/4 loss: {float(sys.argv[2]) / epoch:.4f} acc: {epoch * 20}", flush=True)
"""


def test_every_format_holds_the_numbers_of_both_runs(ground: Ground):
    ground.script("train.py", TRAIN)
    for lr in ("0.1", "0.2"):
        ground.stoker("run", "--name", f"r-{lr}", "train.py", "--lr", lr).ok()
    ground.stoker("note", "r-0.1", "<script>alert(1)</script>").ok()
    to = ground.work / "out"
    done = ground.stoker("export", "r-0.1", "r-0.2", "--to", "out", "--as", "csv", "--as", "json", "--as", "html", "--as", "tensorboard", "--json").json()
    assert done == {"folder": "out", "files": ["runs.csv", "curves.csv", "runs.json", "report.html", "tensorboard/r-0.1", "tensorboard/r-0.2"]}
    with open(to / "curves.csv", newline="") as f:
        rows = [(row["run"], row["metric"], float(row["step"]), float(row["value"])) for row in csv.DictReader(f)]
    expected = [(f"r-{lr}", "loss", e, round(lr / e, 4)) for lr in (0.1, 0.2) for e in range(1, 5)]
    assert [row for row in rows if row[1] == "loss"] == expected and len(rows) == 16
    with open(to / "runs.csv", newline="") as f:
        assert [(row["run"], row["lr"], row["loss best"]) for row in csv.DictReader(f)] == [("r-0.1", "0.1", "0.025"), ("r-0.2", "0.2", "0.05")]
    told = json.loads((to / "runs.json").read_text())
    assert [run["name"] for run in told["runs"]] == ["r-0.1", "r-0.2"] and {len(one["points"]) for one in told["series"]} == {4}
    page = (to / "report.html").read_text()
    assert "<script" not in page and "&lt;script&gt;" in page and page.count("<svg") == 1 and "train.py --lr 0.2" in page
    assert _scalars(to / "tensorboard" / "r-0.2", "loss") == [(e, round(0.2 / e, 4)) for e in range(1, 5)]
    again = ground.stoker("export", "r-0.1", "--to", "out")
    assert again.code == 2 and "is not an empty folder" in again.err


def _scalars(folder, tag: str) -> list[tuple[int, float]]:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    events = EventAccumulator(str(folder))
    events.Reload()
    return [(each.step, round(each.value, 4)) for each in events.Scalars(tag)]


def test_a_png_is_a_picture_and_names_cannot_break_it(ground: Ground):
    ground.script("train.py", "for i in range(9): print(f'step {i} loss $_{{x: {1 / (i + 1):.3f} val_loss: {2 / (i + 1):.3f}', flush=True)\n")
    ground.stoker("run", "--name", "a", "train.py").ok()
    until(lambda: ground.show("a")["state"] == "done", 30, "the end")
    ground.stoker("plot", "a", "--png", "a.png").ok()
    with Image.open(ground.work / "a.png") as picture:
        assert picture.format == "PNG" and picture.size[0] == 1290 and len(picture.convert("RGB").getcolors(1 << 20)) > 5
    assert ground.stoker("plot", "a", "--png", "no/such/a.png").code == 2
    assert ground.stoker("plot", "a", "--png", "a.png", "--csv").code == 2


def test_rows_of_an_offline_run_are_one_a_position_and_lose_no_value():
    series = [{"name": "loss", "axis": "step", "points": [[1, 0.5, None], [2, "nan", None], [2, 0.3, None]]},
              {"name": "acc", "axis": "step", "points": [[2, 90, None]]}, {"name": "val", "axis": "epoch", "points": [[1, 0.4, None]]}]
    found = offline.rows(series)
    assert [at for at, _ in found] == [("epoch", 1), ("step", 1), ("step", 2), ("step", 2)]
    assert found[2][1]["acc"] == 90 and found[3][1] == {"loss": 0.3} and str(found[2][1]["loss"]) == "nan"


def test_what_is_not_installed_is_named_and_nothing_is_written(ground: Ground):
    ground.script("train.py", TRAIN)
    ground.stoker("run", "--name", "a", "train.py", "--lr", "1").ok()
    none = ground.work.parent / "none"
    none.mkdir()
    (none / "sitecustomize.py").write_text("import sys\nsys.modules['wandb'] = None\nimport importlib.util as u\nold = u.find_spec\n"
                                           "u.find_spec = lambda name, *a: None if name == 'wandb' else old(name, *a)\n")
    done = ground.stoker("export", "a", "--to", "out", "--as", "csv", "--as", "wandb", env={"PYTHONPATH": str(none)})
    assert done.code == 2 and "pip install wandb" in done.err and not (ground.work / "out").exists()
    ground.stoker("run", "--name", "mute", "--", "echo", "hello").ok()
    assert ground.stoker("export", "mute", "--to", "out").code == 3
