"""`stoker sweep --halve METRIC`: ends the worst runs of a sweep early, by Optuna's successive halving on what
Stoker reads of the runs.

The n-th value of the metric is compared with the n-th values of the other runs.
Optuna is optional, and is imported here only.
"""

from __future__ import annotations

import json
import logging
import math
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from stoker.base.errors import InvalidSpec, StokerError
from stoker.base.state import State
from stoker.plane.numbers import comparison, words
from stoker.plane.numbers.curves import Curve
from stoker.plane.numbers.reader import Numbers, chosen
from stoker.plane.present import begun
from stoker.plane.record import Run
from stoker.plane.store import labels
from stoker.plane.store.database import Store

log = logging.getLogger(__name__)

ENDED = "ended-early"  # the tag of a run that was ended; it is not judged again
LOOK_S = 2.0  # between two looks at a sweep that runs
REST = 10  # times what a look took: the pause is at least that
IDLE_S = 15.0  # between two looks at sweeps that do not run
_KEY = "halve/"
_DIRECTIONS = {"min": "minimize", "max": "maximize"}


@dataclass(frozen=True, kw_only=True)
class Asked:
    """metric: its name. better: "min" or "max". after: number of values before the first comparison. runs:
    ids."""

    metric: str
    better: str
    after: int
    runs: tuple[str, ...]


def read(metric: str, after: int, runs: Sequence[str]) -> Asked:
    """Parse `val_loss` or `reward:max`. Raises InvalidSpec if the better direction is not known, or if
    Optuna is missing."""
    name, _, given = metric.rpartition(":")
    if not name or given not in _DIRECTIONS:
        name, given = metric, ""
    better = given or words.better(name)
    if not name or after < 1:
        raise InvalidSpec(
            "--halve takes the name of a metric. --halve-after takes a number of values.",
            hint="--halve val_loss",
        )
    if better is None:
        raise InvalidSpec(f"The name {name!r} does not say whether a small or a large value is better.",
                          hint=f"--halve {name}:min   or   --halve {name}:max")
    _optuna()
    return Asked(metric=name, better=better, after=after, runs=tuple(runs))


def _optuna() -> Any:
    """Raises InvalidSpec."""
    try:
        import optuna
    except ImportError:
        raise InvalidSpec(
            "--halve needs Optuna, which is not installed.", hint="pip install 'stoker[sweep]'"
        ) from None
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    return optuna


class Judge:
    """Decides which runs of one sweep to end. The same values in the same order give the same decisions."""

    def __init__(self, asked: Asked) -> None:
        """Raises InvalidSpec."""
        optuna = _optuna()
        pruner = optuna.pruners.SuccessiveHalvingPruner(min_resource=asked.after, reduction_factor=2)
        self._study = optuna.create_study(direction=_DIRECTIONS[asked.better], pruner=pruner)
        self._trials: dict[str, Any] = {}  # of Optuna
        self._told: dict[str, int] = {}  # run -> values that were judged
        self._ended: set[str] = set()

    def judge(
        self, curves: Mapping[str, Sequence[tuple[float, float | None]]]
    ) -> Iterator[tuple[str, int, float]]:
        """curves: run -> its values so far, each with its time. Yields each run to end, with the number of
        the value and the value that decided."""
        new = [
            (when or 0.0, run, n, value)
            for run, points in curves.items()
            for n, (value, when) in enumerate(points, 1)
            if n > self._told.get(run, 0)
        ]
        for _, run, n, value in sorted(new, key=lambda each: (each[0], each[2])):
            if run not in self._trials:
                self._trials[run] = self._study.ask()
            self._told[run] = n
            if run in self._ended:
                continue
            self._trials[run].report(value, n)
            if self._trials[run].should_prune():
                self._ended.add(run)
                yield run, n, value


