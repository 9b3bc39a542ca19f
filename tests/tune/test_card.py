"""The machine card: what is read, what is measured, when it is measured anew."""

from __future__ import annotations

import json
import os
import sys
import time

import pytest

from stoker.base.config import Home
from stoker.tune import card, trial


@pytest.fixture
def command(tmp_path):
    (tmp_path / "work").mkdir()
    (tmp_path / "work" / "train.py").write_text("print(1)\n")
    for n in range(8):
        (tmp_path / "work" / f"sample{n}.txt").write_text("x" * 2000)
    return trial.read([sys.executable, "train.py"], tmp_path / "work", dict(os.environ))


@pytest.fixture
def where(tmp_path):
    return Home(tmp_path / "home")


@pytest.fixture
def asked(monkeypatch):
    """How often the user's torch was asked; it is not started."""
    times = []
    monkeypatch.setattr(card, "LOOK_S", 0.02)
    monkeypatch.setattr(card, "COPY_BYTES", 1 << 20)
    monkeypatch.setattr(card, "_products", lambda command: times.append(1) or {"matmul": {"float32": 50.0, "bf16": 90.0}, "bf16": True})
    return times


def test_what_it_holds(where, command, asked):
    found = card.card(where, command)
    assert 0 < found["cores"] <= found["machine_cores"] and found["memory_bytes"] > found["memory_free"] > 0
    assert found["shm_bytes"] > 0 and found["files_limit"] > 0 and found["memcpy_gbs"] > 0.1
    assert found["file_us"] > 0 and found["bf16"] is True and found["gpu"] in (True, False)
    assert "read_mbs" not in found  # there is no large file to read
    assert 0 <= found["now"]["busy"] <= 1 and isinstance(found["now"]["who"], list)
    json.dumps(found)


def test_it_is_kept_and_measured_anew_when_it_is_old_or_the_machine_another(where, command, asked, monkeypatch):
    card.card(where, command)
    card.card(where, command)
    assert len(asked) == 1
    place = next(where.tune.glob("card-*.json"))
    assert place.stat().st_mode & 0o77 == 0
    place.write_text(json.dumps({**json.loads(place.read_text()), "at": time.time() - 31 * 86400}))
    card.card(where, command)
    assert len(asked) == 2
    place.write_text("{torn")
    card.card(where, command)
    assert len(asked) == 3
    monkeypatch.setattr("os.cpu_count", lambda: 777)
    card.card(where, command)
    assert len(asked) == 4


def test_a_quota_counts(command, monkeypatch):
    monkeypatch.setattr(card.machine, "cpu_quota", lambda: 0.5)
    assert card.read_limits({})["cores"] == 0.5


def test_only_small_files_count_as_such_and_links_are_not_followed(tmp_path):
    (tmp_path / "large").write_bytes(b"x" * (9 << 20))
    for n in range(6):
        (tmp_path / f"s{n}").write_bytes(b"y" * 100)
    (tmp_path / "link").symlink_to("/etc/passwd")
    small, large = card._files(tmp_path)
    assert sorted(p.name for p in small) == [f"s{n}" for n in range(6)] and large.name == "large"
    assert card.storage(tmp_path)["read_mbs"] > 0


def test_an_interpreter_without_torch_gives_no_products(tmp_path):
    (tmp_path / "a.py").write_text("")
    bare = trial.read([sys.executable, "-S", "a.py"], tmp_path, dict(os.environ))
    found = card._products(trial.Command(bare.words, bare.argv, tmp_path, {"PATH": os.environ["PATH"]}, bare.script, "/usr/bin/env"))
    assert found == {}
    assert card._products(trial.Command(bare.words, bare.argv, tmp_path, {}, bare.script, None)) == {}


@pytest.mark.slow
def test_the_products_of_the_users_torch(command):
    pytest.importorskip("torch")
    found = card._products(command)
    assert found["matmul"]["float32"] > 0.1 and found["matmul"]["threads"] >= 1 and isinstance(found["bf16"], bool)
