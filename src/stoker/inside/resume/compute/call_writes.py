"""What code of the script's own writes inside a call that a ghost skips, into what outlives the call:
a hook that appends to a list, a forward that fills a dict or counts in a variable, a data set that counts
what was read. The script may go on with it, so that a ghost gets it too:
plain values as they were, stand-ins for tensors.

Which code that is, is read from its bytecode once (`Writers`);
its containers, attributes and variables are looked at before and after each call (`before`, `told`), and the
differences are a part of the call's event (`hand_out`).
What is not found so is not there for a ghost;
whatever it does with that, each value is compared before an image is used.
"""

from __future__ import annotations

import collections
import dis
import functools
import sys
import types
import weakref

from ... import looks
from ...looks import isinstance, vars
from ..core import leaves
from ..core.leaves import PLAIN
from ..state.watch_kinds import is_users, names_of
from . import stand_ins

MOST = 64  # values that one call may write into one place; more are left out
PLACES = 256
ARRAY = 1 << 16  # bytes of an array that is looked at
FUNCTIONS = 64
DEEP = 2  # containers within containers, attributes of attributes
# what happened to a place; _MUCH: more than is told
_APPENDED, _WHOLE, _NAMES, _VARIABLE, _MUCH, _ITEMS = range(6)
_LISTS = (list, collections.deque)
_DICTS = (dict, collections.OrderedDict, collections.defaultdict, collections.Counter)
_MUTATORS = frozenset(
    """
    add append appendleft at clear copyto discard extend extendleft fill insert move_to_end pop popitem
    popleft put remove reverse rotate setdefault sort subtract update heapify heappop heappush heappushpop
    heapreplace insort insort_left insort_right shuffle delattr delitem setattr setitem __delattr__
    __delitem__ __iadd__ __ior__ __setattr__ __setitem__
""".split()
)
_WRITES = frozenset("STORE_SUBSCR DELETE_SUBSCR STORE_SLICE STORE_GLOBAL STORE_ATTR DELETE_ATTR".split())
_HOOKING = frozenset(
    "register_hook register_prehook register_multi_grad_hook register_post_accumulate_grad_hook".split()
)
_ABSENT = object()
# code -> (global names, free names) that it binds; None: it writes nothing that outlives it
_names_written: dict = {}


class Writers:
    """The functions that a call runs, as far as they are the script's own:
    `add` each, then ask for `places`. Nothing is kept alive."""

    def __init__(self) -> None:
        self._functions: list = []  # (key, the function, whose it is), weakly
        self._partials: list = []  # (key, the partial), weakly
        self._seen: set = set()
        self._write = False
        self.hooks = False  # whether these functions register hooks for a backward
        self.changed: dict = {}  # key of a place that was seen to change -> the names in it that did

    def __bool__(self) -> bool:
        return self._write

    def add(self, key: str, thing: object) -> None:
        """A function, a bound method, a partial, or an object that is called."""
        owner = None
        if type(thing) is functools.partial:
            if len(self._partials) < FUNCTIONS:
                self._partials.append((key, weakref.ref(thing)))
            thing = thing.func
        if type(thing) is types.MethodType:
            thing, owner = thing.__func__, thing.__self__
        elif type(thing) is not types.FunctionType:
            owner, thing = thing, _of_class(type(thing), "__call__")
        while (
            type(thing) is types.FunctionType
            and type(thing.__dict__.get("__wrapped__")) is types.FunctionType
        ):
            thing = thing.__dict__["__wrapped__"]
        if type(thing) is types.FunctionType:
            self._function(key, thing, owner)

    def _function(self, key: str, function: types.FunctionType, owner: object) -> None:
        code, known = function.__code__, (id(function), id(owner))
        if known in self._seen or len(self._functions) >= FUNCTIONS or leaves.is_library(code.co_filename):
            return
        try:
            self._functions.append(
                (key, weakref.ref(function), weakref.ref(owner) if owner is not None else _nobody)
            )
        except TypeError:  # an object with slots only
            return
        self._seen.add(known)
        self._write = self._write or _bound(code) is not None
        global_names, others = names_of(code)
        self.hooks = self.hooks or not _HOOKING.isdisjoint(others)
        near = [(f">{name}", function.__globals__.get(name)) for name in sorted(global_names)]
        near += [
            (f">{name}", _content(cell))
            for name, cell in zip(code.co_freevars, function.__closure__ or ())  # noqa: B905
        ]
        near += [(f"={n}", value) for n, value in enumerate(function.__defaults__ or ())]
        for name, thing in near:
            if type(thing) is types.FunctionType:
                self._function(key + name, thing, None)
        for name, thing in [*near, ("", owner)]:
            if thing is owner or has_attributes(type(thing)):
                for word in sorted(others):
                    helper = _of_class(type(thing), word)
                    if type(helper) is types.FunctionType:
                        self._function(f"{key}{name}>{word}", helper, thing)

    def places(self) -> dict:
        """{key: what these functions can write to now}, the same keys in each life."""
        return self._look().found

    def moved(self) -> list:
        """[(owner, name; None: all that it holds)] of the containers and
        objects that were seen to change in calls."""
        found = self._look() if self.changed else _Places()
        pairs: list = []
        for key, names in self.changed.items():
            place = found.found.get(key)
            owner = found.owners.get(id(place))
            if owner is not None:
                pairs += [(owner, name) for name in names]
            elif type(place) in (*_LISTS, *_DICTS, set):
                pairs.append((place, None))
        return pairs

    def _look(self) -> _Places:
        found = _Places()
        for key, function, owner in self._functions:
            if function() is not None:
                found.of_variables(key, function())
                found.of_owner(f"{key}.self", owner())
        for key, partial in self._partials:
            if partial() is not None:
                found.of_partial(key, partial())
        return found


