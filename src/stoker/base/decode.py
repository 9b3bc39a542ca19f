"""JSON objects as dataclasses, by their annotations:
strictly what is asked now, leniently what some version once wrote.

A dataclass that is decoded here stands in a module without `from __future__ import annotations`.
Known annotations: bool, int, float, str, dict, dict[str, str], tuple[X, ...], tuple[X, X], and X | None.
"""

from __future__ import annotations

from dataclasses import MISSING, fields
from functools import cache
from types import UnionType
from typing import get_args, get_origin

from stoker.base.errors import InvalidSpec, UnknownField

INFINITE = float("inf")
SHOWN_MAX = 80  # characters of a wrong value in a message
_WORDS: dict[object, str] = {
    bool: "true or false", int: "a whole number", float: "a number", str: "a string", dict: "an object",
}
_NEWER = "If the client is newer than the server: stoker server stop   (the next command starts a new server)"


def asked(cls: type, body: dict, what: str):
    """Decode a request to `cls`; `what` names it in messages. Raises UnknownField, or InvalidSpec with the
    wrong field."""
    known = _kinds(cls)
    unknown = sorted(str(name) for name in body if name not in known)
    if unknown:
        raise UnknownField(
            f"The {what} has a field that this version of Stoker does not know: {', '.join(unknown)}.",
            hint=_NEWER,
            fields=unknown,
        )
    for name, value in body.items():
        if not fits(value, known[name]):
            shown = repr(value)
            shown = shown if len(shown) <= SHOWN_MAX else shown[:SHOWN_MAX - 3] + "..."
            raise InvalidSpec(
                f"The field '{name}' of the {what} must be {words(known[name])}, not {shown}.", fields=[name]
            )
    return _made(cls, body, what)


def written(cls: type, body: dict, what: str):
    """Decode a stored object to `cls`. Ignores unknown fields, and uses the default for a value of the
    wrong type. Raises InvalidSpec if a field without a default is missing."""
    known = _kinds(cls)
    plain = {
        name: value
        for name, value in body.items()
        if type(value) is known.get(name) or (name in known and fits(value, known[name]))
    }
    return _made(cls, plain, what)


def fits(value: object, kind: object) -> bool:
    """True if a JSON or Python value has this type. A whole number also counts as a number; true and false
    do not."""
    if isinstance(kind, UnionType):
        return any(fits(value, each) for each in get_args(kind))
    if kind is float:
        return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < INFINITE
    if kind is int:
        return isinstance(value, int) and not isinstance(value, bool)
    if isinstance(kind, type) and not hasattr(kind, "__args__"):
        return isinstance(value, kind)
    kinds = get_args(kind)
    if get_origin(kind) is dict:
        return isinstance(value, dict) and all(
            fits(k, kinds[0]) and fits(v, kinds[1]) for k, v in value.items()
        )
    first, *rest = kinds
    many = rest == [...]
    return (
        isinstance(value, list | tuple)
        and (many or len(value) == len(kinds))
        and all(fits(each, first) for each in value)
    )


def words(kind: object) -> str:
    """The type in words, as it reads after "must be"."""
    if isinstance(kind, UnionType):
        return " or ".join(words(each) for each in get_args(kind))
    if kind is type(None):
        return "null"
    if kind in _WORDS:
        return _WORDS[kind]
    kinds = get_args(kind)
    if get_origin(kind) is dict:
        return "an object of strings"
    plural = {str: "strings", float: "numbers", int: "whole numbers"}[kinds[0]]
    return f"a list of {plural}" if kinds[-1] is ... else f"a list of {len(kinds)} {plural}"


@cache
def _kinds(cls: type) -> dict[str, object]:
    return {f.name: f.type for f in fields(cls)}


@cache
def _needed(cls: type) -> tuple[str, ...]:
    return tuple(f.name for f in fields(cls) if f.default is MISSING and f.default_factory is MISSING)


def _made(cls: type, body: dict, what: str):
    missing = [name for name in _needed(cls) if name not in body]
    if missing:
        raise InvalidSpec(f"The {what} has no value for: {', '.join(missing)}.", fields=missing)
    return cls(**{name: tuple(value) if isinstance(value, list) else value for name, value in body.items()})
