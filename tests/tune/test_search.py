"""The whole search on a program that speaks as the hooks do: facts when it is probed, steps when it is raced, at a speed that its
settings decide. So the loop is tested without torch: what is raced, confirmed, kept, refused, and what Ctrl-C leaves."""

from __future__ import annotations

import os
import sys

import pytest

from stoker.base.config import Home
from stoker.tune import card, keep, race, search, trial
from stoker.tune.choose import Candidate
from stoker.tune.findings import Action, Findings, Range
from stoker.tune.guard import SAFE, UNSHOWN, Verdict
from stoker.tune.race import Interval
from stoker.tune.search import Options, Search

LOADER = "train.py:3#0"
SCRIPT = """
import json, os, sys, time
room = os.environ["STOKER_TUNE"]
order = json.load(open(room + "/order.json"))
with open(os.environ["STOKER_HOOKS"] + "/processes.jsonl", "a") as f:
    f.write(json.dumps({"pid": os.getpid(), "torch": "2"}) + chr(10))
def window(phase, block, ms, wait):
    return {"phase": phase, "block": block, "steps": 40, "samples": 1280, "wall_s": 0.04 * ms, "cpu_s": 0.03 * ms, "children_cpu_s": 0,
            "stolen_s": 0, "foreign_cpu_s": 0, "ms": {"data": 40 * wait, "forward": 20 * (ms - wait), "backward": 20 * (ms - wait)},
            "step_ms": [ms] * 40}
def probe():
    windows = []
    for block, (phase, ms) in enumerate([("R1", 4), ("R1", 4), ("cache", 5), ("workers=1", WORKER_MS), ("bf16", 8)], 1):
        for name, each in (("R0", 10), (phase, ms), (phase, ms), ("R0", 10)):
            windows.append(window(name, block, each, 6 if name in ("R0", "bf16") else 0))
    return {"version": 1, "ended": ENDED, "steps_seen": STEPS, "windows": windows, "setup_s": 0.3, "first_step_s": 0.02, "cores": 2,
            "threads": 1, "ranks": 1, "cuda": False, "shapes": "abc", "samples": {"n": 64, "cpu_s": 0.0121, "wait_s": 0.0, "p50_s": 0.0002,
            "p90_s": 0.0002, "max_s": 0.0002, "bytes": 4096, "collate_s": 0.0001, "same": True, "again_s": 0.0121},
            "loaders": [{"id": "train.py:3#0", "train": True, "workers": 0, "prefetch": 2, "batch_size": 32, "len": 100, "signature": "D[3200]",
            "sampler": "RandomSampler", "dataset": {"type": "D", "len": 3200, "iterable": False}, "proof": {"cache": True}, "pass_steps": 100,
            "passes": 2, "persistent": False, "pin": False, "own_iter": False, "framework": False, "rebuilt": False}],
            "optimizers": [{"type": "SGD", "tensors": 2}], "model": {"params": 10, "dtype": "float32"}, "memory": [[0, 10**8]],
            "side_effects": {}, "flags": {}, "batch": {"size": 32, "bytes": 131072}}
if order["mode"] == "probe":
    open(room + "/progress.jsonl", "w").write(json.dumps({"phase": "R0", "steps": 1}) + chr(10))
    time.sleep(PROBE_S)
    with open(room + "/facts.part", "w") as f:
        json.dump(probe(), f)
    os.rename(room + "/facts.part", room + "/facts.json")
    sys.exit()
settings = order["settings"]
feed = settings.get("loaders", {}).get("train.py:3#0", {})
ms = REAL_MS if feed.get("feed") == "cache" else WORKER_MS if feed.get("workers") else 10
ms *= 0.7 if settings.get("precision") else 1
steps = open(room + "/steps.bin", "ab", 0)
while True:
    time.sleep(ms / 1000)
    steps.write(time.monotonic_ns().to_bytes(8, "little"))
"""
pytestmark = pytest.mark.slow


@pytest.fixture
def where(tmp_path, monkeypatch):
    monkeypatch.setattr(card, "_products", lambda command: {})
    monkeypatch.setattr(search, "CONFIRM_MIN_S", 1.2)
    monkeypatch.setattr(search, "RACE_MIN_S", 1.2)
    monkeypatch.setattr(race, "WINDOW_MIN_S", 0.12)
    return Home(tmp_path / "home")


@pytest.fixture
def tune(tmp_path, where):
    """Tune the script with these facts and speeds; nothing may stay behind."""
    def go(seconds: float = 6.0, *, allow: frozenset = frozenset(), force: bool = False, hears=lambda text: None, **facts) -> search.Report:
        known = {"WORKER_MS": 9, "REAL_MS": 5, "ENDED": "enough", "STEPS": 500, "PROBE_S": 0, **facts}
        head = "".join(f"{name} = {value!r}\n" for name, value in known.items())
        (tmp_path / "train.py").write_text(head + SCRIPT)
        command = trial.read([sys.executable, "train.py"], tmp_path, dict(os.environ))
        report = Search(command, Options(seconds=seconds, allow=allow, force=force), where, hears, hears).run()
        assert list((where.tune / "rooms").iterdir()) == []
        return report
    return go


