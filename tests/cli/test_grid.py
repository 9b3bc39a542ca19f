"""The values of `stoker sweep --param`, and what is run with them."""

from __future__ import annotations

import pytest

from stoker.base.errors import InvalidSpec
from stoker.cli import grid


def values(text: str) -> tuple[str, ...]:
    return grid.parse(text).values


def test_lists_and_ranges_with_a_number_of_values():
    assert values("lr=0.1,0.03,1e-4,0.1") == ("0.1", "0.03", "1e-4")
    assert values("act=relu,gelu") == ("relu", "gelu")
    assert values("path=a..b") == ("a..b",)
    assert values("p=0.0..1:5") == ("0", "0.25", "0.5", "0.75", "1")
    assert values("n=1..4:4") == ("1", "2", "3", "4")
    assert values("n=1..3:9") == ("1", "2", "3"), "whole numbers are not repeated"
    assert values("lr=1e-4..1e-1:log4") == ("0.0001", "0.001", "0.01", "0.1")
    assert values("x=-1..1:3") == ("-1", "0", "1")


@pytest.mark.parametrize("text", ["lr", "=3", "lr=", "--=3", "lr=1,,2", "lr=2..1:3", "lr=1..1:3", "lr=0..1:log3", "lr=0..1:1", "lr=0..1:99999", " lr=3",
                                  "lr=1..1e999:3"])
def test_what_cannot_be_read_is_refused_with_an_example(text: str):
    with pytest.raises(InvalidSpec) as refused:
        grid.parse(text)
    assert "--param lr=" in refused.value.hint


def test_all_combinations_or_some_drawn_by_the_seed():
    params = [grid.parse("lr=1,2"), grid.parse("wd=a,b,c")]
    every = grid.combinations(params, None, 0)
    assert [tuple(each.values()) for each in every] == [("1", "a"), ("1", "b"), ("1", "c"), ("2", "a"), ("2", "b"), ("2", "c")]
    some = grid.combinations(params, 4, 1)
    assert some == grid.combinations(params, 4, 1) != grid.combinations(params, 4, 2)
    assert len({tuple(each.values()) for each in some}) == 4
    assert len(grid.combinations(params, 40, 0)) == 6, "there are no more than six"
    drawn = grid.combinations([grid.parse("lr=1e-5..1e-1:log"), grid.parse("n=1..3")], 60, 0)
    rates = sorted(float(each["lr"]) for each in drawn)
    assert 1e-5 <= rates[0] < 1e-4 and 1e-2 < rates[-1] <= 1e-1, "each power of ten gets its share"
    assert {each["n"] for each in drawn} == {"1", "2", "3"}
    for wrong in ([grid.parse("lr=0.0..1.0")], [grid.parse("lr=1"), grid.parse("lr=2")], [grid.parse("a=1..1000:1000"), grid.parse("b=1,2")]):
        with pytest.raises(InvalidSpec):
            grid.combinations(wrong, None, 0)


def test_a_value_is_an_option_at_the_end_or_stands_where_its_name_is():
    assert grid.command_of(("a.py", "--epochs", "5"), {"lr": "0.1", "-w": "2"}) == ("a.py", "--epochs", "5", "--lr", "0.1", "-w", "2")
    assert grid.command_of(("a.py", "optim.lr={lr}", "{x}"), {"lr": "0.1", "wd": "0"}) == ("a.py", "optim.lr=0.1", "{x}", "--wd", "0")
    assert grid.command_of(("a.py", "{a}"), {"a": "{b}", "b": "1"}) == ("a.py", "{b}", "--b", "1"), "a value is not a place"
