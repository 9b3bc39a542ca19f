"""The lines of `show` about a training."""

from __future__ import annotations

from stoker.cli import output
from stoker.cli.split import bars, training

TOLD = {"step": 12310, "ranks": 1, "steps_s": 81.234, "samples_s": 5198.9, "setup_s": 3.1, "first_s": 0.21, "p50_ms": 9.9, "p90_ms": 12.71, "max_ms": 118.6,
        "split": {"data": 0.6, "forward": 0.3, "other": 0.0999, "save": 0.0001}, "gpu": None, "epochs": 3, "epoch_s": 41.2, "batch": 20, "of": 1500,
        "eta_epoch_s": 38.0}


def test_a_training_in_a_few_lines():
    rows = dict(training(TOLD, live=True))
    assert rows["steps"] == "12,310, 81.2 a second, 5,199 samples a second"
    assert rows["epochs"] == "3 done, 41s each; batch 20 of 1,500 in the current epoch, 38s to go"
    assert rows["a step"].splitlines()[1] == "the first step took 0.21 s; preparation before it took 3.1 s"
    assert dict(training({**TOLD, "before": 9}, live=False))["epochs"] == "3 done since the resume, 41s each"
    assert not rows["GPU time"] and "in the current epoch" not in dict(training(TOLD, live=False))["epochs"]
    assert list(training({}, live=True)) == []


def test_a_quiet_training_tells_no_rate_and_no_end():
    quiet = dict(training({**TOLD, "done": 0.5, "eta_s": 30.0}, live=True, quiet=True))
    assert quiet["steps"] == "at least 12,310" and quiet["epochs"] == "3 done, 41s each" and not quiet["to the end"]


def test_bars_fit_a_narrow_terminal_and_add_up():
    lines = bars(TOLD["split"]).splitlines()
    assert [line.split("%")[0].strip() for line in lines] == ["60.0", "30.0", "10.0"]  # what is too small is left out
    assert lines[0].count("█") == 18 and lines[0].endswith("waiting for data")
    assert max(output.width(line) for line in lines) < 70
