"""Which warnings were shown already, and the filters for others, a part of each image:
"shown once" means once in all lives together."""

from __future__ import annotations

import logging
import re
import sys
import warnings

from ...looks import attributes, isinstance
from ..core import caches, internals
from ..core.leaves import PLAIN

_PLACE = "__warningregistry__"  # in the globals of a module: what was shown there, as (text, class, line)


class _Nobody(Warning):
    """Asks for the version of the filters, and is never shown."""


def save(_store: object = None) -> dict:
    """What Python remembers of shown warnings, as plain values;
    not what it forgets at the next one, since filters have changed."""
    version, found = _version(), {}
    for name, module in list(sys.modules.items()):
        registry = attributes(module).get(_PLACE)
        if type(registry) is dict and registry.get("version") == version:
            shown = [
                (key[0], *_words(key[1]), key[2])
                for key in registry
                if type(key) is tuple and len(key) == 3 and type(key[0]) is str
            ]
            if shown:
                found[name] = shown
    once = [
        (key[0], *_words(key[1]))
        for key in warnings.onceregistry
        if type(key) is tuple and type(key[0]) is str
    ]
    return {
        "modules": found,
        "once": once,
        "filters": [_told(each) for each in warnings.filters],
        "called": _called(),
    }


def load(state: dict, _store: object = None) -> None:
    """Put it back, in place of what a ghost has seen."""
    _put_filters(state["filters"])
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
    _call(state["called"])


# ---- functions of libraries that say something once, since an lru_cache stands around them (`warning_once`)

def _called() -> list:
    """[(module, name, [arguments])] of each call that is remembered,
    as far as the arguments are plain values and loggers."""
    for home in sys.modules.keys() - _looked_through:
        _looked_through.add(home)
        names = attributes(sys.modules.get(home))
        _once.extend(
            (home, name)
            for name, thing in list(names.items())
            if type(thing) is caches.CACHE and name.endswith("_once")
        )
    found = []
    for home, name in _once:
        thing = attributes(sys.modules.get(home)).get(name)
        if type(thing) is caches.CACHE and thing.cache_info().currsize:
            keys = [key if type(key) is tuple else (key,) for key, _ in caches.cached(thing) or ()]
            calls = [[_argument(each) for each in key] for key in keys]
            found.append((home, name, [call for call in calls if None not in call]))
    return found


def _argument(thing: object) -> tuple | None:
    if isinstance(thing, logging.Logger):
        return ("logger", thing.name)
    return ("value", thing) if type(thing) in PLAIN else None


def _call(told: list) -> None:
    """Once more, unheard: this life is a ghost still, and loggers say nothing."""
    before = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        for home, name, calls in told:
            thing = attributes(sys.modules.get(home)).get(name)
            for call in calls if type(thing) is caches.CACHE else ():
                thing(*(logging.getLogger(value) if kind == "logger" else value for kind, value in call))
    finally:
        logging.disable(before)


_once: list = []  # (module, name)
_looked_through: set = set()  # names of modules


def _told(entry: tuple) -> tuple:
    action, text, kind, module, line = entry
    return (action, _pattern(text), *_words(kind), _pattern(module), line)


def _pattern(found: object) -> object:
    return (found.pattern, found.flags) if isinstance(found, re.Pattern) else found


def _put_filters(told: list) -> None:
    """As the script, or a library that it used, has set them, maybe where a ghost does not go."""
    if [_told(each) for each in warnings.filters] == [tuple(each) for each in told]:
        return
    found = []
    for action, text, home, word, module, line in told:
        kind = _kind(home, word)
        if kind is not None:
            patterns = [
                re.compile(*each) if isinstance(each, (tuple, list)) else each for each in (text, module)
            ]
            found.append((action, patterns[0], kind, patterns[1], line))
    warnings.filters[:] = found
    internals.filters_changed()


def _version() -> object:
    """Of the filters: Python writes it into each registry that it looks at,
    and nowhere else that can be read."""
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
