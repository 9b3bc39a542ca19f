"""Does the search find what is fast? `python benchmarks/found.py [--short]
[--seconds S] [--json FILE] [NAME ...]`.

Each script is tuned as `stoker tune` does it;
beside that a coarse grid of settings is measured, point by point, and its two best points are measured anew
side by side with what the search found and with the script as it is: the better one counts.
Points that the hooks refuse (samples kept that are drawn anew each time) are left out.
Nothing of class C is on either side. The machine card is measured before:
a machine has it for a month. Twelve scripts are planted faults and optimal ones (tests/faults/dev), six are
real trainings on real data (benchmarks/real.py).
"""

from __future__ import annotations

import argparse
import itertools
import json
import math
import os
import statistics
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path

REPO = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(REPO))

from benchmarks import real  # noqa: E402
from benchmarks.diagnosis import suite  # noqa: E402
from benchmarks.ground import Ground  # noqa: E402
from benchmarks.measure import Row  # noqa: E402
from stoker.base.config import Home  # noqa: E402
from stoker.tune import card as cards  # noqa: E402
from stoker.tune import keep, trial  # noqa: E402
from stoker.tune.race import Entry, Interval, Race  # noqa: E402
from stoker.tune.search import Options, Search  # noqa: E402

PLANTED = (
    "shapes",
    "thumbnails",
    "captions",
    "leaves",
    "recordings",
    "tape_archive",
    "tabular_wide",
    "clicks",
    "sentiment_lstm",
    "well_fed",
    "half_wide",
    "hidden_reads",
)
REAL = ("mnist", "nanogpt", "cifar_resnet_small", "jpeg_folder_classifier", "vae_mnist", "char_rnn")
SHORT = ("shapes",)
POINT_S, FINAL_S = 3.0, 8.0  # seconds of a race of three points, and of the last one
# 18 points, the script as it is among them
WORKERS, FEEDS, THREADS = (0, 2, 4), (None, "batched", "cache"), (1, 2)


@dataclass
class Outcome:
    """One script. ratios are step times, new/old, against the script as it is in the same race."""

    name: str
    state: str
    found: list[str]  # settings, in words
    best: list[str]  # of the grid
    ratio_found: float = 1.0
    ratio_best: float = 1.0
    forecast: float | None = None
    confirmed: float | None = None  # as the search told it
    seconds: float = 0.0
    trials: int = 0
    sentence: str = ""  # of the search
    raced: list = field(default_factory=list)  # [race or confirm, what, [ratio, low, high], pairs]

    @property
    def share(self) -> float:
        """Throughput found over that of the best point."""
        return self.ratio_best / self.ratio_found


def grid(loader: dict | None, short: bool) -> Iterator[dict]:
    """Settings of class A and B; without a loader of the training's only threads are left."""
    workers, feeds, threads = ((2,), (None,), (1,)) if short else (WORKERS, FEEDS, THREADS)
    proof = (loader or {}).get("proof") or {}
    feeds = tuple(feed for feed in feeds if feed is None or proof.get(feed, True) is True)
    if loader is None:
        workers, feeds = (0,), (None,)
    for n, feed, t in itertools.product(workers, feeds, threads):
        knobs = {"workers": n, **({"feed": feed} if feed else {})}
        settings: dict = {"version": 1, "loaders": {loader["id"]: knobs} if loader else {}, "threads": t}
        if feed == "cache":
            settings["cache_bytes"] = 1 << 30
        yield settings


def measure(name: str, seconds: float, short: bool) -> Outcome:
    """Tune one script and measure the grid beside it."""
    with tempfile.TemporaryDirectory(prefix="stoker-found-") as folder:
        where = Home(Path(folder) / "home")
        if name in PLANTED:
            case = next(c for c in suite().cases("dev") if c.name == name)
            words, at = [sys.executable, os.fspath(case.path), *case.args], Path(folder)
        else:
            script = real.ready(name, Path(folder) / "work")
            words, at = script.words, script.folder
        command = trial.read(words, at, dict(os.environ))
        cards.card(where, command)
        report = Search(command, Options(seconds=seconds, force=True, keep=False), where).run()
        loader = next(
            (each for each in report.facts.get("loaders") or () if each.get("train") and each.get("id")), None
        )
        out = Outcome(
            name,
            report.state,
            list(report.kept),
            [],
            forecast=report.forecast,
            confirmed=report.total and report.total.value,
            seconds=report.seconds,
            trials=len(report.trials),
            sentence=report.sentence,
            raced=[[t["trial"], t["name"], t["ratio"], t["pairs"]] for t in report.trials if t.get("ratio")],
        )
        best = _best_of(command, list(grid(loader, short)), trial.rooms(where))
        entries = [Entry("now", {}), *(Entry(f"best {n}", each) for n, each in enumerate(best)),
                   *([Entry("found", report.settings)] if report.settings else [])]
        if len(entries) > 1:
            raced = {
                r.name: r.ratio.value for r in _race(command, entries, trial.rooms(where), FINAL_S) if r.ratio
            }
            out.ratio_found = raced.pop("found", 1.0)
            first = min(raced, key=raced.get, default="")
            if first and raced[first] < 1.0:  # to leave it as it is is a point of the grid too
                out.ratio_best, out.best = raced[first], keep.words(best[int(first.rpartition(" ")[2])])
        return out


