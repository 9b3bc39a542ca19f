"""A state folder of its own for each test, with a short path; whatever server it got is ended, and nothing is left behind."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from server_help import kill, servers_of

from stoker.base.config import Home
from stoker.client import Client, connect


@pytest.fixture
def home(monkeypatch: pytest.MonkeyPatch) -> Iterator[Home]:
    folder = Path(tempfile.mkdtemp(prefix="sk-", dir="/tmp"))
    where = Home(folder / "h")
    monkeypatch.setenv("STOKER_HOME", str(where.path))
    try:
        yield where
    finally:
        for pid in servers_of(where):
            kill(pid)
        shutil.rmtree(folder, ignore_errors=True)
        if where.socket.parent != where.server:
            where.socket.unlink(missing_ok=True)


@pytest.fixture
def client(home: Home) -> Client:
    return connect(home)
