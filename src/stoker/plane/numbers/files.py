"""Files of numbers in an attempt's folder, one JSON object a line. Whoever wrote them, no line can do harm.

Two forms: `{"step": 3, "epoch": 0, "at": 1.5, "loss": 0.3}` from an Engine, and `{"step": 3, "at":
1.5, "from": "tensorboard", "pid": 7,
"axis": "step", "folder": "runs/a", "values": {"loss": 0.3}}` from the hooks, after `{"begin": 1.5, "pid":
7, "rank": 0}` of the process.
Parameters: `{"at": 1.5, "from": "argparse", "pid": 7, "parameters": {"lr": 0.1}}`;
results of the whole: `"summary": {"best": 0.9}`;
pictures: `{"step": 3, "at": 1.5, "from": "wandb", "picture": {"name": "samples", "file":
    "pictures/7-000001-samples.png", "bytes": 812}}`.
"""

from __future__ import annotations

import itertools
import json
import math
import os
import re
from array import array
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from stoker.base import reading
from stoker.plane.numbers import index
from stoker.plane.numbers.curves import ARRAYS, Curve

LINE_MAX = 1 << 20  # bytes
NAMES_MAX = 20_000  # of one file
TEXT_MAX = 64
BATCH = 1000  # lines that are parsed at once
HELD_MAX = 800_000  # points of one file in memory
LEAST = 64  # points that are left of each curve
INDEXED = 4 << 20  # new bytes of a file that are worth a new index
INDEXED_PART = 16  # and that part of the file, so that an index of a file that grows is not written often
PICTURES_MAX = 10_000  # of one file; the newest count
_OF_PICTURE = re.compile(r"pictures/[A-Za-z0-9][A-Za-z0-9.\-]*")
_OWN = ("step", "epoch", "at", "begin", "pid")


@dataclass(slots=True)
class Life:
    """One process, from its start. A process that executes itself again for a resume begins another life."""

    rank: int = 0
    began: float = 0.0
    curves: dict[tuple[str, str, str], Curve] = field(default_factory=dict)  # (source, folder, name)


