"""Whose a class is, and how the walk goes into an object of a plain class,
or of one that nobody understands."""

from __future__ import annotations

import sys

from ...looks import isinstance
from ..core import leaves

_kinds: dict = {}
_strict: dict = {}
_STRICT = (
    "torch.nn.modules.module.Module",
    "torch.utils.data.dataset.Dataset",
    "torch.utils.data.sampler.Sampler",
    "torch.autograd.function.Function",
)


def is_user_kind(kind: type) -> bool:
    module = sys.modules.get(kind.__module__) if isinstance(kind.__module__, str) else None
    return leaves.made_by_python(kind) if module is None else leaves.is_user_module(kind.__module__, module)


def user_kinds(kind: type) -> bool:
    """Whether a class, or one that it inherits from, is the user's own."""
    found = _kinds.get(kind)
    if found is None:
        found = _kinds[kind] = any(
            is_user_kind(base) for base in kind.__mro__ if base.__module__ != "builtins"
        )
    return found


def is_strict(kind: type) -> bool:
    """Whether what hangs on such an object runs inside shields:
    there nothing may be left that is not understood."""
    found = _strict.get(kind)
    if found is None:
        found = _strict[kind] = any(
            f"{base.__module__}.{base.__qualname__}" in _STRICT for base in kind.__mro__
        )
    return found


def of_a_package(kind: type) -> bool:
    """Whether it is a module, data set or sampler of an installed package besides torch:
    such a class may count in its own variables."""
    return is_strict(kind) and not str(kind.__module__).startswith("torch.") and not user_kinds(kind)


def of_instance(walk, thing, path):
    kind = type(thing)
    walk.facts[path] = (leaves.name_of(kind),)
    walk.things[path] = thing
    if is_strict(kind):
        walk.strict.append((thing, path))
    walk.add_attributes(thing, path)
    if user_kinds(kind) or of_a_package(kind):
        walk.add(kind, f"T:{leaves.name_of(kind)}")


def of_unknown(walk, thing, path):
    """Something made in C that nobody understands: what it holds, as far as the garbage collector knows."""
    name = leaves.name_of(type(thing))
    walk.facts[path] = (name,)
    walk.unknown.append((path, name, thing))
    holder(walk, thing, path)
    if leaves.made_by_python(type(thing)):
        walk.add_attributes(thing, path)


def holder(walk, thing, path):
    for n, part in enumerate(leaves.parts(thing)):
        walk.add(part, f"{path}<{n}>")


def forget() -> None:
    """Hold no class of the script's any more."""
    _kinds.clear()
    _strict.clear()
