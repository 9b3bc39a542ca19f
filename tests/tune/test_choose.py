"""Which settings are raced, and which one is kept."""

from __future__ import annotations

import dataclasses

from stoker.tune import choose
from stoker.tune.findings import Action, Range
from stoker.tune.race import Interval, Result


def action(name: str, ratio: float, risk: str = "A", **settings) -> Action:
    return Action(name, "setting", risk, name, Range(ratio, ratio - 0.05, ratio + 0.05), settings=settings)


def loader(**knobs) -> dict:
    return {"train.py:9#0": knobs}


WORKERS = action("workers", 0.6, loaders=loader(workers=2))
CACHE = action("cache", 0.4, loaders=loader(feed="cache"), cache_bytes=100)
BATCHED = action("batched", 0.5, loaders=loader(feed="batched"))
THREADS = action("threads", 0.8, "B", threads=1)
BF16 = action("bf16", 0.7, "C", precision="bf16")


def names(found) -> list[str]:
    return [c.name for c in found]


def test_the_best_of_both_sides_go_together():
    found = choose.candidates([WORKERS, THREADS], frozenset())
    assert names(found) == ["workers + threads", "workers", "threads"]
    assert found[0].settings == {"loaders": loader(workers=2), "threads": 1} and found[0].risk == "B"
    assert found[0].forecast < 0.6


def test_a_cache_and_workers_are_not_mixed_and_a_knob_is_turned_once():
    found = choose.candidates([WORKERS, CACHE, BATCHED], frozenset())
    assert "cache" in names(found) and "batched + workers" in names(found)
    assert not any("cache" in name and "+" in name for name in names(found))


def test_savings_of_several_changes_overlap():
    assert choose.candidates([WORKERS], frozenset())[0].forecast == 0.6
    both = choose.candidates([WORKERS, THREADS], frozenset())[0]
    assert 0.6 * 0.8 < both.forecast < 0.6
    many = [action(name, 0.4, "B", **{name: True}) for name in ("fused", "channels_last", "compile")]
    assert choose.candidates(many, frozenset())[0].forecast > 0.1


def test_not_all_that_is_raced_rests_on_a_guess():
    """A wrong forecast of the models once stood in each of the three, and what was measured was never raced."""
    guess = dataclasses.replace(WORKERS, ratio=Range(0.3, 0.2, 0.4), chance=0.7)
    fused, batched = (dataclasses.replace(each, chance=0.95) for each in (action("fused", 0.7, "B", fused=True), BATCHED))
    found = choose.candidates([guess, fused, batched], frozenset(), 3)
    assert "workers" in found[0].name and "workers" not in found[-1].name and "fused" in found[-1].name


def test_what_the_hooks_left_is_not_kept():
    both = choose.candidates([action("workers", 0.6, loaders=loader(workers=1, prefetch=4)), THREADS], frozenset())[0]
    less = choose.without(both, {"train.py:9#0 workers": "a stream"})
    assert less.settings == {"loaders": loader(prefetch=4), "threads": 1} and names([less]) == ["workers + threads"]
    less = choose.without(both, {"train.py:9#0 workers": "", "train.py:9#0 prefetch": ""})
    assert less.settings == {"threads": 1} and less.actions == (THREADS,)
    assert choose.without(both, {"train.py:9#0 workers": "", "train.py:9#0 prefetch": "", "threads": ""}) is None
    assert choose.without(both, {}) == both


def test_class_c_needs_consent_and_has_a_fallback():
    assert names(choose.candidates([BF16], frozenset())) == []
    assert names(choose.candidates([BF16], frozenset({"precision"}))) == ["bf16"]
    found = choose.candidates([BF16, CACHE, WORKERS], frozenset({"precision"}), 2)
    assert len(found) == 2 and found[0].risk == "C" and found[1].risk != "C"


def test_what_promises_nothing_is_not_raced():
    assert choose.candidates([action("fused", 0.99, "B", fused=True)], frozenset()) == []
    assert choose.candidates([Action("sync", "diff", "A", "", Range(0.5, 0.4, 0.6))], frozenset()) == []


def result(name: str, value: float, low: float, high: float, **more) -> Result:
    return Result(name, Interval(value, low, high), 8, **more)


def raced(*results: Result) -> list:
    made = {c.name: c for c in choose.candidates([WORKERS, THREADS, BF16], frozenset({"precision"}), 9)}
    return [(made[r.name], r) for r in results]


def test_the_fastest_that_is_surely_faster_wins():
    best, ratio = choose.winner(raced(result("workers", 0.6, 0.55, 0.65), result("threads", 0.5, 0.3, 1.1)))
    assert best.name == "workers" and ratio.value == 0.6
    assert choose.winner(raced(result("workers", 0.98, 0.97, 0.99))) is None
    assert choose.winner(raced(result("workers", 0.5, 0.4, 0.6, died="killed by SIGSEGV"))) is None
    assert choose.winner([]) is None


def test_of_nearly_equal_ones_the_harmless_and_simple_one_wins():
    both = next(c.name for c in choose.candidates([WORKERS, THREADS, BF16], frozenset({"precision"}), 9) if len(c.actions) == 3)
    best, _ = choose.winner(raced(result("workers", 0.505, 0.49, 0.52), result(both, 0.5, 0.48, 0.51)))
    assert best.name == "workers"
    best, _ = choose.winner(raced(result("workers", 0.6, 0.59, 0.61), result(both, 0.5, 0.48, 0.51)))
    assert best.name == both


def test_what_is_fast_from_the_first_epoch_on_wins_over_kept_samples():
    made = {c.name: c for c in choose.candidates([CACHE, BATCHED], frozenset(), 9)}
    for cache, chosen in ((0.49, "batched"), (0.40, "cache")):
        both = [(made[r.name], r) for r in (result("cache", cache, 0.3, 0.52), result("batched", 0.5, 0.48, 0.52))]
        assert choose.winner(both)[0].name == chosen


def test_nothing_is_asked_of_workers_that_are_not_there():
    none, deeper = action("workers", 0.6, loaders=loader(workers=0)), action("prefetch", 0.8, loaders=loader(prefetch=4))
    assert not any("+" in name for name in names(choose.candidates([none, deeper], frozenset(), 9)))
    assert "workers + prefetch" in names(choose.candidates([WORKERS, deeper], frozenset(), 9))


def test_merged_at_each_depth():
    assert choose.merged({"loaders": {"a": {"workers": 1}}, "threads": 2}, {"loaders": {"a": {"pin": True}, "b": {}}}) == {
        "loaders": {"a": {"workers": 1, "pin": True}, "b": {}}, "threads": 2}


def test_threads_that_are_tried_with_workers_are_not_called_left_out():
    fewer = Action("threads", "setting", "B", "", Range(0.8, 0.7, 0.9), settings={"threads": 1}, state=choose.CORES_TAKEN)
    workers = Action("workers", "setting", "B", "", Range(0.7, 0.6, 0.8), settings={"loader": {"workers": 1}})
    both = Action("workers", "setting", "B", "", Range(0.7, 0.6, 0.8), settings={"loader": {"workers": 1}, "threads": 1})
    assert choose.threads_left_out([fewer, workers], [choose.Candidate("workers", (workers,), workers.settings, 0.7)])
    assert not choose.threads_left_out([fewer, both], [choose.Candidate("workers", (both,), both.settings, 0.7)])
    assert not choose.threads_left_out([workers], [])
