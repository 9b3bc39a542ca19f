"""Rules on facts made by hand: for each cause facts that show it and nothing else; quiet facts show none; each refusal and its knobs."""

import dataclasses
from pathlib import Path

import pytest
from made_facts import CARD, SPLIT, facts, line, pairs
from shown import FURTHER, KNOWS_TEXT, REFUSES, SCRIPT, SHOWS, STARVED, memory, slow, stacks

from stoker.tune import causes, reading, refusals, rules, tips
from stoker.tune.findings import KNOBS, TIP_STATES, UNCERTAIN, Action, Range


@pytest.fixture(scope="module")
def text(tmp_path_factory):
    path = tmp_path_factory.mktemp("script") / "train.py"
    path.write_text(SCRIPT)
    return reading.read(path)


def judged(made, text=None):
    return rules.judge(made, CARD, text)


def placed(made, text):
    """The lines of the sampler, in the file that was read."""
    file = next(iter(text.sources))
    for told in (made.get("stacks") or {}).get("lines") or []:
        told["file"] = file
    return made


def test_each_word_for_a_cause_is_shown_here():
    assert SHOWS.keys() == causes.CAUSES.keys()


@pytest.mark.parametrize("name", causes.CAUSES)
def test_each_cause_is_seen_where_it_is(name, text):
    made = SHOWS[name]
    known = name in KNOWS_TEXT
    found = judged(placed(made, text) if known else made, text if known else reading.Reading(epochs=True))
    assert found.causes and found.causes[0].name == name, [(c.name, c.share) for c in found.causes]
    cause = found.causes[0]
    assert cause.text.endswith(".") and (cause.share is None or cause.share.low <= cause.share.value <= cause.share.high)


@pytest.mark.parametrize("cause, forecast, made", FURTHER.values(), ids=FURTHER)
def test_what_further_parts_tell(cause, forecast, made):
    found = judged(made)
    assert found.causes[0].name == cause
    assert {a.name: a.ratio.value for a in found.actions}[forecast[0]] == pytest.approx(forecast[1], abs=0.02)


def test_workers_and_fewer_threads_are_one_setting_where_only_both_help():
    beside = facts(*STARVED, *pairs("threads=1", 10.5), samples=slow())
    action = next(a for a in judged(beside).actions if a.name == "workers")
    assert action.settings == {"loaders": {"train.py:40#0": {"workers": 2}}, "threads": 1} and action.risk == "B"
    assert "Idle threads" in action.text
    slower = facts(*STARVED, *pairs("threads=1", 16.0), samples=slow())  # the computation itself needs all its threads
    action = next(a for a in judged(slower).actions if a.name == "workers")
    assert "threads" not in action.settings


def test_a_quiet_script_has_no_cause():
    found = judged(facts())
    assert found.causes == () and found.refusals == ()
    assert "lready good" in found.verdict


@pytest.mark.parametrize("change", [
    stacks(line("print", 0.04, kind="log")), stacks(line("Tensor.item", 0.95)), {"flags": {"retain_graph": True}}, memory(300, 320),
    {"batch": {"size": 32, "padding": 0.2}}, {"growth": {"backward": 0.001}},
])
def test_what_costs_little_is_no_cause(change):
    """A wait for the device that takes nearly all the time: the host has nothing to do meanwhile, and nothing is to be won."""
    assert judged(facts(**change)).causes == ()


def test_a_tiny_batch_comes_behind_what_costs_no_maths():
    made = facts(*pairs("R1", 9.9, batch=4), *pairs("batch=2x", 10.4, batch=4, grown=2), **stacks(line("gc.collect", 0.3)))
    assert [c.name for c in judged(made).causes] == ["cleanup", "tiny_batch"]


def test_wrong_data_comes_before_speed():
    made = facts(loader={"sampler": "SequentialSampler", "labels_sorted": True}, **stacks(line("gc.collect", 0.6)))
    assert [c.name for c in judged(made).causes] == ["unshuffled", "cleanup"]


def test_a_stream_in_its_order_is_not_called_unshuffled():
    assert judged(facts(loader={"sampler": "SequentialSampler"}, dataset={"iterable": True})).causes == ()


def test_a_stream_keeps_its_workers():
    made = (*STARVED, *pairs("workers=1", 6.0, batch=4))
    offered = [[a.name for a in judged(facts(*made, loader={"workers": 2}, dataset={"iterable": stream})).actions] for stream in (False, True)]
    assert "workers" in offered[0] and "workers" not in offered[1]


