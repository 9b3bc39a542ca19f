"""`stoker tune` as it is typed: what cannot be tuned, what is kept, shown and forgotten, what a run takes over."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from benchmarks.ground import Ground

from stoker.base.config import Home
from stoker.tune import keep

SETTINGS = {"version": 1, "loaders": {"train.py:4#0": {"workers": 2}}, "precision": "bf16"}


def refused(ground: Ground, code: str, *options: str) -> dict:
    (ground.work / "train.py").write_text(code)
    done = ground.stoker("tune", "--json", "--for", "10s", *options, sys.executable, "train.py")
    assert done.code == 9, (done.out, done.err)
    assert list((ground.home / "tune" / "rooms").iterdir()) == []
    return json.loads(done.out)


@pytest.mark.slow
def test_what_cannot_be_tuned_is_said_with_its_reason(ground: Ground):
    told = refused(ground, "raise ValueError('no data here')")
    assert told["state"] == "refused" and "ValueError: no data here" in told["sentence"] and told["error"][-1] == "ValueError: no data here"
    told = refused(ground, "name = input('who? ')")
    assert "asks" in told["sentence"] and told["hint"]
    told = refused(ground, "print('done')")
    assert "torch" in told["sentence"]


def test_words_that_make_no_sense_are_refused_before_anything_runs(ground: Ground):
    for words in (("tune",), ("tune", "nowhere.py"), ("tune", "--fail-if", "nonsense", "train.py"), ("tune", "--allow", "all", "train.py")):
        (ground.work / "train.py").write_text("open('ran', 'w')")
        done = ground.stoker(*words)
        assert done.code == 2 and "Traceback" not in done.err and "hint" in done.err, words
    assert not (ground.work / "ran").exists()


@pytest.mark.slow
def test_what_is_kept_is_used_shown_and_forgotten(ground: Ground):
    script = ground.work / "train.py"
    script.write_text("import os; print(open(os.environ['STOKER_SETTINGS']).read() if 'STOKER_SETTINGS' in os.environ else 'none')")
    assert ground.stoker("tune", "--show").out == "No settings are saved.\n"
    keep.put(Home(ground.home), script, SETTINGS, gain={"value": 0.5, "low": 0.4, "high": 0.6})
    assert "2 workers, bf16" in ground.stoker("tune", "--show", sys.executable, "train.py").out
    done = ground.stoker("run", "--", sys.executable, "train.py")
    assert json.loads(done.out) == SETTINGS
    assert "using the settings of stoker tune: 2 workers, bf16 (measured 2.00x as fast" in done.err
    assert ground.stoker("run", "--no-settings", "--", sys.executable, "train.py").out == "none\n"
    assert ground.stoker("run", "--no-hooks", "--", sys.executable, "train.py").out == "none\n"
    script.write_text(script.read_text() + "\n")  # class C lapses with the code
    done = ground.stoker("run", "--", sys.executable, "train.py")
    assert "precision" not in json.loads(done.out) and "bf16 is not applied" in done.err
    ground.stoker("tune", "--forget", sys.executable, "train.py")
    assert ground.stoker("run", "--", sys.executable, "train.py").out == "none\n"
    assert ground.stoker("tune", "--forget", sys.executable, "train.py").code == 3


@pytest.mark.slow
def test_settings_are_frozen_at_the_first_attempt(ground: Ground):
    script = ground.work / "train.py"
    script.write_text("import os; print(open(os.environ['STOKER_SETTINGS']).read()); raise SystemExit(3)")
    keep.put(Home(ground.home), script, SETTINGS)
    ground.stoker("run", "--name", "frozen", "--", sys.executable, "train.py")
    keep.put(Home(ground.home), script, {"version": 1, "loaders": {}, "threads": 1})
    done = ground.stoker("run", "--name", "frozen", "--", sys.executable, "train.py")
    assert "continuing frozen, attempt 2" in done.err and "with 1 thread" not in done.err
    assert json.loads(done.out.strip().splitlines()[-1]) == SETTINGS
