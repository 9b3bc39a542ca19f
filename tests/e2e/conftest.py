"""The real command line on a throwaway state folder. Every test ends its server and fails if a process is left."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from benchmarks.ground import Ground


def _checked(ground: Ground) -> Iterator[Ground]:
    try:
        yield ground
    finally:
        left = ground.close()
    assert not left, "processes were left behind: " + "; ".join(left)


@pytest.fixture
def ground() -> Iterator[Ground]:
    """A state folder, a working folder and a server for one test."""
    yield from _checked(Ground())


@pytest.fixture(scope="module")
def common() -> Iterator[Ground]:
    """One ground for all the quick tests of a file that leave nothing running."""
    yield from _checked(Ground())
