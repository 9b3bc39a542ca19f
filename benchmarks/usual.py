"""Ten training scripts in the usual styles, on real data, through `stoker tune`:
`python benchmarks/run.py --only usual`.

They were written as other people write theirs, without a look at the tuner (tests/tune/usual/README.md).
Each is tuned for 40 seconds; what is counted:
scripts that are refused, files of the user's that were changed or added, and what was claimed to be won.
"""

from __future__ import annotations

import hashlib
import json
import statistics
from pathlib import Path

from benchmarks import real
from benchmarks.ground import Ground
from benchmarks.measure import Row

SECONDS = 40
# two optimizers take turns: documented, and only the diagnosis is given
REFUSED_RIGHTLY = {"gan_mnist": "several_optimizers"}


def rows(ground: Ground, short: bool) -> list[Row]:
    """Ten minutes; the short form has none of them."""
    if short:
        return []
    refused, changed, won, seconds = [], [], [], []
    for name in real.usual().NAMES:
        script = real.ready(name, ground.work / name)
        before = _files(script.folder)
        done = ground.stoker(
            "tune",
            "--json",
            "--force",
            "--for",
            f"{SECONDS}s",
            *script.words,
            cwd=script.folder,
            timeout_s=600,
        )
        told = (
            json.loads(done.stdout)
            if done.stdout.strip()
            else {"state": f"exit code {done.code}", "sentence": done.err.strip()[-200:]}
        )
        if told["state"] not in ("kept", "nothing", "noisy"):
            refused.append(name)
        changed += [f"{name}: {each}" for each in before.items() ^ _files(script.folder).items()]
        total = told.get("total")
        won.append(1 / total["value"] if total else 1.0)
        seconds.append(told.get("seconds") or 0.0)
        kept, says = ", ".join(told.get("kept") or []) or "-", told.get("verdict") or told["sentence"]
        print(f"    {name:<24} {told['state']:<9} {won[-1]:.2f}x  {kept}  |  {says}", flush=True)
    wrongly = [name for name in refused if name not in REFUSED_RIGHTLY]
    rightly = ", ".join(sorted(set(refused) - set(wrongly))) or "none"
    return [
        Row(
            name="ten usual scripts: refused wrongly",
            value=len(wrongly),
            target=0,
            unit="",
            n=len(won),
            detail=f"refused rightly: {rightly}; wrongly: {', '.join(wrongly) or 'none'}",
        ),
        Row(
            name="ten usual scripts: files of the user's that changed",
            value=len(changed),
            target=0,
            unit="",
            n=len(won),
            detail="; ".join(changed)[:200],
        ),
        Row(
            name="ten usual scripts: seconds of a search, longest",
            value=max(seconds),
            target=60,
            unit="s",
            n=len(won),
            detail=(
                f"asked for {SECONDS} s; median of the speed-ups kept {statistics.median(won):.2f}, "
                f"largest {max(won):.2f}"
            ),
        ),
    ]


def _files(folder: Path) -> dict[str, str]:
    found = (path for path in folder.rglob("*") if path.is_file())
    return {
        path.relative_to(folder).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest() for path in found
    }
