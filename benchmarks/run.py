"""Measure what Stoker claims: `python benchmarks/run.py [--short] [--part 1/2] [--only NAME] [--json FILE]`.

The full form takes a night and writes build/benchmarks.md, anew after each claim, for this machine;
docs/benchmarks.md tells of ours. The short form (minutes, for CI) shows that everything can be measured;
its numbers are rough.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import sqlite3
import sys
import time
import traceback
from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path

sys.path.pop(0)  # this folder: its real.py is not tests/real
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks import (
    attacks,
    batched_path,
    beside,
    cables,
    clock,
    console,
    copying,
    crashes,
    diagnosis,
    engine,
    engine_kills,
    engine_mutation,
    engine_rivals,
    far_figures,
    far_subjects,
    found,
    kill_matrix,
    largest_batch,
    own_files,
    recording_cpu,
    resume,
    resume_cost,
    resume_promise,
    resume_rivals,
    start_up,
    throughput,
    usual,
    waiting,
    zero_edit,
)
from benchmarks.ground import REPO, Ground
from benchmarks.measure import Row, number

CLAIMS: dict[str, Callable[[Ground, bool], Iterable[Row]]] = {
    "commands": start_up.commands,
    "first-line": start_up.first_line,
    "output": throughput.output,
    "beside": beside.training,
    "idle": beside.idle_server,
    "clock": clock.rows,
    "diagnosis": diagnosis.rows,
    "found": found.rows,
    "usual": usual.rows,
    "console": console.rows,
    "engine": engine.rows,
    "engine-mutation": engine_mutation.rows,
    "engine-kills": engine_kills.rows,
    "engine-rivals": engine_rivals.rows,
    "zero-edit": zero_edit.rows,
    "batched-path": batched_path.rows,
    "largest-batch": largest_batch.rows,
    "copy": copying.frozen,
    "crashes": crashes.rows,
    "queue": waiting.thousand,
    "resume-cost": resume_cost.rows,
    "recording-cpu": recording_cpu.rows,
    **resume.CLAIMS,
    "far-subjects": far_subjects.rows,
    "cables": cables.rows,
    "far": far_figures.rows,
    "own-files": own_files.rows,
    "resume-promise": resume_promise.rows,
    "resume-rivals": resume_rivals.rows,
    "attacks": attacks.rows,
    "kill-server": kill_matrix.server,
    "kill-agent": kill_matrix.agent,
    "kill-all": kill_matrix.machine,
}
PACKAGES = ("stoker", "click", "starlette", "uvicorn", "sqlalchemy")
PAGE = REPO / "build" / "benchmarks.md"


def machine() -> dict:
    """What the numbers were measured on."""
    facts = {line.partition(":")[0].strip(): line.partition(":")[2].strip()
             for name in ("cpuinfo", "meminfo") for line in Path("/proc", name).read_text().splitlines()}
    return {
        "cores": len(os.sched_getaffinity(0)),
        "cpu": facts.get("model name", "unknown"),
        "memory_bytes": int(facts["MemTotal"].split()[0]) * 1024,
        "kernel": platform.release(),
        "python": platform.python_version(),
        "sqlite": sqlite3.sqlite_version,
        **{name: metadata.version(name) for name in PACKAGES},
        "load_before": round(os.getloadavg()[0], 2),
    }


def measure(
    names: list[str], short: bool, keep: Callable[[list[dict], list[str]], None]
) -> tuple[list[dict], list[str]]:
    """The rows of every claim, printed as they come; and what could not be measured.
    Each claim has a ground of its own; `keep` gets what there is after each."""
    rows: list[dict] = []
    failures: list[str] = []
    for name in names:
        began = time.monotonic()
        print(f"\n{name}", flush=True)
        ground = Ground()
        try:
            for row in CLAIMS[name](ground, short):
                rows.append({"claim": name, **row.to_json()})
                print("  " + row.line(), flush=True)
        except Exception as e:
            traceback.print_exc()
            failures.append(f"{name}: {type(e).__name__}: {str(e).splitlines()[0] if str(e) else ''}")
        finally:
            left = ground.close()
        if left:
            failures.append(f"{name}: processes were left behind: {'; '.join(left)[:300]}")
        print(f"  ({time.monotonic() - began:.0f} s)", flush=True)
        keep(rows, failures)
    return rows, failures


def page(rows: list[dict], failures: list[str], where: dict, took_s: float) -> str:
    """A page of what this run has measured."""
    lines = [
        "# Benchmarks",
        "",
        (
            f"Measured {datetime.now(UTC):%Y-%m-%d} by `make bench` in {took_s / 60:.0f} minutes, in one "
            "run, both sides of every ratio"
        ),
        "side by side (ABBA order, medians, 95 % interval by bootstrap).",
        "",
        f"Machine: {where['cores']} cores ({where['cpu']}), {where['memory_bytes'] / 1e9:.0f} GB, Linux "
        f"{where['kernel']}, "
        f"load {where['load_before']} at the start.",
        (
            f"Python {where['python']}, SQLite {where['sqlite']}, "
            f"{', '.join(f'{k} {where[k]}' for k in PACKAGES)}."
        ),
        "",
        "| what | measured | 95 % interval | target | | n | sides |",
        "|---|---|---|---|---|---|---|",
    ]
    for row in rows:
        sign = "<=" if row["best"] == "low" else ">="
        unit = row["unit"] if row["unit"] in ("x", "%") else f" {row['unit']}" if row["unit"] else ""
        spread = f"{number(row['low'])} to {number(row['high'])}" if row["low"] is not None else ""
        detail = row["detail"].replace("|", "\\|").replace("\n", " ")
        target = "" if row["target"] is None else f"{sign} {number(row['target'])}{unit}"
        verdict = "" if row["target"] is None else "met" if row["met"] else "**missed**"
        cells = (row["name"], number(row["value"]) + unit, spread, target, verdict, str(row["n"]), detail)
        lines.append(f"| {' | '.join(cells)} |")
    missed = [
        (
            f"- {row['name']}: {number(row['value'])} instead of {number(row['target'])} {row['unit']} "
            f"({row['detail']})"
        )
        for row in rows
        if not row["met"]
    ]
    lines += ["", "## Missed targets", "", *(missed or ["None in this run."])]
    if failures:
        lines += ["", "## Not measured", "", *[f"- {text}" for text in failures]]
    return "\n".join(lines) + "\n"


def part_of(names: list[str], part: str) -> list[str]:
    """Every second claim for "1/2" and the others for "2/2":
    what runs side by side where the numbers do not matter. "": all.

    Raises ValueError for anything else.
    """
    if not part:
        return names
    number_of, parts = map(int, part.split("/"))
    if not 1 <= number_of <= parts:
        raise ValueError(f"{part} is not a part")
    return names[number_of - 1::parts]


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--short", action="store_true", help="small sizes, minutes in all, no page")
    parser.add_argument(
        "--part", default="", metavar="K/N", help="every N-th claim, from the K-th; with --short"
    )
    parser.add_argument(
        "--only", action="append", choices=list(CLAIMS), help="one claim (may be given again); no page"
    )
    parser.add_argument("--json", metavar="FILE", help="write machine and rows there")
    args = parser.parse_args()
    if args.part and not args.short:
        parser.error("--part needs --short: a number is measured alone")
    where, began = machine(), time.monotonic()
    print(", ".join(f"{k} {v}" for k, v in where.items()))

    def keep(rows: list[dict], failures: list[str]) -> None:
        took = time.monotonic() - began
        if args.json:
            body = {"machine": where, "short": args.short, "took_s": took, "rows": rows, "failures": failures}
            Path(args.json).write_text(json.dumps(body, indent=1) + "\n")
        if not args.short and not args.only:
            PAGE.parent.mkdir(exist_ok=True)
            PAGE.write_text(page(rows, failures, where, took))

    rows, failures = measure(part_of(args.only or list(CLAIMS), args.part), args.short, keep)
    missed = sum(not row["met"] for row in rows)
    print(
        f"\n{len(rows)} numbers, {missed} targets missed, {len(failures)} failures, "
        f"{time.monotonic() - began:.0f} s"
    )
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
