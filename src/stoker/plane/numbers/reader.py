"""All numbers of one run out of its folder: files of the engine and of the hooks, and what its log prints."""

from __future__ import annotations

import bisect
import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from stoker.base import reading, rundir
from stoker.plane import resume
from stoker.plane.numbers import sources, words
from stoker.plane.numbers.curves import Curve, join
from stoker.plane.numbers.files import File
from stoker.plane.numbers.printed import Parser

NUMBERS = "numbers.jsonl"  # of the hooks, in an attempt's folder HOOKS
PROCESSES = "processes.jsonl"  # in the same folder
PIECE = 1 << 20
LOG_MAX = 256 << 20  # bytes of one log; of a longer one only the rest is not read
END = 16 << 10  # bytes at the end of a file that a list reads
TELEMETRY_MAX = 16 << 20
ENDED = 1 << 62  # bytes: the size at the end of an attempt
PRINTED = "printed"
COUNT = "count"  # the axis of a counter that was taken for steps, but counts something else
STEPS_END = 64 << 10  # bytes at the end of steps.jsonl
STEPS_LINES = 3  # of steps.jsonl: with fewer, the newest may be too old
STEPS_TIMES = 2  # a counter that is so many times the steps counts something else


@dataclass(slots=True)
class Numbers:
    """All known numbers of one run."""

    curves: list[Curve] = field(default_factory=list)
    results: dict[str, float] = field(default_factory=dict)
    units: dict[str, str] = field(default_factory=dict)  # of the results that were printed
    parameters: dict[str, dict] = field(default_factory=dict)  # source -> names and values
    notes: list[str] = field(default_factory=list)
    # with `path` in the run folder; of one step the later attempt's
    pictures: list[dict] = field(default_factory=list)
    epoch: tuple[float, int | None] | None = None  # the last one that was printed, and of how many


def latest(folder: Path, attempt: int) -> Numbers:
    """The numbers at the ends of an attempt's files, for lists; takes a few milliseconds."""
    found = Numbers()
    own = folder / rundir.ATTEMPTS / str(attempt)
    for path, source in ((own / rundir.METRICS, "engine"), (own / rundir.HOOKS / NUMBERS, "hooks")):
        found.curves += File(path, source, max(0, size(path) - END)).read()
    found.curves = sources.best(found.curves)
    known = {bars: sources.known(found.curves, bars) for bars in (False, True)}
    for name in (rundir.OUT, rundir.ERR):
        parser = Parser()
        data = reading.read_end(own / name, END)
        parser.feed(data if len(data) < END else data.partition(b"\n")[2])
        found.epoch = parser.epoch or found.epoch
        for series in parser.series():
            if words.key(series.name) not in known[series.bar]:
                curve = Curve(series.name, PRINTED, series.axis, series.unit)
                curve.add(*series.points[-1][:2], None)
                found.curves.append(curve)
    return found


