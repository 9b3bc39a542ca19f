"""Files of numbers in an attempt's folder, one JSON object a line. Whoever wrote them, no line can do harm.

Two forms: `{"step": 3, "epoch": 0, "at": 1.5, "loss": 0.3}` from an Engine, and `{"step": 3, "at": 1.5, "from": "tensorboard", "pid": 7,
"rank": 0, "values": {"loss": 0.3}}` from the hooks.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Iterator
from pathlib import Path

from stoker.base import reading
from stoker.plane.numbers.curves import Curve

LINE_MAX = 1 << 20  # bytes
NAMES_MAX = 20_000  # of one file
PIECE = 1 << 20
_OWN = ("step", "epoch", "at")


class File:
    """One file that grows. `read` takes what is new."""

    def __init__(self, path: Path, source: str, begin: int = 0) -> None:
        self._path, self._source = path, source
        self._offset = begin
        self._curves: dict[tuple[int, str, str], Curve] = {}
        self._ranks: dict[int, int] = {}
        self.parameters: dict[str, dict] = {}  # source -> names and values

    def read(self) -> list[Curve]:
        """The curves so far. A file that is missing has none; a torn last line is read when it is whole."""
        for line in self._new_lines():
            self._take(line)
        return self._chosen()

    def _new_lines(self) -> Iterator[bytes]:
        try:
            fd = reading.open_regular(os.fspath(self._path))
        except (OSError, reading.Broken):
            return
        with open(fd, "rb") as f:
            if os.fstat(fd).st_size < self._offset:  # cut: an Engine that came back in the same folder
                self._offset, self._curves = 0, {}
            f.seek(self._offset)
            while line := f.readline(LINE_MAX):
                if not line.endswith(b"\n"):
                    if len(line) < LINE_MAX:
                        return
                    self._offset += len(line)
                    continue  # a part of a line that is too long: it is no JSON, and neither is its end
                self._offset += len(line)
                yield line

    def _take(self, line: bytes) -> None:
        try:
            told = json.loads(line)
        except (ValueError, RecursionError):
            return
        if not isinstance(told, dict):
            return
        pid, rank, source = told.get("pid"), told.get("rank"), told.get("from")
        values = told.get("values")
        pid = pid if isinstance(pid, int) else 0
        if isinstance(rank, int):
            self._ranks[pid] = rank
        source = source if isinstance(source, str) and len(source) < 64 else self._source
        if isinstance(told.get("parameters"), dict):
            self.parameters.setdefault(source, {}).update(told["parameters"])
            return
        if not isinstance(values, dict):
            values = {name: value for name, value in told.items() if name not in _OWN}
        step, at, axis = _number(told.get("step")), _number(told.get("at")), told.get("axis")
        for name, value in values.items():
            number = _number(value)
            if number is not None:
                self._add(pid, source, name, step, number, at, axis if isinstance(axis, str) else "step")

    def _add(self, pid: int, source: str, name: str, step: float | None, value: float, at: float | None, axis: str) -> None:  # noqa: PLR0917
        key = (pid, source, name)
        curve = self._curves.get(key)
        if curve is None:
            if len(self._curves) >= NAMES_MAX:
                return
            curve = self._curves[key] = Curve(name, source, axis if step is not None else "order")
        curve.add(float(len(curve) + 1) if step is None else step, value, at)

    def _chosen(self) -> list[Curve]:
        """Of several processes that tell the same the lowest rank counts."""
        best: dict[tuple[str, str], tuple[int, int]] = {}
        for pid, source, name in self._curves:
            rank = (self._ranks.get(pid, 0), pid)
            best[source, name] = min(best.get((source, name), rank), rank)
        return [curve for (pid, source, name), curve in self._curves.items() if best[source, name][1] == pid]


def _number(value: object) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return math.nan if value == "nan" else {"inf": math.inf, "-inf": -math.inf}.get(value) if isinstance(value, str) else None
    try:
        return float(value)
    except OverflowError:
        return math.inf if value > 0 else -math.inf