def test_workers_that_wait_for_storage_are_not_too_many():
    made = facts(*STARVED, samples=slow(work=1e-5, wait=2e-2), loader={"workers": 4, "prefetch": 2, "persistent": True})
    assert judged(made).causes[0].name == "storage"


def test_own_workers_are_no_neighbour():
    made = facts(*pairs("R1", 9.8, stolen=0.5, cpu=0.9, children=1.1))
    assert "neighbour" not in {c.name for c in judged(made).causes}


def test_a_busy_machine_keeps_no_graph():
    made = {"growth": {"backward": 0.04}, "flags": {"retain_graph": True}}
    assert "graph_kept" in {c.name for c in judged(facts(*pairs("R1", 9.8), **made)).causes}
    assert "graph_kept" not in {c.name for c in judged(facts(*pairs("R1", 9.8, stolen=0.5, cpu=0.4), **made)).causes}


def test_nothing_measured_is_said():
    found = rules.judge({"version": 1}, {}, None)
    assert found.causes == () and "No step" in found.verdict and len(found.tips) == 9


def test_the_sum_of_a_step():
    found = judged(SHOWS["sample_work"])
    assert found.step_ms == pytest.approx(10, rel=0.02) and found.floor_ms == pytest.approx(3, rel=0.05)
    assert found.stall.value == pytest.approx(0.7, abs=0.02) and found.residual < 0.05


# --- actions -----------------------------------------------------------------------------------------------------------------

def names(found, cure="setting"):
    return [a.name for a in found.actions if a.cure == cure]


def test_a_cache_is_offered_where_samples_repeat_and_fit():
    made = facts(*STARVED, samples=slow(same=True, bytes_=0) | {"bytes": 4096})
    found = judged(made, reading.Reading(epochs=True))
    action = next(a for a in found.actions if a.name == "cache")
    assert action.risk == "A" and action.ratio.value < 0.5
    assert action.settings["loaders"]["train.py:40#0"]["feed"] == "cache" and action.settings["cache_bytes"] >= 3200 * 4096


@pytest.mark.parametrize(("wait", "workers"), [(3e-4, 0), (6e-3, None)])
def test_kept_samples_need_no_workers_unless_the_first_epoch_would_take_long_without(wait, workers):
    """Of 32 samples a batch, beside 3 ms of computing; a step takes 10 ms."""
    made = facts(*STARVED, samples=slow(same=True, work=1e-5, wait=wait) | {"bytes": 4096}, loader={"workers": 4, "prefetch": 2, "persistent": True})
    action = next(a for a in judged(made, reading.Reading(epochs=True)).actions if a.name == "cache")
    assert action.settings["loaders"]["train.py:40#0"] == {"feed": "cache", **({} if workers is None else {"workers": workers})}
    assert ("No workers are needed" in action.text) is (workers == 0)


def test_no_cache_that_does_not_fit():
    made = facts(*STARVED, samples=slow(same=True) | {"bytes": 4 << 20})
    assert "cache" not in names(judged(made, reading.Reading(epochs=True)))


def test_random_samples_are_never_kept():
    found = judged(facts(*STARVED, samples=slow(same=False)), reading.Reading(epochs=True))
    assert "cache" not in names(found) and found.refused("cache").reason == "random_samples"


def test_measured_settings_are_offered_with_what_was_measured():
    found = judged(facts(*pairs("R1", 9.8), *pairs("bf16", 5.5), *pairs("fused", 9.9), *pairs("threads=1", 9.0)))
    by_name = {a.name: a for a in found.actions}
    assert by_name["bf16"].ratio.value == pytest.approx(0.55, rel=0.03) and by_name["bf16"].risk == "C"
    assert by_name["threads"].settings == {"threads": 1}
    assert "fused" not in by_name  # less than 3 %


def test_the_best_comes_first():
    found = judged(facts(*pairs("R1", 9.8), *pairs("bf16", 5.5), *pairs("channels_last", 8.0), model={"dtype": "float32", "conv2d": 3}))
    assert names(found)[:2] == ["bf16", "channels_last"]


def test_settings_use_known_knobs():
    for made in SHOWS.values():
        for action in judged(made, reading.Reading(epochs=True)).actions:
            assert action.cure != "setting" or (action.name in KNOBS and action.settings), action
            assert action.ratio.low <= action.ratio.value <= action.ratio.high


