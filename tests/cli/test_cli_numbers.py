"""`plot` and `compare` on real runs, and what `ps` and `show` say of their numbers."""

from __future__ import annotations

import csv
import io

from benchmarks.ground import Ground, until

from stoker.cli import chart, vector

TRAIN = """
import argparse, math, sys, time
p = argparse.ArgumentParser()
p.add_argument("--lr", type=float)
p.add_argument("--seed", type=int, default=0)
p.add_argument("--wait", action="store_true")
a = p.parse_args()
print("lr: ", a.lr)
for epoch in range(1, 5):
    for batch in (0, 50):
        print(f"Train Epoch: {epoch} [{batch}/100 ({batch}%)]\\tLoss: {1 / (a.lr * (epoch * 100 + batch)):.6f}")
    print(f"Validation: loss {1 / (a.lr * epoch) + a.seed:.4f}, accuracy {90 + a.lr + epoch + a.seed / 10:.1f}%", flush=True)
if a.wait:
    time.sleep(600)
"""
LOSS = [(0, 0.1), (50, 1 / 15), (100, 0.05), (150, 0.04), (200, 1 / 30), (250, 1 / 35), (300, 0.025), (350, 1 / 45)]


def test_plot_and_compare_runs_that_only_print(ground: Ground):
    ground.script("train.py", TRAIN)
    for lr in ("0.1", "1.0"):
        ground.stoker("run", "--name", f"r-{lr}", "train.py", "--lr", lr).ok()
    told = ground.stoker("plot", "r-0.1", "r-1.0", "--metric", "loss", "--json").json()
    series = {one["name"]: one for one in told["series"] if one["run"] == "r-0.1"}
    assert list(series) == ["train/Loss", "val/loss"] and {one["source"] for one in told["series"]} == {"printed"}
    assert [tuple(point[:2]) for point in series["train/Loss"]["points"]] == [(at, round(value, 6)) for at, value in LOSS]
    assert [point[:2] for point in series["val/loss"]["points"]] == [[1, 10.0], [2, 5.0], [3, 3.3333], [4, 2.5]]
    assert all(isinstance(point[2], float) for point in series["val/loss"]["points"])
    picture = ground.stoker("plot", "r-0.1", "r-1.0", "--metric", "val_loss").ok().out
    assert "r-0.1 val/loss" in picture and "r-1.0 val/loss" in picture and "epoch" in picture and "10 ┤" in picture
    assert ground.stoker("plot", "r-0.1", "--metric", "nope").code == 3

    found = ground.stoker("compare", "r-0.1", "r-1.0", "--sort", "accuracy", "--json").json()
    assert [run["name"] for run in found["runs"]] == ["r-1.0", "r-0.1"] and found["parameters"] == ["lr"]
    assert found["runs"][1]["metrics"]["val/loss"]["best"] == [4, 2.5]
    page = ground.work / "a.html"
    ground.stoker("compare", "r-0.1", "r-1.0", "--html", str(page)).ok()
    assert "<script" not in page.read_text() and "r-1.0" in page.read_text() and "2.5 (epoch 4)" in page.read_text()
    rows = list(csv.DictReader(io.StringIO(ground.stoker("compare", "r-0.1", "r-1.0", "--csv").ok().out)))
    assert [row["lr"] for row in rows] == ["0.1", "1"] and rows[0]["val/loss best"] == "2.5"
    shown = ground.stoker("show", "r-0.1").ok().out
    assert "2.5, best 2.5 at epoch 4" in shown and "4 printed" in shown


SAMPLES = """
import sys, torch
x = torch.randn(600, 4)
loader = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(x, x.sum(1)), batch_size=10)
model = torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), 0.001)
for epoch in range(1, int(sys.argv[1]) + 1):
    for batch, (inputs, targets) in enumerate(loader):
        optimizer.zero_grad()
        loss = torch.nn.functional.mse_loss(model(inputs)[:, 0], targets)
        loss.backward()
        optimizer.step()
        if batch % 20 == 0:
            print(f"Train Epoch: {epoch} [{batch * 10}/600 ({100 * batch // 60}%)]\\tLoss: {1 / (epoch + batch):.6f}")
    print(f"Test set: Average loss: {1 / epoch:.4f}, Accuracy: {90 + epoch}/100 ({90 + epoch}%)")
"""


