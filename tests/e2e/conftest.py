"""The real command line on a throwaway state folder. Every test ends its server and fails if a process is left."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from benchmarks.ground import Ground, throwaway

HERE = Path(__file__).resolve().parent
# What `make check` runs of this folder: the main job in a few seconds. Everything else here is slow.
IN_THE_GATE = {"test_foreground_gives_the_same_bytes_streams_and_code", "test_detached_life_of_a_run", "test_stop_then_start_adds_an_attempt",
               "test_json_has_the_documented_fields", "test_no_such_file", "test_unknown_run", "test_bad_duration_says_how_to_write_it",
               "test_the_afternoon_of_a_laptop", "test_two_laptops_and_one_box"}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.path.parent == HERE and item.originalname not in IN_THE_GATE:
            item.add_marker(pytest.mark.slow)


@pytest.fixture
def ground() -> Iterator[Ground]:
    """A state folder, a working folder and a server for one test."""
    yield from throwaway()


@pytest.fixture(scope="module")
def common() -> Iterator[Ground]:
    """One ground for all the quick tests of a file that leave nothing running."""
    yield from throwaway()
