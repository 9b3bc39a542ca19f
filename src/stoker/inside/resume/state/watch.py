"""Notices when a dataset, a transform, or anything else that feeds a loader changes while it is used:
own random generators, counters, caches, arrays written in place, memory shared between processes, and the
module variables that its code reads.

No pickling, and no code of the user's is run by looking: no property, no `__eq__`, no `__getattr__`.
"""

from __future__ import annotations

import collections
import gc
import marshal
import operator
import sys
import threading
import types
import zlib

from ...looks import has, isinstance, vars
from ..core import caches, leaves
from ..core.leaves import PLAIN
from .watch_kinds import (
    ATOMS,
    BETWEEN,
    HANDLES,
    cell_content,
    content_of,
    global_generators,
    is_handle,
    is_iterator,
    is_shared,
    is_users,
    module_of,
    names_of,
    settings,
    slot_content,
    state_of,
)

MANY = 512  # elements; longer containers are looked through now and then only, and a slice at each look
SLICE = 2048
FEW = 32
MOST = 200_000  # objects that one plan looks into
_COMPILERS = ("_torchdynamo_", "__dynamo_disable")  # attributes that torch's compiler gives to functions
# of a class; the last is put there when one of its objects is first copied or pickled,
# as for a worker that is spawned
_NOT_ITS_OWN = frozenset(("__doc__", "__module__", "_abc_impl", "__dict__", "__weakref__", "__slotnames__"))


class Held:
    """Values that hang on one owner: `values()` gives them now, `then` is how they were. `names_now()`:
    of its attributes; None if the owner is a container."""

    __slots__ = ("names", "names_now", "owner", "path", "then", "values")

    def __init__(self, path: str, values: object, owner: object, names: object = None) -> None:
        self.path, self.values, self.owner = path, values, owner
        self.names_now = names or _no_names
        self.then, self.names = values(), self.names_now()

    def differences(self, now: tuple, late: bool = False) -> list:
        """(owner, name) of what differs; with `late`,
        a handle that was opened where nothing was is no difference."""
        if self.names is None:
            return [] if _same(now, self.then, late) else [(self.owner, None)]
        before, after = dict(zip(self.names, self.then)), dict(zip(self.names_now(), now))  # noqa: B905
        return [
            (self.owner, name)
            for name in {**before, **after}
            if not _same((after.get(name),), (before.get(name),), late)
        ]

    def told(self, now: tuple) -> str:
        names = [name for _, name in self.differences(now, late=True) if name is not None]
        return f"{self.path}.{names[0]}" if names and names[0] != "cell_contents" else self.path