def test_the_best_is_confirmed_and_kept(tune, where, tmp_path):
    report = tune()
    assert report.state == "kept", report
    assert 0.4 < report.total.value < 0.65 and report.kept == ("samples cached in memory",)
    entry = keep.get(where, tmp_path / "train.py")
    assert entry["settings"]["loaders"] == {LOADER: {"feed": "cache", "signature": "D[3200]"}} and entry["settings"]["shapes"] == "abc"
    assert "code" not in entry["settings"] and entry["gain"]["value"] == report.total.value
    assert {t["trial"] for t in report.trials} >= {"probe", "confirm"} and len(report.trials) <= 12
    states = {a.name: a.state for a in report.found.actions if a.cure == "setting"}
    assert states["cache"] == "kept" and states.get("bf16", "").startswith("needs consent")


def test_a_forecast_that_does_not_come_true_is_not_kept(tune, where, tmp_path):
    report = tune(WORKER_MS=10, REAL_MS=11)
    assert report.state in ("nothing", "noisy") and keep.get(where, tmp_path / "train.py") is None
    assert any(words in report.sentence for words in ("3 %", "busy", "too uncertain"))  # other tests run beside it


def search_of(where, tmp_path):
    (tmp_path / "train.py").write_text("")
    return Search(trial.read([sys.executable, "train.py"], tmp_path, dict(os.environ)), Options(), where)


def test_what_wins_a_race_and_not_its_confirmation_is_shown_with_the_newer_number(where, tmp_path):
    tuning, newer = search_of(where, tmp_path), Interval(0.99, 0.95, 1.03)
    raced = Action("cache", "setting", "A", "Keep the samples.", Range(0.2, 0.1, 0.3), confirmed=Range(0.3, 0.2, 0.6))
    tuning._report.found = Findings("", None, None, None, None, None, "", (), (raced,), (), (), (), None)
    candidate = Candidate("cache", (raced,), {}, 0.2)
    tuning._not_confirmed(race.Outcome([race.Result("unchanged"), race.Result("cache", ratio=newer)], 4.0, []), candidate)
    assert [(a.state, a.confirmed.value) for a in tuning._report.found.actions] == [("no gain", newer.value)]


def test_busy_neighbours_of_several_races_are_one_note(where, tmp_path):
    tuning = search_of(where, tmp_path)
    for who in ((("python", 1.5),), (("python", 1.3), ("make", 0.4))):
        tuning._busy_beside(race.Outcome([], 4.0, list(who), 0.5))
    assert tuning._report.notes == ["Other processes were busy during the measurement: python (1.5 cores), make (0.4 cores). "
                                    "Stoker corrects the numbers, but the corrected numbers are less certain."]


def test_class_c_goes_through_the_guard(tune, where, tmp_path, monkeypatch):
    asked = []

    def check(command, settings, change, knob, **more):
        asked.append((settings, change, knob))
        return verdicts.pop()
    verdicts = [Verdict(UNSHOWN, "not shown"), Verdict(SAFE, "as good")]
    monkeypatch.setattr(search.guard, "check", check)
    said: list[str] = []
    report = tune(allow=frozenset({"precision"}), hears=said.append)
    assert report.state == "kept" and "bf16" in report.kept and report.settings["code"]
    assert any("changes the arithmetic" in line for line in said)
    assert asked[0][1] == {"precision": "bf16"} and "precision" not in asked[0][0]
    report = tune(allow=frozenset({"precision"}))
    assert "precision" not in report.settings and report.kept == ("samples cached in memory",)
    assert next(a.state for a in report.found.actions if a.name == "bf16") == "not shown safe"
    assert "precision" not in keep.get(where, tmp_path / "train.py")["settings"]
    assert not verdicts


def test_short_trainings_need_force(tune):
    report = tune(ENDED="script", STEPS=200)
    assert report.state == "refused" and "--force" in report.hint and "200 steps" in report.sentence
    assert tune(ENDED="script", STEPS=200, force=True).state == "kept"
    report = tune(ENDED="script", STEPS=12, force=True)
    assert report.state == "refused" and "12 steps" in report.sentence


def test_ctrl_c_gives_what_is_known(tune):
    def interrupt_at(begin: str):
        def hears(text: str) -> None:
            if text.startswith(begin):
                raise KeyboardInterrupt
        return hears
    report = tune(hears=interrupt_at("confirming"))
    assert report.state == "stopped" and report.found.actions and "samples cached in memory" in report.sentence
    assert next(a.confirmed for a in report.found.actions if a.name == "cache")  # as raced
    report = tune(hears=interrupt_at("measuring"), PROBE_S=30)
    assert report.state == "stopped" and report.found is None


def test_what_can_be_read_once_only_is_not_even_started(tune, tmp_path, monkeypatch):
    monkeypatch.setattr(search.Search, "_probe", lambda self: pytest.fail("it was started"))
    script = SCRIPT + """
import os
from torch.utils.data import DataLoader, Dataset
class Spool(Dataset):
    def __getitem__(self, i):
        text = open(self.paths[i]).read()
        os.remove(self.paths[i])
        return text
"""
    monkeypatch.setattr(sys.modules[__name__], "SCRIPT", script)
    report = tune()
    assert report.state == "refused" and "cannot be read twice" in report.sentence and report.hint
