"""How the console speaks: values as people read them, and the languages.
The catalogues are PO files beside; English is what stands in the templates."""

from __future__ import annotations

import ast
import math
import os
import re
import shlex
import time
from collections.abc import Mapping, Sequence
from functools import cache, partial
from pathlib import Path

from stoker.base.state import State
from stoker.base.units import format_duration, format_size, from_iso

LANGUAGES = {"en": "English", "zh": "中文"}
FOLDER = Path(__file__).with_name("locale")
HOLE = re.compile(r"\{[^{}]+\}")  # of a sentence with names and values in it, as the code writes it


class Language:
    """gettext with one catalogue."""

    def __init__(self, name: str) -> None:
        self.name = name
        self._texts = catalogue(name)

    def gettext(self, text: str) -> str:
        return self._texts.get(text, text)

    def ngettext(self, one: str, many: str, count: int) -> str:
        return self._texts.get(many, one if count == 1 else many)

    def sentence(self, text: str) -> str:
        """A sentence of the server, with names and values in it; as it is if it has no translation."""
        if text in self._texts:
            return self._texts[text]
        for pattern, holes, translation in _patterns(self.name):
            if found := pattern.fullmatch(text):
                values = dict(zip(holes, found.groups(), strict=True))
                return HOLE.sub(partial(self._value, values), translation)
        return text

    def _value(self, values: Mapping[str, str], hole: re.Match) -> str:
        value = values[hole[0]]
        return self.sentence(value) if " " in value else value  # one word is a name


@cache
def catalogue(name: str) -> dict[str, str]:
    """English -> translation, from NAME.po; empty if there is none."""
    try:
        lines = (FOLDER / f"{name}.po").read_text("utf-8").splitlines()
    except FileNotFoundError:
        return {}
    found: dict[str, str] = {}
    key, value, into = "", "", ""
    for line in [*lines, ""]:
        word, _, rest = line.partition(" ")
        if line.startswith('"'):
            word, rest = into, line
        if word == "msgid":
            key = key + ast.literal_eval(rest) if line.startswith('"') else ast.literal_eval(rest)
            into = "msgid"
        elif word == "msgstr":
            value = value + ast.literal_eval(rest) if line.startswith('"') else ast.literal_eval(rest)
            into = "msgstr"
        elif not line:
            if key and value:
                found[key] = value
            key, value, into = "", "", ""
    return found


@cache
def _patterns(name: str) -> list[tuple[re.Pattern, list[str], str]]:
    """The sentences of NAME.po that have names and values in them: how each reads, what is in it, its
    translation."""
    found = []
    for text, translation in catalogue(name).items():
        holes = HOLE.findall(text)
        if not holes:
            continue
        way, at = "", 0
        for hole in HOLE.finditer(text):
            way += re.escape(text[at:hole.start()]) + _held(hole)
            at = hole.end()
        found.append((re.compile(way + re.escape(text[at:]), re.DOTALL), holes, translation))
    return found


def _held(hole: re.Match) -> str:
    """What may be in a place of a sentence: a size, one word at its beginning, else any text."""
    return r"([\d.]+ \w+)" if "format_size" in hole[0] else r"(.*)" if hole.start() else r"(\S*)"


def language(cookie: str | None, accepts: str) -> Language:
    """The chosen language, else the first available language that the browser accepts."""
    wanted = [cookie or "", *(part.split(";")[0].strip()[:2].lower() for part in accepts.split(","))]
    return _language(next((name for name in wanted if name in LANGUAGES), "en"))


@cache
def _language(name: str) -> Language:
    return Language(name)


def figure(value: float | str | None, unit: str = "") -> str:
    """A value of a metric."""
    if value is None:
        return ""
    number = float(value)
    text = str(number) if not math.isfinite(number) else f"{number:.4g}"
    return f"{text} %" if unit == "%" else text


def point(told: Sequence | None, unit: str = "", axis: str | None = None) -> str:
    """A value and its position."""
    if not told:
        return ""
    at = where(told, axis)
    return figure(told[1], unit) + (f" ({at[0]} {at[1]})" if at else "")


def where(told: Sequence | None, axis: str | None) -> tuple[str, str] | None:
    """Where a value was: the name of the axis and the position. None where that says nothing."""
    return (axis, figure(told[0])) if told and axis in ("step", "epoch") and told[0] is not None else None


def said(value: object) -> str:
    """The text of a parameter."""
    if isinstance(value, bool) or value is None:
        return {True: "yes", False: "no", None: "none"}[value]
    return f"{value:g}" if isinstance(value, float) else str(value)


def command(words: Sequence[str]) -> str:
    """A command as a user types it."""
    return shlex.join(words)


def short_command(words: Sequence[str]) -> str:
    """A command without the folders of its programs."""
    return shlex.join(
        [
            os.path.basename(word) if word.endswith((".py", ".sh")) or at == 0 else word
            for at, word in enumerate(words)
        ]
    )


def moment(iso_time: str | None) -> str:
    """An ISO time as local time of this machine."""
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(from_iso(iso_time))) if iso_time else ""


def since(run: Mapping) -> str:
    """How long a run has been in its state, in the largest unit only."""
    state = State(run["state"])
    at = (
        run["ended_at"]
        if state.final
        else run["created_at"]
        if state in (State.PENDING, State.STAGING)
        else run["started_at"]
    )
    seconds = max(0.0, time.time() - from_iso(at or run["created_at"]))
    # steps of the text: a page that stands still is not sent anew each second
    for size in (86400, 3600, 60, 10):
        if seconds >= size:
            return format_duration(seconds // size * size).split()[0]
    return "< 10s"


def share(value: float) -> str:
    return f"{value * 100:.0f} %" if value >= 0.01 else "< 1 %"


def line(history: Sequence[float | None]) -> str:
    """The points of a small curve of percentages, 120 wide and 20 high, with the newest at the right end."""
    recent = list(history)[-60:]
    left = 120 - 2 * (len(recent) - 1)
    return " ".join(
        f"{left + 2 * n},{20 - 0.2 * min(100.0, value):.1f}"
        for n, value in enumerate(recent)
        if value is not None
    )


FILTERS = {
    "figure": figure,
    "point": point,
    "where": where,
    "said": said,
    "command": command,
    "short_command": short_command,
    "moment": moment,
    "since": since,
    "share": share,
    "line": line,
    "duration": format_duration,
    "size": format_size,
}
