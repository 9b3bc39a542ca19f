"""The hooks under other Pythons and torches: `python tests/resume/versions.py PYTHON... [--brief] [--scripts FILE...] [--base FOLDER] [--json FILE]`.

Each PYTHON is an interpreter with torch (and numpy) in it. The hooks are laid out once and run inside of it: some scripts of this folder are
killed and come back, killed twice and come back twice; the clock, settings and a trial of the tuner run beside a small training, which must
print what it prints without them. Where the self test of exact resume turns it off, its sentence is told, and all must be unhurt.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass, field
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))

import harness

HERE = Path(__file__).resolve().parent
SCRIPTS = ("ordinary/cnn_tutorial.py", "ordinary/loader_in_for.py", "ordinary/prefetcher.py", "adversaries/plateau_early_stop.py",
           "adversaries/nested_generators.py", "adversaries/value_stack.py", "adversaries/interchangeable_networks.py",
           "adversaries/worker_transform_rng.py", "adversaries/socket_talk.py")
BRIEF = (0, 2, 3, 4, 7, 8)  # of these, for a version of which the rest is known
WHERE_OFF = 2  # so many of them where exact resume is off: each is told the same
ASK = """
import json, sys
import torch
try:
    import numpy
    numpy = numpy.__version__
except ImportError:
    numpy = ""
print(json.dumps([sys.version.split()[0], torch.__version__, numpy]))
"""
TRAINING = """
import pathlib
import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

class Talk:
    say = print  # no method: a function of C
    def told(self, *words):
        self.say(*words, flush=True)

if __name__ == "__main__":
    talk = Talk()
    here = pathlib.Path(__file__)
    assert here.exists() and here.stat().st_size and any(each == here for each in here.parent.iterdir())
    torch.manual_seed(0)
    x = torch.randn(600, 16)
    loader = DataLoader(TensorDataset(x, x.sum(1, keepdim=True)), batch_size=12, shuffle=True)
    model = nn.Sequential(nn.Linear(16, 64), nn.ReLU(), nn.Dropout(0.1), nn.Linear(64, 1))
    optimizer = torch.optim.Adam(model.parameters(), 1e-3)
    plan = torch.optim.lr_scheduler.StepLR(optimizer, 2, 0.7)
    for epoch in range(EPOCHS):
        model.train()
        for n, (a, b) in enumerate(loader):
            optimizer.zero_grad()
            loss = nn.functional.mse_loss(model(a), b)
            loss.backward()
            optimizer.step()
            if n % 20 == 0:
                talk.told(epoch, n, round(loss.item(), DIGITS), plan.get_last_lr()[0])
        plan.step()
        model.eval()
        with torch.no_grad():
            talk.told("held", round(nn.functional.mse_loss(model(x), x.sum(1, keepdim=True)).item(), DIGITS))
    out = pathlib.Path("made")
    out.mkdir(exist_ok=True)
    torch.save(model.state_dict(), str(out / "model.pt"))
    with (out / "log.txt").open("w") as f:
        f.write("done")
    talk.told("done", np.float32(1.0), sorted(each.name for each in out.iterdir()))
