"""The real command line on a throwaway state folder, with the real server behind it."""

from __future__ import annotations

import copy
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from benchmarks.ground import Ground, throwaway


@pytest.fixture
def ground() -> Iterator[Ground]:
    """A state folder, a working folder and a server for one test; nothing may be left running."""
    yield from throwaway()


@pytest.fixture(scope="module")
def common() -> Iterator[Ground]:
    """One state folder and server for the tests of a file that have a `place` there."""
    yield from throwaway()


@pytest.fixture
def place(common: Ground) -> Ground:
    """A working folder of the test's own beside those of others. For a test that gives no run a name, does not ask which runs there are,
    and leaves the server alone: then it cannot tell that the server is not its own."""
    mine = copy.copy(common)
    mine.work = Path(tempfile.mkdtemp(prefix="w-", dir=common.root))
    return mine
