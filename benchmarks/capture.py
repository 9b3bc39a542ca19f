"""What capturing a number costs the thread that trains: `python benchmarks/capture.py [PAIRS]`.

Steps of 1 ms, each hands one value to a SummaryWriter; CPU time of the thread within that call, with Stoker's
capture and without, in pairs (ABBA). Also the time that the import of the capture takes.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

from stoker.base.vendor import SOURCE

STEPS = 3000
SCRIPT = """
import os, sys, time
began = time.perf_counter()
if os.environ["CAPTURE"] == "yes":
    sys.path.insert(0, os.environ["SOURCE"])
    import inside.numbers
    inside.numbers.watch()
imported = time.perf_counter() - began
from torch.utils.tensorboard import SummaryWriter
writer = SummaryWriter("events")
spent = 0
for step in range(int(os.environ["STEPS"])):
    end = time.perf_counter() + 0.001
    while time.perf_counter() < end:
        pass
    before = time.thread_time_ns()
    writer.add_scalar("loss", 1 / (step + 1), step)
    spent += time.thread_time_ns() - before
print(spent / 1000 / int(os.environ["STEPS"]), 1000 * imported)
"""


def child(folder: Path, capture: bool) -> tuple[float, float]:
    """(microseconds of a call, milliseconds of the import)."""
    folder.mkdir()
    asked = {"CAPTURE": "yes" if capture else "no", "SOURCE": str(SOURCE.parent), "STEPS": str(STEPS)}
    env = {**os.environ, **asked, "STOKER_HOOKS": str(folder)}
    command = [sys.executable, "-c", SCRIPT]
    done = subprocess.run(command, cwd=folder, env=env, stdout=subprocess.PIPE, check=True)
    if capture:
        assert (folder / "numbers.jsonl").read_text("ascii").count('"loss"') == STEPS
    call, imported = done.stdout.split()
    return float(call), float(imported)


def main() -> int:
    pairs = int(sys.argv[1]) if len(sys.argv) > 1 else 6
    added, imports = [], []
    with tempfile.TemporaryDirectory() as place:
        for n in range(pairs):
            found = {}
            for capture in (True, False) if n % 2 else (False, True):
                found[capture] = child(Path(place, f"{n}{capture}"), capture)
            added.append(found[True][0] - found[False][0])
            imports.append(found[True][1])
            print(f"a call {found[False][0]:.1f} us, captured {found[True][0]:.1f} us")
    middle = statistics.median(added)
    print(f"added to a call: {middle:.1f} us ({min(added):.1f} to {max(added):.1f})")
    print(f"import: {statistics.median(imports):.1f} ms")
    return 0


if __name__ == "__main__":
    sys.exit(main())
