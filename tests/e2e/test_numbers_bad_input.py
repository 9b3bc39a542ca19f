"""Numbers that no script should write, through capture, store and every verb that shows them: nothing breaks, and nothing is invented."""

from __future__ import annotations

import json
import math

from benchmarks.ground import Ground

ODD = "\N{DIRECT HIT}/a b/<script>alert(1)</script>"
TRAIN = """
import os, threading
from torch.utils.tensorboard import SummaryWriter
one, two = SummaryWriter("runs/one"), SummaryWriter("runs/two")
for step, value in enumerate([1.0, float("nan"), float("inf"), 3e38, -2.0]):
    one.add_scalar(ODD, value, step)
for step in (5, 6, 3, 4, 7):
    one.add_scalar("back", step / 10, step)
for step in range(3):
    one.add_scalar("loss", 1.0 + step, step)
    two.add_scalar("loss", 2.0 + step, step)
for n in range(10_000):
    one.file_writer.add_summary(summary(f"many/{n}", float(n)), 1)
"""
BEGIN = f"ODD = {ODD!r}\nfrom torch.utils.tensorboard.summary import scalar as summary\n"


def test_captured_numbers_of_every_odd_kind(ground: Ground):
    ground.script("train.py", BEGIN + TRAIN)
    ground.stoker("run", "--name", "odd", "train.py", timeout_s=200).ok()
    told = ground.stoker("plot", "odd", "--json").json()
    found = {one["name"]: one for one in told["series"]}
    values = [point[1] for point in found[f"one/{ODD}"]["points"]]
    assert values[0] == 1.0 and values[1:3] == ["nan", "inf"] and math.isclose(values[3], 3e38, rel_tol=1e-6) and values[4] == -2.0
    assert [point[0] for point in found["one/back"]["points"]] == [5, 6, 3, 4, 7]
    assert [[point[1] for point in found[f"{folder}/loss"]["points"]] for folder in ("one", "two")] == [[1, 2, 3], [2, 3, 4]]
    assert sum("many/" in name for name in found) == 10_000
    assert ground.stoker("plot", "odd", "--metric", f"one/{ODD}").ok().out.isprintable() is False  # lines, and no escape codes
    assert "\x1b" not in ground.stoker("show", "odd").ok().out
    for words in (("compare", "odd"), ("compare", "odd", "--csv"), ("plot", "odd", "--csv"), ("ps", "-a")):
        assert "\x1b" not in ground.stoker(*words).ok().out
    ground.stoker("export", "odd", "--to", "out", "--metric", f"one/{ODD}", "--as", "html", "--as", "json").ok()
    assert "<script" not in (ground.work / "out" / "report.html").read_text()
    assert json.loads((ground.work / "out" / "runs.json").read_text())["runs"][0]["name"] == "odd"


PRINTS = r"""
import sys
for epoch in range(1, 6):
    print(f"\x1b[31mEpoch {epoch}/5\x1b[0m loss: \x1b[1m{1 / epoch:.4f}\x1b[0m \x1b]0;title\x07acc={epoch * 10}%")
    print("=" * 20)
print("name".ljust(500) + "value")
for row in range(1500):
    print(f"row {row} ".ljust(500) + "x" * 200)
for row in range(2):
    print("| " + " | ".join(f"cell{n} {n}" for n in range(40_000)) + " |")
for epoch in range(3): print(f"Epoch {epoch} huge: {10 ** 300} odd: nan tiny: -1e-320")
sys.stdout.buffer.write(b"\xff\xfe loss: \xff 1\n" * 5)
"""


def test_a_log_with_escape_codes_a_large_table_and_bytes_that_are_no_text(ground: Ground):
    ground.script("train.py", PRINTS)
    ground.stoker("run", "--name", "odd", "train.py").ok()
    told = ground.stoker("plot", "odd", "--json").json()
    found = {one["name"]: [point[:2] for point in one["points"]] for one in told["series"]}
    assert found["loss"] == [[epoch, round(1 / epoch, 4)] for epoch in range(1, 6)]
    assert found["acc"] == [[epoch, epoch * 10] for epoch in range(1, 6)]
    assert not [name for name in found if "cell" in name or "row" in name]
    for words in (("plot", "odd"), ("show", "odd"), ("compare", "odd")):
        assert "\x1b" not in ground.stoker(*words).ok().out
