"""A killed training, brought back by its own means and by exact resume:
`python benchmarks/resume_rivals.py [--kills N] [NAME ...]`;
with the packages that are there it is also a claim of `make bench` (`benchmarks/run.py --only
resume-rivals`).

The same scripts, the same seeds of the moments of the kills:
once `stoker verify-resume --resume-args` (the script is started again with its own words in the same folder),
once without. `--python`: one that has lightning and accelerate;
scripts whose packages are missing are left out and named.
Criu is asked whether this kernel lets it work at all.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

REPO = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(REPO))

from benchmarks import real  # noqa: E402
from benchmarks.ground import Ground  # noqa: E402
from benchmarks.measure import Row  # noqa: E402

KILLS = 5
OWN = Path(__file__).with_name("own_resume")
NANOGPT = (
    *real.NANOGPT,
    "--eval_iters=2",
    "--eval_interval=20",
    "--n_layer=2",
    "--n_head=2",
    "--n_embd=64",
    "--max_iters=300",
    "--lr_decay_iters=300",
    "--dropout=0.1",
    "--always_save_checkpoint=True",
)  # the last word counts


@dataclass(frozen=True)
class Rival:
    """A script, and the words by which it comes back by itself."""

    name: str
    needs: str
    words: tuple[str, ...]
    again: str


RIVALS = (
    Rival("plain", "torch", ("plain.py",), "--resume last.pt"),
    Rival("accelerate", "accelerate", ("accelerated.py",), "--resume"),
    Rival("lightning", "lightning", ("lightning_fit.py",), "--resume"),
    Rival("nanogpt", "torch", ("train.py", *NANOGPT), "--init_from=resume"),
)


def verified(rival: Rival, python: str, kills: int, own: bool) -> dict:
    """The JSON of `stoker verify-resume`, in a folder of its own."""
    with tempfile.TemporaryDirectory(prefix="stoker-own-") as folder:
        at = Path(folder)
        if rival.name == "nanogpt":
            at = real.ready("nanogpt", at / "work").folder
        else:
            shutil.copyfile(OWN / rival.words[0], at / rival.words[0])
        words = [
            str(Path(sys.executable).with_name("stoker")),
            "verify-resume",
            "--json",
            "--kills",
            str(kills),
            "--for",
            "40s",
            *(["--resume-args", rival.again] if own else []),
            "--",
            python,
            *rival.words,
        ]
        done = subprocess.run(
            words, cwd=at, capture_output=True, text=True, env=os.environ, timeout=1800, check=False
        )
        return (
            json.loads(done.stdout)
            if done.stdout.strip().startswith("{")
            else {"verdict": done.stderr.strip()[-200:], "trials": []}
        )


def has(python: str, package: str) -> bool:
    return not subprocess.run(
        [python, "-c", f"import {package}"], capture_output=True, check=False
    ).returncode


def both_ways(rival: Rival, python: str, kills: int) -> tuple[dict, dict]:
    """What came of the kills by the script's own words, and by exact resume; printed as it comes."""
    told = []
    for own in (True, False):
        told.append(verified(rival, python, kills, own))
        way = "its own words" if own else "exact resume"
        print(
            (
                f"{rival.name:12} {way:14} {equal(told[-1])} of {len(told[-1]['trials'])} equal  "
                f"{told[-1]['verdict']}"
            ),
            flush=True,
        )
        for trial in [] if own else told[-1]["trials"]:  # by its own words nearly all differ
            if trial["different"]:
                print(f"{'':27} {'; '.join(trial['different'])}", flush=True)
    return told[0], told[1]


def equal(report: dict) -> int:
    return sum(not trial["different"] for trial in report["trials"])


def rows(ground: Ground | None, short: bool) -> list[Row]:
    """For the page of all benchmarks: of each script that can run here, how many kills did not end equal by
    exact resume."""
    found = []
    for rival in () if short else RIVALS:
        if has(sys.executable, rival.needs) and (rival.name != "nanogpt" or real.SHARED.is_dir()):
            own, exact = both_ways(rival, sys.executable, KILLS)
            found.append(
                Row(
                    name=f"{rival.name}: kills that did not end equal by exact resume",
                    value=KILLS - equal(exact),
                    target=0,
                    unit="trials",
                    n=len(exact["trials"]),
                    detail=(
                        f"{exact['verdict']}; by its own words ({rival.again}) {equal(own)} of "
                        f"{len(own['trials'])} are equal"
                    ),
                )
            )
    return found


def main() -> None:
    """Print a line for each script and way."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*")
    parser.add_argument("--kills", type=int, default=KILLS)
    parser.add_argument("--python", default=sys.executable)
    o = parser.parse_args()
    for rival in RIVALS:
        if o.names and rival.name not in o.names:
            continue
        if has(o.python, rival.needs):
            both_ways(rival, o.python, o.kills)
        else:
            print(f"{rival.name:12} left out: {o.python} has no {rival.needs}", flush=True)
    criu = shutil.which("criu")
    says = (
        subprocess.run([criu, "check"], capture_output=True, text=True, check=False)
        .stderr.strip()
        .splitlines()
        if criu
        else []
    )
    print(f"criu         {'; '.join(says[-2:]) if criu else 'is not installed'}")


if __name__ == "__main__":
    main()
