"""Rules on facts made by hand: for each cause facts that show it and nothing else; quiet facts show none; each refusal and its knobs."""

import dataclasses
from pathlib import Path

import pytest
from made_facts import CARD, SPLIT, facts, line, pairs

from stoker.tune import causes, reading, refusals, rules, tips
from stoker.tune.findings import KNOBS, TIP_STATES, Range

WAITS = {"data": 0.7, "forward": 0.15, "backward": 0.15}  # of the clock, where 7 of 10 ms wait for data
STARVED = pairs("R1", 3.0, split=WAITS)


def sampled(n=64, **each):
    """Facts of samples from what one takes, in seconds."""
    return {"n": n, **{k: n * v for k, v in each.items() if k not in ("p50_s", "p90_s", "max_s", "same")},
            **{k: v for k, v in each.items() if k in ("p50_s", "p90_s", "max_s", "same")}}


def slow(work=2e-4, wait=0.0, collate=3e-6, **more):
    """A loader without workers that takes most of 10 ms a step."""
    each = work + wait
    return sampled(**{"cpu_s": work, "wait_s": wait, "p50_s": each, "p90_s": each * 1.1, "max_s": each * 1.5, "collate_s": collate,
                      "again_s": each, "beside_s": each, "same": False, **more})


def stacks(*lines):
    return {"stacks": {"n": 800, "lines": list(lines)}}


def memory(*mib):
    return {"memory": [[i, m << 20] for i, m in enumerate(mib)]}


def few_long():
    return sampled(cpu_s=0, wait_s=2.2e-4, p50_s=1e-5, p90_s=2e-5, max_s=0.012, collate_s=1e-6, same=True)


SHOWS = {
    "sample_work": facts(*STARVED, samples=slow()),
    "repeated_work": facts(*STARVED, samples=slow(same=True)),
    "collate": facts(*STARVED, samples=slow(work=2e-5, collate=2e-4)),
    "storage": facts(*STARVED, samples=slow(work=1e-5, wait=2.1e-4)),
    "slow_sample": facts(*STARVED, samples=few_long()),
    "worker_lock": facts(*STARVED, samples=slow(work=2e-5, wait=2e-3, beside_s=4e-3), loader={"workers": 4, "prefetch": 2, "persistent": True},
                         alone=[{"workers": 1, "rate": 480}, {"workers": 4, "rate": 490}]),
    "too_many_workers": facts(*STARVED, samples=slow(work=5e-6), loader={"workers": 16, "prefetch": 2}),
    "worker_start": facts(*pairs("R1", 3.0, split={"start": 0.6, "data": 0.05, "forward": 0.35}), samples=slow(work=5e-6),
                          loader={"workers": 2, "prefetch": 2, "start_s": 0.6}),
    "duplicates": facts(loader={"workers": 2, "duplicates": True}, dataset={"iterable": True}),
    "unshuffled": facts(loader={"sampler": "SequentialSampler", "labels_sorted": True}),
    "threads": facts(*pairs("R1", 9.8), *pairs("threads=2", 6.0), threads=8),
    "neighbour": facts(*pairs("R1", 9.8, stolen=0.45, cpu=0.5)),
    "sync": facts(**stacks(line("Tensor.item", 0.4))),
    "ping_pong": facts(**stacks(line("Tensor.cpu", 0.3), line("Tensor.cpu", 0.1, number=52))),
    "cleanup": facts(**stacks(line("gc.collect", 0.6))),
    "logging": facts(*pairs("R1", 9.8, split={"log": 0.4, "forward": 0.3, "backward": 0.3}), **stacks(line("print", 0.35, kind="log"))),
    "checkpoint": facts(*pairs("R1", 9.8, split={"save": 0.5, "forward": 0.25, "backward": 0.25}), **stacks(line("torch.save", 0.5, kind="save"))),
    "validation": facts(**stacks(line("Linear.__call__", 0.5, kind="evaluation"))),
    "tiny_batch": facts(*pairs("R1", 9.9, batch=4), *pairs("batch=2x", 10.4, batch=4, grown=2)),
    "precision": facts(*pairs("R1", 9.8), *pairs("bf16", 5.5)),
    "double": facts(model={"dtype": "torch.float64", "tensors": 10}),
    "memory_format": facts(*pairs("R1", 9.8), *pairs("channels_last", 7.0), model={"dtype": "float32", "conv2d": 12, "channels_last": False}),
    "layout": facts(**stacks(line("Tensor.contiguous", 0.4, kind="other", number=1))),
    "graph_kept": facts(*pairs("R1", 9.8), growth={"backward": 0.04}, flags={"retain_graph": True}),
    "per_parameter": facts(**stacks(line("Tensor.norm", 0.3, number=8))),
    "optimizer": facts(*pairs("R1", 9.8, split={"forward": 0.3, "backward": 0.3, "optimizer": 0.4}), *pairs("fused", 7.0),
                       **stacks(line("optimizer.step", 0.4, kind="optimizer")),
                       optimizers=[{"type": "Adam", "tensors": 400, "fused": False, "foreach": False}]),
    "zero_grad": facts(flags={"zero_fill": True}, **stacks(line("Optimizer.zero_grad", 0.2))),
    "time_loop": facts(**stacks(line("LSTMCell.__call__", 0.5, kind="forward", number=18))),
    "padding": facts(batch={"size": 32, "bytes": 1, "padding": 0.7, "dim": 1}),
    "replicas": facts(**stacks(line("copy.deepcopy", 0.3))),
    "anomaly": facts(flags={"anomaly": True}),
    "memory_jump": facts(**memory(300, 380, 381), model={"dtype": "float32", "tensors": 6, "params": 7_000_000},
                         optimizers=[{"type": "Adam", "tensors": 6}]),
}
SCRIPT = """\
import torch
from torch import nn

model = nn.Sequential(nn.Linear(4, 4))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

def clip(model):
    return [p.grad.norm() for p in model.parameters()]


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.cell = nn.LSTMCell(4, 4)

    def forward(self, x):
        for t in range(x.size(1)):
            h = self.cell(x[:, t])
        return h


for epoch in range(3):
    for x, y in loader:
        loss = model(x).sum()
        loss.backward()
        clip(model)
        optimizer.step()
"""


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
    known = name in ("per_parameter", "time_loop", "repeated_work")
    found = judged(placed(made, text) if known else made, text if known else reading.Reading(epochs=True))
    assert found.causes and found.causes[0].name == name, [(c.name, c.share) for c in found.causes]
    cause = found.causes[0]
    assert cause.text.endswith(".") and (cause.share is None or cause.share.low <= cause.share.value <= cause.share.high)


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