"""
LINE = TRAINING.splitlines().index(next(line for line in TRAINING.splitlines() if "DataLoader(Tensor" in line)) + 1
LOADER = f"train.py:{LINE}#0"
EQUAL = {  # settings that change no number: the output must be the same to the last bit
    "workers": {"loaders": {LOADER: {"workers": 2, "prefetch": 2, "persistent": True}}},
    "batched": {"loaders": {LOADER: {"feed": "batched"}}},
    "cache": {"loaders": {LOADER: {"feed": "cache"}}, "cache_bytes": 1 << 24},
    "threads": {"threads": 1},
}
CLOSE = {"fused": {"fused": True}, "bf16": {"precision": "bf16"}, "compile": {"compile": True}}  # these do


@dataclass
class Row:
    """One thing that was tried under one version."""

    version: str
    what: str
    came: str
    good: bool
    more: str = ""

    def line(self) -> str:
        return f"{self.version:24s} {self.what:34s} {'' if self.good else 'BAD '}{self.came}" + (f"  {self.more}" if self.more else "")


@dataclass
class Ran:
    """One process: how it ended, what it printed, what the hooks told."""

    rc: int
    out: str
    err: str
    records: list[dict] = field(default_factory=list)
    steps: list[dict] = field(default_factory=list)
    facts: dict = field(default_factory=dict)

    @property
    def settings(self) -> dict:
        return next((each["settings"] for each in reversed(self.records) if "settings" in each), {"applied": [], "left": {}})

    def faults(self) -> list[str]:
        """What the hooks say of themselves that they should never have to say."""
        found = [line for line in self.err.splitlines() if line.startswith("stoker:")]
        found += [f"{word}: {each[word]}" for each in self.records for word in ("clock", "probe") if word in each]
        found += [f"settings: {why}" for name, why in self.settings["left"].items() if name == "all" or "Error" in why]
        return found + [f"trial: {each}" for each in self.facts.get("faults", [])]


class Version:
    """All that is tried with one interpreter."""

    def __init__(self, python: str, hooks: Path, base: Path, brief: bool) -> None:
        told = json.loads(subprocess.run([python, "-c", ASK], capture_output=True, text=True, timeout=200, check=True, env=_kept()).stdout.splitlines()[-1])
        self.python, self.hooks, self.base, self.brief = python, hooks, base, brief
        self.name = f"{told[0]} torch {told[1].partition('+')[0]}"
        self.sentence = ""  # of the self test, where it turns exact resume off
        self.rows: list[Row] = []

    def row(self, what: str, came: str, good: bool, more: str = "") -> None:
        self.rows.append(Row(self.name, what, came, good, " ".join(more.split())[:300]))
        print(self.rows[-1].line(), flush=True)

    def run(self, what: str, *, epochs: int = 6, digits: int = 12, settings: dict | None = None, order: dict | None = None, hooked: bool = True, **env: str) -> Ran:
        """The small training in a folder of its own."""
        folder = self.base / what
        shutil.rmtree(folder, ignore_errors=True)
        (folder / "theirs").mkdir(parents=True)
        (folder / "room" / "hooks").mkdir(parents=True)
        (folder / "room" / "outside").mkdir()
        (folder / "theirs" / "train.py").write_text(TRAINING.replace("EPOCHS", str(epochs)).replace("DIGITS", str(digits)))
        env = {**_kept(), "OMP_NUM_THREADS": "1", **env}
        if hooked:
            env |= {"PYTHONPATH": str(self.hooks), "STOKER_HOOKS": str(folder / "room" / "hooks")}
        if settings is not None:
            (folder / "settings.json").write_text(json.dumps({"version": 1, **settings}))
            env["STOKER_SETTINGS"] = str(folder / "settings.json")
        if order is not None:
            (folder / "room" / "order.json").write_text(json.dumps({"steps": 0, "seed": None, "settings": {}, "try": [], **order}))
            env |= {"STOKER_TUNE": str(folder / "room"), "STOKER_RESUME": "off", "STOKER_CLOCK": "steps"}
        done = subprocess.run([self.python, "train.py"], cwd=folder / "theirs", env=env, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=200, check=False)
        ran = Ran(done.returncode, done.stdout, done.stderr, _lines(folder / "room" / "hooks" / "processes.jsonl"), _lines(folder / "room" / "steps.jsonl"))
        if (folder / "room" / "facts.json").exists():
            ran.facts = json.loads((folder / "room" / "facts.json").read_text())
        return ran

    def self_test(self) -> None:
        ran = self.run("self test", epochs=1, STOKER_RESUME="auto", STOKER_RESUME_DIR=str(self.base / "asked"), STOKER_ATTEMPT="1", STOKER_RUN_DIR=str(self.base / "asked run"))
        why = next((each["why"] for each in ran.records if "why" in each), "")
        self.sentence = why
        known = ran.rc == 0 and not ran.faults() and (not why or why.startswith("exact resume does not support"))
        self.row("self test", why or "all parts are there", known, "; ".join(ran.faults()) or ("" if ran.rc == 0 else ran.err[-300:]))

    def beside(self) -> None:
        """Clock, settings and a trial: the script prints what it prints without them."""
        plain = self.run("plain", hooked=False)
        if plain.rc:
            self.row("the training itself", "fails", False, plain.err[-300:])
            return
        ran = self.run("clock")
        kinds = sorted({kind for line in ran.steps for kind in line.get("ms", {})})
        counted = sum(line.get("steps", 0) for line in ran.steps)
        self.row("clock", f"{counted} steps: {', '.join(kinds)}", self.same(plain, ran) and counted == 300 and {"data", "forward", "backward", "optimizer"} <= set(kinds), self.why(plain, ran))
        for name, settings in EQUAL.items() if not self.brief else list(EQUAL.items())[:2]:
            ran = self.run(name, settings=settings)
            self.row(f"settings: {name}", _told(ran), self.same(plain, ran), self.why(plain, ran))
        short = self.run("plain rounded", hooked=False, epochs=2, digits=1)
        for name, settings in CLOSE.items() if not self.brief else list(CLOSE.items())[:2]:
            ran = self.run(name, settings=settings, epochs=2, digits=1)
            self.row(f"settings: {name}", _told(ran), ran.rc == 0 and not ran.faults() and len(ran.out.splitlines()) == len(short.out.splitlines()),
                     "; ".join(ran.faults()) or ("" if ran.rc == 0 else ran.err[-300:]))
        for mode, more in (("probe", {"seconds": 6.0}), ("trial", {"seconds": 2.0, "settings": EQUAL["batched"]})):
            ran = self.run(f"tuner {mode}", epochs=100_000, order={"mode": mode, **more})
            phases = " ".join(dict.fromkeys(each["phase"] for each in ran.facts.get("windows", [])))
            left = {**ran.facts.get("left", {}), **ran.facts.get("failed", {})}
            good = ran.rc == 0 and not ran.faults() and ran.facts.get("ended") == "enough" and not ran.facts.get("failed")
            self.row(f"tuner: {mode}", f"{ran.facts.get('ended')} after {ran.facts.get('steps_seen')} steps; {phases}", good, "; ".join(ran.faults()) or str(left or "") or ran.err[-300:])

    def same(self, plain: Ran, ran: Ran) -> bool:
        return ran.rc == plain.rc and ran.out == plain.out and not ran.faults()

    def why(self, plain: Ran, ran: Ran) -> str:
        if ran.rc != plain.rc:
            return f"exit status {ran.rc}: {ran.err[-300:]}"
        return "; ".join(ran.faults()) or ("" if ran.out == plain.out else harness.first_difference(plain.out.encode(), ran.out.encode()))

    def resumes(self, scripts: list[Path]) -> None:
        for path in scripts if not self.sentence else scripts[:WHERE_OFF]:
            script = harness.read(path)
            stage = harness.Stage(script, self.base / script.name, hooks=self.hooks, every="40steps", python=self.python)
            stage.base.mkdir(parents=True, exist_ok=True)
            straight = stage.plain()
            if straight.rc != script.exit:
                self.row(script.name, "fails by itself", False, straight.err.decode("utf-8", "replace")[-300:])
                continue
            recorded = None if self.brief else stage.recorded()
            if recorded is not None and (differs := straight.differs(recorded, script)):
                self.row(script.name, "RECORDING CHANGED IT", False, "; ".join(differs) + recorded.err.decode("utf-8", "replace")[-300:])
                continue
            plans = [[harness.Kill("image", 0.1)], [harness.Kill("image", 0.0), harness.Kill("image", 0.1)]]
            trials = [stage.trial(plan, straight) for plan in plans[self.brief:]]
            faults = sorted({line for trial in trials for life in trial.lives for line in life.err.decode("utf-8", "replace").splitlines() if "hook failed" in line or "internal error of Stoker's hooks" in line})
            faults += [trial.reason for trial in trials if "internal error of Stoker's hooks" in trial.reason]
            came = ", ".join(trial.outcome for trial in trials)
            good = all(trial.good for trial in trials) and not faults
            good &= script.expected == "either" or bool(self.sentence) or all((trial.outcome == "exact") == (script.expected == "exact") for trial in trials)
            self.row(script.name, came, good, "; ".join(faults) or "; ".join(dict.fromkeys([*(t.reason for t in trials), *(d for t in trials for d in t.differs)])))


def _kept() -> dict[str, str]:
    return {k: v for k, v in os.environ.items() if not k.startswith(("STOKER_", "PYTHON", "PROBE_"))}


def _lines(path: Path) -> list[dict]:
    return [json.loads(line) for line in path.read_text("utf-8").splitlines()] if path.exists() else []


def _told(ran: Ran) -> str:
    told = ran.settings
    return "; ".join([*told["applied"], *(f"{name} left: {why}" for name, why in told["left"].items())]) or "nothing was told"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("pythons", nargs="+", metavar="PYTHON")
    parser.add_argument("--brief", action="store_true", help="fewer scripts and settings, one run each that is killed twice")
    parser.add_argument("--scripts", nargs="*", type=Path)
    parser.add_argument("--no-beside", action="store_true", help="only kill and resume")
    parser.add_argument("--base", type=Path, help="keep everything there")
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    base = (args.base or Path(tempfile.mkdtemp(prefix="st-versions-", dir="/tmp"))).resolve()
    hooks = harness.vendored(base)
    scripts = args.scripts or [HERE / SCRIPTS[n] for n in (BRIEF if args.brief else range(len(SCRIPTS)))]
    rows: list[Row] = []
    for number, python in enumerate(args.pythons):
        version = Version(python, hooks, base / str(number), args.brief)
        version.self_test()
        if not args.no_beside:
            version.beside()
        version.resumes(scripts)
        rows += version.rows
    bad = sum(not row.good for row in rows)
    print(f"{len(rows)} tried under {len(args.pythons)} versions, {bad} bad")
    if args.json:
        args.json.write_text(json.dumps([vars(row) for row in rows], indent=1) + "\n")
    if args.base is None:
        shutil.rmtree(base, ignore_errors=True)
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
