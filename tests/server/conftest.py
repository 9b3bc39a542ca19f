"""A state folder of its own for each test, with a short path; whatever server it got is ended, and nothing is left behind."""

from __future__ import annotations

import contextlib
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from server_help import kill, servers_of, until

from stoker.base.config import Home
from stoker.base.state import State
from stoker.client import Client, connect


@pytest.fixture
def home(monkeypatch: pytest.MonkeyPatch) -> Iterator[Home]:
    with _home() as where:
        monkeypatch.setenv("STOKER_HOME", str(where.path))
        yield where


@pytest.fixture(scope="module")
def shared() -> Iterator[Client]:
    """One server for many small questions that change nothing."""
    with _home() as where:
        yield connect(where)


@contextlib.contextmanager
def _home() -> Iterator[Home]:
    folder = Path(tempfile.mkdtemp(prefix="sk-", dir="/tmp"))
    where = Home(folder / "h")
    try:
        yield where
    finally:
        for pid in servers_of(where):
            kill(pid)
        shutil.rmtree(folder, ignore_errors=True)
        if where.socket.parent != where.server:
            where.socket.unlink(missing_ok=True)


@pytest.fixture
def client(home: Home) -> Iterator[Client]:
    """A client of a fresh server; the runs that a test leaves going are ended with the run."""
    made = connect(home)
    yield made
    left = made.runs(limit=1000)
    for run in left:
        made.stop(run["id"], force=True)
    for run in left:
        until(lambda run=run: State(made.wait(run["id"], 5)["state"]).final, f"{run['id']} ends", 30)
