"""Which warnings were shown already, a part of each image: "shown once" means once in all lives together."""

from __future__ import annotations

import sys
import warnings

_PLACE = "__warningregistry__"  # in the globals of a module: what was shown there, as (text, class, line)


class _Nobody(Warning):
    """Asks for the version of the filters, and is never shown."""


def save(_store: object = None) -> dict:
    """What Python remembers of shown warnings, as plain values; not what it forgets at the next one, since filters have changed."""
    version, found = _version(), {}
    for name, module in list(sys.modules.items()):
        registry = (getattr(module, "__dict__", None) or {}).get(_PLACE)
        if type(registry) is dict and registry.get("version") == version:
            shown = [(key[0], *_words(key[1]), key[2]) for key in registry if type(key) is tuple and len(key) == 3 and type(key[0]) is str]
            if shown:
                found[name] = shown
    once = [(key[0], *_words(key[1])) for key in warnings.onceregistry if type(key) is tuple and type(key[0]) is str]
    return {"modules": found, "once": once}


def load(state: dict, _store: object = None) -> None:
    """Put it back, in place of what a ghost has seen."""
    version = _version()
    for name, shown in state["modules"].items():
        registry = vars(sys.modules[name]).setdefault(_PLACE, {}) if name in sys.modules else {}
        registry.clear()
        registry["version"] = version
        for text, module, word, line in shown:
            kind = _kind(module, word)
            if kind is not None:
                registry[text, kind, line] = True
    for text, module, word in state["once"]:
        kind = _kind(module, word)
        if kind is not None:
            warnings.onceregistry[text, kind] = 1


def _version() -> object:
    """Of the filters: Python writes it into each registry that it looks at, and nowhere else that can be read."""
    scratch: dict = {}
    ignored = ("ignore", None, _Nobody, None, 0)
    warnings.filters.insert(0, ignored)  # past warnings.simplefilter, which would change the version
    try:
        warnings.warn_explicit("", _Nobody, "", 1, registry=scratch)
    finally:
        warnings.filters.remove(ignored)
    return scratch.get("version")


def _words(kind: type) -> tuple:
    return kind.__module__, kind.__qualname__


def _kind(module: str, word: str) -> object:
    found = getattr(sys.modules.get(module), word, None)
    return found if isinstance(found, type) else None