def _nobody() -> None:
    return None


class _Global:
    """A variable of a module, as a cell has it."""

    def __init__(self, names: dict, name: str) -> None:
        self._names, self._name = names, name

    @property
    def cell_contents(self) -> object:
        return self._names[self._name]

    @cell_contents.setter
    def cell_contents(self, value: object) -> None:
        self._names[self._name] = value


class _Places:
    def __init__(self) -> None:
        self.found: dict = {}
        self.owners: dict = {}  # id of the attributes of an object -> the object
        self._seen: set = set()

    def put(self, key: str, place: object) -> None:
        if len(self.found) < PLACES:
            self.found.setdefault(key, place)

    def look(self, key: str, value: object, deep: int) -> None:
        kind = type(value)
        if (
            kind in PLAIN
            or kind is stand_ins.torch_tensor()
            or id(value) in self._seen
            or len(self.found) >= PLACES
        ):
            return
        if _is_array(value):
            self._seen.add(id(value))
            self.put(key, value)
        elif kind in _LISTS or kind in _DICTS or kind is set:
            self._seen.add(id(value))
            self.put(key, value)
            if deep and kind is not set and len(value) <= MOST:
                for name, inner in list(value.items() if kind in _DICTS else enumerate(value)):
                    self.look(f"{key}[{name!r}]" if type(name) in (int, str) else key, inner, deep - 1)
        elif deep and has_attributes(kind):
            self._seen.add(id(value))
            self._attributes(key, value, deep)

    def of_variables(self, key: str, function: types.FunctionType) -> None:
        """What a function closes over, its defaults and the variables of its module that it speaks of."""
        code, names = function.__code__, function.__globals__
        bound = _bound(code) or ((), ())
        for name in sorted(names_of(code)[0]):
            if name in bound[0]:
                self.put(f"{key}:{name}", _Global(names, name))
            self.look(f"{key}.{name}", names.get(name), DEEP)
        for name, cell in zip(code.co_freevars, function.__closure__ or ()):  # noqa: B905 - Python 3.9
            if name in bound[1]:
                self.put(f"{key}:{name}", cell)
            self.look(f"{key}.{name}", _content(cell), DEEP)
        for n, value in enumerate(function.__defaults__ or ()):
            self.look(f"{key}={n}", value, DEEP)

    def of_partial(self, key: str, partial: functools.partial) -> None:
        """What a function is given each time; a module among it is one of those that tell for themselves."""
        for name, value in [*enumerate(partial.args), *partial.keywords.items()]:
            if not isinstance(value, stand_ins.torch_module()):
                self.look(f"{key}({name})", value, DEEP)

    def of_owner(self, key: str, owner: object) -> None:
        """What a method finds behind `self`; attributes of modules are told of by side_effects.py."""
        if owner is None:
            return
        module = stand_ins.torch_module()
        if isinstance(owner, module):
            for name, value in list(vars(owner).items()):
                if name not in _of_modules(module):
                    self.look(f"{key}.{name}", value, DEEP - 1)
        else:
            self.look(key, owner, DEEP)

    def _attributes(self, key: str, value: object, deep: int) -> None:
        self.put(key, vars(value))
        self.owners[id(vars(value))] = value
        for name, inner in list(vars(value).items()):
            self.look(f"{key}.{name}", inner, deep - 1)


