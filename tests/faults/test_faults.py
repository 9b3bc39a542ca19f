"""The planted-fault suite agrees with itself: each script runs, has its truth, and costs what it is said to cost."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest
import suite

from stoker.tune.causes import CAUSES
from stoker.tune.refusals import REASONS

HARDLY, NOTHING = 0.15, 0.05  # of the step: less is no fault, more is something to win
CASES = suite.cases()
IDS = [case.name for case in CASES]


def test_every_script_has_a_truth_and_every_truth_a_script():
    for half in suite.HALVES:
        assert {case.name for case in suite.cases(half)} == {path.stem for path in (suite.HERE / half).glob("*.py")}
    assert len(set(IDS)) == len(IDS)


def test_the_halves_are_balanced():
    counts = {kind: [len(suite.cases(half, kind)) for half in suite.HALVES] for kind in suite.KINDS}
    assert all(abs(a - b) <= 1 for a, b in counts.values()), counts
    assert sum(counts["fault"]) >= 32 and sum(counts["optimal"]) >= 5 and sum(counts["refuse"]) >= 10, counts


@pytest.mark.parametrize("case", CASES, ids=IDS)
def test_a_truth_uses_known_words(case):
    assert case.kind in suite.KINDS and case.about
    if case.kind == "fault":
        assert {case.cause, *case.accept} <= CAUSES.keys() and case.helps and not case.refuse
        assert case.cure in suite.CURES and case.risk in suite.RISKS
        assert case.repair or case.neighbour or case.measure != "time"
        assert suite.lines(case) or case.cure == "advice" or case.measure == "none"
    elif case.kind == "refuse":
        assert case.reason in REASONS and case.refuse and not case.cause
    else:
        assert not case.cause and not case.refuse and case.repair


@pytest.mark.parametrize("case", CASES, ids=IDS)
def test_a_script_is_of_a_usual_size_and_its_changes_fit(case):
    assert 20 <= case.path.read_text("utf-8").count("\n") <= 80
    for edits in (case.repair, case.unsafe):
        compile(suite.changed(case, edits), case.name, "exec")


@pytest.mark.parametrize("case", CASES, ids=IDS)
def test_what_is_said_of_it_was_measured(case):
    facts = suite.measured(case.half).get(case.name, {})
    if case.kind == "refuse":
        ends = {"": "end", "stdin": "error", "error": "error", "elsewhere": "end"}
        assert facts["ended"] == ends[case.stops]
        assert facts.get("repeats", True) and facts.get("unsafe_differs", True)
        assert (facts["steps"] < 30) == (case.reason in ("too_short", "needs_stdin", "fails_itself", "distributed"))
    elif case.measure == "memory":
        assert facts["mib_later"] > 1.1 * facts["mib_before"]
    elif case.measure == "time":
        assert facts["share"] >= HARDLY and facts["low"] > 0 if case.kind == "fault" else facts["share"] <= NOTHING


@pytest.mark.slow
def test_every_script_runs():
    """Two steps of each, from one parent, so that torch is imported once."""
    done = subprocess.run([sys.executable, suite.HERE / "probe.py"], capture_output=True, text=True, timeout=110, check=False)
    assert done.returncode == 0, done.stderr
    became = {line["name"]: line for line in map(json.loads, done.stdout.splitlines())}
    assert became.keys() == set(IDS)
    for case in CASES:
        found = became[case.name]
        if case.stops in ("stdin", "elsewhere"):
            assert found["ended"] == {"stdin": "error", "elsewhere": "end"}[case.stops], found
        else:
            assert (found["ended"], found["steps"]) == ("steps", 2), found


ACCELERATOR = """
import time, torch, accelerator
far = lambda: accelerator._device.free_at - time.perf_counter()
model = accelerator.prepare(torch.nn.Linear(4, 1))
accelerator.configure(fixed_ms=60_000, sample_ms=0)
loss = model(accelerator.put(torch.ones(2, 4))).mean()
loss.backward()
torch.optim.SGD(model.parameters(), lr=0.1).step()
running = 0.9 * loss.detach() + 1
assert far() > 0, "arithmetic waited for the device"
assert type(running) is accelerator.OnDevice and type(model.weight.grad) is torch.Tensor
accelerator.configure(fixed_ms=30, sample_ms=1)
waits = [float, bool, "{:.2f}".format, torch.Tensor.item, torch.Tensor.cpu, torch.Tensor.tolist, lambda t: accelerator.synchronize()]
for wait in waits:
    accelerator._device.free_at = 0.0
    out = model(torch.ones(8, 4)).sum()
    assert accelerator._device.free_at > 0
    got = wait(out)
    assert far() <= 0, "it did not wait"
    assert not isinstance(got, accelerator.OnDevice)
"""


@pytest.mark.slow
def test_the_pretend_accelerator_waits_where_a_real_one_does():
    done = subprocess.run([sys.executable, "-c", ACCELERATOR], capture_output=True, text=True, timeout=60, check=False, cwd=suite.HERE)
    assert done.returncode == 0, done.stderr
