"""`stoker sweep --halve`: the worst runs of unmodified scripts are ended early, whatever becomes of the terminal and of the server."""

from __future__ import annotations

import os
import signal
import sys

import pytest
from benchmarks.ground import Ground, until

from stoker.base.errors import InvalidSpec
from stoker.plane.numbers.halving import Judge, read

# Prints a value for each epoch. It goes on only when it is told to: a file for each epoch, "all" for the rest.
TRAIN = """
import os, sys, time
lr = float(sys.argv[sys.argv.index("--lr") + 1])
for epoch in range(1, 7):
    print(f"Epoch {epoch}/6 train loss: {lr * 2 / epoch:.4f} val loss: {lr / epoch:.4f}", flush=True)
    while epoch >= 4 and not os.path.exists(GO): time.sleep(0.05)
"""


def runs(ground: Ground, tag: str) -> dict[str, dict]:
    return {run["name"]: run for run in ground.stoker("ps", "--tag", tag, "--json").json()}


def states(ground: Ground, tag: str = "s") -> list[str]:
    return [run["state"] for _, run in sorted(runs(ground, tag).items())]


def test_the_worse_runs_end_early_and_the_best_is_told_though_the_server_is_killed(ground: Ground):
    go = ground.work.parent / "go"
    ground.script("train.py", TRAIN.replace("GO", repr(str(go))))
    words = ("sweep", "--name", "s", "--halve", "val_loss", "--at-once", "4", "--param", "lr=0.1,0.4,0.2,0.3", "--", "train.py")
    said = ground.stoker(*words).ok().err
    assert "To see the best run and its command: stoker compare @s --sort val_loss" in said
    os.kill(ground.stoker("server", "status", "--json").json()["pid"], signal.SIGKILL)
    until(lambda: states(ground).count("stopped") >= 2, 90, "the worse runs to end")
    go.touch()
    assert ground.stoker("wait", "@s", timeout_s=90).code == 0  # a run that was ended early is no failure
    told = runs(ground, "s")
    assert told["s-1"]["state"] == "done"  # the best one is never ended
    ended = {name: run for name, run in told.items() if run["state"] == "stopped"}
    assert all("ended-early" in run["tags"] and "in the worse half of s" in run["note"] for run in ended.values())
    assert not any("ended-early" in run["tags"] for run in told.values() if run["state"] == "done")
    best = ground.stoker("compare", "@s", "--sort", "val_loss").ok()
    assert best.err.endswith("To repeat this run: stoker run -- train.py --lr 0.1\n")
    ground.stoker(*words).ok()  # what was ended early does not start again, by the same words or all together
    assert "nothing to start: no run with the tag @s has failed or was stopped" in ground.stoker("start", "@s").ok().err
    assert {name: run["state"] for name, run in runs(ground, "s").items()} == {name: run["state"] for name, run in told.items()}


def test_without_a_direction_or_optuna_nothing_is_made(ground: Ground, monkeypatch: pytest.MonkeyPatch):
    ground.script("train.py", "print('hello')\n")
    refused = ground.stoker("sweep", "--halve", "speed", "--param", "lr=1,2", "--", "train.py")
    assert refused.code == 2 and "--halve speed:min" in refused.err
    assert ground.stoker("ps", "-a", "--json").json() == []
    monkeypatch.setitem(sys.modules, "optuna", None)  # as where it is not installed
    with pytest.raises(InvalidSpec) as refusal:
        read("val_loss", 1, [])
    assert refusal.value.hint == "pip install 'stoker[sweep]'"


def test_the_same_values_give_the_same_answers_and_a_look_earlier_does_not_change_them():
    curves = {f"r{i}": [((i % 4 + 1) / n, 10.0 * n + i) for n in range(1, 9)] for i in range(8)}
    asked = read("val_loss", 1, list(curves))
    whole = [run for run, _, _ in Judge(asked).judge(curves)]
    parts = Judge(asked)
    found = [run for n in range(1, 9) for run, _, _ in parts.judge({run: points[:n] for run, points in curves.items()})]
    assert whole == found and 4 <= len(set(found)) == len(found) < 8
    best = {run: points[0][0] for run, points in curves.items()}
    assert min(best, key=best.__getitem__) not in found
    largest = Judge(read("speed:max", 1, list(curves)))
    assert "r3" not in [run for run, _, _ in largest.judge(curves)]
    assert [run for run, _, _ in Judge(asked).judge({"a": [(float("nan"), 1.0)], "b": [(1.0, 2.0)]})] == ["a"]
    with pytest.raises(InvalidSpec):
        read("speed", 1, [])