class Watch:
    """What a set of objects reaches, remembered so that a later `look()` is cheap (about 10 us for an
    ordinary dataset).

    `roots`: (name, object) pairs. `strays`: more of them, looked at last. `files`:
    whether the place in an open file counts. `process`: it is all that a worker has:
    settings of the process count, and whether files are read in order."""

    def __init__(self, roots: list, strays: tuple = (), files: bool = False, process: bool = False) -> None:
        self.unreadable = ""  # the first thing that cannot be watched, by its path
        self._files, self._process = files, process
        self._seen: set = set(map(id, global_generators()))
        self._keep: list = []
        self._small: list = []  # Held, compared element by element at each look
        self._large: list = []  # Held, compared now and then
        # Held of what an lru_cache keeps, and how often it was asked:
        # no change to `look`, which counts misses
        self._caches: list = []
        self._states: list = []  # (path, state(), remembered state)
        self._deep: list = []  # (path, state(), remembered state), compared now and then
        self._shared: list = []  # (path, state(), remembered state) of memory that other processes see
        self._order: list = []  # for the digest
        self._looks = 0
        self._digest: int | None = None
        self._next_deep = 1
        self._queue: list = []
        for some in (roots, strays):
            self._queue[:] = [(thing, name) for name, thing in some]
            self._drain()
        if process:
            told = "an environment variable or another setting of the process"
            self._states.append((told, settings, settings()))

    def look(self, deep: bool = False) -> str:
        """The path of something that changed since the plan was made, or "". `deep`:
        also in what is otherwise compared now and then."""
        self._looks += 1
        for held in self._small:
            now = held.values()
            if not all(map(operator.is_, now, held.then)) or len(now) != len(held.then):
                if held.differences(now, late=True):
                    return held.told(now)
                self._add_late(now, held)
                held.then, held.names = now, held.names_now()
        for path, state, then in (*self._states, *self._shared):
            if state() != then:
                return path
        if deep or self._looks >= self._next_deep:
            self._next_deep = self._looks * 2
            return self._look_deep()
        return self._look_at_slices() if self._large else ""

    def _add_late(self, now: tuple, held: Held) -> None:
        """A file or a database that was opened since:
        from here on it counts whether it is read in order, or written."""
        if not self._process:
            return
        for value in now:
            if (
                is_handle(type(value))
                and id(value) not in self._seen
                and state_of(value, type(value), self._files, True) is not None
            ):
                self._seen.add(id(value))
                self._keep.append(value)
                self._add_state(value, type(value), held.path)

    def moved(self) -> list:
        """What changed among attributes and in containers since the last call:
        [(owner, name of the attribute; None for a container)]."""
        self._looks += 1
        deep = self._looks >= self._next_deep
        if deep:
            self._next_deep = self._looks * 2
        found = []
        asked = self._caches if deep else [held for held in self._caches if len(held.then) <= MANY]
        for held in (*self._small, *asked, *(self._large if deep else ())):
            now = held.values()
            if len(now) != len(held.then) or not all(map(operator.is_, now, held.then)):
                found += held.differences(now)
                held.then, held.names = now, held.names_now()
        return found

    def forgive_shared(self) -> None:
        """Memory that is shared between processes may have changed until now."""
        self._shared = [(path, state, state()) for path, state, _ in self._shared]

    def digest(self) -> int:
        """A checksum of the content when it was first asked for;
        equal in two processes that hold the same."""
        if self._digest is None:
            self._digest = self._checksum()
        return self._digest

    def _checksum(self) -> int:
        crc = 0
        for kind, state in self._order:
            try:
                crc = zlib.crc32(marshal.dumps(state(), 2), zlib.crc32(kind.encode(), crc))
            except ValueError:
                crc = zlib.crc32(b"?", crc)
        return crc

    def _look_deep(self) -> str:
        for held in self._large:
            now = held.values()
            if not (
                len(now) == len(held.then) and all(map(operator.is_, now, held.then))
            ) and held.differences(now, late=True):
                return held.told(now)
        for path, state, then in self._deep:
            if state() != then:
                return path
        return ""

    def _look_at_slices(self) -> str:
        for held in self._large:
            if type(held.owner) is list:
                at = self._looks * SLICE % len(held.then)
                now, then = held.owner[at:at + SLICE], held.then[at:at + SLICE]
                if len(held.owner) != len(held.then) or not (
                    all(map(operator.is_, now, then)) or _same(now, then)
                ):
                    return held.path
        return ""

    # -- the plan

    def _drain(self) -> None:
        for thing, path in self._queue:  # grows while it is gone through
            if len(self._keep) > MOST:
                break  # a data set of this size is data: its containers are watched, not each thing in them
            if type(thing) not in ATOMS and id(thing) not in self._seen:
                self._seen.add(id(thing))
                self._keep.append(thing)
                self._add(thing, path)
        self._queue.clear()

    def _add(self, thing: object, path: str) -> None:
        kind = type(thing)
        if isinstance(thing, type):
            self._add_class(thing, path)
        elif kind is tuple or kind is frozenset:
            self._order.append((kind.__name__, lambda: _plain_of(tuple(thing))))
            self._descend(tuple(thing), path)
        elif isinstance(thing, (dict, list, set, tuple)) or kind.__name__ == "deque":
            self._add_container(thing, path)
            if kind not in (dict, list, set) and kind.__name__ != "deque":
                self._add_attributes(thing, path)
        elif kind in (types.FunctionType, types.MethodType, classmethod, staticmethod):
            self._add_function(thing, path)
        elif kind is types.BuiltinFunctionType or kind is types.MethodWrapperType:
            self._queue.append((thing.__self__, path))
        elif module_of(kind).startswith(BETWEEN) and kind.__name__ not in ("Lock", "RLock"):
            self._not_readable(path, f"a {leaves.name_of(kind)}, which other processes may change")
        elif module_of(kind) == "logging" and kind.__name__ in (
            "Logger",
            "RootLogger",
            "Manager",
            "PlaceHolder",
        ):
            # what loggers there are and what they were asked changes with each library's first use,
            # in a worker too
            parts = [*getattr(thing, "handlers", ()), *getattr(thing, "filters", ())]
            self._queue += [
                (part, path) for part in parts if is_users(sys.modules.get(module_of(type(part))))
            ]
        elif kind is types.CellType:
            self._hold(path, lambda: cell_content(thing), thing, lambda: ("cell_contents",))
        elif kind.__name__ == "ufunc" and thing.__name__.endswith(" (vectorized)"):
            self._not_readable(path, "a ufunc that is made from a function")
        elif isinstance(thing, threading.local):
            self._hold(
                path,
                lambda: _dict_values(leaves.of_this_thread(thing)),
                thing,
                lambda: tuple(leaves.of_this_thread(thing)),
            )
        elif kind is types.MappingProxyType:
            self._hold(path, lambda: tuple(thing.values()), thing)
        elif not self._add_state(thing, kind, path) and not self._add_attributes(thing, path):
            self._add_foreign(thing, kind, path)

    def _add_container(self, thing: object, path: str) -> None:
        if isinstance(thing, dict):
            self._hold(path, types.MethodType(_dict_parts, thing), thing)
            return
        if isinstance(thing, set):
            held = Held(path, lambda: tuple(set.__iter__(thing)), thing)
            (self._small if len(held.then) <= MANY else self._large).append(held)
            self._order.append(("set", lambda: sorted(map(repr, map(_plain, set.__iter__(thing))))))
            self._descend(held.then, path)
            return
        self._hold(path, _elements(thing), thing)

    def _hold(self, path: str, values: object, owner: object, names: object = None) -> None:
        held = Held(path, values, owner, names)
        (self._small if len(held.then) <= MANY else self._large).append(held)
        if names is None:
            self._order.append(("of", lambda: _plain_of(values())))
        else:
            self._order.append((leaves.name_of(type(owner)), lambda: [*names(), *_plain_of(values())]))
        self._descend(held.then, path, held.names)

    def _descend(self, values: object, path: str, names: tuple | None = None) -> None:
        if len(values) > MANY:  # this is data: the container is watched, and a few of the things in it
            values, names = [*values[:FEW], *values[-FEW:]], None
        for n, value in enumerate(values):
            if type(value) not in ATOMS:
                self._queue.append((value, _inner(path, n, names)))

    def _add_attributes(self, thing: object, path: str) -> bool:
        found = False
        try:
            attributes = object.__getattribute__(thing, "__dict__")
        except AttributeError:
            attributes = None
        if type(attributes) is dict and id(attributes) not in self._seen:
            found = True
            self._seen.add(id(attributes))
            self._keep.append(attributes)
            self._hold(
                path,
                types.MethodType(_dict_values, attributes),
                thing,
                types.MethodType(_names_in, attributes),
            )
        slots = leaves.slots(type(thing))
        if slots:
            found = True
            self._hold(
                path,
                lambda: tuple(slot_content(d, thing) for _, d in slots),
                thing,
                lambda: tuple(name for name, _ in slots),
            )
        if found or leaves.made_by_python(type(thing)):
            self._queue.append((type(thing), type(thing).__name__))
            return True
        return False

    def _add_class(self, kind: type, path: str) -> None:
        """Variables and functions of classes that the user wrote;
        what a library keeps in its classes is not looked at."""
        if not is_users(sys.modules.get(kind.__module__)):
            return
        own = vars(kind)
        names = tuple(n for n in own if n not in _NOT_ITS_OWN)
        self._hold(path, lambda: tuple(own.get(n) for n in names), kind, lambda: names)
        self._queue += [(base, base.__name__) for base in kind.__bases__]

    def _add_function(self, thing: object, path: str) -> None:
        if type(thing) is types.MethodType:
            self._queue += [(thing.__self__, f"{path}.self"), (thing.__func__, path)]
            return
        if type(thing) in (classmethod, staticmethod):
            self._queue.append((thing.__func__, path))
            return
        held = [
            *(thing.__defaults__ or ()),
            *(thing.__kwdefaults__ or {}).values(),
            *(thing.__closure__ or ()),
        ]
        self._descend(held, path)
        space = thing.__globals__
        module = sys.modules.get(space.get("__name__", ""))
        if vars(thing) or is_users(module):  # one of the script's may get its first later
            self._add_variables(thing, path)
        if is_users(module):
            self._add_names(space, *names_of(thing.__code__), path)

    def _add_variables(self, function: types.FunctionType, path: str) -> None:
        """The attributes of a function, without those that torch's compiler puts there at its first call:
        they hold an address."""
        own = vars(function)
        names = types.MethodType(_names_of_function, own)
        self._hold(path, lambda: tuple([own[name] for name in names()]) if own else (), function, names)

    def _add_names(self, space: dict, names: frozenset, attributes: frozenset, path: str) -> None:
        """The module variables that a function of the user's reads, and those of his other modules that it
        may reach by an attribute."""
        if (id(space), names) in self._seen:
            return
        self._seen.add((id(space), names))
        read = [name for name in sorted(names) if name in space and not name.startswith("__")]
        if read:
            module = sys.modules.get(space.get("__name__", ""))
            values = lambda: tuple(space.get(name) for name in read)  # noqa: E731
            self._small.append(Held(space.get("__name__", "globals"), values, module, lambda: tuple(read)))
            self._order.append(("names", lambda: [_plain(space.get(name)) for name in read]))
        for name in read:
            value = space[name]
            if type(value) is types.ModuleType:
                if is_users(value):
                    self._add_names(vars(value), attributes, attributes, f"{path}.{name}")
                else:
                    self._add_settings(value, attributes)
            elif type(value) not in ATOMS:
                self._queue.append((value, name))

    def _add_settings(self, module: types.ModuleType, attributes: frozenset) -> None:
        """Plain variables of a library's module that code of the user's names:
        `ImageFile.LOAD_TRUNCATED_IMAGES`."""
        space = vars(module)
        read = [
            name
            for name in sorted(attributes)
            if type(space.get(name)) in PLAIN and not name.startswith("__")
        ]
        if read and (id(space), attributes) not in self._seen:
            self._seen.add((id(space), attributes))
            self._small.append(
                Held(
                    module.__name__,
                    lambda: tuple(space.get(name) for name in read),
                    module,
                    lambda: tuple(read),
                )
            )
        for name in sorted(attributes & space.keys()):
            function = space[name]
            if type(function) is types.FunctionType and id(function) not in self._seen:
                self._seen.add(id(function))
                self._add_variables(function, f"{module.__name__}.{name}")

    def _add_state(self, thing: object, kind: type, path: str) -> bool:
        """Things with a state that is no attribute:
        generators of random numbers, tensors, arrays, shared memory, open files."""
        state = state_of(thing, kind, self._files, self._process)
        if state is None:
            return False
        often, now_and_then = state
        if often is not None and is_shared(thing):
            self._shared.append((path, often, often()))
        elif often is not None:
            self._states.append((path, often, often()))
        if now_and_then is not None:
            self._deep.append((path, now_and_then, now_and_then()))
        content = content_of(thing) or now_and_then or often or int
        self._order.append((leaves.name_of(kind), content))
        wrapped = getattr(thing, "__wrapped__", None) if has(kind, "cache_info") else None
        if wrapped is not None:
            kept = Held(path, lambda: caches.flat(thing), thing)
            self._caches.append(kept)
            self._queue.append((wrapped, path))
            self._descend(kept.then, path)
        return True

    def _add_foreign(self, thing: object, kind: type, path: str) -> None:
        """An object made in C."""
        package = module_of(kind).partition(".")[0]
        if is_iterator(kind):
            self._not_readable(path, "an iterator")
        elif kind.__name__ == "partial" and package == "functools":
            self._descend((thing.func, *thing.args, *thing.keywords.values()), path)
        elif package in HANDLES or module_of(kind) in HANDLES or package == "torch":
            return
        elif gc.is_tracked(thing):
            self._descend([r for r in gc.get_referents(thing) if not isinstance(r, type)], path)
        elif package not in ("numpy", "pandas", "builtins"):
            self._not_readable(path, f"a {leaves.name_of(kind)}")

    def _not_readable(self, path: str, what: str) -> None:
        self.unreadable = self.unreadable or f"{path} is {what}"


