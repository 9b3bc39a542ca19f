"""What `stoker run` takes over from the tuner, and when it does not."""

from __future__ import annotations

import os
import sys

import pytest

from stoker.base.config import home
from stoker.cli.run import tuned
from stoker.tune import keep

SETTINGS = {"version": 1, "loaders": {"train.py:4#0": {"workers": 2}}, "threads": 1}
PLAIN = {"no_settings": False, "rehearse": None, "target": "local"}


@pytest.fixture
def script(tmp_path, monkeypatch):
    monkeypatch.setenv("STOKER_HOME", str(tmp_path / "home"))
    path = tmp_path / "train.py"
    path.write_text("print(1)\n")
    return path


def applied(script, *command: str, hooks: bool = True, resume: str = "off", **options) -> tuple[dict, list[str]]:
    spec = {"command": list(command) or [sys.executable, "train.py"], "folder": str(script.parent), "hooks": hooks, "resume": resume}
    told = tuned.apply({**PLAIN, **options}, spec, dict(os.environ))
    return spec.get("settings", {}), told


def test_nothing_is_kept(script):
    assert applied(script) == ({}, [])
    assert not home().path.exists()  # and nothing was made to find that out


def test_what_is_kept_is_put_in_and_said(script):
    keep.put(home(), script, SETTINGS, gain={"value": 0.5, "low": 0.4, "high": 0.6}, arguments=["--epochs", "3"])
    settings, told = applied(script, sys.executable, "train.py", "--epochs", "3")
    assert settings == SETTINGS
    assert len(told) == 1 and told[0].startswith("using the settings of stoker tune: 2 workers, 1 thread (measured 2.00x as fast [1.67 to 2.50] 0s ago")
    assert "with other arguments of the script" in applied(script, sys.executable, "train.py", "--epochs", "4")[1][0]


@pytest.mark.parametrize("options", [{"no_settings": True}, {"rehearse": 2}, {"target": "far"}, {"hooks": False}])
def test_not_where_it_was_not_asked_for(script, options):
    keep.put(home(), script, SETTINGS)
    assert applied(script, **options) == ({}, [])


def test_not_under_a_launcher_of_ranks_and_not_where_nothing_can_start(script):
    keep.put(home(), script, SETTINGS)
    launcher = script.parent / "torchrun"
    launcher.write_text(f"#!{sys.executable}\n")
    launcher.chmod(0o755)
    assert applied(script, "./torchrun", "train.py") == ({}, [])
    assert applied(script, sys.executable, "-m", "torch.distributed.run", "train.py") == ({}, [])
    assert applied(script, "nowhere.py") == ({}, [])


def test_compiled_code_cannot_come_back_exactly(script):
    keep.put(home(), script, {**SETTINGS, "compile": True})
    settings, told = applied(script, resume="auto")
    assert settings == SETTINGS and "torch.compile is not used" in told[-1] and "--resume off" in told[-1]
    assert applied(script, resume="off")[0] == {**SETTINGS, "compile": True}
    keep.put(home(), script, {"version": 1, "loaders": {}, "compile": True})
    settings, told = applied(script, resume="auto")
    assert settings == {} and len(told) == 1


def test_arguments_are_what_follows_the_script(script):
    assert keep.arguments(["python", "-u", "a/train.py", "--lr", "1"], script) == ["--lr", "1"]
    assert keep.arguments(["train.py"], script) == []