class Halver:
    """Checks the sweeps with --halve, in its own thread. The requests are in the store, so the next server
    continues them."""

    def __init__(
        self, store: Store, numbers: Callable[[Run], Numbers], stop: Callable[[str], object]
    ) -> None:
        self._store, self._numbers, self._stop = store, numbers, stop
        self._wake = threading.Event()
        self._closed = False
        self._judges: dict[str, tuple[Asked, Judge]] = {}
        self._thread = threading.Thread(target=self._work, name="halver", daemon=True)
        self._sweeps: dict[str, Asked] = {}

    def start(self) -> None:
        """Continue the requests of earlier servers."""
        with self._store.read() as q:
            self._sweeps = {
                key.removeprefix(_KEY): Asked(**json.loads(text)) for key, text in q.metas_under(_KEY).items()
            }
        self._thread.start()

    def close(self) -> None:
        """Stop the checks; runs continue."""
        self._closed = True
        self._wake.set()
        if self._thread.is_alive():
            self._thread.join(5)

    def halve(self, sweep: str, metric: str, after: int, runs: Sequence[str]) -> dict:
        """End the worst of these runs early. Without runs, only checks the request. Raises InvalidSpec."""
        asked = read(metric, after, runs)
        told = {
            "metric": asked.metric,
            "better": asked.better,
            "after": asked.after,
            "runs": list(asked.runs),
        }
        if runs:
            with self._store.write() as q:
                q.set_meta(f"{_KEY}{sweep}", json.dumps(told))
            self._sweeps = {**self._sweeps, sweep: asked}
            self._wake.set()
        return told

    def _work(self) -> None:
        pause: float | None = 0.0
        while not self._closed:
            self._wake.wait(pause)
            self._wake.clear()
            if self._closed:
                return
            began = time.monotonic()
            active = [self._tried(sweep, asked) for sweep, asked in self._sweeps.items()]
            pause = (
                max(LOOK_S, REST * (time.monotonic() - began)) if any(active) else IDLE_S if active else None
            )

    def _tried(self, sweep: str, asked: Asked) -> bool:
        try:
            return self._look(sweep, asked)
        except StokerError as e:  # a machine does not answer, or Optuna was removed
            log.warning("halving %s: %s", sweep, e.message)
        except Exception:
            log.exception("halving %s", sweep)
        return False

    def _look(self, sweep: str, asked: Asked) -> bool:
        """Whether a run of the sweep runs."""
        with self._store.read() as q:
            runs = {run.id: run for run_id in asked.runs if (run := q.get(run_id)) is not None}
            labelled = labels.of(q, list(runs))
        running = {run_id for run_id, run in runs.items() if run.state is State.RUNNING}
        if not running:
            return False
        held = self._judges.get(sweep)
        if held is None or held[0] != asked:
            held = self._judges[sweep] = (asked, Judge(asked))
        curves = {
            run.id: values
            for run in runs.values()
            if begun(run) and (values := values_of(self._numbers(run), asked.metric))
        }
        for run_id, n, value in held[1].judge(curves):
            tags = labelled.get(run_id, labels.NONE)
            if run_id in running and ENDED not in tags["tags"]:
                self._end(
                    run_id,
                    f"the run was in the worse half of {sweep}, compared by {asked.metric} "
                    f"(value number {n}: {value:.4g})",
                    tags["note"],
                )
        return True

    def _end(self, run_id: str, why: str, note: str) -> None:
        self._stop(run_id)
        with self._store.write() as q:
            labels.change(q, run_id, [ENDED], (), note or f"Ended early: {why}.")
        log.info("%s ended early: %s", run_id, why)


def values_of(numbers: Numbers, metric: str) -> list[tuple[float, float | None]]:
    """Values of a metric, and their times. If a name without a split means several curves, validation
    comes before training."""
    found: list[Curve] = sorted(chosen(numbers.curves, [metric]), key=lambda curve: (
        curve.name.lower() != metric.lower(), comparison.rank(curve.name)))
    return (
        [(value if math.isfinite(value) else math.nan, when) for _, value, when in found[0].points()]
        if found
        else []
    )
