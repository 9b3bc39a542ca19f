"""The small models: ratios of pairs, a loader by workers, a step and its memory by batch."""

import made_facts
import pytest
from made_facts import facts, pairs, window

from stoker.tune import model, report, rules
from stoker.tune.view import View

CARD = {"cores": 2.0}


def test_a_ratio_is_taken_between_neighbours_in_time():
    drifting = [window("R0", 10), window("R1", 5), window("R1", 10), window("R0", 20)]  # the machine became twice as slow
    assert model.paired(drifting, "R1", "R0").value == pytest.approx(0.5)


def test_blocks_of_other_phases_do_not_mix():
    windows = [*pairs("R1", 5), *pairs("threads=1", 20, base=40)]
    assert model.paired(windows, "R1", "R0").value == pytest.approx(0.5, rel=0.05)
    assert model.paired(windows, "threads=1", "R0").value == pytest.approx(0.5, rel=0.05)


def test_a_single_pair_is_not_trusted_to_the_per_cent():
    found = model.paired([window("R0", 10), window("R1", 9.9)], "R1", "R0")
    assert found.low <= 0.9 and found.high >= 1.08


def test_the_interval_is_the_same_each_time_and_holds_the_value():
    windows = pairs("R1", 5, blocks=4)
    one, two = (model.paired(windows, "R1", "R0") for _ in range(2))
    assert one == two and one.low <= one.value <= one.high


def test_evaluation_within_a_window_is_left_out():
    slow = window("R0", 20, split={"evaluation": 0.5, "forward": 0.5})
    assert model.paired([slow, window("R1", 10)], "R1", "R0").value == pytest.approx(1.0)


def test_what_was_not_measured_has_no_ratio():
    assert model.paired(pairs("R1", 5), "bf16", "R0") is None


def loader(**changes):
    return model.LoaderModel(**{"work_s": 1e-3, "wait_s": 0.0, "collate_s": 0.0, "batch": 32, "cores": 2.0, "copy_s": 1e-4, **changes})


def test_workers_bring_no_more_than_there_are_cores():
    assert loader().rate(1) == pytest.approx(1000)
    assert loader().rate(2) == pytest.approx(2000)
    assert loader().rate(8) == pytest.approx(2000)


def test_workers_that_wait_need_no_core():
    waiting = loader(work_s=1e-5, wait_s=2e-3)
    assert waiting.rate(8) == pytest.approx(8 / 2.01e-3, rel=0.01)


def test_without_workers_the_step_waits_for_all_of_it():
    assert loader().step_s(0, 0.010) == pytest.approx(0.042)


def test_work_and_training_share_the_cores():
    slow = loader().step_s(2, 0.030, 0.060)  # the training alone keeps both cores busy for 30 ms
    assert slow == pytest.approx((0.032 + 0.060) / 2, rel=0.02)


def test_workers_are_not_advised_where_they_bring_nothing():
    assert loader(work_s=1e-6).advised(0.020) == 0


def test_workers_that_are_started_for_a_few_steps_are_not_advised():
    """A batch takes 0.6 ms by itself: one worker would hide it, were it not started for each epoch of 20 steps."""
    assert loader(work_s=2e-5).advised(0.001) == 1 and loader(work_s=2e-5).advised(0.001, start_s=0.04 / 20) == 0


def test_as_few_workers_as_do_are_advised():
    assert loader(work_s=1e-5, wait_s=1e-3).advised(0.010, 0.010, most=16) in (4, 5)  # 32 ms a batch against 10 ms a step


def test_a_lock_is_found_in_the_measured_rates():
    locked = model.corrected(loader(work_s=1e-5, wait_s=2e-3), [(1, 480), (2, 490), (4, 485)])
    assert locked.rate(4) == pytest.approx(485, rel=0.15)


def test_without_a_lock_nothing_is_corrected():
    fair = model.corrected(loader(), [(1, 1000), (2, 2000)])
    assert fair.lock == fair.cross == 0


def test_a_step_is_a_fixed_part_and_one_that_grows():
    step = model.fit_step([(32, 0.010), (64, 0.014)])
    assert step.fixed_s == pytest.approx(0.006) and step.sample_s == pytest.approx(0.000125)
    assert step.fixed_share(32) == pytest.approx(0.6)
    assert step.at(step.knee()) == pytest.approx(5 * step.fixed_s)


@pytest.mark.parametrize("dots", [[(32, 0.01)], [(32, 0.01), (32, 0.02)], []])
def test_one_batch_makes_no_model(dots):
    assert model.fit_step(dots) is None


def test_no_part_of_a_step_is_below_nothing():
    assert model.fit_step([(32, 0.010), (64, 0.009)]).sample_s == 0
    assert model.fit_step([(32, 0.010), (64, 0.030)]).fixed_s == 0


def test_the_table_and_the_headline_leave_out_the_window_in_which_the_script_ended():
    view = View(facts(window("R0", 10.0), window("R0", 100.0, steps=2, cut=True)), CARD)
    assert view.step_s("R0") == pytest.approx(0.010) and sum(view.clock.values()) == pytest.approx(10.0)


def test_without_workers_no_more_is_waited_than_the_clock_saw():
    device_bound = facts(*pairs("R1", 7, split={"data": 0.04, "other": 0.96}))
    assert View(device_bound, CARD).stall.value == pytest.approx(0.04)
    hidden = facts(*pairs("R1", 7, split={"data": 0.04, "other": 0.96}), loader={"workers": 2})
    assert View(hidden, CARD).stall.value == pytest.approx(0.3, abs=0.02)  # workers take cores from the computation


def test_copies_are_what_the_device_is_spared():
    made = facts(*pairs("R1", 8), *[{**w, "phase": {"R0": "R1", "R2": "R2"}[w["phase"]]} for w in pairs("R2", 6, base=8)])
    assert View(made, CARD).copy.value == pytest.approx(0.2, abs=0.02)


def test_the_sum_is_left_open_where_clock_and_differencing_disagree():
    honest = facts(*pairs("R1", 5, split={"data": 0.5, "forward": 0.5}))
    wrong = facts(*pairs("R1", 5, split={"data": 0.1, "forward": 0.9}))
    assert View(honest, CARD).residual < 0.03
    assert View(wrong, CARD).residual > 0.3


def test_noise_that_is_larger_than_what_is_left_open_is_told_and_not_printed_as_a_share():
    slower = rules.judge(facts(*pairs("R1", 26, split={"data": 0.1, "forward": 0.9})), made_facts.CARD)
    assert slower.residual is None and "cannot tell which share" in slower.noise and "unexplained  " not in report.text(slower, made_facts.CARD)
    uneven = [window(name, ms, block=block) for block, ms in enumerate((4, 9, 3, 11)) for name, ms in (("R0", 10), ("R1", ms), ("R0", 10))]
    assert rules.judge(facts(*uneven), made_facts.CARD).residual is None
    quiet = rules.judge(facts(*pairs("R1", 5, split={"data": 0.1, "forward": 0.9})), made_facts.CARD)
    assert quiet.residual > 0.3 and not quiet.noise and "unexplained  " in report.text(quiet, made_facts.CARD)


def test_no_share_of_a_step_is_larger_than_the_step():
    busy = facts(*pairs("R1", 26), *[{**w, "phase": {"R0": "R1", "R2": "R2"}[w["phase"]]} for w in pairs("R2", 6, base=26)])
    assert View(busy, made_facts.CARD).copy.high <= 1 and rules.judge(busy, made_facts.CARD).floor_ms >= 0