def test_workers_that_wait_for_storage_are_not_too_many():
    made = facts(*STARVED, samples=slow(work=1e-5, wait=2e-2), loader={"workers": 4, "prefetch": 2, "persistent": True})
    assert judged(made).causes[0].name == "storage"


def test_own_workers_are_no_neighbour():
    made = facts(*pairs("R1", 9.8, stolen=0.5, cpu=0.9, children=1.1))
    assert "neighbour" not in {c.name for c in judged(made).causes}


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
    found = judged(facts(*pairs("R1", 9.8), *pairs("bf16", 5.5), *pairs("channels_last", 8.0)))
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


def test_tips_help_where_it_was_measured():
    found = judged(facts(*pairs("R1", 9.9), *pairs("bf16", 5.0)))
    assert tip(found, "precision").state == "HELPS" and tip(found, "precision").gain == pytest.approx(1.0, abs=0.05)


def test_confirmed_numbers_replace_forecasts():
    made = facts(*pairs("R1", 9.9), *pairs("bf16", 5.0))
    found = judged(made)
    kept = tuple(dataclasses.replace(a, confirmed=Range(0.8, 0.78, 0.82), state="kept") if a.name == "bf16" else a for a in found.actions)
    again = rules.told_again(dataclasses.replace(found, actions=kept, total=Range(0.8, 0.78, 0.82)), made, CARD)
    assert tip(again, "precision").gain == pytest.approx(0.25, abs=0.01) and "1.25 times" in again.verdict


@pytest.mark.parametrize(("state", "total", "after"), [("kept", 0.8, 0.8), ("no gain", None, 1.0), ("needs consent: --allow precision", None, 1.0)])
def test_the_step_afterwards_holds_what_was_kept_and_no_more(state, total, after):
    made = facts(*pairs("R1", 9.9), *pairs("bf16", 5.0))
    found = judged(made)
    assert sum(s.after_ms for s in found.stages) < 0.7 * sum(s.now_ms for s in found.stages)  # by forecast
    told = tuple(dataclasses.replace(a, state=state) for a in found.actions)
    again = rules.told_again(dataclasses.replace(found, actions=told, total=total and Range(total, total, total)), made, CARD)
    assert sum(s.after_ms for s in again.stages) == pytest.approx(after * sum(s.now_ms for s in again.stages), rel=0.01)


def test_unsafe_is_said():
    found = judged(facts(samples={"same": True}, bf16={"finite": False}))
    assert tip(found, "precision").state == "UNSAFE"


# --- refusals ----------------------------------------------------------------------------------------------------------------

LOADER = ("workers", "batched", "cache", "prefetch", "persistent_workers")


@pytest.mark.parametrize("reason, knobs, made", [
    ("own_iter", LOADER, facts(loader={"own_iter": True})),
    ("no_loader", LOADER, facts(loader=False)),
    ("order_matters", ("workers",), facts(dataset={"iterable": True})),
    ("random_samples", ("cache",), facts(samples={"same": False})),
    ("dataset_changes", ("persistent_workers", "cache"), facts(dataset={"changed": ["level"]})),
    ("precision_sensitive", ("bf16",), facts(bf16={"cosine": 0.91, "finite": True})),
    ("needs_stdin", ("all",), facts(side_effects={"stdin": True})),
    ("fails_itself", ("all",), facts(ended="error", error={"type": "KeyError", "message": "'x'", "file": "train.py", "line": 9})),
    ("too_short", ("all",), facts(ended="script", steps_seen=20)),
    ("several_optimizers", ("all",), facts(flags={"turns": True})),
    ("distributed", ("all",), facts(ranks=2)),
    ("network_writes", ("all",), facts(side_effects={"network": ["127.0.0.1:9"]})),
    ("not_replayable", ("all",), facts(loader={"replay": "the second read is empty"})),
])
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
    page = (Path(__file__).parents[2] / "docs" / "tuning.md").read_text("utf-8")
    missing = [w for w in (*causes.CAUSES, *refusals.REASONS, *TIP_STATES) if f"`{w}`" not in page and f"**{w}**" not in page]
    assert not missing
