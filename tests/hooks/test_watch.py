"""What a Watch over a data set notices about functions."""

from __future__ import annotations

import copy
import sys

import pytest

pytest.importorskip("torch")
from stoker.inside.resume.state import watch


def transform(x: int) -> int:
    return x


class Data:
    def __init__(self):
        self.rows = [1, 2]


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


def test_that_an_object_was_copied_is_none(mine: object):
    before = watch.Watch([("data", Data())]).digest()
    copy.copy(Data())
    assert "__slotnames__" in vars(Data)
    assert watch.Watch([("data", Data())]).digest() == before
