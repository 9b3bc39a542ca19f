"""Which commands may write files to their folder: all but those that only wait and send messages. Pure."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence

_SHELLS = ("sh", "bash", "dash", "zsh")
_MARKS = re.compile(r"[`>#\"'\\]|\$\(")  # with these in a text, its programs may not be what they seem
_HARMLESS_REDIRECTION = re.compile(r"[\d&]?>>? ?/dev/null|2>&1")
_QUOTED = re.compile(r"\"[^\"`$\\]*(?:\$[?\w][^\"`$\\]*)*\"|'[^']*'")
_KEYWORDS = ("!", "do", "if", "then", "until", "while")
_NO_WRITERS = frozenset(
    "done echo exit false fi ls mail mailx notify-send printf sendmail sleep true wait".split()
)
_STOKER = frozenset("logs ps show wait".split())


def may_write(command: Sequence[str]) -> bool:
    """False if each program of the command is known to write no file to the working folder, as in
    `sleep 60`, or `sh -c 'stoker wait base; mail ...'`. A program that is not known here may write."""
    words = list(command)
    if len(words) == 3 and words[0] in _SHELLS and words[1] == "-c":
        return _text_may_write(words[2])
    return _program_may_write(words)


def _text_may_write(text: str) -> bool:
    text = _HARMLESS_REDIRECTION.sub("", _QUOTED.sub("x", text))
    return bool(_MARKS.search(text)) or any(
        _program_may_write(part.split()) for part in re.split(r"[;&|\n]+", text)
    )


def _program_may_write(words: Sequence[str]) -> bool:
    rest = list(words)
    while rest and rest[0] in _KEYWORDS:
        del rest[0]
    if not rest:
        return False
    if os.path.basename(rest[0]) == "stoker":
        return "".join(rest[1:2]) not in _STOKER
    return rest[0] not in _NO_WRITERS
