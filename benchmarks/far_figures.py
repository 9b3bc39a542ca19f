"""Claim: a machine behind ssh costs little more than ssh itself: first line, `show`, sending code.
The rest is in far_streams.

The machines are network namespaces with an sshd each, on this machine.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from benchmarks import far, far_streams
from benchmarks.copying import fill
from benchmarks.ground import STOKER, Ground, until
from benchmarks.measure import Row, abba, difference, milliseconds, ratio, seconds

FILES, SIZE = 2000, 25_000  # of the folder that is sent


def rows(ground: Ground, short: bool) -> Iterator[Row]:
    """Everything, each row when it is known; in the short form the first line once."""
    with far.machines(ground, 1, short=False) as machines:
        yield from first_line(ground, machines[0], 1 if short else 15, warm_only=short)
        if short:
            return
        yield from looking(ground, machines[0], 15)
        yield from sending(ground, machines[0], 7)
        yield from far_streams.logs(ground, 30, 60, 100_000_000)
        yield from far_streams.many_followers(ground, 13, 10.0)
        yield from far_streams.outputs(ground, machines[0], 200, 5_000_000)
    yield from far_streams.fleet(ground, 20, 200)


def first_line(ground: Ground, machine: far.Far, pairs: int, warm_only: bool = False) -> list[Row]:
    """`stoker run --on box -- python3 -c "print(1)"` to its first line, over the same by plain ssh;
    also with no server before."""
    command = ["python3", "-c", "print(1)"]
    ours = [STOKER, "run", "--new", "--on", "far0", "--", *command]
    plain = [*_ssh(machine), "python3 -c 'print(1)'"]

    def once(argv: list[str]) -> float:
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
        return once(ours)

    rows = [
        _over(
            "first line of stoker run --on, warm: over plain ssh",
            lambda: once(ours),
            lambda: once(plain),
            0.7,
            pairs,
        )
    ]
    if not warm_only:
        rows.append(
            _over(
                "first line of stoker run --on, no server before: over plain ssh",
                cold,
                lambda: once(plain),
                3.0,
                pairs,
            )
        )
    return rows


def looking(ground: Ground, machine: far.Far, pairs: int) -> list[Row]:
    """`show`, `ps` and `logs --tail` of a run that goes on there, over plain `ssh box true`."""
    run = ground.detach(
        "--new", "--on", "far0", "--name", "looked-at", "--", "sh", "-c", "seq 1000; exec sleep 3000"
    )
    until(lambda: b"1000" in ground.stoker("logs", "--tail", "1", run["id"]).stdout, 60, "its lines")

    def call(argv: list[str]) -> Callable[[], float]:
        return lambda: seconds(
            lambda: subprocess.run(
                argv, env=ground.env, cwd=ground.work, stdout=subprocess.DEVNULL, check=True
            )
        )
    plain = call([*_ssh(machine), "true"])
    rows = [
        _over(
            f"stoker {' '.join(words)} of a run there: over ssh box true",
            call([STOKER, *words, *of]),
            plain,
            0.5,
            pairs,
        )
        for words, of in ((("show",), (run["id"],)), (("ps",), ()), (("logs", "--tail", "10"), (run["id"],)))
    ]
    ground.stoker("stop", "--force", run["id"]).ok()
    return rows


def sending(ground: Ground, machine: far.Far, pairs: int, files: int = FILES) -> list[Row]:
    """A folder of 2,000 files, 50 MB: sent the first time, unchanged, and with one file changed.
    What `stoker run` of an empty folder takes is taken off."""
    folder, empty, there = ground.root / "code", ground.root / "empty", ground.root / "tar-there"
    empty.mkdir()
    fresh(folder, files)

    def run_in(place: Path) -> float:
        argv = [STOKER, "run", "--new", "--no-hooks", "--on", "far0", "--", "true"]

        def once() -> None:
            done = subprocess.run(
                argv, env=ground.env, cwd=place, check=False, stdin=subprocess.DEVNULL, capture_output=True
            )
            assert done.returncode == 0, done.stderr.decode()
        return seconds(once)

    def first() -> float:
        fresh(folder, files)
        return run_in(folder)

    def tar() -> float:
        fresh(folder, files)
        shutil.rmtree(there, ignore_errors=True)
        there.mkdir()
        ssh = subprocess.list2cmdline(_ssh(machine))
        script = f"tar -C '{folder}' -cf - . | {ssh} \"tar -C '{there}' -xf -\""
        return seconds(lambda: subprocess.run(["sh", "-c", script], env=ground.env, check=True))

    def changed() -> float:
        (folder / "part0" / "file0.py").write_bytes(os.urandom(SIZE))
        return run_in(folder)
    run_in(empty)
    of_first, of_tar = abba(first, tar, pairs)
    of_same, of_empty = abba(lambda: run_in(folder), lambda: run_in(empty), pairs)
    of_changed, of_empty_too = abba(changed, lambda: run_in(empty), pairs)
    base = sorted(of_empty)[len(of_empty) // 2]
    value, low, high = ratio(of_tar, [max(0.001, each - base) for each in of_first])
    name = f"sending {files:,} files, {files * SIZE / 1e6:.0f} MB"
    rows = [
        Row(
            name=f"{name}: rate / tar over ssh",
            value=value,
            low=low,
            high=high,
            target=0.5,
            unit="x",
            best="high",
            n=pairs,
            detail=f"{milliseconds(of_first)} - {base * 1000:.0f} ms / {milliseconds(of_tar)}",
        )
    ]
    for what, ours, nothing, target in (
        ("unchanged", of_same, of_empty, 0.5),
        ("one file changed", of_changed, of_empty_too, 0.7),
    ):
        value, low, high = difference(ours, nothing)
        rows.append(
            Row(
                name=f"{name}, {what}: over an empty folder",
                value=value,
                low=low,
                high=high,
                target=target,
                unit="s",
                n=pairs,
                detail=f"{milliseconds(ours)} - {milliseconds(nothing)}",
            )
        )
    return rows


def fresh(folder: Path, files: int) -> None:
    """The folder with other content, on disk."""
    shutil.rmtree(folder, ignore_errors=True)
    fill(folder, files, SIZE)
    os.sync()


def _over(name: str, ours: Callable[[], float], plain: Callable[[], float], target: float, pairs: int) -> Row:
    of_us, of_plain = abba(ours, plain, pairs)
    value, low, high = difference(of_us, of_plain)
    return Row(name=name, value=value, low=low, high=high, target=target, unit="s", n=pairs,
               detail=f"{milliseconds(of_us)} - {milliseconds(of_plain)}")


def _ssh(machine: far.Far) -> list[str]:
    return ["ssh", "-o", "BatchMode=yes", *far.settings(machine, far.NORMAL)]