def of_module(root: object) -> Writers:
    """What a call of this module runs: its hooks and forwards, and those of all modules in it."""
    found, modules = Writers(), looks.named_modules(root)
    for path, module in modules:
        for word in ("_forward_pre_hooks", "_forward_hooks"):
            for n, hook in enumerate(list(vars(module).get(word, {}).values())):
                found.add(f"{path}^{word}{n}", hook)
    for word in ("_global_forward_pre_hooks", "_global_forward_hooks"):
        for n, hook in enumerate(list(getattr(sys.modules["torch.nn.modules.module"], word, {}).values())):
            found.add(f"^{word}{n}", hook)
    kinds: dict = {}
    for path, module in modules:
        if _of_kind(kinds, module):
            found.add(path, _forward(module))
    return found


def _of_kind(kinds: dict, module: object) -> Writers:
    """Those of the first module of this class that was met."""
    kind = type(module)
    if kind not in kinds:
        kinds[kind] = Writers()
        kinds[kind].add("", _forward(module))
    return kinds[kind]


def _forward(module: object) -> object:
    own, method = vars(module).get("forward"), _of_class(type(module), "forward")
    return own or (types.MethodType(method, module) if type(method) is types.FunctionType else module.forward)


def of_backward(roots: list) -> Writers:
    """What a backward through these modules runs:
    hooks of theirs and of their parameters, and those that their forwards register, which a ghost has not.
    Such a hook is taken for a part of the forward."""
    found, kinds = Writers(), {}
    for number, root in roots:
        for path, module in looks.named_modules(root):
            if _of_kind(kinds, module).hooks:
                found.add(f"{number}.{path}", _forward(module))
            for word in ("_backward_pre_hooks", "_backward_hooks"):
                for n, hook in enumerate(list((vars(module).get(word) or {}).values())):
                    found.add(f"{number}.{path}^{word}{n}", hook)
        for path, parameter in looks.named_parameters(root):
            for word in ("_backward_hooks", "_post_accumulate_grad_hooks"):
                for n, hook in enumerate(list((getattr(parameter, word, None) or {}).values())):
                    found.add(f"{number}.{path}^{word}{n}", hook)
    return found


def of_data(sampler: object, reads: tuple) -> Writers:
    """What reading a batch runs in this process: samplers, and without workers `reads`:
    the data set, what it is made of (others, transforms), and collate."""
    found, todo = Writers(), []
    for key in ("sampler", "sampler.sampler"):
        for word in ("__iter__", "__next__"):
            method = _of_class(type(sampler), word)
            if type(method) is types.FunctionType:
                found.add(f"{key}.{word}", types.MethodType(method, sampler))
        sampler = looks.attributes(sampler).get("sampler")
    if reads:
        dataset, collate = reads
        todo.append(("dataset", dataset, DEEP + 1))
        found.add("collate", collate)
    for key, thing, deep in todo:
        for word in (
            ("__getitem__", "__getitems__", "__call__", "__iter__", "__next__")
            if type(thing) not in (list, tuple)
            else ()
        ):
            method = _of_class(type(thing), word)
            if type(method) is types.FunctionType:
                found.add(f"{key}.{word}", types.MethodType(method, thing))
        if type(thing) is types.FunctionType:
            found.add(key, thing)
        elif deep and len(todo) < MOST:
            parts = (
                enumerate(thing[:MOST])
                if type(thing) in (list, tuple)
                else list((leaves.attributes(thing) or {}).items())
            )
            todo += [(f"{key}.{name}", part, deep - 1) for name, part in parts if _may_run(type(part))]
    return found


