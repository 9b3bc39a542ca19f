"""Claim: a frozen copy of a working folder is quick enough to be used without thinking."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

from benchmarks.ground import Ground
from benchmarks.measure import Row, abba, difference, milliseconds, ratio, seconds


def fill(folder: Path, files: int, size: int) -> None:
    """`files` files of `size` bytes in 20 folders, none like another."""
    block = os.urandom(size + files)
    for i in range(files):
        path = folder / f"part{i % 20}" / f"file{i}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(block[i:i + size])


def frozen(ground: Ground, short: bool) -> list[Row]:
    """The time that `--copy` adds to `stoker run -d`, for many small files;
    and against `cp -a` for a gigabyte."""
    empty, many, big = ground.root / "empty", ground.root / "many", ground.root / "big"
    empty.mkdir()
    fill(many, 2000, 25_000)
    fill(big, 10, 10_000_000 if short else 100_000_000)
    size = sum(p.stat().st_size for p in big.rglob("*") if p.is_file())
    os.sync()

    def copied(folder: Path):
        def once() -> float:
            made: dict = {}
            took = seconds(
                lambda: made.update(ground.detach("--new", "--copy", "--", "true", cwd=folder, timeout_s=120))
            )
            ground.wait_state(made["id"])
            assert len(list(Path(made["folder"], "work").rglob("*.py"))) == len(list(folder.rglob("*.py"))), (
                "the copy is not whole"
            )
            ground.stoker("rm", "--yes", made["id"]).ok()
            return took
        return once

    def cp() -> float:
        target = ground.root / "cp"
        took = seconds(lambda: subprocess.run(["cp", "-a", str(big), str(target)], check=True))
        shutil.rmtree(target)
        return took
    pairs = 1 if short else 11
    of_many, of_empty = abba(copied(many), copied(empty), pairs)
    value, low, high = difference(of_many, of_empty)
    rows = [
        Row(
            name="frozen copy of 2,000 files, 50 MB",
            value=value,
            low=low,
            high=high,
            target=0.5,
            unit="s",
            n=pairs,
            detail=f"{milliseconds(of_many)} with the files - {milliseconds(of_empty)} without",
        )
    ]
    pairs = 1 if short else 7
    of_big, of_cp = abba(copied(big), cp, pairs)
    base = sorted(of_empty)[len(of_empty) // 2]
    value, low, high = ratio(of_cp, [max(0.001, t - base) for t in of_big])
    rows.append(
        Row(
            name=f"frozen copy of {size / 1e9:.1f} GB: rate / cp -a",
            value=value,
            low=low,
            high=high,
            target=0.7,
            unit="x",
            best="high",
            n=pairs,
            detail=f"{milliseconds([t - base for t in of_big])} / {milliseconds(of_cp)}",
        )
    )
    return rows