class Reader:
    """Reads one run folder on this machine, or a copy of one. A second call reads only what is new."""

    def __init__(self, folder: Path, *, all_points: bool = False) -> None:
        """all_points: see `files.File`."""
        self._folder, self._all_points = folder, all_points
        self._files: dict[Path, File] = {}
        self._texts: dict[tuple, Text] = {}

    def read(self, attempts: Sequence[int]) -> Numbers:
        """The joined numbers of these attempts."""
        found = Numbers()
        captured = []
        pictures: dict[tuple, dict] = {}
        for number in attempts:
            own = []
            for path, source in (
                (self._at(number) / rundir.METRICS, "engine"),
                (self._at(number) / rundir.HOOKS / NUMBERS, "hooks"),
            ):
                # before the file: what is read then is all of it
                ended = (self._at(number) / rundir.EXIT).exists()
                file = self._file(path, source, f"{number}-{path.stem}")
                own += file.read()
                if ended:
                    file.end()
                for name, values in file.parameters.items():
                    found.parameters.setdefault(name, {}).update(values)
                found.results |= file.results
                pictures |= {
                    key: {**told, "path": f"{rundir.ATTEMPTS}/{number}/{rundir.HOOKS}/{told['file']}"}
                    for key, told in file.pictures.items()
                }
            captured.append(own)
        found.curves = sources.best(join(captured))
        found.curves += self._printed(attempts, found)
        found.pictures = list(pictures.values())
        return found

    def _file(self, path: Path, source: str, name: str) -> File:
        if path not in self._files:
            self._files[path] = File(
                path, source, kept=self._folder / rundir.INDEX / name, all_points=self._all_points
            )
        return self._files[path]

    @property
    def thinned(self) -> bool:
        """True if points of a file were dropped because there were too many."""
        return any(file.thinned for file in self._files.values())

    def _at(self, number: int) -> Path:
        return self._folder / rundir.ATTEMPTS / str(number)

    def _printed(self, attempts: Sequence[int], found: Numbers) -> list[Curve]:
        curves: list[Curve] = []
        # what is printed is rounded
        known = {bars: sources.known(found.curves, bars) for bars in (False, True)}
        for name, source in ((rundir.OUT, PRINTED), (rundir.ERR, f"{PRINTED} (stderr)")):
            groups: list[list[tuple[int, int | None]]] = (
                self._lives(attempts) if name == rundir.OUT else [[(number, None)] for number in attempts]
            )
            told = []
            made = self._steps(attempts)
            for group in groups:
                text = self._text(name, group)
                text.read(found.notes)
                told.append(text.curves(source, known, made))
                for result, (value, unit) in text.results().items():
                    found.results[result], found.units[result] = value, unit
                found.epoch = text.epoch() or found.epoch
            curves += join(told)
        return curves

    def _steps(self, attempts: Sequence[int]) -> int | None:
        """How many steps were made until the newest attempt that trained; None if not known."""
        for number in reversed(attempts):
            lines = list(reading.read_lines(self._at(number) / rundir.STEPS, STEPS_END))
            made = max((line.get("step") or 0 for line in lines), default=0)
            if made:
                state = reading.read_json(self._folder / resume.STATE)
                whole = made + resume.steps_before(state, number)
                return whole if len(lines) >= STEPS_LINES or self._all_told(number, made) else None
        return None

    def _all_told(self, number: int, made: int) -> bool:
        """Whether the process that made these steps has ended by itself: its last line is the newest."""
        path = self._at(number) / rundir.HOOKS / PROCESSES
        return any(line.get("ended") == made for line in reading.read_lines(path, resume.LINES_READ))

    def _text(self, name: str, group: list[tuple[int, int | None]]) -> Text:
        key = (name, tuple(number for number, _ in group), tuple(upto for _, upto in group[:-1]))
        if key not in self._texts:
            self._texts[key] = Text([(self._at(number), upto) for number, upto in group], name)
        return self._texts[key]

    def _lives(self, attempts: Sequence[int]) -> list[list[tuple[int, int | None]]]:
        """The pieces of logs that are one text each: of a run that came back exactly, all of it is one."""
        state = reading.read_json(self._folder / resume.STATE)
        sizes = {number: size(self._at(number) / rundir.OUT) for number in attempts}
        parts = resume.log_parts(state, sizes)
        if parts:
            return [[*parts[:-1], (parts[-1][0], None)]]
        return [[(number, None)] for number in attempts]


