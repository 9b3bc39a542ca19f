"""A command as lists show it: as it was typed, without the folders of its programs."""

from __future__ import annotations

import os
from collections.abc import Sequence

SCRIPTS = (".py", ".sh")


def short_words(command: Sequence[str]) -> list[str]:
    """The words of a command without the folders of the program and of the first script in it.
    `./train.sh` stays, because `train.sh` is another command."""
    words = list(command)
    script = next((at for at, word in enumerate(words) if word.endswith(SCRIPTS) and word[0] != "-"), 0)
    return [_short(word) if at in (0, script) else word for at, word in enumerate(words)]


def _short(path: str) -> str:
    name = os.path.basename(path)
    return path if path == f"./{name}" else name