def _may_run(kind: type) -> bool:
    return kind in (list, tuple, types.FunctionType) or bool(
        kind.__dictoffset__ and kind is not stand_ins.torch_tensor()
    )


def before(writers: Writers) -> list:
    """[(key, place, how it is now, where changes are noted)], to be held until `told`."""
    return (
        [(key, place, _now(place), writers.changed) for key, place in writers.places().items()]
        if writers
        else []
    )


def told(looked: list, known: tuple) -> tuple:
    """For the log: what has changed since `before`. `known`:
    tensors that a ghost has at hand (what the call gave, what it was given)."""
    at_hand = {id(each): n for n, each in enumerate(known) if type(each) is stand_ins.torch_tensor()}
    found = []
    for key, place, then, changed in looked:
        change = _change(place, then)
        if change is not None:
            what, names, values, gone = change
            moved = changed.setdefault(key, set())
            if len(moved) < PLACES:  # of a dict with ever other names they are of no use
                moved.update((*names, *gone))
            if what == _MUCH:
                continue
            forms = [_form(value, at_hand) for value in values]
            if None not in forms:
                found.append((key, what, names, tuple(forms), gone))
            elif what == _NAMES:  # a script reads few of its attributes
                kept = [n for n, form in enumerate(forms) if form is not None]
                left_out = {names[n] for n, form in enumerate(forms) if form is None}
                gone = tuple(name for name in gone if name not in left_out)
                found.append((key, what, tuple(names[n] for n in kept), tuple(forms[n] for n in kept), gone))
    return tuple(found)


def hand_out(writers: Writers, changes: tuple, known: tuple) -> None:
    """As a ghost: the same changes, in the same order."""
    places = writers.places()
    for key, what, names, forms, gone in changes:
        values = [
            known[form[1]] if type(form) is tuple and form[0] == "is" else stand_ins.build(form)
            for form in forms
        ]
        place = places.get(key)
        if place is not None:
            _apply(place, what, names, values, gone)


def _apply(place: object, what: int, names: tuple, values: list, gone: tuple) -> None:
    if what == _VARIABLE:
        place.cell_contents = values[0]
    elif what == _APPENDED:
        place.extend(values)
    elif what == _NAMES:
        for name in gone:
            place.pop(name, None)
        for name, value in zip(names, values):  # noqa: B905 - Python 3.9
            place[name] = value
    elif what == _ITEMS:
        place.flat[list(names)] = values[0]
    else:
        place.clear()
        place.update(values) if type(place) is set else place.extend(values)


# -- one place

def _now(place: object) -> object:
    kind = type(place)
    if kind in _LISTS:
        return (
            len(place),
            _held(place[-1]) if place else None,
            [*map(_held, place)] if len(place) <= MOST else None,
        )
    if kind is set:
        return set(place) if len(place) <= MOST and PLAIN.issuperset(map(type, place)) else None
    if kind in _DICTS:
        return (
            {name: _held(value) for name, value in place.items() if type(name) in PLAIN}
            if len(place) <= PLACES
            else None
        )
    if _is_array(place):
        return place.copy()
    return _held(_content(place))


def _held(value: object) -> object:
    """To know it again, without keeping a tensor and its graph alive."""
    return weakref.ref(value) if type(value) is stand_ins.torch_tensor() else value


def _is(held: object, value: object) -> bool:
    return held is value or (type(held) is weakref.ref and held() is value)


def _change(place: object, then: object) -> tuple | None:
    """(what happened, names, values, names that are gone), None for nothing."""
    kind = type(place)
    if kind in _LISTS:
        return _change_of_list(place, *then)
    if kind is set:
        known = then is not None and PLAIN.issuperset(map(type, place))
        return _some(_WHOLE, [*place]) if known and then != place else None
    if kind in _DICTS:
        if then is None:
            return None
        now = [name for name in place if type(name) in PLAIN]
        new = [(name, place[name]) for name in now if not _is(then.get(name, _ABSENT), place[name])]
        gone = tuple(name for name in then if name not in place)
        if len(now) <= MOST // 2 and now != [name for name in then if name in place] + [
            name for name, _ in new if name not in then
        ]:
            new, gone = [(name, place[name]) for name in now], tuple(then)  # one has moved to the end
        names, values = tuple(name for name, _ in new), [value for _, value in new]
        if not names and not gone:
            return None
        return (_NAMES, names, values, gone) if len(names) + len(gone) <= MOST else (_MUCH, names, (), gone)
    if _is_array(place):
        return _change_of_array(place, then)
    now = _content(place)
    return None if _is(then, now) or now is _ABSENT else (_VARIABLE, (), [now], ())


