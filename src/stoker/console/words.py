"""How the console speaks: values as people read them, and the languages.
The catalogues are PO files beside; English is what stands in the templates."""

from __future__ import annotations

import ast
import math
import re
import shlex
import time
from collections.abc import Mapping, Sequence
from functools import cache, lru_cache, partial
from pathlib import Path

from stoker.base.short import short_words
from stoker.base.state import State
from stoker.base.units import format_duration, format_size, from_iso

LANGUAGES = {"en": "English", "zh": "中文"}
FOLDER = Path(__file__).with_name("locale")
HOLE = re.compile(r"\{[^{}]+\}")  # of a sentence with names and values in it, as the code writes it
SPOKEN = "{_"  # begins a hole whose value is translated even if it is one word
# what may be in a place of this name
NAME = r"(?:[\w.@-]|,(?=\d))+"
NAMES = re.compile(f"{NAME}(?:(?:, | and ){NAME})+")
PLACES = {"{count}": r"([\d,]+)", "{n}": r"([\d,]+)", "{code}": r"(-?\d+)", "{text}": "(.*)",
          "{names}": f"({NAME}(?:, {NAME})*)", "{_state}": f"({'|'.join(State)})"}
SIZE = re.compile(r"[\d.]+ [kMGTP]?B")
CHINESE = "[\u3000-\u9fff\uff00-\uffef]"
SPACED = re.compile(rf"((?<={CHINESE}) )?({HOLE.pattern})( (?={CHINESE}))?")
LONGEST = 1500  # characters of a text that is looked up
# between two texts of the server -> between their translations
JOINTS = {". ": "", "; ": "；", ", and for ": "，以及 ", " and ": "，以及 ", ", ": "，", ": ": "："}


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
        """A text of the server, with names and values in it; as it is if it has no translation."""
        return _meant(self.name, text) or text


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


@lru_cache(4096)
def _meant(name: str, text: str) -> str | None:
    """The translation of a text of the server: a text of the catalogue, or several that are joined. None if
    there is none."""
    texts = catalogue(name)
    if not texts or len(text) > LONGEST:
        return None
    if text in texts or SIZE.fullmatch(text):
        return texts.get(text, text)
    joined = (_joined(name, text, joint) for joint in JOINTS if not text.startswith((":", ";")))
    return next(filter(None, joined), None) or _filled(name, text)


def _joined(name: str, text: str, joint: str) -> str | None:
    """The translation of two texts with `joint` between them, if both have one."""
    at = text.find(joint)
    while at >= 0:
        first = _meant(name, text[:at + joint.startswith(".")])
        rest = first and _meant(name, text[at + len(joint):])
        if rest:
            return f"{first}{JOINTS[joint]}{rest}"
        at = text.find(joint, at + 1)
    return None


def _filled(name: str, text: str) -> str | None:
    """The translation of a text of the catalogue that has names and values in it."""
    for pattern, source, translation in _patterns(name):
        if found := pattern.fullmatch(text):
            values = dict(zip(HOLE.findall(source), found.groups(), strict=True))
            meant = {hole: _value(name, source, hole, value) for hole, value in values.items()}
            return SPACED.sub(partial(_put, values, meant), translation)
    return None


def _put(values: Mapping[str, str], meant: Mapping[str, str], place: re.Match) -> str:
    """A value with the spaces around its place, but for a space between two Chinese characters."""
    before, hole, behind = place.groups("")
    text = meant[hole]
    if text != values[hole]:
        before = "" if re.match(CHINESE, text) else before
        behind = "" if re.match(CHINESE, text[-1:]) else behind
    return f"{before}{text}{behind}"


def _value(name: str, source: str, hole: str, value: str) -> str:
    """What stands for a value in a translation."""
    if hole == "{exception}" or f'"{hole}"' in source or f"'{hole}'" in source:
        return value  # a text of the user
    if hole.startswith(SPOKEN) or " " in value:  # another single word is a name
        value = _meant(name, value) or value
    return re.sub(", | and ", "、", value) if NAMES.fullmatch(value) else value


@cache
def _patterns(name: str) -> list[tuple[re.Pattern, str, str]]:
    """The texts of NAME.po that have names and values in them: how each reads, the text, its translation."""
    found = []
    for text, translation in catalogue(name).items():
        if not HOLE.search(text):
            continue
        way, at = "", 0
        for hole in HOLE.finditer(text):
            way += re.escape(text[at:hole.start()]) + _held(hole)
            at = hole.end()
        found.append((re.compile(way + re.escape(text[at:]), re.DOTALL), text, translation))
    return found


def _held(hole: re.Match) -> str:
    """What may be in a place of a text: see PLACES; at the beginning of a text else one word, or a few that
    begin with a capital."""
    if "format_size" in hole[0]:
        return r"([\d.]+ \w+)"
    return PLACES.get(hole[0]) or (r"(.*)" if hole.start() else r"([A-Z]\w+(?: \w+){1,4}|\S*)")


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
    if not told or told[0] is None or axis not in ("step", "epoch", "count"):
        return None
    return axis, f"{float(told[0]):,.8g}"


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
    return shlex.join(short_words(words))


def shared_command(runs: Sequence[Mapping]) -> str:
    """The command of several runs, newest first, with `…` for each value in which they differ."""
    commands = [short_words(run["command"]) for run in runs]
    if len({len(words) for words in commands}) > 1:
        return shlex.join(commands[-1])
    return " ".join(_shared_word(set(each)) for each in zip(*commands, strict=True))


def _shared_word(words: set[str]) -> str:
    if len(words) == 1:
        return shlex.quote(*words)
    names = {word.partition("=")[0] if "=" in word else None for word in words}
    name = names.pop()
    return f"{name}=…" if name and not names else "…"


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
    "shared_command": shared_command,
    "moment": moment,
    "since": since,
    "share": share,
    "line": line,
    "duration": format_duration,
    "size": format_size,
}
