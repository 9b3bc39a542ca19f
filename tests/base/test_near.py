"""A mistyped word is answered with what was meant, or with nothing."""

from __future__ import annotations

import pytest

from stoker.base.near import distance, near

VERBS = ("run", "ps", "show", "logs", "attach", "wait", "stop", "start", "keep", "rm", "gc", "top", "doctor", "server", "help")


@pytest.mark.parametrize(("word", "meant"), [
    ("rnu", "run"), ("shwo", "show"), ("log", "logs"), ("att", "attach"), ("strat", "start"), ("doktor", "doctor"), ("LOGS", "logs"), ("sto", "stop"),
    ("st", "stop"), ("waiit", "wait"), ("serve", "server"), ("dctor", "doctor"), ("runn", "run"), ("tpo", "top"), ("rn", "run"), ("sp", "ps"),
    ("zzzz", None), ("x", None), ("cat", None), ("rg", None), ("deploy", None), ("push", None), ("python", None), ("mlflow", None), ("", None), ("export", None),
    ("notebook", None), ("ssh", None), ("watch", None), ("eval", None),
])
def test_verbs(word: str, meant: str | None):
    assert near(word, VERBS, 1) == ([meant] if meant else [])


def test_a_beginning_counts_before_a_slip_and_the_order_given_decides_between_equals():
    assert near("base", ["bass", "baseline", "baseline-2", "case"], 9) == ["baseline", "baseline-2", "bass", "case"]
    assert near("trian", ["train-9", "train", "brian"], 2) == ["train", "brian"]
    assert near("train-9", ["train-7", "train", "train-90", "trian-9", "train9"], 9) == ["train-90", "trian-9", "train9"]
    assert near("tra", ["train-3", "train-2", "train"], 3) == ["train", "train-3", "train-2"]


@pytest.mark.parametrize(("one", "two", "steps"), [("", "", 0), ("a", "", 1), ("ab", "ba", 1), ("train", "trian", 1), ("abc", "xyz", 3), ("stop", "start", 3)])
def test_distance(one: str, two: str, steps: int):
    assert distance(one, two) == distance(two, one) == steps
