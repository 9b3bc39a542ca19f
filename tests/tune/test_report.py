"""The report as text and JSON, limits for CI, ready diffs: what is said, at which width, and that nothing is said twice or cut."""

import dataclasses
import json

import pytest
from made_facts import CARD, facts, line, pairs

from stoker.base.errors import InvalidSpec, StateError
from stoker.tune import diffs, limit, reading, report, rules
from stoker.tune.findings import Cause, Range
from stoker.tune.places import Place

WAITS = {"data": 0.7, "forward": 0.15, "backward": 0.15}
STARVED = facts(*pairs("R1", 3.0, split=WAITS), *pairs("bf16", 9.0, split=WAITS),
                samples={"n": 64, "cpu_s": 64 * 2e-4, "wait_s": 0.0, "p50_s": 2e-4, "p90_s": 2e-4, "max_s": 3e-4, "bytes": 4096, "same": True, "again_s": 64 * 2e-4})


def found(made=STARVED):
    return rules.judge(made, CARD, reading.Reading(epochs=True))


def test_a_report_has_its_parts():
    told = report.text(found(), CARD, script="train.py", width=80)
    for part in ("train.py: ", "Where a step's time goes", "waiting for data", "floor", "What to do", "cache", "The nine tips", "2 cores"):
        assert part in told, part


@pytest.mark.parametrize("width", [40, 80, 200])
def test_no_line_is_wider_than_the_terminal(width):
    assert max(map(len, report.text(found(), CARD, width=width).splitlines())) <= width


def test_what_the_classes_mean_is_a_line_of_its_own_below_the_table():
    told = report.text(found(), CARD, width=80).splitlines()
    assert any(row.startswith("  A: the same results, bit for bit") for row in told), told


def test_without_a_terminal_nothing_is_wrapped_or_coloured():
    told = report.text(found(), CARD)
    tip = next(t for t in found().tips if t.name == "num_workers")
    assert "\x1b" not in told and any(tip.text in row for row in told.splitlines())
    assert not any(row.endswith(" ") for row in told.splitlines())


def test_colour_is_only_where_it_is_wanted():
    assert "\x1b[" in report.text(found(), CARD, width=80, colour=True)


def test_confirmed_numbers_stand_beside_the_forecast():
    some = found()
    kept = tuple(dataclasses.replace(a, confirmed=Range(0.5, 0.45, 0.55), state="kept") if a.name == "cache" else a for a in some.actions)
    told = report.text(dataclasses.replace(some, actions=kept, total=Range(0.5, 0.45, 0.55), kept=("cache",)), CARD, width=120)
    assert "confirmed" in told and "2.00x (1.8-2.2)" in told and "Kept." in told and "all together" in told


def test_an_error_of_several_lines_stays_in_its_row():
    some = found()
    failed = tuple(dataclasses.replace(a, state="failed: RuntimeError: CUDA error\n  Compile with DSA\n\nto see more") for a in some.actions)
    told = report.text(dataclasses.replace(some, actions=failed), CARD)
    assert "CUDA error Compile with DSA to see more." in told


def test_a_refused_script_says_so_and_offers_nothing():
    told = report.text(found(facts(side_effects={"stdin": True})), CARD, width=80)
    assert told.startswith("Not tuned:") and "What to do" not in told


def test_knobs_with_one_reason_are_told_once():
    told = report.text(found(facts(loader={"own_iter": True})), CARD)
    assert told.count("overrides __iter__") == told.count("UNSAFE") + 1


def test_json_holds_everything_and_is_json():
    body = json.loads(json.dumps(report.to_json(found(), CARD, STARVED)))
    assert {"verdict", "causes", "actions", "tips", "refusals", "stages", "curve", "card", "facts"} <= body.keys()
    assert body["causes"][0]["share"]["value"] == pytest.approx(0.7, abs=0.05)


# --- limits ------------------------------------------------------------------------------------------------------------------

@pytest.mark.parametrize("text, breaks", [
    ("data wait > 10%", True), ("data wait > 90 %", False), ("data_wait>=70", True), ("step > 5ms", True), ("step > 50ms", False),
    ("gain > 1.2x", True), ("gain > 9", False), ("save > 1%", False), ("floor < 5ms", True),
])
def test_limits(text, breaks):
    told = limit.broken(limit.read(text), found())
    assert bool(told) == breaks and (not told or told.endswith("."))


@pytest.mark.parametrize("text", ["", "data wait", "data wait > ", "data wait > 10x", "wait > 10%", "data wait = 10%", "> 5%", "data wait > -1%"])
def test_nonsense_is_no_limit(text):
    with pytest.raises(InvalidSpec) as error:
        limit.read(text)
    assert error.value.hint


def test_a_mistyped_name_is_guessed():
    with pytest.raises(InvalidSpec) as error:
        limit.read("date wait > 10%")
    assert "data wait" in error.value.hint


def test_what_was_not_measured_is_no_pass():
    with pytest.raises(StateError):
        limit.broken(limit.read("data wait > 10%"), rules.judge({"version": 1}, CARD, None))


# --- diffs -------------------------------------------------------------------------------------------------------------------

LOOP = """\
for step, (x, y) in enumerate(loader):
    loss = f(x, y)
    loss.backward()
    optimizer.step()
    total += loss.item()
    gc.collect()
    print(step, loss)
    torch.save(model.state_dict(),
               "last.pt")
    optimizer.zero_grad(set_to_none=False)
    losses.append(loss)
"""


def offered(name, number, text=LOOP):
    return diffs.offer(reading.Reading(places={("/x/train.py", number): Place()}, sources={"/x/train.py": text}),
                       Cause(name, "", None, "", "/x/train.py", number))


@pytest.mark.parametrize("name, number, plus", [
    ("sync", 5, ["+    total += loss.detach()"]),
    ("cleanup", 6, []),
    ("logging", 7, ["+    if step % 50 == 0:", "+        print(step, loss)"]),
    ("checkpoint", 8, ["+    if step % 500 == 0:", "+        torch.save(model.state_dict(),", '+                   "last.pt")']),
    ("zero_grad", 10, ["+    optimizer.zero_grad(set_to_none=True)"]),
    ("graph_kept", 11, ["+    losses.append(loss.detach())"]),
])
def test_mechanical_changes_are_ready_diffs(name, number, plus):
    rows = offered(name, number).splitlines()
    assert [r for r in rows if r.startswith("+") and not r.startswith("+++")] == plus
    assert rows[0] == "--- a/train.py"


@pytest.mark.parametrize("name, number", [("sync", 2), ("logging", 2), ("padding", 1), ("cleanup", 99)])
def test_what_needs_thought_has_no_diff(name, number):
    assert offered(name, number) == "" or name == "logging"


def test_a_sum_that_is_no_sum_is_left():
    assert offered("sync", 1, "history.append(loss.item())\n") == ""


def test_without_a_counter_there_is_no_diff():
    assert offered("logging", 2, "for x in loader:\n    print(x)\n") == ""


def test_a_diff_is_printed():
    made = facts(stacks={"n": 500, "lines": [line("gc.collect", 0.5, file="/x/train.py", number=6)]})
    text = reading.Reading(sources={"/x/train.py": LOOP})
    told = report.text(rules.judge(made, CARD, text), CARD, width=100)
    assert "-    gc.collect()" in told