def _best_of(command: trial.Command, points: list[dict], parent: Path) -> list[dict]:
    """The two that were fastest in races of three:
    one race is short, and another one may say something else."""
    found: list[tuple[float, dict]] = []
    for three in (points[n:n + 3] for n in range(0, len(points), 3)):
        entries = [Entry("now", {}), *(Entry(str(n), each) for n, each in enumerate(three))]
        found += [
            (r.ratio.value, three[int(r.name)]) for r in _race(command, entries, parent, POINT_S) if r.ratio
        ]
    return [settings for _, settings in sorted(found, key=lambda each: each[0])[:2]]


def _race(command: trial.Command, entries: list[Entry], parent: Path, seconds: float) -> list:
    results = Race(command, entries, parent, warm=24).run(seconds).results[1:]
    return [r for r in results if not r.died and isinstance(r.ratio, Interval)]


def scored(outcomes: list[Outcome]) -> list[Row]:
    """Throughput found against the grid, cost, forecast against what came."""
    shares = [o.share for o in outcomes]
    told = "; ".join(f"{o.name} {o.share:.2f} ({_words(o.found)} against {_words(o.best)})" for o in outcomes)
    rows = [
        Row(
            name="tuner: throughput found / best of a grid, median",
            value=statistics.median(shares),
            target=0.95,
            unit="x",
            best="high",
            n=len(shares),
            detail=told,
        ),
        Row(
            name="tuner: the same, worst",
            value=min(shares),
            target=0.90,
            unit="x",
            best="high",
            n=len(shares),
        ),
        Row(
            name="tuner: seconds of a search, longest",
            value=max(o.seconds for o in outcomes),
            target=60,
            unit="s",
            n=len(shares),
        ),
        Row(
            name="tuner: trials of a search, most",
            value=max(o.trials for o in outcomes),
            target=12,
            unit="",
            n=len(shares),
        ),
    ]
    for what, told_first in (
        ("forecast", [o.forecast for o in outcomes]),
        ("confirmed", [o.confirmed for o in outcomes]),
    ):
        errors = sorted(
            abs(said / o.ratio_found - 1) * 100
            for said, o in zip(told_first, outcomes, strict=True)
            if said and o.found
        )
        if errors:
            rows += [
                Row(
                    name=f"tuner: {what} step time against that of a fresh race, median error",
                    value=statistics.median(errors),
                    target=10,
                    unit="%",
                    n=len(errors),
                    detail=f"largest {errors[-1]:.0f} %",
                ),
                Row(
                    name=f"tuner: the same ({what}), 90th of 100",
                    value=errors[math.ceil(0.9 * len(errors)) - 1],
                    target=25,
                    unit="%",
                    n=len(errors),
                ),
            ]
    return rows


def _words(settings: list[str]) -> str:
    return ", ".join(settings) or "as it is"


def rows(ground: Ground, short: bool) -> list[Row]:
    """For benchmarks/run.py."""
    return scored(
        [measure(name, 15.0 if short else 60.0, short) for name in (SHORT if short else (*PLANTED, *REAL))]
    )


def main() -> None:
    """Print each script as it comes, then the score."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*")
    parser.add_argument("--short", action="store_true", help="one script, one point, 15 seconds")
    parser.add_argument("--seconds", type=float, default=60.0, help="of each search")
    parser.add_argument("--json", type=Path, help="write outcomes and rows here")
    o = parser.parse_args()
    outcomes = []
    for name in o.names or (SHORT if o.short else (*REAL, *PLANTED)):
        outcomes.append(measure(name, min(o.seconds, 15.0) if o.short else o.seconds, o.short))
        print(json.dumps({**asdict(outcomes[-1]), "share": round(outcomes[-1].share, 3)}), flush=True)
    told = scored(outcomes)
    for row in told:
        print(row.line())
    if o.json:
        o.json.write_text(
            json.dumps(
                {"outcomes": [asdict(x) for x in outcomes], "rows": [r.to_json() for r in told]}, indent=2
            )
        )


if __name__ == "__main__":
    main()