def _change_of_list(place: object, length: int, last: object, copy: list | None) -> tuple | None:
    # it loses one for each that comes
    if type(place) is collections.deque and place.maxlen == length and place:
        added = next((n for n in range(min(len(place), MOST)) if _is(last, place[-1 - n])), 0)
        return _some(_APPENDED, list(place)[len(place) - added:]) if added else None
    added = len(place) - length
    kept = added >= 0 and (not length or _is(last, place[length - 1]))
    if copy is not None and kept:
        kept = all(_is(held, place[n]) for n, held in enumerate(copy))
    if kept:
        return _some(_APPENDED, [place[n] for n in range(length, len(place))]) if added else None
    return _some(_WHOLE, [*place])


def _is_array(thing: object) -> bool:
    """Numbers of numpy, few enough to be looked at in each call."""
    numpy = sys.modules.get("numpy")
    return (
        type(thing) is getattr(numpy, "ndarray", None)
        and thing.dtype.kind in "biuf"
        and thing.itemsize <= 8
        and thing.nbytes <= ARRAY
    )


def _change_of_array(place: object, then: object) -> tuple | None:
    """Bit for bit: NaN is what it was, and -0.0 is not 0.0."""
    if place.shape != then.shape or place.dtype != then.dtype:
        return None
    bits = f"u{place.itemsize}"
    where = (place.view(bits) != then.view(bits)).ravel().nonzero()[0].tolist()
    if len(where) > MOST:
        return (_MUCH, (), (), ())
    return (_ITEMS, tuple(where), [place.flat[where]], ()) if where else None


def _some(what: int, values: list) -> tuple:
    return (what, (), values, ()) if len(values) <= MOST else (_MUCH, (), (), ())


def _content(cell: object) -> object:
    try:
        return cell.cell_contents
    except (ValueError, KeyError):  # nothing was put into it yet
        return _ABSENT


def _form(value: object, at_hand: dict) -> object:
    if id(value) in at_hand:
        return ("is", at_hand[id(value)])
    try:
        return stand_ins.template(value)
    except stand_ins.NotUnderstood:
        return None


# -- code

def _bound(code: types.CodeType) -> tuple | None:
    """(global names, names of cells) that a function binds, those within it included;
    None if it writes nothing that outlives it."""
    if code not in _names_written:
        names, cells, writes = set(), set(), bool(_MUTATORS.intersection(code.co_names))
        for step in dis.get_instructions(code):
            writes = writes or step.opname in _WRITES
            if step.opname == "STORE_GLOBAL":
                names.add(step.argval)
            elif step.opname == "STORE_DEREF" and step.argval in code.co_freevars:
                cells.add(step.argval)
        for const in code.co_consts:
            inner = _bound(const) if type(const) is types.CodeType else None
            if inner is not None:
                writes = True
                names |= inner[0]
                cells |= inner[1].intersection(code.co_freevars)
        _names_written[code] = (frozenset(names), frozenset(cells)) if writes or cells else None
    return _names_written[code]


def _of_class(kind: type, name: str) -> object:
    return next((vars(base)[name] for base in kind.__mro__ if name in vars(base)), None)


def has_attributes(kind: type) -> bool:
    """Whether it is one of the script's, or a plain bag of names."""
    if kind is types.SimpleNamespace:
        return True
    if not kind.__dictoffset__ or issubclass(kind, (type, types.ModuleType, stand_ins.torch_module())):
        return False
    return isinstance(kind.__module__, str) and is_users(sys.modules.get(kind.__module__))


@functools.lru_cache(maxsize=1)
def _of_modules(module: type) -> frozenset:
    """The attributes that torch gives to each module."""
    return frozenset(vars(module()))
