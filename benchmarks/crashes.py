"""Does a crash read as under plain python? `python benchmarks/run.py --only crashes`.

45 scripts of tests/crashes/scripts, three for each of 15 kinds of errors, were written without a look at the
hooks. Each runs under plain python and under `stoker run`;
compared are stderr (with stdout and the exit code), and the place that `stoker show` names.
"""

from __future__ import annotations

import importlib.util
import sys
from types import ModuleType

from benchmarks.ground import REPO, Ground
from benchmarks.measure import Row

SHORT = ("forward_1", "json_1", "interrupt_1")  # with torch, without it, by a signal


def judge() -> ModuleType:
    """tests/crashes/judge.py, which is in no package."""
    spec = importlib.util.spec_from_file_location("crash_judge", REPO / "tests" / "crashes" / "judge.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules["crash_judge"] = module
    spec.loader.exec_module(module)
    return module


def rows(ground: Ground, short: bool) -> list[Row]:
    """Five minutes; the short form tries three scripts."""
    judging = judge()
    verdicts = list(judging.verdicts(ground, SHORT if short else judging.NAMES))
    unlike = [v.name for v in verdicts if v.unlike]
    wrong = [v.name for v in verdicts if v.reason]
    return [
        _row("crashing scripts: stderr equal", len(verdicts), unlike),
        _row("crashing scripts: reason right", len(verdicts), wrong),
    ]


def _row(name: str, n: int, missed: list[str]) -> Row:
    return Row(
        name=name,
        value=n - len(missed),
        target=n,
        unit="",
        best="high",
        n=n,
        detail=f"not: {', '.join(missed) or 'none'}",
    )
