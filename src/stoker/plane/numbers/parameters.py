"""The parameters of a run: what its command line gives, and what its script told a library. Pure."""

from __future__ import annotations

import re
from collections.abc import Sequence

TEXT_MAX = 200
NAMES_MAX = 2000
PARSERS = frozenset(("argparse", "click"))  # sources that have read the whole command line
_SECRET = re.compile(
    r"(?:^|[_\-.])(?:api_?key|token|secret|password|passwd|credentials?|auth)(?:$|[_\-.])", re.IGNORECASE
)
_SEED = re.compile(r"(?:^|[_.\-])(?:random_?)?(?:seed|random_state|manual_?seed)$", re.IGNORECASE)
_NUMBER = re.compile(r"[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?$")
_NAME = re.compile(r"--?(?!\d)([^\s=]+)(?:=(.*))?$", re.DOTALL)
_OVERRIDE = re.compile(r"\+{0,2}([A-Za-z_][\w.@/]*)=(.*)$", re.DOTALL)  # hydra: `optimizer.lr=0.1`


def of_command(command: Sequence[str]) -> dict[str, object]:
    """Parse `--lr 0.1 --name=x --flag model.size=3` into names and values; positional words become
    `argument 1` and so on."""
    words = list(command)
    script = next((i for i, word in enumerate(words) if word.endswith(".py")), None)
    module = words.index("-m") + 1 if "-m" in words[:4] and script is None else None
    words = words[(script if script is not None else module if module is not None else 0) + 1:]
    found: dict[str, object] = {}
    alone = 0
    while words:
        word = words.pop(0)
        match = _NAME.match(word) if word != "--" else None
        if match:
            name, value = match[1], match[2]
            if value is None and words and not _NAME.match(words[0]) and not _OVERRIDE.match(words[0]):
                value = words.pop(0)
                while words and _NUMBER.match(value.split()[-1] or "x") and _NUMBER.match(words[0]):
                    value = f"{value} {words.pop(0)}"  # `--sizes 64 128`
            found[name.replace("-", "_")] = True if value is None else value_of(value)
        elif override := _OVERRIDE.match(word):
            found[override[1]] = value_of(override[2])
        elif word != "--":
            alone += 1
            found[f"argument {alone}"] = value_of(word)
    return kept(found)


def value_of(text: str) -> object:
    """The text as a number, if it is one."""
    if not _NUMBER.match(text):
        return text
    return int(text) if re.fullmatch(r"[-+]?\d{1,18}", text) else float(text)


def kept(found: dict) -> dict[str, object]:
    """Plain values with dotted names, without secrets."""
    flat: dict[str, object] = {}
    _flatten(found, "", flat, 0)
    return flat


def _flatten(found: dict, before: str, flat: dict[str, object], deep: int) -> None:
    for name, value in found.items():
        whole = f"{before}{name}"
        if len(flat) >= NAMES_MAX or _SECRET.search(str(name)):
            continue
        if isinstance(value, dict) and deep < 8:
            _flatten(value, f"{whole}.", flat, deep + 1)
        elif isinstance(value, str):
            flat[whole] = value[:TEXT_MAX]
        elif value is None or isinstance(value, bool | int | float):
            flat[whole] = value
        elif isinstance(value, list | tuple) and all(
            isinstance(each, str | int | float | bool) or each is None for each in value
        ):
            flat[whole] = ", ".join(map(str, value))[:TEXT_MAX]


def seed(name: str) -> bool:
    """True if runs that differ only in this parameter are repetitions."""
    return bool(_SEED.search(name))