def test_a_limit_of_the_machine_is_foreseen():
    tight = {**CARD, "shm_bytes": 1 << 20}
    found = rules.judge(facts(loader={"workers": 2, "prefetch": 2}), tight, None)
    assert found.curve.breaks_at == 5 and "shared memory" in found.curve.breaks_why


# --- tips --------------------------------------------------------------------------------------------------------------------

def tip(found, name):
    return next(t for t in found.tips if t.name == name)


def test_there_are_nine_tips_each_with_a_state():
    found = judged(facts())
    assert [t.name for t in found.tips] == list(tips.TIPS) and len(found.tips) == 9
    assert all(t.state in TIP_STATES and t.text for t in found.tips)


def test_tips_say_no_effect_where_it_was_measured():
    found = judged(facts(*pairs("R1", 9.9), *pairs("bf16", 10.2), *pairs("channels_last", 10.0), model={"dtype": "float32", "conv2d": 3}))
    for name in ("num_workers", "pin_memory", "prefetch", "precision", "channels_last"):
        assert tip(found, name).state == "NO EFFECT", tip(found, name)


@pytest.mark.parametrize(("conv2d", "last", "state"), [
    (1, False, "NOT TESTED"), (1, True, "DONE"), (1, None, "NO EFFECT"), (0, False, "NO EFFECT"),
])
@pytest.mark.parametrize("measured", [True, False])
def test_what_to_do_and_the_tips_agree_on_channels_last(conv2d, last, state, measured):
    """A report once offered channels_last, and said below that the model uses it already."""
    made = facts(*pairs("R1", 9.8), *(pairs("channels_last", 7.4) if measured else []),
                 model={"dtype": "float32", "conv2d": conv2d, "channels_last": last})
    found = judged(made)
    assert tip(found, "channels_last").state == state
    for offered in (found.actions, found.causes):
        assert state == "NOT TESTED" or not {"channels_last", "memory_format"} & {each.name for each in offered}
    assert ("channels_last" in names(found)) is (state == "NOT TESTED")


def test_a_difference_of_step_times_is_not_told_in_the_words_of_the_clock():
    """Both stand in one report, with different numbers."""
    made = facts(*pairs("R1", 9.9, split={**SPLIT, "data": 0.04}))
    assert "With batches from memory" in tip(judged(made), "num_workers").text
    clock_only = facts(*[each for each in pairs("R1", 9.9) if each["phase"] == "R0"])
    assert "Waiting for data" in tip(judged(clock_only), "num_workers").text


def test_tips_help_only_where_it_was_confirmed():
    found = judged(facts(*pairs("R1", 9.9), *pairs("bf16", 5.0)))
    assert tip(found, "precision").state == "NOT TESTED" and ", not confirmed" in tip(found, "precision").text
    assert tip(_told("bf16", "kept", ms=5.0), "precision").state == "HELPS"


@pytest.mark.parametrize("name", causes.CAUSES)
def test_no_tip_helps_before_anything_was_confirmed(name):
    assert "HELPS" not in {t.state for t in judged(SHOWS[name], reading.Reading(epochs=True)).tips}


def test_a_larger_batch_is_a_forecast():
    told = tip(judged(facts(*pairs("R1", 9.9), *pairs("batch=2x", 10.4, grown=2))), "batch_size")
    assert told.state == "NOT TESTED" and "forecast: +" in told.text and "stoker tune --batch" in told.text


def test_confirmed_numbers_replace_forecasts():
    made = facts(*pairs("R1", 9.9), *pairs("bf16", 5.0))
    found = judged(made)
    kept = tuple(dataclasses.replace(a, confirmed=Range(0.8, 0.78, 0.82), state="kept") if a.name == "bf16" else a for a in found.actions)
    again = rules.told_again(dataclasses.replace(found, actions=kept, total=Range(0.8, 0.78, 0.82)), made, CARD)
    assert tip(again, "precision").gain == pytest.approx(0.25, abs=0.01) and "1.25 times" in again.verdict


def _told(name, state, total=None, *, ms=9.1):
    made = facts(*pairs("R1", 9.9), *pairs(name, ms))
    found = judged(made)
    told = tuple(dataclasses.replace(a, state=state) for a in found.actions)
    return rules.told_again(dataclasses.replace(found, actions=told, total=total and Range(total, total, total)), made, CARD)


