"""How the walk goes into code: functions and modules are known by their names, and lead on to what they hold;
to some of it nothing else leads."""

from __future__ import annotations

import functools
import sys
import types

from ...looks import isinstance
from ..core import caches, leaves

_WORDS_OF_A_CACHE = (*functools.WRAPPER_ASSIGNMENTS, "__wrapped__", "cache_parameters")
_user_files: dict = {}


def _is_user_file(file: str) -> bool:
    found = _user_files.get(file)
    if found is None:
        found = _user_files[file] = not leaves.is_library(file)
    return found


def of_function(walk, thing, path):
    """Its name and place; of one of the script's also what it closes over,
    its defaults and the names of its module."""
    home = thing.__globals__
    owner = home.get("__name__")
    if type(owner) is str and (owner == leaves.PACKAGE or owner.startswith(leaves.PACKAGE + ".")):
        if "__wrapped__" in thing.__dict__:
            walk.add_attributes(thing, path)
        return
    code = thing.__code__
    user = _is_user_file(code.co_filename)
    walk.facts[path] = (
        "function",
        str(thing.__module__),
        leaves.text(thing.__qualname__),
        code.co_firstlineno if user else 0,
    )
    if user and "<lambda>" in thing.__qualname__:
        walk.facts[path] += (leaves.code_sum(code),)
    if not user and "<locals>" not in thing.__qualname__ and not _is_user_file(leaves.file_behind(thing)):
        return
    for name, cell in zip(code.co_freevars, thing.__closure__ or ()):  # noqa: B905 - Python 3.9
        walk.add(cell, f"{path}.{name}")
    if thing.__defaults__:
        walk.add(thing.__defaults__, path + ".__defaults__")
    if thing.__kwdefaults__:
        walk.add(thing.__kwdefaults__, path + ".__kwdefaults__")
    if thing.__dict__:
        walk.add_attributes(thing, path)
    if user and id(home) not in walk.module_dicts and id(home) not in walk.seen:
        walk.names(home, path + ".__globals__")


def of_cell(walk, thing, path):
    """A variable of a function that outlives it, or that nothing was put into yet."""
    try:
        walk.add(thing.cell_contents, path, thing, None, "cell")
    except ValueError:
        walk.facts[path] = ("cell", "empty")


def of_method(walk, thing, path):
    """Whose it is, and what it does."""
    walk.add(thing.__self__, path + ".__self__")
    walk.add(thing.__func__, path + ".__func__")


def of_builtin(walk, thing, path):
    """Its name, and the object that it belongs to."""
    walk.facts[path] = ("function", leaves.text(thing.__qualname__))
    owner = thing.__self__
    if owner is not None and not isinstance(owner, (types.ModuleType, type)):
        walk.add(owner, path + ".__self__")


def of_partial(walk, thing, path):
    """What it calls, and with what."""
    walk.add(thing.func, path + ".func")
    walk.add(thing.args, path + ".args")
    walk.add(thing.keywords, path + ".keywords")
    walk.add_attributes(thing, path)


def of_property(walk, thing, path):
    """The functions behind an attribute."""
    for word in ("fget", "fset", "fdel"):
        if getattr(thing, word) is not None:
            walk.add(getattr(thing, word), f"{path}.{word}")


def of_wrapped(walk, thing, path):
    """staticmethod, classmethod: the function within."""
    walk.add(thing.__func__, path)
    walk.add_attributes(thing, path, (*functools.WRAPPER_ASSIGNMENTS, "__wrapped__"))


def of_lru(walk, thing, path):
    """How often it was asked, and what it keeps."""
    inner = getattr(thing, "__wrapped__", None)
    code = getattr(inner, "__code__", None)
    if code is not None and not _is_user_file(code.co_filename) and _stands_at_home(thing):
        return
    walk.facts[path] = ("lru_cache", tuple(thing.cache_info()))
    known = caches.entries(thing)
    if known is None:
        for n, part in enumerate(leaves.parts(thing)):
            if type(part) is not object:
                walk.add(part, f"{path}<{n}>")
        return
    walk.things[path] = thing
    walk.add(inner, f"{path}.__wrapped__")
    walk.add_attributes(thing, path, _WORDS_OF_A_CACHE)
    for n, (args, kwargs, result) in enumerate(known):
        walk.add(result, f"{path}[#{n}]", thing, n, "item")
        walk.facts[f"{path}[#{n}]<asked>"] = (len(args), *kwargs)
        for m, part in enumerate((*args, *kwargs.values())):
            walk.add(part, f"{path}[#{n}]<{m}>", thing, n, "item")


def _stands_at_home(thing) -> bool:
    """Whether a library made this cache for a function of its own."""
    home = sys.modules.get(str(thing.__module__))
    for word in str(thing.__qualname__).split("."):
        home = getattr(home, word, None)
    return home is thing or "<locals>" in thing.__qualname__


def of_module(walk, thing, path):
    """Its name; one of the script's leads on to all its names."""
    names = leaves.attributes(thing) or {}
    name = str(names.get("__name__"))
    walk.facts[path] = ("module", leaves.text(name))
    if id(names) not in walk.module_dicts and leaves.is_user_module(name, thing):
        walk.names(names, path)
