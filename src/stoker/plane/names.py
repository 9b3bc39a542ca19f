"""Speakable ids (`tavo-miku`) and names that are picked for runs without one (`train`, `train-2`)."""

from __future__ import annotations

import os
import random
import re
import shlex
from collections.abc import Callable, Sequence

from stoker.base.errors import InvalidSpec
from stoker.base.near import near
from stoker.base.spec import NAME_MAX, NOT_IN_NAMES, check_name

_CONSONANTS = "bdfgklmnprstvz"
_VOWELS = "aeiou"
_RANDOM = random.SystemRandom()
_STEM_MAX = NAME_MAX - 8
MEANT_SHOWN = 3
# modules that start a script, which gives the name
_LAUNCHERS = ("torch.distributed.run", "torch.distributed.launch", "accelerate.commands.launch")


def new_id(taken: Callable[[str], bool]) -> str:
    """Two words of four letters for which `taken` returns False; 24 million ids exist."""
    while True:
        run_id = "-".join(
            "".join(_RANDOM.choice(letters) for letters in (_CONSONANTS, _VOWELS) * 2) for _ in range(2)
        )
        if not taken(run_id):
            return run_id


def stem(command: Sequence[str]) -> str:
    """The default name of a run of this command: the script's stem, the module, or the program."""
    program = os.path.basename(command[0])
    picked = program
    if re.fullmatch(r"python[\d.]*|torchrun|accelerate|ipython|(ba|da|z|k|fi)?sh", program):
        picked = _script(command[1:]) or program
    picked = os.path.basename(picked.rstrip("/"))
    for end in (".py", ".sh", ".bash"):
        picked = picked.removesuffix(end)
    picked = re.sub(rf"[{NOT_IN_NAMES}\ud800-\udfff]+", "_", picked).strip().lstrip("-")[:_STEM_MAX].strip()
    return picked if picked and set(picked) != {"."} else "run"


def _script(words: Sequence[str]) -> str:
    """The script or module among the arguments of an interpreter or launcher; "" for none."""
    for i, word in enumerate(words):
        if word.endswith(".py"):
            return word
        if word == "-m" and i + 1 < len(words) and words[i + 1] not in _LAUNCHERS:
            return words[i + 1].rpartition(".")[2]
        if re.fullmatch(r"-[a-z]*c", word):  # -c, and bash -lc
            return ""
    return next((word for word in words if not word.startswith("-")), "")


def numbered(stem_: str, number: int) -> str:
    """Name number `number` of a stem: `train`, `train-2`, ..."""
    return stem_ if number == 1 else f"{stem_}-{number}"


def check_given(name: str) -> None:
    """Check that a typed name can be stored and shown. Raises InvalidSpec."""
    check_name(name)
    try:
        name.encode("utf-8")
    except UnicodeEncodeError:
        raise InvalidSpec(
            f"{name!r} is not a valid name: the name is not UTF-8 text.",
            hint="stoker run --name baseline-1 ..."
        ) from None


def meant(ref: str, known: Sequence[tuple[str, str]]) -> str:
    """A hint with similar names or ids from (name, id) pairs, newest first; "" if none is similar."""
    found = near(ref, [name for name, _ in known], MEANT_SHOWN) or near(
        ref, [run_id for _, run_id in known], 1
    )
    quoted = [shlex.quote(word) for word in found]
    listed = " or ".join(filter(None, (", ".join(quoted[:-1]), *quoted[-1:])))
    return f"Did you mean {listed}? List all runs: stoker ps --all" if found else ""