# -- comparing

def _dict_values(which: dict) -> tuple:
    return tuple(dict.values(which))


def _dict_parts(which: dict) -> tuple:
    return (*dict.values(which), *dict.keys(which))


def _inner(path: str, n: int, names: tuple | None) -> str:
    if names is None:
        return f"{path}[{n}]"
    return path if names[n] == "cell_contents" else f"{path}.{names[n]}"


def _names_in(which: dict) -> tuple:
    return tuple(which)


def _names_of_function(which: dict) -> tuple:
    return tuple([name for name in which if not str(name).startswith(_COMPILERS)]) if which else ()


def _no_names() -> None:
    return None


def _same(now: object, then: object, late: bool = True) -> bool:
    """Element by element: the same object, an equal plain value, or, with `late`, a handle that was opened
    where nothing was."""
    if len(now) != len(then):
        return False
    for a, b in zip(now, then):  # noqa: B905
        if a is b:
            continue
        if type(a) in PLAIN:
            if type(a) is not type(b) or (a != b and repr(a) != repr(b)):
                return False
        elif type(a) is types.MethodType and type(b) is types.MethodType:
            if a.__func__ is not b.__func__ or a.__self__ is not b.__self__:
                return False
        elif not (late and b is None and is_handle(type(a))):
            return False
    return True


def _elements(thing: object) -> object:
    """What gives a list, tuple or deque as a tuple, past the methods of a class of the script's."""
    if type(thing) in (list, tuple, collections.deque):
        return types.MethodType(tuple, thing)
    go = next(base.__iter__ for base in (list, tuple, collections.deque) if isinstance(thing, base))
    return lambda: tuple(go(thing))


def _plain(value: object) -> object:
    kind = type(value)
    if kind in PLAIN:
        return value
    return kind.__name__


def _plain_of(values: object) -> list:
    if len(values) > MANY and not PLAIN.issuperset(map(type, values)):
        values = [len(values), *values[:FEW], *values[-FEW:]]
    return [value if type(value) in PLAIN else type(value).__name__ for value in values]