def test_a_count_of_samples_is_not_called_step_and_one_value_has_its_unit(ground: Ground):
    ground.script("samples.py", SAMPLES)
    for epochs in ("1", "3"):
        ground.stoker("run", "--name", f"s-{epochs}", "samples.py", epochs).ok()
    shown = ground.stoker("show", "s-3").ok().out
    assert "steps   180" in shown and "best 0.02326 at count 1,600  (9 printed)" in shown
    assert "91 %  (1 printed once)" in ground.stoker("show", "s-1").ok().out
    table = ground.stoker("compare", "s-1", "s-3", "--metric", "train/Loss", "--metric", "Accuracy").ok().out
    assert "(count 400)" in table and "(count 1,600)" in table and "(step" not in table
    assert "91 %" in table and "93 %" in table
    told = ground.stoker("plot", "s-3", "--metric", "train/Loss", "--json").json()
    assert [one["axis"] for one in told["series"]] == ["count"]


def test_ps_says_the_last_numbers_of_a_run_that_trains(ground: Ground):
    ground.script("train.py", TRAIN)
    run = ground.detach("--name", "live", "train.py", "--lr", "1.0", "--wait")
    ground.until_log(run["id"], b"accuracy 95.0%")
    until(lambda: ground.show("live")["state"] == "running", 30, "the run")
    row = ground.stoker("ps").ok().out.splitlines()[1]
    assert "epoch 4  train/Loss 0.002222  val/accuracy 95 %" in row


def test_a_run_without_numbers(ground: Ground):
    ground.stoker("run", "--name", "mute", "--", "echo", "hello").ok()
    done = ground.stoker("plot", "mute")
    assert done.code == 3 and "mute has no metrics" in done.err and "stoker logs mute" in done.err


def test_a_metric_with_one_value_has_no_curve(ground: Ground):
    ground.script("once.py", "for i in range(3): print('working')\nprint('Test set: Average loss: 0.8215, Accuracy: 792/1000 (79%)')\n")
    for name in ("a-1", "a-2"):
        ground.stoker("run", "--name", name, "once.py").ok()
    done = ground.stoker("plot", "a-1")
    assert done.code == 3 and "a-1 has no curves: each of its metrics has only one value." in done.err and "stoker show a-1" in done.err
    assert "stoker compare 'a-*'" in ground.stoker("plot", "a-*").err
    assert "best test/Accuracy: a-" in ground.stoker("compare", "a-*", "--sort", "accuracy").ok().err
    done = ground.stoker("plot", "--metric", "accuracy", "a-1")
    assert done.code == 3 and "single values: test/Average loss, test/Accuracy. To see them: stoker show a-1\n" in done.err, done.err


def test_a_picture_has_round_ticks_names_and_no_place_for_what_is_not_finite():
    curves = [chart.Curve("train/loss", [(x, 2.0 - x / 100) for x in range(100)]),
              chart.Curve("val/\x1b[31mloss", [(0, 2.2), (50, float("nan")), (99, 1e301), (99, 1.2)])]
    for columns in (40, 80, 160):
        lines = chart.draw(chart.Chart("loss", "step", curves), columns, colour=False).split("\n")
        assert max(map(len, lines[:-1])) <= columns
        assert any(line.endswith("train/loss") for line in lines) and "\x1b" not in "".join(lines)
        assert "2 values not drawn: nan, infinite or beyond 1e300" in lines[-1]
    assert chart.ticks(0, 1, 5) == [0, 0.2, 0.4, 0.6000000000000001, 0.8, 1.0]
    assert chart.draw(chart.Chart("loss", "step", [chart.Curve("a", [(1, float("nan"))])]), 80, colour=False) == "loss: no value is finite"


def test_a_page_and_a_picture_escape_what_a_script_named():
    charts = [chart.Chart("<b>loss</b>", "step", [chart.Curve("<script>alert(1)</script>", [(0, 1.0), (1, 2.0)])])]
    page = vector.page("<i>run</i>", charts, ["run"], [["</td><script>"]])
    assert "<script" not in page and "<b>loss" not in page and "<i>run" not in page
    assert "&lt;script" in vector.svg(charts)
