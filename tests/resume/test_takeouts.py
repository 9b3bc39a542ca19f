"""Each check is needed: without it the script that only this check stands against ends wrong, and nobody says so. A few of them here; all of
them with `python tests/resume/takeouts.py`."""

from __future__ import annotations

import pytest
from harness import HERE, read
from takeouts import TAKEOUTS, run

CHEAP = ("the loss at each backward", "unknown types of modules, data sets, hooks", "aliases as at the image", "call stack as at the image",
         "same input, opened in training", "threads beside it")


@pytest.mark.timeout(900)
@pytest.mark.parametrize("check", CHEAP)
def test_without_it_a_script_is_silently_wrong(check, short_tmp):
    takeout = next(each for each in TAKEOUTS if each.check == check)
    held, without = (run(takeout, short_tmp / str(out), out=out) for out in (False, True))
    assert held.good, held.line()
    assert without.outcome == "WRONG", without.line()


def test_each_names_a_script_that_is_not_expected_to_come_back_wrong():
    assert len({each.check for each in TAKEOUTS}) == len(TAKEOUTS)
    for each in TAKEOUTS:
        script = read(HERE / "adversaries" / f"{each.script}.py")
        assert script.path.exists()
        assert script.expected in ("exact", "either", "refused"), script.name
