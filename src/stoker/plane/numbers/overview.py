"""What the verbs tell about the numbers of runs:
curves for a picture, the last values for a list, a comparison."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from stoker.backends.base import Backend
from stoker.base import reading, rundir
from stoker.base.errors import InvalidSpec, NotFound, StokerError, TargetError
from stoker.base.near import near
from stoker.base.state import State
from stoker.plane import detail, resume, steps
from stoker.plane.numbers import code, comparison, words
from stoker.plane.numbers.curves import Curve, told
from stoker.plane.numbers.held import FILES, Readers
from stoker.plane.numbers.reader import NUMBERS, PROCESSES, Numbers, Reader, chosen, latest, size
from stoker.plane.present import begun
from stoker.plane.record import Run
from stoker.plane.run_folder import RunFolder, whole
from stoker.plane.targets import Target

POINTS = 10_000  # of one curve, if not asked otherwise
POINTS_MAX = 1_000_000
FAR_MAX = 64 << 20  # bytes of one file that are fetched from another machine
SHORT = 2 << 20  # bytes of logs and numbers that `show` reads; `plot` and `compare` read all
LISTED = 16  # running runs of a list whose numbers are read
CODE_MAX = 32 << 20  # bytes of one file of a run's record of its code
NOW = 3  # metrics that a list shows


class Overview:
    """The numbers of all runs of one server. Several threads may use it."""

    def __init__(self) -> None:
        self._readers = Readers()

    def read(self, run: Run, target: Target, points: int = 0) -> Numbers:
        """All numbers of a run. points: number of points wanted per curve; if fewer are in memory, the files
        are read again.
        Raises TargetError if the machine does not answer."""
        attempts = range(1, begun(run) + 1)
        folder = target.local_folder(run.id, begun(run))
        if folder is None:
            with fetched(run, target, attempts) as (folder, notes):
                found = Reader(folder).read(attempts)
                found.notes += notes
                return found
        with self._readers.of(run.id, folder) as held:
            found = held.read(attempts)
            whole = all(len(curve) >= min(points, curve.count) for curve in found.curves)
            if whole or not held.reader.thinned:
                return found
        return Reader(folder, all_points=True).read(attempts)

    def compare(self, runs: Sequence[tuple[Run, dict, Target]], code_too: bool = False) -> dict:
        """Compare runs (each with its run object and target). code_too: adds `code_diff`, for exactly two
        runs. Raises InvalidSpec."""
        if code_too and len(runs) != 2:
            raise InvalidSpec(
                "To compare code, give exactly two runs.", hint="stoker compare RUN RUN-2 --diff"
            )
        found = comparison.compare(
            [row(run, entry, target, self.read(run, target)) for run, entry, target in runs]
        )
        if code_too:
            first, second = (_recorded(run, target) for run, _, target in runs)
            found["code_diff"] = code.between(first, second, [run.name for run, _, _ in runs])
        return found

    def table(self, run: Run, target: Target) -> dict | None:
        """The numbers for `show`: `{"now", "metrics", "pictures"}`. None while they are on another machine;
        no metrics if the logs are long."""
        folder = target.local_folder(run.id, begun(run))
        if folder is None or not begun(run):
            return None
        if (
            sum(
                size(folder / rundir.ATTEMPTS / str(n) / name)
                for n in range(1, begun(run) + 1)
                for name in FILES
            )
            > SHORT
        ):
            return {"now": last_values(latest(folder, begun(run))), "metrics": None, "pictures": None}
        with self._readers.of(run.id, folder) as held:
            held.read(range(1, begun(run) + 1))
            return held.made("table", _table)

    def in_lists(self, runs: Sequence[Run], targets: Sequence[Target | None]) -> Iterator[dict]:
        """Progress of each run: `progress`, and `numbers`, its last values (see `last_values`); None if not
        known."""
        left = LISTED
        for run, target in zip(runs, targets, strict=True):
            numbers = None
            if run.state is State.RUNNING and target is not None and target.here and begun(run) and left:
                left -= 1
                folder = Path(target.run_folder(run.id))
                numbers = self._readers.last(run.id, folder, begun(run), last_values)
            yield {"progress": detail.progress(run, target), "numbers": numbers}


def _table(found: Numbers) -> dict:
    return {
        "now": last_values(found),
        "metrics": comparison.metrics(found.curves, found.results, found.units),
        "pictures": len(found.pictures),
    }


def last_values(numbers: Numbers) -> dict | None:
    """The last values of the most important metrics, for a list of runs."""
    names = sorted(
        (
            curve
            for curve in numbers.curves
            if len(curve)
            and words.better(curve.name)
            and " #" not in curve.name
            and not curve.name.endswith((".mean", ".2"))
        ),
        key=lambda curve: (
            words.key(curve.name)[0] not in (None, "train"),
            words.key(curve.name)[1] != "loss",
        ),
    )
    values: dict[str, list] = {}
    seen = set()
    for curve in names:
        key = words.key(curve.name)[1]
        if key not in seen and len(values) < NOW:
            seen.add(key)
            values[curve.name] = [curve.facts()["last"][1], curve.unit]
    epoch, epochs = numbers.epoch or (None, None)
    return {"epoch": epoch, "epochs": epochs, "values": values} if values else None


def series(run: dict, numbers: Numbers, names: Sequence[str], points: int | None) -> dict:
    """The curves of a run as JSON. Raises NotFound if no curve has one of the names, InvalidSpec for an
    invalid number of points."""
    if points is not None and not 4 <= points <= POINTS_MAX:
        raise InvalidSpec(f"The number of points must be between 4 and {POINTS_MAX:,}.")
    found = chosen(numbers.curves, names)
    if names and not found:
        known = [curve.name for curve in numbers.curves]
        meant = near(names[0], known)
        raise NotFound(
            f"{run['name']} has no metric named '{names[0]}'.",
            hint=f"Did you mean {meant[0]}?" if meant else _known(run, known, list(numbers.results)),
        )
    return {
        "run": {name: run[name] for name in ("id", "name", "ref", "state")},
        "series": [_told(curve, points or POINTS) for curve in found],
        "results": {name: told(value) for name, value in numbers.results.items()},
        "notes": numbers.notes,
        "pictures": [
            {name: value for name, value in each.items() if name != "file"} for each in numbers.pictures
        ],
    }


def _known(run: dict, names: list[str], results: list[str]) -> str:
    if results and not names:
        listed = ", ".join(results[:8])
        return f"The run has no curves, but single values: {listed}. To see them: stoker show {run['ref']}"
    if not names:
        return "No metrics were captured or printed yet."
    return f"The metrics of the run: {', '.join(names[:8])}{', ...' if len(names) > 8 else ''}."


def _told(curve: Curve, points: int) -> dict:
    return {
        "name": curve.name,
        "source": curve.source,
        "axis": curve.axis,
        "unit": curve.unit,
        "line": curve.sample or None,
        "split": words.key(curve.name)[0],
        "metric": words.key(curve.name)[1],
        "better": words.better(curve.name),
        **curve.facts(),
        "points": [[at, told(value), time and round(time, 3)] for at, value, time in curve.points(points)],
    }


def row(run: Run, entry: dict, target: Target, numbers: Numbers) -> dict:
    """The data of one run that a comparison needs."""
    commit = f"{rundir.CODE}/{rundir.COMMIT}"
    kept = RunFolder.look(target.code_reader(run.id), run.id, [whole(commit)], None).json(commit)
    folder = target.local_folder(run.id, begun(run))
    here = folder / rundir.ATTEMPTS / str(begun(run)) if folder is not None and begun(run) else None
    training = steps.summary(steps.read(here)) if here is not None and run.spec.hooks else None
    return {
        **{
            name: entry[name]
            for name in ("id", "name", "ref", "state", "reason", "tags", "note", "used_s", "command")
        },
        "parameters": comparison.asked(run.spec.command, numbers),
        "metrics": comparison.metrics(numbers.curves, numbers.results, numbers.units),
        "steps_s": training and training["steps_s"],
        "code": kept,
        "environment": _environment(here),
        "notes": numbers.notes,
    }


def _recorded(run: Run, target: Target) -> code.Recorded:
    """What the run's record says of its code.
    A copy on another machine is asked for the files that differ."""
    def read(name: str, reader: Backend) -> bytes | None:
        with tempfile.TemporaryDirectory(prefix="stoker-") as folder:
            try:
                reader.fetch(run.id, name, Path(folder) / "file", CODE_MAX)
                return (Path(folder) / "file").read_bytes()
            except (StokerError, OSError):
                return None

    manifest, commit, diff = (
        read(f"{rundir.CODE}/{name}", target.code_reader(run.id))
        for name in (rundir.MANIFEST, rundir.COMMIT, rundir.DIFF)
    )

    def of_copy(path: str) -> bytes | None:
        return read(f"{rundir.WORK}/{path}", target.backend) if run.spec.copy else None
    return code.Recorded(manifest, commit, diff, of_copy)


def _environment(attempt: Path | None) -> dict[str, str]:
    """Versions of Python and torch, as the processes of the last attempt told them."""
    found: dict[str, str] = {}
    for line in (
        reading.read_lines(attempt / rundir.HOOKS / "processes.jsonl", 1 << 20, {"python": str, "torch": str})
        if attempt
        else ()
    ):
        for name in ("python", "torch"):
            if line.get(name):
                found.setdefault(name, line[name])
    return found


@contextmanager
def fetched(run: Run, target: Target, attempts: Sequence[int]) -> Iterator[tuple[Path, list[str]]]:
    """Copy the files with numbers from a run folder on another machine, and return the copy."""
    notes: list[str] = []
    folder = Path(tempfile.mkdtemp(prefix="stoker-"))
    try:
        for name in [
            resume.STATE,
            *(
                f"{rundir.ATTEMPTS}/{n}/{own}"
                for n in attempts
                for own in (
                    rundir.EXIT,
                    rundir.METRICS,
                    f"{rundir.HOOKS}/{NUMBERS}",
                    rundir.OUT,
                    rundir.ERR,
                    rundir.TELEMETRY,
                    rundir.STEPS,
                    f"{rundir.HOOKS}/{PROCESSES}",
                )
            ),
        ]:
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            try:
                with suppress(NotFound):
                    target.backend.fetch(run.id, name, folder / name, FAR_MAX)
            except TargetError as e:
                if e.retry:
                    raise
                notes.append(f"Stoker could not read {name} on {target.name}: {e.message}")
        yield folder, notes
    finally:
        shutil.rmtree(folder, ignore_errors=True)

