"""Claim: `stoker --help` and `stoker ps` cost a few starts of the bare interpreter;
a run's first line comes soon."""

from __future__ import annotations

import subprocess
import sys
import time

from benchmarks.ground import STOKER, Ground
from benchmarks.measure import Row, abba, difference, milliseconds, ratio, seconds


def commands(ground: Ground, short: bool) -> list[Row]:
    """`--help` and `ps` (server warm, 20 ended runs) against `python -c pass` of the same interpreter."""
    for _ in range(3 if short else 20):
        ground.detach("--", "true")
    pairs = 5 if short else 41

    def call(*argv: str):
        def once() -> float:
            return seconds(
                lambda: subprocess.run(
                    argv, env=ground.env, cwd=ground.work, stdout=subprocess.DEVNULL, check=True
                )
            )
        return once
    rows = []
    for name, argv, target in (
        ("stoker --help", (STOKER, "--help"), 6.0),
        ("stoker ps", (STOKER, "ps"), 12.0),
    ):
        ours, plain = abba(call(*argv), call(sys.executable, "-c", "pass"), pairs)
        value, low, high = ratio(ours, plain)
        rows.append(
            Row(
                name=f"{name} / python -c pass",
                value=value,
                low=low,
                high=high,
                target=target,
                unit="x",
                n=pairs,
                detail=f"{milliseconds(ours)} / {milliseconds(plain)}",
            )
        )
    return rows


def first_line(ground: Ground, short: bool) -> list[Row]:
    """`stoker run -- python -c "print(1)"` to its first line, over plain python: server warm and cold."""
    python = [sys.executable, "-c", "print(1)"]

    def to_first_line(argv: list[str]) -> float:
        began = time.perf_counter()
        with subprocess.Popen(
            argv, env=ground.env, cwd=ground.work, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE
        ) as proc:
            line = proc.stdout.readline()
            took = time.perf_counter() - began
            proc.stdout.read()
        assert (line, proc.returncode) == (b"1\n", 0), (line, proc.returncode)
        return took

    def cold() -> float:
        ground.stoker("server", "stop").ok()
        return to_first_line([STOKER, "run", "--", *python])
    rows = []
    for name, ours, target, pairs in (
        ("warm server", lambda: to_first_line([STOKER, "run", "--", *python]), 180.0, 5 if short else 31),
        ("cold", cold, 800.0, 1 if short else 15),
    ):
        of_us, plain = abba(ours, lambda: to_first_line(python), pairs)
        value, low, high = (x * 1000 for x in difference(of_us, plain))
        rows.append(
            Row(
                name=f"first line of stoker run, {name}: over plain python",
                value=value,
                low=low,
                high=high,
                target=target,
                unit="ms",
                n=pairs,
                detail=f"{milliseconds(of_us)} - {milliseconds(plain)}",
            )
        )
    return rows
