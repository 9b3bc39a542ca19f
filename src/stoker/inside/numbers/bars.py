"""tqdm: the numbers behind a progress bar (`set_postfix`), each call, with all their digits where they were
plain numbers."""

from __future__ import annotations

import sys

from . import lines, owners

_SPLITS = {
    "train": "train",
    "training": "train",
    "trn": "train",
    "val": "val",
    "valid": "val",
    "validation": "val",
    "validate": "val",
    "validating": "val",
    "eval": "eval",
    "evaluation": "eval",
    "evaluating": "eval",
    "evaluate": "eval",
    "test": "test",
    "testing": "test",
    "dev": "dev",
}
_DEEP = 32  # frames


def install(module: object) -> None:
    """module: tqdm.std; the bars of notebooks and of tqdm.auto are made of it."""
    lines.after(module.tqdm, "set_postfix", "tqdm", _postfix)


def _postfix(_result, self, ordered_dict=None, refresh=True, **named) -> None:
    drawn = dict(part.partition("=")[::2] for part in self.postfix.split(", "))
    values = {}
    for name, value in {**(ordered_dict or {}), **named}.items():
        number = (
            value
            if isinstance(value, (int, float)) and type(value) is not bool
            else _number(drawn.get(name, ""))
        )
        if number is not None:
            values[name] = number
    if not values:
        return
    words = _words(getattr(self, "desc", None))
    split = next((_SPLITS[word] for word in words if word in _SPLITS), None)
    if split:
        values = {f"{split}/{name}" if _takes_split(name) else name: value for name, value in values.items()}
    for nth, some in owners.sorted_out("tqdm", values, (self.total, *words, *_stack())).items():
        lines.write("tqdm", some, None, nth=nth)


def _number(text: str) -> float | None:
    """Of what the bar shows: the library has made text of it."""
    try:
        return float(text.strip().rstrip("%"))
    except ValueError:
        return None


def _words(title: str | None) -> list[str]:
    """Of a title without its numbers: "Train epoch 3/10" is the same bar as "Train epoch 4/10"."""
    letters = "".join(each if each.isalpha() else " " for each in title or "")
    return letters.lower().split()


def _takes_split(name: str) -> bool:
    pieces = "".join(each if each.isalpha() else " " for each in name.lower()).split()
    return "lr" not in pieces and not any(piece in _SPLITS for piece in pieces)


def _stack() -> list:
    """The lines that called: a function that trains and validates comes from two of them,
    and its bars are two curves."""
    frame = sys._getframe()
    found: list = []
    while frame is not None and len(found) < _DEEP:
        if "__unseen__" not in frame.f_globals:
            found.append((frame.f_code.co_filename, frame.f_lasti))
        frame = frame.f_back
    return found
