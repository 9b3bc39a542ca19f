"""What a Watch over a data set notices about functions."""

from __future__ import annotations

import sys

import pytest

pytest.importorskip("torch")
from stoker.hooks.ghost import watch


def transform(x: int) -> int:
    return x


@pytest.fixture
def mine(monkeypatch: pytest.MonkeyPatch):
    """This module counts as the script's own."""
    monkeypatch.setattr(watch, "is_users", lambda module: module is sys.modules[__name__])
    yield transform
    vars(transform).clear()


def test_the_first_attribute_of_a_function_is_a_change(mine: object):
    made = watch.Watch([("transform", mine)])
    assert made.look() == ""
    mine.calls = 1
    assert made.look() == "transform.calls"


def test_what_the_compiler_hangs_on_a_function_is_none(mine: object):
    made = watch.Watch([("transform", mine)])
    before = made.digest()
    mine._torchdynamo_wrapper_id = id(mine)
    assert made.look() == ""
    assert watch.Watch([("transform", mine)]).digest() == before
