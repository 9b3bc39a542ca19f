"""The engine's kill test for other libraries too:
`python benchmarks/engine_rivals.py [NAME ...] [--trials N] [--python PYTHON]`.

One small training (benchmarks/own_engine/task.py), written with each library as its documentation says.
It is killed by SIGKILL at a random time after its first checkpoint, then the same command runs again.
Exact means: all weights and buffers equal those of an undisturbed run.
Two undisturbed runs have to be equal first. `--python`: an interpreter that has the libraries;
those that are missing are named. Then the time that each adds to a step of a tiny model.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

REPO = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(REPO), str(REPO / "tests" / "engine")]

from enginekit import Nursery, Training  # noqa: E402

from benchmarks.ground import Ground  # noqa: E402
from benchmarks.measure import Row  # noqa: E402

TRIALS = 3
COST = (1000, 7)  # steps, turns
OWN = Path(__file__).with_name("own_engine")
VARIANTS = {
    "augment + dropout": {"augment": True, "dropout": True},
    "dropout only": {"augment": False, "dropout": True},
    "neither": {"augment": False, "dropout": False},
}


@dataclass(frozen=True)
class Rival:
    """A library and how it is used. saved: files that are there once a checkpoint is."""

    name: str
    script: str
    needs: tuple[str, ...]  # distribution: the first one's version is shown
    modules: str
    saved: str
    options: tuple[tuple[str, bool], ...] = ()


RIVALS = (
    Rival("stoker.Engine", "by_stoker.py", ("torch",), "", "run/step-*[1-9]"),
    Rival("Lightning", "by_lightning.py", ("lightning",), "lightning.pytorch", "saved/last.ckpt"),
    Rival(
        "Lightning, StatefulDataLoader",
        "by_lightning.py",
        ("lightning", "torchdata"),
        "torchdata.stateful_dataloader",
        "saved/last.ckpt",
        (("stateful", True),),
    ),
    Rival("Accelerate", "by_accelerate.py", ("accelerate",), "accelerate", "state.json"),
    Rival(
        "Accelerate, stateful loader",
        "by_accelerate.py",
        ("accelerate", "torchdata"),
        "",
        "state.json",
        (("stateful", True),),
    ),
    Rival(
        "Ignite, DeterministicEngine",
        "by_ignite.py",
        ("pytorch-ignite",),
        "ignite.engine,ignite.handlers",
        "saved/checkpoint_*.pt",
    ),
)


def versions(python: str) -> dict[str, str]:
    """Distribution -> version, of those that are installed there."""
    names = sorted({name for rival in RIVALS for name in rival.needs})
    code = (
        "import json, sys, importlib.metadata as m\nfound = {}\nfor n in sys.argv[1:]:\n    try: "
        "found[n] = m.version(n)\n"
        "    except m.PackageNotFoundError: pass\nprint(json.dumps(found))"
    )
    return json.loads(
        subprocess.run([python, "-c", code, *names], capture_output=True, text=True, check=True).stdout
    )


class One:
    """A rival with one variant of the training."""

    def __init__(self, nursery: Nursery, folder: Path, rival: Rival, variant: str) -> None:
        self.nursery = nursery
        self.folder = folder
        self.rival = rival
        self.options = {**VARIANTS[variant], **dict(rival.options)}

    def training(self, name: str) -> Training:
        made = Training(self.nursery, self.folder / name, self.options)
        made.script = OWN / self.rival.script
        return made

    def digest(self, training: Training) -> str:
        """What it came to. Raises AssertionError if it failed."""
        codes = training.live()
        lines = [line for line in training.text().splitlines() if line.startswith("RESULT")]
        assert codes == [0] and lines, f"exit codes {codes}: {training.text()[-600:]}"
        return lines[-1]

    def outcome(self, trials: int, dice: random.Random) -> str:
        """"3 of 3", or why nothing can be said."""
        try:
            began = time.monotonic()
            wanted = self.digest(self.training("straight"))
            span_s = time.monotonic() - began
            if self.digest(self.training("control")) != wanted:
                return "two undisturbed runs differ"
        except AssertionError as e:
            print(f"      {self.rival.name}: {e}", file=sys.stderr, flush=True)
            return f"fails: {str(e).splitlines()[0][:80]}"
        equal = failed = 0
        for n in range(trials):
            killed = self.killed(span_s, dice, n)
            try:
                equal += self.digest(killed) == wanted
            except AssertionError as e:
                failed += 1
                print(f"      {self.rival.name}: {e}", file=sys.stderr, flush=True)
        return f"{equal} of {trials}" + (f", {failed} failed" if failed else "")

    def killed(self, span_s: float, dice: random.Random, number: int) -> Training:
        """A training that was killed after its first checkpoint, before its end."""
        for attempt in range(9):
            training = self.training(f"killed{number}-{attempt}")
            pid, = training.start()
            deadline = time.monotonic() + 100
            while not any(training.folder.glob(self.rival.saved)) and time.monotonic() < deadline:
                if self.nursery.wait(pid, 0.01) is not None:
                    break
            ended = self.nursery.wait(pid, dice.uniform(0.0, 0.6 * span_s))
            training.kill([pid])
            if ended is None:
                return training
        raise AssertionError(
            f"{self.rival.name} could not be killed before its end: {training.text()[-600:]}"
        )


def table(python: str, trials: int, names: list[str] | None = None) -> list[tuple[str, list[str]]]:
    """(name with version, an outcome for each variant), printed as they come. names:
    rivals whose names begin so; all by default."""
    found = versions(python)
    imports = ",".join(
        dict.fromkeys(r.modules for r in RIVALS if r.modules and all(n in found for n in r.needs))
    )
    nursery = Nursery(python, NURSERY_IMPORTS=imports)
    lines = []
    try:
        for rival in (r for r in RIVALS if not names or r.name.startswith(tuple(names))):
            missing = [name for name in rival.needs if name not in found]
            if missing:
                lines.append((rival.name, [f"skipped: no {missing[0]}"] * len(VARIANTS)))
            else:
                name = f"{rival.name} ({', '.join(f'{n} {found[n]}' for n in rival.needs)})"
                dice = random.Random(25)
                with tempfile.TemporaryDirectory(prefix="stoker-rivals-") as folder:
                    of = [
                        One(nursery, Path(folder) / str(n), rival, variant)
                        for n, variant in enumerate(VARIANTS)
                    ]
                    lines.append((name, [one.outcome(trials, dice) for one in of]))
            print(f"    | {lines[-1][0]} | {' | '.join(lines[-1][1])} |", flush=True)
    finally:
        nursery.close()
    return lines


def costs(python: str, steps: int, turns: int) -> dict[str, float]:
    """Library -> microseconds of CPU time that it adds to a step; "raw" is the step itself. Medians."""
    with tempfile.TemporaryDirectory(prefix="stoker-rivals-") as folder:
        env = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(REPO / "src")}
        done = subprocess.run(
            [python, str(OWN / "cost.py"), str(steps), str(turns)],
            cwd=folder,
            env=env,
            capture_output=True,
            text=True,
            timeout=1200,
            check=False,
        )
    if done.returncode:
        raise RuntimeError(done.stderr[-2000:])
    found = {
        name: statistics.median(values) for name, values in json.loads(done.stdout.splitlines()[-1]).items()
    }
    return {name: value if name == "raw" else value - found["raw"] for name, value in found.items()}


def rows(ground: Ground, short: bool) -> list[Row]:
    """The engine's own kills that did not end equal;
    the outcomes of the libraries that are installed beside it."""
    if short:
        return []
    lines = table(sys.executable, TRIALS)
    own = lines[0][1]
    told = "; ".join(f"{name}: {', '.join(outcomes)}" for name, outcomes in lines[1:])
    inexact = sum(outcome != f"{TRIALS} of {TRIALS}" for outcome in own)
    made = [
        Row(
            name="engine: variants of the rival table that are not exact",
            value=inexact,
            target=0,
            unit="variants",
            n=len(own) * TRIALS,
            detail=f"{', '.join(VARIANTS)}; {told}",
        )
    ]
    added = costs(sys.executable, *COST)
    for name, target in (("lightning", 10), ("accelerate", 3)):
        if name in added:
            sides = f"{added[name]:.0f} against {added['stoker.Engine']:.0f} us; raw {added['raw']:.0f} us"
            made.append(
                Row(
                    name=f"engine: time that {name} adds to a step, over that of the engine",
                    target=target,
                    unit="x",
                    best="high",
                    value=added[name] / added["stoker.Engine"],
                    n=COST[1],
                    detail=sides,
                )
            )
    return made


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*")
    parser.add_argument("--trials", type=int, default=TRIALS)
    parser.add_argument("--python", default=sys.executable)
    o = parser.parse_args()
    print(f"| library | {' | '.join(VARIANTS)} |\n|---|{'---|' * len(VARIANTS)}", flush=True)
    table(o.python, o.trials, o.names)
    print(", ".join(f"{name} {value:+.1f} us" for name, value in costs(o.python, *COST).items()))


if __name__ == "__main__":
    main()