def test_what_was_kept_is_never_called_already_good():
    assert not judged(facts(*pairs("R1", 9.9), *pairs("fused", 9.1))).causes
    verdict = _told("fused", "kept", 0.66).verdict
    assert "lready good" not in verdict and "Confirmed: with the settings below, a step is 1.52 times as fast." in verdict


def test_what_was_tried_is_no_forecast_any_more():
    told = _told("fused", "no gain", ms=8.5)
    assert "lready good" in told.verdict and "(forecast)" not in told.verdict
    tip = next(each for each in told.tips if each.name == "optimizer")
    assert tip.state == "NO EFFECT" and "no gain" in tip.text


def test_what_was_tried_and_was_slower_is_not_called_untried():
    made = facts(*pairs("R1", 9.9))
    found = judged(made)
    tried = Action("fused", "setting", "B", "Run the optimizer in one call (fused).",
                   Range(0.93, 0.7, 1.1), state="no gain", confirmed=Range(1.28, 0.9, 2.0))
    told = rules.told_again(dataclasses.replace(found, actions=(tried,)), made, CARD)
    assert tip(told, "optimizer").text == "Run the optimizer in one call (fused): Stoker tried this setting, but it gives no gain."


def test_too_many_workers_is_no_cause_any_more_when_fewer_were_raced_and_won_nothing():
    made = facts(*pairs("R1", 6.0), loader={"workers": 4}, samples={"cpu_s": 64 * 1e-4})
    found = judged(made)
    assert found.causes[0].name == "too_many_workers" and "workers" in {a.name for a in found.actions}
    raced = tuple(dataclasses.replace(a, state="no gain") if a.name == "workers" else a for a in found.actions)
    told = rules.told_again(dataclasses.replace(found, actions=raced), made, CARD)
    assert "too_many_workers" not in {x.name for x in (*told.causes, *told.actions)} and "workers share" not in told.verdict
    assert told.causes and "is data loading, because the workers use the cores" in told.verdict and told.curve.advised is None


@pytest.mark.parametrize(("phase", "cause", "more"), [("channels_last", "memory_format", {"model": {"conv2d": 2}}), ("bf16", "precision", {})])
def test_a_setting_that_won_nothing_in_the_race_is_no_cause_any_more(phase, cause, more):
    made = facts(*pairs("R1", 9.9), *pairs(phase, 5.0), **more)
    found = judged(made)
    assert found.causes[0].name == cause
    raced = tuple(dataclasses.replace(a, state="no gain") if a.name == phase else a for a in found.actions)
    told = rules.told_again(dataclasses.replace(found, actions=raced), made, CARD)
    assert cause not in {c.name for c in told.causes} and "of its current time" not in told.verdict


def test_what_waits_for_consent_is_told_with_the_words_to_type():
    verdict = _told("bf16", "needs consent: --allow precision", ms=9.2).verdict
    assert "bf16 may make a step shorter by 9% (forecast), but needs your consent: --allow precision." in verdict


@pytest.mark.parametrize(("state", "total", "after"), [("kept", 0.8, 0.8), ("no gain", None, 1.0), ("needs consent: --allow precision", None, 1.0)])
def test_the_step_afterwards_holds_what_was_kept_and_no_more(state, total, after):
    made = facts(*pairs("R1", 9.9), *pairs("bf16", 5.0))
    found = judged(made)
    assert sum(s.after_ms for s in found.stages) < 0.7 * sum(s.now_ms for s in found.stages)  # by forecast
    told = tuple(dataclasses.replace(a, state=state) for a in found.actions)
    again = rules.told_again(dataclasses.replace(found, actions=told, total=total and Range(total, total, total)), made, CARD)
    assert sum(s.after_ms for s in again.stages) == pytest.approx(after * sum(s.now_ms for s in again.stages), rel=0.01)


@pytest.mark.parametrize(("state", "tip_state"), [("failed: CUDA error", "NOT TESTED"), ("not shown safe", "UNSAFE"), (UNCERTAIN, "NOT TESTED"), ("kept", "HELPS"),
                                                  ("needs consent: --allow precision", "NOT TESTED"), ("no gain", "NO EFFECT")])
def test_no_tip_helps_that_failed_or_was_not_kept(state, tip_state):
    assert tip(_told("bf16", state, ms=5.0), "precision").state == tip_state