class Text:
    """One text, joined from pieces of logs. Each piece: the attempt's folder, and the number of bytes of
    its log that count."""

    def __init__(self, pieces: list[tuple[Path, int | None]], name: str) -> None:
        self._pieces, self._name = pieces, name
        self._parser = Parser()
        self._read = 0  # pieces that are done
        self._offset = 0  # in the present piece
        self._before: list[int] = [0]  # bytes of the text at the begin of each piece
        self._ended = False
        self._clocks: dict[int, Clock] = {}
        self._looked = False  # at the newest clock, for the curves that are made now

    def read(self, notes: list[str]) -> None:
        """Read what is new."""
        while self._read < len(self._pieces) and not self._ended:
            folder, upto = self._pieces[self._read]
            exit_ = reading.read_json(folder / rundir.EXIT)  # before the log: what is read then is all of it
            self._take(folder / self._name, upto, notes)
            if self._read == len(self._pieces) - 1:
                if exit_ is not None:
                    self._parser.end(whole=exit_.get("code") == 0)
                    self._ended = True
                return
            self._before.append(self._before[-1] + self._offset)
            self._read, self._offset = self._read + 1, 0

    def _take(self, path: Path, upto: int | None, notes: list[str]) -> None:
        try:
            fd = reading.open_regular(os.fspath(path))
        except (OSError, reading.Broken):
            return
        with open(fd, "rb") as f:
            f.seek(self._offset)
            limit = min(LOG_MAX, LOG_MAX if upto is None else upto)
            while self._offset < limit and (data := f.read(min(PIECE, limit - self._offset))):
                self._parser.feed(data)
                self._offset += len(data)
            if self._offset >= LOG_MAX:
                notes.append(
                    f"Stoker read only the first {LOG_MAX >> 20} MB of {path.name}; "
                    "later metrics are missing."
                )

    def curves(self, source: str, known: dict[bool, set], made: int | None = None) -> list[Curve]:
        """The printed series so far; `source` names their log. known: metrics that are not needed from
        lines and from bars. made: the steps of the training: `[640/1600]` may count samples, and these
        are not called steps."""
        found = []
        self._looked = False
        for series in self._parser.series():
            if words.key(series.name) in known[series.bar]:
                continue
            other = series.guessed and made and series.points[-1][0] > STEPS_TIMES * made
            axis = COUNT if other else series.axis
            curve = Curve(series.name, source, axis, series.unit, series.sample)
            for at, value, offset in series.points:
                curve.add(at, value, self._time(offset))
            found.append(curve)
        return found

    def results(self) -> dict[str, tuple[float, str]]:
        return self._parser.results()

    def epoch(self) -> tuple[float, int | None] | None:
        return self._parser.epoch

    def _time(self, offset: int) -> float | None:
        """When the log was that long, as the telemetry of each two seconds tells."""
        piece = max(0, bisect.bisect_left(self._before, offset) - 1)
        own = offset - self._before[piece]
        clock = self._clocks.get(piece)
        if clock is None:
            clock = self._clocks[piece] = Clock(self._pieces[piece][0], self._name)
            clock.read()
        elif piece == self._read and clock.ends() < own and not self._looked:
            self._looked = True
            clock.read()
        return clock.at(own)


class Clock:
    """When a log of an attempt had which size."""

    def __init__(self, folder: Path, name: str) -> None:
        self._folder = folder
        self._field = "err_bytes" if name == rundir.ERR else "out_bytes"
        self._sizes: list[int] = []
        self._times: list[float] = []
        self._offset: int | None = None  # in the telemetry

    def ends(self) -> int:
        """The largest size that is known."""
        return self._sizes[-1] if self._sizes else -1

    def at(self, offset: int) -> float | None:
        """When the log reached this size; None if not known."""
        at = bisect.bisect_left(self._sizes, offset)
        return self._times[at] if at < len(self._times) else None

    def read(self) -> None:
        """Read what is new, once the attempt has ended for the last time."""
        if self.ends() == ENDED:
            return
        exit_ = reading.read_json(self._folder / rundir.EXIT) or {}  # before the telemetry
        for sample in reading.parse_lines(self._new_lines(), rundir.TELEMETRY):
            size_, at = sample.get(self._field), sample.get("at")
            if size_ is not None and at is not None and size_ > self.ends():
                self._sizes.append(size_)
                self._times.append(at)
        if exit_.get("ended_at") is not None:
            self._sizes.append(ENDED)
            self._times.append(exit_["ended_at"])

    def _new_lines(self) -> bytes:
        try:
            fd = reading.open_regular(os.fspath(self._folder / rundir.TELEMETRY))
        except (OSError, reading.Broken):
            return b""
        with open(fd, "rb") as f:
            if self._offset is None:
                self._offset = max(0, os.fstat(fd).st_size - TELEMETRY_MAX)
            f.seek(self._offset)
            data = f.read(TELEMETRY_MAX)
        whole = data[: data.rfind(b"\n") + 1]
        self._offset += len(whole)
        return whole


def size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0


def chosen(curves: Iterable[Curve], names: Sequence[str]) -> list[Curve]:
    """The curves with one of these names. A name without a split (`loss`) also matches all splits
    (`train/loss`, `val_loss`)."""
    curves = list(curves)
    if not names:
        return curves
    asked = [words.key(name) for name in names]
    exact = {name.lower() for name in names}
    return [
        curve
        for curve in curves
        if curve.name.lower() in exact
        or any(
            rest == words.key(curve.name)[1] and split in (None, words.key(curve.name)[0])
            for split, rest in asked
        )
    ]
