"""A log as a terminal shows it: lines without escape codes,
and each frame of a line that is drawn again and again."""

from __future__ import annotations

import codecs
import re
from collections.abc import Iterator
from dataclasses import dataclass

HELD_MAX = 1 << 16  # characters of a line that has no end yet
LINE_MAX = 1 << 13  # characters; a longer line is no line of numbers, and is dropped
_UP = re.compile(r"\x1b\[\d*[AF]")
_BACK = re.compile(r"\x08+")
_CODES = re.compile(
    r"\x1b\[[0-?]*[ "
    r"-/]*[@-~]|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)|\x1b[@-Z\\-_]|[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]"
)
_RUNS = re.compile(r"([\W_])\1{24,}")  # what only fills a line
_OPEN_CODE = re.compile(r"\x1b(?:\[[0-?]*[ -/]*)?$")  # the rest of the code is in the next piece


@dataclass(slots=True)
class Shown:
    """One line, or one frame of a progress bar. offset: bytes of the log up to the end of its piece.
    drawn: more frames may follow."""

    text: str
    offset: int
    drawn: bool


class Screen:
    """Converts pieces of a log to lines. Text after the last line end is held until the line is complete."""

    def __init__(self) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._held = ""
        self._offset = 0
        self._too_long = False

    def feed(self, data: bytes) -> Iterator[Shown]:
        """Return the lines that are now complete."""
        self._offset += len(data)
        text = self._held + self._decoder.decode(data)
        open_code = _OPEN_CODE.search(text)
        kept = text[open_code.start():] if open_code else ""
        text = _UP.sub("\n", text[:len(text) - len(kept)])
        text = _BACK.sub("\r", text.replace("\r\n", "\n"))
        # a "\r" at the very end may be half of a line end
        at = max(text.rfind("\n"), text.rfind("\r", 0, len(text) - 1)) + 1
        self._held = text[at:] + kept
        if len(self._held) > HELD_MAX:
            self._held, self._too_long = "", True
        if at:
            yield from self._lines(text[:at].removesuffix("\n"))

    def end(self, whole: bool) -> Iterator[Shown]:
        """Return the rest. A line without an end may stop in the middle of a number: it counts only if
        `whole`, or if it is a complete bar."""
        left, self._held = _CODES.sub("", self._held).rstrip("\r"), ""
        if (whole or left.rstrip().endswith("]")) and not self._too_long:
            yield from self._lines(left)

    def _lines(self, text: str) -> Iterator[Shown]:
        for line in text.split("\n"):
            if self._too_long:
                self._too_long = False  # this is its end
                continue
            if not line:
                yield Shown("", self._offset, False)
                continue
            frames = [frame for part in line.split("\r") if (frame := _CODES.sub("", part)).strip()]
            for i, frame in enumerate(frames):
                short = _RUNS.sub(r"\1" * 24, frame) if len(frame) > 200 else frame
                if len(short) <= LINE_MAX:
                    yield Shown(short, self._offset, i < len(frames) - 1)