def test_a_forecast_that_may_be_no_gain_at_all_helps_nowhere():
    """On a busy machine an interval holds 1: neither headline, nor tip, nor the column "after" promises anything then."""
    made = facts(*pairs("R1", 9.9), *pairs("bf16", 5.0))
    found = judged(made)
    unsure = tuple(dataclasses.replace(a, ratio=Range(0.9, 0.7, 1.1)) for a in found.actions)
    told = rules.told_again(dataclasses.replace(found, actions=unsure), made, CARD)
    assert tip(told, "precision").state == "NOT TESTED" and "+11%, uncertain" in tip(told, "precision").text
    assert "Best setting" not in told.verdict and "may make a step" not in told.verdict
    assert sum(s.after_ms for s in told.stages) == pytest.approx(sum(s.now_ms for s in told.stages), rel=0.01)


def test_the_headline_is_the_best_row_of_the_table():
    found = judged(facts(*pairs("R1", 9.9), *pairs("bf16", 6.0), *pairs("fused", 8.5)))
    best = min((a for a in found.actions if a.cure == "setting"), key=lambda a: a.ratio.value)
    assert f"Best setting: {best.name}," in found.verdict


def test_unsafe_is_said():
    found = judged(facts(samples={"same": True}, bf16={"finite": False}))
    assert tip(found, "precision").state == "UNSAFE"


# --- refusals ----------------------------------------------------------------------------------------------------------------

@pytest.mark.parametrize("reason, knobs, made", REFUSES)
def test_each_refusal(reason, knobs, made):
    found = judged(made)
    for knob in knobs:
        refusal = found.refused(knob)
        assert refusal is not None and refusal.reason == reason, (knob, found.refusals)
        assert refusal.text and refusal.hint
        assert knob not in names(found)


def test_a_batch_that_is_maths_is_refused(tmp_path):
    path = tmp_path / "pairs.py"
    path.write_text(SCRIPT.replace("loss = model(x).sum()",
                                   "loss = nn.functional.cross_entropy(model(x) @ model(y).t(), torch.arange(len(x)))"))
    assert judged(facts(), reading.read(path)).refused("batch").reason == "batch_is_maths"


def test_ranks_that_train_elsewhere_are_seen_in_the_text(tmp_path):
    path = tmp_path / "ranks.py"
    path.write_text(SCRIPT + "\ntorch.distributed.init_process_group('gloo')\n")
    text = reading.read(path)
    assert judged({"version": 1}, text).refused("all").reason == "distributed"
    assert judged(facts(), text).refused("all") is None  # one rank alone, as it was started


def test_data_that_is_taken_away_is_not_even_started(tmp_path):
    path = tmp_path / "spool.py"
    path.write_text("import os\nfrom torch.utils.data import Dataset\nclass Spool(Dataset):\n    def __getitem__(self, i):\n        os.remove(self.f[i])\n")
    assert refusals.before(reading.read(path)).reason == "not_replayable"
    assert refusals.before(reading.Reading()) is None


def test_whole_refusals_leave_no_action():
    assert judged(facts(*STARVED, samples=slow(), side_effects={"stdin": True})).actions == ()


@pytest.mark.parametrize("name", [n for n in causes.CAUSES if n not in ("duplicates",)])
def test_good_scripts_are_not_refused(name):
    whole = [r for r in judged(SHOWS[name]).refusals if r.knob == "all"]
    assert whole == []


def test_a_short_split_is_shown_whole():
    found = judged(facts())
    assert sum(s.share for s in found.stages) == pytest.approx(sum(SPLIT.values()), abs=0.01)


def test_without_samples_the_window_tells_work_from_waiting():
    waiting = {"data": 0.95, "forward": 0.05}
    idle, busy = (facts(*pairs("R1", 0.5, split=waiting, cpu=cpu), samples={"n": 0, "cpu_s": None}) for cpu in (0.1, 0.95))
    assert judged(idle).causes[0].name == "storage" and judged(busy).causes[0].name == "sample_work"


def test_the_page_on_tuning_has_every_word():
    page = (Path(__file__).parents[2] / "docs" / "reference" / "tuner.md").read_text("utf-8")
    missing = [w for w in (*causes.CAUSES, *refusals.REASONS, *TIP_STATES) if f"`{w}`" not in page and f"**{w}**" not in page]
    assert not missing


def test_a_mean_batch_is_said_as_a_whole_number():
    made = facts(*pairs("R1", 9.9, batch=31.9479), *pairs("batch=2x", 10.4, batch=31.9479, grown=2))
    said = next(t.text for t in judged(made).tips if t.name == "batch_size")
    assert said.startswith("A batch size of 64 gives"), said
