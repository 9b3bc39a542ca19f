"""A real `stoker ui` on a throwaway state folder with real runs."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from console_place import EVIL, TRAIN, WAITS, Place, start_console

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from benchmarks.ground import Ground, throwaway


@pytest.fixture(scope="module")
def place() -> Iterator[Place]:
    ground = Ground()
    try:
        ground.script("train.py", TRAIN)
        ground.script("waits.py", WAITS)
        active = ground.detach("--name", "active", "--", "python", "waits.py")
        ended = ground.detach("--name", "ended", "--", "python", "train.py", "12")
        ground.stoker("tag", "ended", EVIL.replace(" ", "_")).ok()
        ground.stoker("note", "ended", EVIL).ok()
        ground.wait_state("ended", "done")
        process, reader = start_console(ground)
        yield Place(ground, reader.enter(), process, ended, active)
    finally:
        left = ground.close()
    assert not left, "processes were left behind: " + "; ".join(left)


@pytest.fixture
def ground() -> Iterator[Ground]:
    """A state folder for one test."""
    yield from throwaway()