class File:
    """One growing file; `read` reads only what is new. kept: where the index of a large file is stored, if it
    is.
    all_points: keep as many points per curve as a curve can hold, for any number of curves; no index is
    used."""

    def __init__(
        self, path: Path, source: str, begin: int = 0, *, kept: Path | None = None, all_points: bool = False
    ) -> None:
        self._path, self._source, self._kept = path, source, None if all_points else kept
        self._offset = begin
        self._indexed = 0  # bytes that the index on disk tells of
        self._held, self._held_max = 0, math.inf if all_points else HELD_MAX
        self.thinned = False  # whether points were let go since there were very many
        self._lives: list[Life] = []
        self._of_pid: dict[int, Life] = {}
        self._names = 0
        self.parameters: dict[str, dict] = {}  # source -> names and values
        self.results: dict[str, float] = {}  # what stands for the whole run
        # (source, name, step) -> `{"name", "source", "axis", "step", "at", "file", "bytes"}`
        self.pictures: dict[tuple, dict] = {}

    def read(self) -> list[Curve]:
        """The curves so far. A missing file has none; an incomplete last line is read later."""
        if self._kept is not None and not self._offset:
            self._load(self._kept)
        for told in _parsed(self._new_lines()):
            self._take(told)
            if self._held > self._held_max:
                self._thin()
        if self._kept is not None and self._offset - self._indexed >= max(
            INDEXED, self._offset // INDEXED_PART
        ):
            self._save(self._kept)
        return self._chosen()

    def end(self) -> None:
        """The file is complete and was read completely, so its index contains everything."""
        if self._kept is not None and self._indexed < self._offset and self._offset >= INDEXED:
            self._save(self._kept)

    def _thin(self) -> None:
        curves = [curve for life in self._lives for curve in life.curves.values()]
        most = max(LEAST, HELD_MAX // 2 // len(curves))
        for curve in curves:
            curve.thinned(most)
        self.thinned = True
        self._held = sum(map(len, curves))
        if self._held > HELD_MAX // 2:  # of very many curves
            self._held_max = max(self._held_max, 2 * self._held)

    def _load(self, kept: Path) -> None:
        found = index.load(kept, self._path)
        if found is None:
            return
        offset, told, arrays = found
        try:
            lives = [_life(each, arrays) for each in told["lives"]]
            of_pid = {int(pid): lives[n] for pid, n in told["of_pid"].items()}
            parameters = {str(source): dict(values) for source, values in told["parameters"].items()}
            results = {str(name): float(value) for name, value in told["results"].items()}
            counted = bool(told["thinned"]), int(told["held"]), int(told["names"])
            pictures = [
                (each, str(each["source"]), str(each["axis"]), _number(each["step"]), _number(each["at"]))
                for each in told["pictures"]
            ]
        except (KeyError, TypeError, ValueError, IndexError, AttributeError, StopIteration):
            return
        self._lives, self._of_pid, self.parameters, self.results = lives, of_pid, parameters, results
        self.thinned, self._held, self._names = counted
        for each in pictures:
            self._take_picture(*each)
        self._offset = self._indexed = offset

    def _save(self, kept: Path) -> None:
        lives, arrays = [], []
        for life in self._lives:
            curves = []
            for key, curve in life.curves.items():
                dropped, own = curve.packed()
                curves.append([key, curve.axis, dropped])
                arrays += own
            lives.append({"rank": life.rank, "began": life.began, "curves": curves})
        place = {id(life): n for n, life in enumerate(self._lives)}
        told = {
            "lives": lives,
            "of_pid": {pid: place[id(life)] for pid, life in self._of_pid.items()},
            "names": self._names,
            "parameters": self.parameters,
            "results": self.results,
            "pictures": list(self.pictures.values()),
            "thinned": self.thinned,
            "held": self._held,
        }
        index.save(kept, self._path, self._offset, told, arrays)
        # also where the disk did not take it: it is tried again when there is more
        self._indexed = self._offset

    def _new_lines(self) -> Iterator[bytes]:
        try:
            fd = reading.open_regular(os.fspath(self._path))
        except (OSError, reading.Broken):
            return
        with open(fd, "rb") as f:
            if os.fstat(fd).st_size < self._offset:  # cut: an Engine that came back in the same folder
                self._offset = self._indexed = self._held = self._names = 0
                self._lives, self._of_pid = [], {}
            f.seek(self._offset)
            while line := f.readline(LINE_MAX):
                if not line.endswith(b"\n"):
                    if len(line) < LINE_MAX:
                        return
                    self._offset += len(line)
                    continue  # a part of a line that is too long: it is no JSON, and neither is its end
                self._offset += len(line)
                yield line

    def _take(self, told: dict) -> None:
        pid = told["pid"] if isinstance(told.get("pid"), int) else 0
        life = self._of_pid.get(pid)
        if life is None or "begin" in told:
            rank, began = told.get("rank"), _number(told.get("begin", told.get("at")))
            life = self._of_pid[pid] = Life(rank if isinstance(rank, int) else 0, began or 0.0)
            self._lives.append(life)
        if "begin" in told:
            return
        source, folder, axis = _text(told, "from"), _text(told, "folder"), _text(told, "axis")
        source = source[:TEXT_MAX] or self._source
        step, at, values = _number(told.get("step")), _number(told.get("at")), told.get("values")
        if not isinstance(values, dict):
            if self._take_other(told, source, axis, step, at):
                return
            values = {name: value for name, value in told.items() if name not in _OWN}
        nth = f" #{told['nth']}" if isinstance(told.get("nth"), int) else ""
        for name, value in values.items():
            number = value if type(value) is float else _number(value)
            if number is not None:
                self._add(life, (source, folder, name + nth), step, number, at, axis or "step")

    def _take_other(self, told: dict, source: str, axis: str, step: float | None, at: float | None) -> bool:
        """Whether the line is one of parameters, of a picture or of results."""
        if isinstance(told.get("parameters"), dict):
            if len(self.parameters.setdefault(source, {})) < NAMES_MAX:
                self.parameters[source].update(told["parameters"])
        elif isinstance(told.get("picture"), dict):
            self._take_picture(told["picture"], source, axis or "step", step, at)
        elif isinstance(told.get("summary"), dict):
            self.results |= {
                name: value
                for name, given in told["summary"].items()
                if (value := _number(given)) is not None
            }
        else:
            return False
        return True

    def _take_picture(self, told: dict, source: str, axis: str, step: float | None, at: float | None) -> None:
        name, file, size = (told.get(key) for key in ("name", "file", "bytes"))
        if (
            isinstance(name, str)
            and isinstance(file, str)
            and _OF_PICTURE.fullmatch(file)
            and isinstance(size, int)
        ):
            self.pictures.pop((source, name, step), None)
            self.pictures[source, name, step] = {
                "name": name,
                "source": source,
                "axis": axis,
                "step": step,
                "at": at,
                "file": file,
                "bytes": size,
            }
            if len(self.pictures) > PICTURES_MAX:
                del self.pictures[next(iter(self.pictures))]

    def _add(  # noqa: PLR0917
        self,
        life: Life,
        key: tuple[str, str, str],
        step: float | None,
        value: float,
        at: float | None,
        axis: str,
    ) -> None:
        curve = life.curves.get(key)
        if curve is None:
            if self._names >= NAMES_MAX:
                return
            self._names += 1
            curve = life.curves[key] = Curve(key[2], key[0], axis if step is not None else "order")
        elif axis == "order":
            curve.axis = axis
        self._held += 1
        curve.add(float(curve.count + 1) if step is None else step, value, at)

    def _chosen(self) -> list[Curve]:
        """Of ranks the lowest counts; of two lives, one after the other, the later one;
        two processes side by side are two curves."""
        folders: dict[str, set[str]] = {}
        by_key: dict[tuple[str, str, str], list[Life]] = {}
        for life in self._lives:
            for key in life.curves:
                folders.setdefault(key[0], set()).add(key[1])
                by_key.setdefault(key, []).append(life)
        found = []
        for key, lives in by_key.items():
            lowest = min(life.rank for life in lives)
            made: list[Curve] = []
            for life in lives:
                own = life.curves[key]
                if life.rank > lowest:
                    continue
                if made and (made[-1].ends() or 0.0) <= life.began:
                    made[-1] = made[-1].joined(own)
                else:
                    made.append(own)
            found += [
                curve.renamed(_in_folder(key, folders[key[0]]) + (f" #{i + 1}" if i else ""))
                for i, curve in enumerate(made)
            ]
        return found


def _life(told: dict, arrays: Iterator[array]) -> Life:
    """A life out of an index. Raises KeyError, TypeError, ValueError, StopIteration for what is none."""
    life = Life(int(told["rank"]), float(told["began"]))
    for (source, folder, name), axis, dropped in told["curves"]:
        curve = Curve(str(name), str(source), str(axis))
        life.curves[str(source), str(folder), str(name)] = curve.unpacked(
            int(dropped), [next(arrays) for _ in ARRAYS]
        )
    return life


def _parsed(lines: Iterator[bytes]) -> Iterator[dict]:
    """The objects of the lines, those of many lines by one call of the parser;
    what is no object is left out."""
    while some := list(itertools.islice(lines, BATCH)):
        try:
            found = json.loads(b"[" + b",".join(some) + b"]")
        except (ValueError, RecursionError):
            found = []
        if len(found) != len(some):  # one of them is no JSON
            found = [_object(line) for line in some]
        yield from (each for each in found if isinstance(each, dict))


def _object(line: bytes) -> object:
    try:
        return json.loads(line)
    except (ValueError, RecursionError):
        return None


def _in_folder(key: tuple[str, str, str], folders: set[str]) -> str:
    """The name, with what tells its folder from the others:
    `SummaryWriter("runs/train")` beside `"runs/val"`, and `add_scalars`,
    which makes a folder for each of its values."""
    _, folder, name = key
    if len(folders) < 2:
        return name
    try:
        inner = os.path.relpath(folder, os.path.commonpath(folders))
    except ValueError:  # some are absolute
        inner = folder
    above, last = os.path.split(inner)
    begin = f"{name.replace('/', '_')}_"
    if last.startswith(begin):
        inner, name = above, f"{name}/{last.removeprefix(begin)}"
    return name if inner in (".", "") else f"{inner}/{name}"


def _text(told: dict, name: str) -> str:
    found = told.get(name, "")
    return found if type(found) is str else ""


def _number(value: object) -> float | None:
    if type(value) is float:
        return value
    if isinstance(value, bool) or not isinstance(value, int | float):
        return (
            math.nan
            if value == "nan"
            else {"inf": math.inf, "-inf": -math.inf}.get(value)
            if isinstance(value, str)
            else None
        )
    try:
        return float(value)
    except OverflowError:
        return math.inf if value > 0 else -math.inf
