"""A killed training, brought back by its own means and by exact resume: `python benchmarks/resume_rivals.py [--kills N] [NAME ...]`.

The same scripts, the same seeds of the moments of the kills: once `stoker verify-resume --resume-args` (the script is started again with
its own words in the same folder), once without. `--python`: one that has lightning and accelerate; scripts whose packages are missing
are left out and named. Criu is asked whether this kernel lets it work at all.
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

OWN = Path(__file__).with_name("own_resume")
NANOGPT = (*real.NANOGPT, "--eval_iters=2", "--eval_interval=20", "--n_layer=2", "--n_head=2", "--n_embd=64", "--max_iters=300",
           "--lr_decay_iters=300", "--dropout=0.1", "--always_save_checkpoint=True")  # the last word counts


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
        words = [str(Path(sys.executable).with_name("stoker")), "verify-resume", "--json", "--kills", str(kills), "--for", "40s",
                 *(["--resume-args", rival.again] if own else []), "--", python, *rival.words]
        done = subprocess.run(words, cwd=at, capture_output=True, text=True, env=os.environ, timeout=1800, check=False)
        return json.loads(done.stdout) if done.stdout.strip().startswith("{") else {"verdict": done.stderr.strip()[-200:], "trials": []}


def main() -> None:
    """Print a line for each script and way."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*")
    parser.add_argument("--kills", type=int, default=5)
    parser.add_argument("--python", default=sys.executable)
    o = parser.parse_args()
    for rival in RIVALS:
        if o.names and rival.name not in o.names:
            continue
        if subprocess.run([o.python, "-c", f"import {rival.needs}"], capture_output=True, check=False).returncode:
            print(f"{rival.name:12} left out: {o.python} has no {rival.needs}", flush=True)
            continue
        for own in (True, False):
            told = verified(rival, o.python, o.kills, own)
            equal = sum(not t["different"] for t in told["trials"])
            way = "its own words" if own else "exact resume"
            print(f"{rival.name:12} {way:14} {equal} of {len(told['trials'])} equal  {told['verdict']}", flush=True)
            for trial in [] if own else told["trials"]:  # by its own words nearly all differ
                if trial["different"]:
                    print(f"{'':27} {'; '.join(trial['different'])}", flush=True)
    criu = shutil.which("criu")
    says = subprocess.run([criu, "check"], capture_output=True, text=True, check=False).stderr.strip().splitlines() if criu else []
    print(f"criu         {'; '.join(says[-2:]) if criu else 'is not installed'}")


if __name__ == "__main__":
    main()
