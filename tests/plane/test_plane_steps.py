"""What is told of a training out of the lines of its clock."""

from __future__ import annotations

import json

import pytest

from stoker.plane import steps

LINE = {"at": 1000.0, "pid": 7, "rank": None, "step": 100, "steps": 99, "s": 2.0, "batches": 99, "samples": 990, "p50_ms": 15.0, "p90_ms": 18.0,
        "max_ms": 40.0, "ms": {"data": 500.0, "forward": 500.0, "evaluation": 1000.0}, "batch": 20, "of": 119}
FIRST = {"at": 998.0, "pid": 7, "step": 1, "steps": 1, "s": 0.5, "ms": {"forward": 500.0}, "first": True, "setup_s": 3.0}


def test_rates_leave_evaluation_out_and_the_first_step_apart():
    told = steps.summary([FIRST, LINE])
    assert told["step"] == 100 and told["steps_s"] == 99.0 and told["samples_s"] == 990.0 and told["first_s"] == 0.5 and told["setup_s"] == 3.0
    assert told["split"] == {"evaluation": 0.5, "data": 0.25, "forward": 0.25} and told["gpu"] is None
    assert told["eta_epoch_s"] == 1.0


def test_what_is_not_known_is_not_told():
    told = steps.summary([{k: v for k, v in LINE.items() if k not in ("batch", "of", "p50_ms")}])
    assert told["eta_epoch_s"] is told["p50_ms"] is told["epoch_s"] is told["first_s"] is None and told["epochs"] == 0
    assert steps.summary([]) is None and steps.summary([{**LINE, "step": 0}]) is None


def spread(steps, *ms):
    return {**LINE, "steps": steps, **dict(zip(("p50_ms", "p90_ms", "max_ms"), ms, strict=True))}


@pytest.mark.parametrize(("lines", "middle", "slow"), [
    ([spread(99, 15.0, 18.0, 40.0)], 15.0, 18.0),
    ([spread(900, 1.0, 1.0, 1.0), spread(1, 1000.0, 1000.0, 1000.0)], 1.0, 1.0),  # a line of one slow step does not count as much as 900
    ([spread(1, 1.0, 1.0, 1.0), spread(1, 1.0, 1.0, 1.0), spread(98, 50.0, 60.0, 70.0)], 50.0, 60.0),
    ([spread(10, 5.0, 5.0, 5.0), spread(10, 100.0, 100.0, 100.0)], 5.0, 100.0),
])
def test_a_step_is_told_over_all_steps_whatever_lines_they_are_in(lines, middle, slow):
    told = steps.summary(lines)
    assert told["p50_ms"] == pytest.approx(middle, rel=0.25) and told["p90_ms"] == pytest.approx(slow, rel=0.25)
    assert told["max_ms"] == max(line["max_ms"] for line in lines)


def test_of_several_ranks_one_is_told_of():
    told = steps.summary([{**LINE, "pid": 1, "rank": 1, "step": 5}, {**LINE, "pid": 2, "rank": 0}, {**LINE, "pid": 3, "step": 0}])
    assert told["ranks"] == 2 and told["step"] == 100


def test_epochs_of_two_loaders_that_end_together_are_one():
    epochs = [{"loader": n, "s": 1.0 + n, "batches": 9, "step": s} for s in (9, 18) for n in (0, 1)]
    told = steps.summary([{**LINE, "epochs": epochs}])
    assert told["epochs"] == 2 and told["epoch_s"] == 1.5


def test_torn_and_strange_lines_are_passed_over(tmp_path):
    (tmp_path / "steps.jsonl").write_text(json.dumps(LINE) + "\n[1]\n{\"at\": 1, \"pi")
    assert steps.read(tmp_path) == [LINE] and steps.read(tmp_path / "no") == []


@pytest.mark.parametrize(("ended", "why"), [
    ([], None),
    ([{"ended": 0, "optimizers": 1}], "an optimizer was created, but made no step"),
    ([{"ended": 0, "optimizers": 1, "loaders": 1, "batches": 3, "backward": 2}], "gradients were computed, but no optimizer made a step"),
    ([{"ended": 0, "optimizers": 1, "loaders": 1, "batches": 3}], "batches were read, but no optimizer made a step"),
    ([{"ended": 0, "optimizers": 1, "batches": 3, "evaluated": 3}], None),
    ([{"ended": 0, "loaders": 1, "batches": 3}], None),
    ([{"ended": 0, "loaders": 1}], "a DataLoader was created, but no batch was read"),
    ([{"ended": 0, "optimizers": 1}, {"ended": 5, "optimizers": 1}], None),
    ([{"torch": "2"}], None),
])
def test_nothing_was_trained(ended, why):
    assert steps.trained_nothing([], ended) == why
    assert steps.trained_nothing([LINE], ended) is None


def test_a_run_that_stands_still_has_no_rate_and_no_time_to_its_end_in_lists(tmp_path):
    lines = [{"pid": 1, "step": 10 * i, "steps": 10, "s": 1.0, "at": i, "batch": 10 * i, "of": 100} for i in range(1, 5)]
    (tmp_path / "steps.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    moving = steps.progress(tmp_path)
    assert moving["step"] == 40 and moving["steps_s"] == 10
    (tmp_path / "still.json").write_text("{}")
    assert steps.progress(tmp_path) == {**moving, "steps_s": None, "eta_s": None}
