"""SIGKILL at random times in trainings of the engine, of many kinds:
`python benchmarks/run.py --only engine-kills`.

tests/engine/test_engine_kills.py is its short form: the same cells with two kills each.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

REPO = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(REPO), str(REPO / "tests" / "engine")]

from enginekit import CELLS, Nursery, Training, differences, kill_moments, timed  # noqa: E402

from benchmarks.ground import Ground  # noqa: E402
from benchmarks.measure import Row  # noqa: E402

KILLS = 100
AT_ONCE = 3  # kills of one training


def campaign(nursery: Nursery, folder: Path, kills: int) -> tuple[int, list[str]]:
    """(kills that met a living process, what did not end as the undisturbed training).
    Cells take turns until there were enough."""
    found: list[str] = []
    straight: dict[int, tuple[dict, float]] = {}
    done = turn = 0
    while done < kills:
        number = turn % len(CELLS)
        name = "-".join(f"{k}{v}" for k, v in CELLS[number].items())
        if number not in straight:
            straight[number] = timed(Training(nursery, folder / f"straight{number}", CELLS[number]))
            control = Training(nursery, folder / f"control{number}", CELLS[number]).run()
            found += (
                [f"{name}: two undisturbed runs differ"] if differences(straight[number][0], control) else []
            )
        wanted, span_s = straight[number]
        killed = Training(nursery, folder / f"killed{turn}", CELLS[number])
        done += sum(
            killed.killed_after(after_s) for after_s in kill_moments(1000 + turn, span_s * 0.9, AT_ONCE)
        )
        differ = differences(wanted, killed.run())
        found += [f"{name}, turn {turn}: {', '.join(differ[:3])}"] if differ else []
        print(f"    {done} kills, {len(found)} differ", flush=True)
        turn += 1
    return done, found


def rows(ground: Ground, short: bool) -> list[Row]:
    """How many of the kills did not end in the bits of an undisturbed training.
    The short form is in the tests."""
    if short:
        return []
    nursery = Nursery()
    try:
        with tempfile.TemporaryDirectory(prefix="stoker-kills-") as folder:
            kills, found = campaign(nursery, Path(folder), KILLS)
    finally:
        nursery.close()
    good = (
        f"{kills} kills in {len(CELLS)} kinds of trainings; all equal in weights, buffers, optimizers, "
        "samples seen, logged numbers"
    )
    return [
        Row(
            name="engine: trainings that ended otherwise after SIGKILLs at random times",
            value=len(found),
            target=0,
            unit="trainings",
            n=kills,
            detail="; ".join(found) or good,
        )
    ]
