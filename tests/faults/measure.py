"""Measures what each planted fault costs: the script with its fault against the same script repaired, in ABBA order.

    python tests/faults/measure.py [--half dev] [--blocks 2] [NAME ...]

Writes measured.toml of the halves it went through. For a script that must be refused it runs what the truth says of its end, and
where the refused change can be made by hand it makes it and tells whether the script then prints something else.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")
sys.path.insert(0, str(Path(__file__).resolve().parent))
import probe
import suite

HARDLY = 0.15  # a fault that costs less than this of the step is not worth planting
NOTHING = 0.05  # what an optimal script may still gain from batches that cost nothing


def measure(case: suite.Case, blocks: int) -> dict:
    """The facts about one case, as they go into measured.toml."""
    if case.kind == "refuse":
        return _refusal(case)
    if case.measure == "none":
        return {}
    if case.measure == "memory":
        return _memory(case)
    with_it = lambda: _ms(case, case.path, case.steps)  # noqa: E731
    with tempfile.TemporaryDirectory(prefix="repaired-") as folder:
        repaired = Path(folder) / case.path.name
        repaired.write_text(suite.changed(case, case.repair), "utf-8")
        return _compare(with_it, lambda: _ms(case, repaired, case.repaired_steps or case.steps, quiet=True), blocks)


def _compare(with_it: Callable[[], float], without: Callable[[], float], blocks: int) -> dict:
    """Both are ms for the same work. A share is taken within each pair of neighbours in time; what is told is their median and ends."""
    a, b = [], []
    for _ in range(blocks):
        a.append(with_it())
        b += [without(), without()]
        a.append(with_it())
    shares = sorted(1 - y / x for x, y in zip(a, b, strict=True))
    middle = statistics.median
    facts = {"ms_with": middle(a), "ms_without": middle(b), "share": middle(shares), "low": shares[0], "high": shares[-1]}
    return {key: round(value, 3) for key, value in facts.items()} | {"runs": len(a) + len(b)}


def _ms(case: suite.Case, path: Path, steps: int, quiet: bool = False) -> float:
    """Milliseconds for the work of one step of the script as it is. `quiet`: repaired, or as if it had its cores to itself."""
    with suite.neighbour(case.neighbour and not quiet):
        outcome = probe.run(path, args=case.args, steps=case.warm + steps)
    if len(outcome.times) < case.warm + steps:
        ended = f"{outcome.ended} after {len(outcome.times)} steps of {case.warm + steps}"
        raise SystemExit(f"{case.name}: {ended}\n{outcome.error}{outcome.out}")
    return outcome.seconds(case.warm, others=case.crowd and not (quiet and case.neighbour)) / case.steps * 1e3


def _memory(case: suite.Case) -> dict:
    resident = probe.run(case.path, args=case.args, steps=case.warm + 4, memory=True).resident
    return {"mib_before": resident[0] >> 20, "mib_later": max(resident) >> 20, "runs": 1}


def _refusal(case: suite.Case) -> dict:
    outcome = probe.run(case.path, args=case.args, steps=0)
    facts = {"ended": outcome.ended, "steps": len(outcome.times), "runs": 1}
    if not case.unsafe:
        return facts
    again = probe.run(case.path, args=case.args, steps=0)
    with tempfile.TemporaryDirectory(prefix="unsafe-") as folder:
        path = Path(folder) / case.path.name
        path.write_text(suite.changed(case, case.unsafe), "utf-8")
        other = probe.run(path, args=case.args, steps=0)
    return facts | {"repeats": again.out == outcome.out, "unsafe_differs": other.out != outcome.out, "runs": 3}


def _write(half: str, facts: dict[str, dict]) -> None:
    lines = ["# Written by measure.py. share = what the fault costs of the step, by differencing; low and high: of single pairs."]
    order = [case.name for case in suite.cases(half)]
    for name in sorted(facts.keys() & set(order), key=order.index):
        lines += ["", f"[{name}]"] + [f"{key} = {_toml(value)}" for key, value in facts[name].items()]
    (suite.HERE / half / "measured.toml").write_text("\n".join(lines) + "\n", "utf-8")


def _toml(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else f'"{value}"' if isinstance(value, str) else str(value)


def main() -> None:
    """Go through the suite; each result is kept as soon as it is there."""
    parser = argparse.ArgumentParser(description="Measure what each planted fault costs.")
    parser.add_argument("names", nargs="*")
    parser.add_argument("--half", choices=suite.HALVES)
    parser.add_argument("--blocks", type=int, default=2)
    asked = parser.parse_args()
    weak = []
    for case in suite.cases(asked.half or ""):
        if asked.names and case.name not in asked.names:
            continue
        facts = measure(case, asked.blocks)
        _write(case.half, suite.measured(case.half) | ({case.name: facts} if facts else {}))
        print(f"{case.half:6} {case.name:22} {case.cause or case.kind:16} {facts}", flush=True)
        if "share" in facts and (facts["share"] < HARDLY if case.kind == "fault" else facts["share"] > NOTHING):
            weak.append(case.name)
    if weak:
        raise SystemExit(f"not what they are meant to be: {', '.join(weak)}")


if __name__ == "__main__":
    main()
