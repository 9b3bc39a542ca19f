"""Settings that are kept for a script: by script and machine, for their owner only, left out where they do not fit any more."""

from __future__ import annotations

import json
import stat

import pytest

from stoker.base.config import Home
from stoker.tune import keep

SETTINGS = {"version": 1, "loaders": {"train.py:12#0": {"workers": 2, "feed": "cache", "signature": "D[10] batch=4"}}, "precision": "bf16", "threads": 1}


@pytest.fixture
def where(tmp_path) -> Home:
    return Home(tmp_path / "home")


@pytest.fixture
def script(tmp_path):
    path = tmp_path / "train.py"
    path.write_text("print(1)\n")
    return path


def test_what_was_put_comes_back_and_is_private(where, script):
    assert keep.get(where, script) is None
    place = keep.put(where, script, SETTINGS, gain={"value": 0.5, "low": 0.4, "high": 0.8})
    entry = keep.get(where, script)
    assert entry["settings"] == SETTINGS and entry["script"] == str(script)
    assert keep.gain(entry) == "2.00x as fast [1.25 to 2.50]"
    assert stat.S_IMODE(place.stat().st_mode) == 0o600
    assert stat.S_IMODE(where.settings.stat().st_mode) == 0o700
    assert [e["script"] for e in keep.entries(where)] == [str(script)]


def test_another_script_and_another_machine_have_none(where, script, tmp_path, monkeypatch):
    keep.put(where, script, SETTINGS)
    assert keep.get(where, tmp_path / "other.py") is None
    monkeypatch.setattr("os.cpu_count", lambda: 1234)  # another machine with the same home folder
    assert keep.get(where, script) is None
    assert list(keep.entries(where)) == []


def test_a_link_is_the_script_it_leads_to(where, script, tmp_path):
    keep.put(where, script, SETTINGS)
    (tmp_path / "link.py").symlink_to(script)
    assert keep.get(where, tmp_path / "link.py") is not None


def test_class_c_lapses_with_the_code(where, script):
    keep.put(where, script, SETTINGS)
    entry = keep.get(where, script)
    assert keep.fitting(entry, script) == (SETTINGS, [])
    script.write_text("print(2)\n")
    settings, left = keep.fitting(entry, script)
    assert "precision" not in settings and settings["loaders"] == SETTINGS["loaders"]
    assert len(left) == 1 and "bf16" in left[0]


def test_where_only_class_c_was_kept_nothing_is_left(where, script):
    keep.put(where, script, {"version": 1, "loaders": {}, "precision": "bf16", "shapes": "abc"})
    entry = keep.get(where, script)
    script.write_text("print(2)\n")
    assert keep.fitting(entry, script)[0] == {}


@pytest.mark.parametrize("damage", [b"", b"[]", b"{", b'{"version": 9}', b'{"version": 1, "settings": 3, "at": 1, "script": "x"}',
                                    b'{"version": 1, "settings": {"loaders": {"a": 3}}, "at": 1, "script": "x"}', b"\xff\x00"])
def test_a_damaged_file_is_none(where, script, damage):
    keep.put(where, script, SETTINGS).write_bytes(damage)
    assert keep.get(where, script) is None
    assert list(keep.entries(where)) == []


def test_forget(where, script):
    assert not keep.forget(where, script)
    keep.put(where, script, SETTINGS)
    assert keep.forget(where, script) and keep.get(where, script) is None


def test_words_for_people():
    assert keep.words(SETTINGS) == ["2 workers", "samples cached in memory", "1 thread", "bf16"]
    assert keep.words({"loaders": {"a": {"workers": 0, "persistent": True, "pin": False}}, "fused": False}) == [
        "0 workers", "persistent workers", "memory not pinned"]
    assert keep.words({"version": 1, "loaders": {}, "shapes": "x"}) == []


def test_what_is_kept_can_be_read_by_others_tools(where, script):
    body = json.loads(keep.put(where, script, SETTINGS).read_text())
    assert body["version"] == 1 and body["settings"]["precision"] == "bf16" and len(body["code"]) == 16
