"""A crash reads as under plain python: what the script prints, its exit code, and the place that `stoker show` names."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parent))

import judge
from judge import Ground

SAMPLE = ("forward_1", "workers_3", "open_1", "os_1", "input_3", "json_1", "disk_1", "interrupt_1")  # most without torch: they are quick


@pytest.fixture(scope="module")
def ground() -> Iterator[Ground]:
    """One state folder and one server for all scripts."""
    made = Ground()
    try:
        yield made
    finally:
        left = made.close()
    assert not left, "processes were left behind: " + "; ".join(left)


def test_every_kind_has_three_scripts_and_each_marks_its_place():
    assert {path.stem for path in judge.SCRIPTS.glob("*.py")} == set(judge.NAMES)
    assert [name for name in judge.NAMES if not judge.places(name)] == []


@pytest.mark.slow
@pytest.mark.campaign
@pytest.mark.parametrize("name", judge.NAMES)
def test_a_script_fails_in_the_same_way_each_time(ground, name):
    verdict = judge.steady(ground, name)
    assert verdict.right, f"{verdict.reason}\n{verdict.unlike}"


@pytest.mark.slow
@pytest.mark.inside
@pytest.mark.parametrize("name", SAMPLE)
def test_a_sample_reads_as_under_plain_python(ground, name):
    _reads_as_under_plain_python(ground, name)


@pytest.mark.slow
@pytest.mark.campaign
@pytest.mark.parametrize("name", judge.NAMES)
def test_a_crash_reads_as_under_plain_python(ground, name):
    _reads_as_under_plain_python(ground, name)


def _reads_as_under_plain_python(ground, name):
    verdict = judge.judged(ground, name)
    assert verdict.right, f"{verdict.reason}\n{verdict.unlike}"
