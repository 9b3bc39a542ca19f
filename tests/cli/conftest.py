"""The real command line on a throwaway state folder, with the real server behind it."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from benchmarks.ground import Ground


@pytest.fixture
def ground() -> Iterator[Ground]:
    """A state folder, a working folder and a server for one test; nothing may be left running."""
    made = Ground()
    try:
        yield made
    finally:
        left = made.close()
    assert not left, "processes were left behind: " + "; ".join(left)
