"""Looking at the script's objects without running their code."""

from __future__ import annotations

from _weakref import ref


def isinstance(thing: object, kinds: object) -> bool:
    """As the builtin, by `type(thing)` alone: that one asks `thing.__class__` too, which may be a property or
    a `__getattribute__`."""
    return issubclass(type(thing), kinds)


def attributes(thing: object) -> dict:
    """The instance dictionary, of modules their names; empty where there is none."""
    try:
        found = object.__getattribute__(thing, "__dict__")
    except AttributeError:
        return {}
    return found if isinstance(found, dict) else {}


class WeakKeys:
    """As weakref.WeakKeyDictionary, by identity: it asks no `__hash__` and no `__eq__`."""

    def __init__(self) -> None:
        self._found: dict = {}

    def get(self, thing: object) -> object:
        """What was put there for this thing, or None."""
        there, value = self._found.get(id(thing), (None, None))
        return value if there is not None and there() is thing else None

    def __setitem__(self, thing: object, value: object) -> None:
        found, number = self._found, id(thing)

        def gone(there: object) -> None:
            if found.get(number, (None,))[0] is there:
                del found[number]
        found[number] = (ref(thing, gone), value)

    def clear(self) -> None:
        self._found.clear()


def vars(thing: object) -> object:
    """As the builtin, past a `__getattribute__` of the script's."""
    try:
        return (type if isinstance(thing, type) else object).__getattribute__(thing, "__dict__")
    except AttributeError as e:
        raise TypeError(str(e)) from None


def has(kind: type, name: str) -> bool:
    """Whether a class has this attribute, past a `__getattr__` of its metaclass."""
    return any(name in vars(base) for base in kind.__mro__)


def named_modules(root: object) -> list:
    """As `torch.nn.Module.named_modules`: each module once, by the first path that leads to it."""
    found, seen, waiting = [], set(), [("", root)]
    while waiting:
        path, module = waiting.pop()
        if module is None or id(module) in seen:
            continue
        seen.add(id(module))
        found.append((path, module))
        waiting += [
            (f"{path}.{name}" if path else name, part)
            for name, part in reversed(_entries(module, "_modules"))
        ]
    return found


def named_parameters(root: object) -> list:
    """As `torch.nn.Module.named_parameters`."""
    found, seen = [], set()
    for path, module in named_modules(root):
        for name, parameter in _entries(module, "_parameters"):
            if parameter is not None and id(parameter) not in seen:
                seen.add(id(parameter))
                found.append((f"{path}.{name}" if path else name, parameter))
    return found


def _entries(module: object, word: str) -> list:
    table = attributes(module).get(word)
    if table is None:
        return []
    return list(dict.items(table) if isinstance(table, dict) else table.items())
