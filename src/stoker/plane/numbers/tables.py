"""Tables in a log: a header once and bare numbers below, or blocks with one name a row."""

from __future__ import annotations

import math
import re

from stoker.plane.numbers import words
from stoker.plane.numbers.fields import NUMBER, Line, Value, without_prefix
from stoker.plane.numbers.screen import Shown

CELLS_MAX = 64
_CELL = re.compile(rf"(?P<number>{NUMBER})\s*(?P<unit>%|[a-zA-Z]+)?$", re.IGNORECASE)
_PAIR = re.compile(r"(\d+)/(\d+)$")
_NAME = re.compile(r"[^\W\d][\w./@%()#-]*(?: [^\W\d][\w./@%()#-]*){0,3}$")
_RULE = re.compile(r"^[\s|+\-=_*#:─━│┃┼╇╋├┤┡┩└┘┌┐┏┓┗┛┳┻┴┬╒╕╞╡╘╛═╪]+$")
_NUMBERED = re.compile(r"(?:^|[\s|│┃,'\"*])\d")  # a word that begins with a digit: no name of a column does
_SPANS = re.compile(r"\s*-{2,}(?:\s+-{2,})+\s*$")
_SHORT = {"E": "epoch", "#": "step"}  # as spaCy heads its columns
_SPLITS = (
    ("bar", re.compile(r"\s*[|│┃]\s*")),
    ("tab", re.compile(r"\s*\t\s*")),
    ("comma", re.compile(r"\s*,\s*")),
    ("gap", re.compile(r"\s{2,}")),
    ("blank", re.compile(r"\s+")),
)


class Tables:
    """The table that the log is currently in. `inside`: the last line was part of a table and had no
    values."""

    def __init__(self) -> None:
        self._headers: dict[str, list[str]] = {}
        self._title = ""
        self._before = ""  # the line before this one
        self._rows: list[tuple[str, float, str]] = []
        self._section = ""
        self._last: Shown | None = None
        self.inside = False

    def take(
        self, text: str, shown: Shown, header_too: str = ""
    ) -> tuple[Line | None, list[tuple[Line, Shown]]]:
        """The values of this line, if it is a row of columns; and of the block that ends here."""
        self.inside = False
        if not text.strip():
            return None, self.flush()
        if text.lstrip()[:1] in "|│┃" and self._block_row(text, shown):
            self.inside = True
            return None, []
        done = self.flush()
        before, self._before = self._before, text
        if _RULE.match(text):
            if _SPANS.match(text):
                self._head_above(before, text)
            self.inside = True
            return None, done
        text = without_prefix(text)[0]
        row = self._row(text)
        if row is None and self._is_header(header_too.rstrip(": ") or text):
            self.inside = True
        return row, done

    def flush(self) -> list[tuple[Line, Shown]]:
        """End the current block."""
        rows, shown = self._rows, self._last
        self._rows, self._section, self._last = [], "", None
        if not rows or shown is None:
            return []
        line = Line(form="block")
        for name, value, unit in rows:
            bare = name.rpartition("/")[2] or name
            kind = words.axis(bare)
            if kind == "epoch" and line.epoch is None:
                line.epoch = value
            elif kind and math.isfinite(value):
                if (
                    line.step is None
                    or bare == "total_timesteps"
                    or (kind == "step" and line.step_name != "step")
                ):
                    line.step, line.step_name = value, kind
            elif (
                kind is None
                and unit in ("", "%")
                and not words.refused(bare)
                and not name.startswith("time/")
                and not words.old(bare)
            ):
                line.values.append(Value(name, value, unit))
        return [(line, shown)]

    def _block_row(self, text: str, shown: Shown) -> bool:
        """`| name | value |`; a name without a value begins a section."""
        cells = re.split(r"[|│┃]", text.strip())
        if len(cells) != 4 or cells[0] or cells[3]:
            return False
        name, value = cells[1].strip(), cells[2].strip()
        match = _CELL.match(value)
        if not name or _CELL.match(name) or not (match or not value):
            return False
        indented = len(cells[1]) - len(cells[1].lstrip()) > 1
        if match is None:
            self._section = name if name.endswith("/") else f"{name}/"
        else:
            prefix = self._section if indented else ""
            self._rows.append(
                (f"{prefix}{name}", float(match["number"].replace(",", "")), match["unit"] or "")
            )
        self._last = shown
        return True

    def _is_header(self, text: str) -> bool:
        """Remember the names, if this may be the head of a table."""
        if _NUMBERED.search(text):
            return False
        body = text.strip().strip("|│┃").strip()
        found = {}
        for way, pattern in _SPLITS:
            cells = [cell.strip("'\"*") for cell in pattern.split(body)]
            if not 2 <= len(cells) <= CELLS_MAX or not all(_NAME.match(cell) for cell in cells):
                continue
            if way == "blank" and len(cells) < 3:
                continue
            first = words.axis(cells[0]) or words.axis(cells[1]) or way in ("gap", "bar", "tab", "comma")
            if first and any(words.metric(cell) or words.axis(cell) for cell in cells):
                found[way] = cells
        if not found or (len(text.split()) > 12 and list(found) == ["comma"]):
            return False
        self._headers, self._title = found, "|".join(next(iter(found.values())))
        return True

    def _head_above(self, head: str, rule: str) -> None:
        """Remember the names of a head by the dashes below it: a name may hold blanks."""
        cells = [head[span.start():span.end()].strip() for span in re.finditer("-+", rule)]
        names = [_SHORT.get(cell, cell) for cell in cells]
        if (
            "".join(cells) == "".join(re.split(r"\s{2,}", head.strip()))
            and all(map(_NAME.match, names))
            and any(map(words.metric, names))
        ):
            self._headers, self._title = {"gap": names}, "|".join(names)

    def _row(self, text: str) -> Line | None:
        if not self._headers:
            return None
        body = text.strip().strip("|│┃").strip()
        for way, pattern in _SPLITS:
            names = self._headers.get(way)
            if not names:
                continue
            cells = pattern.split(body)
            if len(cells) == len(names):
                line = self._of_cells(names, cells)
                if line is not None:
                    return line
        return None

    def _of_cells(self, names: list[str], cells: list[str]) -> Line | None:
        line, numbers, kept = Line(form="columns", words=self._title), 0, []
        for name, cell in zip(names, cells, strict=True):
            match, pair = _CELL.match(cell.strip()), _PAIR.match(cell.strip())
            if pair:
                value, unit = float(pair[1]), ""
            elif match:
                value, unit = float(match["number"].replace(",", "")), match["unit"] or ""
            else:
                kept.append(cell if re.fullmatch(r"[^\W\d][\w.-]*", cell) else "")
                continue
            numbers += 1
            kind = words.axis(name)
            if kind == "epoch":
                line.epoch = value
            elif kind and line.step is None:
                line.step, line.step_name = value, kind
            elif (
                unit in ("", "%")
                and not pair
                and kind is None
                and not words.refused(name)
                and not words.old(name)
            ):
                line.values.append(Value(name, value, unit))
        if numbers < 2 or numbers * 3 < len(cells) * 2:
            return None
        line.words = f"{self._title} {' '.join(word for word in kept if word)}"
        line.split = words.split_of(" ".join(kept))
        if line.split:
            line.values = [Value(v.name, v.value, v.unit, line.split) for v in line.values]
        return line
