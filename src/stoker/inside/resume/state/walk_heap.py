"""What the garbage collector knows, looked at once per image and at the speed of C:
tensors, loops, and containers that may hold arrays."""

from __future__ import annotations

import gc
import itertools
import sys
import types
import weakref

from ...entry import imports
from ...looks import isinstance, vars
from ..core import internals, leaves
from . import walk_kinds

NEITHER, TENSOR, HOLDER, GENERATOR, ITERATOR, MARK, KEEPER, ARRAY, LOOSE, LIST, OWN, FUNCTION = range(12)
CODE = (
    types.FunctionType, type, types.ModuleType, types.CodeType, types.BuiltinFunctionType,
    types.GetSetDescriptorType,
    types.MethodDescriptorType, types.WrapperDescriptorType, types.MemberDescriptorType, types.FrameType,
    property,
    staticmethod, classmethod, weakref.ref,
)  # fmt: skip
_HOLDERS = bytes(int(code in (HOLDER, KEEPER, OWN)) for code in range(256))


_ONLY = [bytes(int(code == each) for code in range(256)) for each in range(12)]
_LOOSE = bytes(int(code == LOOSE) for code in range(256))
_LISTS = bytes(int(code == LIST) for code in range(256))
_CHUNK = 2048
_LONG = 1000
_DEEP = 4  # containers that nobody tracks, one in the other


def _tracked() -> list:
    """All that the garbage collector shows, the older ones first."""
    young, middle = gc.get_objects(0), gc.get_objects(1)  # in this order none of the lists is in another
    found = gc.get_objects(2)
    found += middle
    found += young
    return found


class _Mark:
    """Made after the baseline: when the garbage collector no longer shows it,
    somebody froze what it knows."""

    __slots__ = ("me",)

    def __init__(self):
        self.me = [self]


_mark = None
_of_others: list | None = None  # what the garbage collector showed when an import began that will leave much
_MANY = 100_000


def _look_into(level: list, found: dict) -> list:
    """Put the arrays that these hold into `found`;
    gives the containers that they hold and that nobody tracks."""
    deeper: dict = {}
    # as many as the processor's caches hold: each part is touched three times
    for at in range(0, len(level), _CHUNK):
        loose = list(itertools.filterfalse(gc.is_tracked, gc.get_referents(*level[at : at + _CHUNK])))
        codes = bytes(map(_part_codes.__getitem__, map(type, loose)))
        inner = list(filter(None, itertools.compress(loose, codes.translate(_LOOSE))))
        deeper.update(zip(map(id, inner), inner))  # noqa: B905 - Python 3.9
        at_array = codes.find(ARRAY)
        while at_array >= 0:
            array = loose[at_array]
            found[id(array)] = array
            if array.dtype.hasobject:
                inner = array.ravel().tolist()
                deeper[id(inner)] = inner
            at_array = codes.find(ARRAY, at_array + 1)
    return list(deeper.values())


class _Codes(dict):
    """class -> what its objects are to us."""

    def __missing__(self, kind):
        torch = sys.modules.get("torch")
        if kind is _Mark:
            code = MARK
        elif torch is not None and hasattr(torch, "Tensor") and issubclass(kind, torch.Tensor):
            code = TENSOR
        elif _is_array(kind):
            code = ARRAY
        elif kind is list:
            code = LIST
        elif kind is types.GeneratorType:
            code = GENERATOR
        elif kind in walk_kinds.ITERATORS:
            code = ITERATOR
        elif kind is types.FunctionType:
            code = FUNCTION
        elif issubclass(kind, CODE) or str(kind.__module__).startswith(
            ("numpy.random.bit_generator", leaves.PACKAGE)
        ):
            code = NEITHER
        elif walk_kinds.is_user_kind(kind):  # of the script's: a `for` or a `with` may be all that holds it
            code = (
                KEEPER
                if any(word in vars(base) for base in kind.__mro__ for word in ("__next__", "__exit__"))
                else OWN
            )
        else:
            code = HOLDER
        if len(self) > 20000:
            self.clear()
        self[kind] = code
        return code


class _PartCodes(dict):
    """class -> what an object that the garbage collector does not track is to us."""

    def __missing__(self, kind):
        code = self[kind] = ARRAY if _is_array(kind) else LOOSE if kind in (tuple, dict, list) else NEITHER
        return code


def _is_array(kind: type) -> bool:
    numpy = sys.modules.get("numpy")
    return hasattr(numpy, "ndarray") and issubclass(kind, numpy.ndarray)


_codes, _part_codes = _Codes(), _PartCodes()


def baseline() -> None:
    """Call once when torch was imported: what lives now is the libraries' and is never looked at again.
    The first optimizer imports a compiler, with 118,000 objects in torch 2.13:
    they are the libraries' too."""
    global _mark
    gc.freeze()
    _mark = _Mark()
    imports.around("torch._dynamo", _import_begins, _import_ended)


def _import_begins(module: object) -> None:
    global _of_others
    found = _tracked() if _alone() else ()
    _of_others = found if 0 < len(found) < _MANY else None


def _import_ended(module: object) -> None:
    global _of_others
    others, _of_others = _of_others, None
    if others is not None and _alone():  # nobody else's code ran meanwhile
        frame = sys._getframe(1)
        while frame is not None:  # Python makes these objects when somebody asks for them
            others.append(frame)
            frame = frame.f_back
        internals.freeze_all_but(others)
        others.clear()  # it is frozen itself


def _alone() -> bool:
    return len(sys._current_frames()) == 1


def forget() -> None:
    """Hold nothing of the script's any more."""
    gc.unfreeze()
    _codes.clear()


class Heap:
    """All objects that the garbage collector tracks and that came after the baseline,
    the older ones first."""

    def __init__(self):
        self.objects = _tracked()
        self._code = bytes(map(_codes.__getitem__, map(type, self.objects)))
        self._dull: dict = {}  # id of a long list or tuple -> whether it is made of plain values

    def pick(self, code: int) -> list:
        return list(itertools.compress(self.objects, self._code.translate(_ONLY[code])))

    def arrays(self) -> list:
        """Every numpy array that hangs on a container.
        Arrays are not tracked by the garbage collector, and are found in what holds them;
        classes and functions are no containers. All of it in steps of C,
        for there are half a million parts to look at."""
        found = {id(array): array for array in self.pick(ARRAY)}
        level = list(itertools.compress(self.objects, self._code.translate(_HOLDERS)))
        level += filter(self._may_hold, itertools.compress(self.objects, self._code.translate(_LISTS)))
        for _ in range(_DEEP):
            level = _look_into(level, found)
        return list(found.values())

    def lists_of_nobody(self) -> list:
        """Lists that nothing which the garbage collector shows holds:
        names of running frames, value stacks, or memory of C."""
        left = {id(each): each for each in self.pick(LIST)}
        for at in range(0, len(self.objects), _CHUNK):
            for held in map(
                id,
                gc.get_referents(
                    *(each for each in self.objects[at : at + _CHUNK] if each is not self.objects)
                ),
            ):
                left.pop(held, None)
        return list(left.values())

    def frozen(self) -> bool:
        """Whether the script hid objects from the garbage collector, and so from us."""
        return _mark is not None and self._code.find(MARK) < 0

    def _may_hold(self, thing) -> bool:
        """Not a long list of numbers or words (the indices of a split):
        each iterator over it would look at all of them."""
        if type(thing) not in (list, tuple) or len(thing) < _LONG:
            return True
        dull = self._dull.get(id(thing))
        if dull is None:
            dull = self._dull[id(thing)] = leaves.all_plain(thing)
        return not dull

    def holds_memory(self, thing, seen: dict, besides: set) -> bool:
        """Whether a tensor or array that was not seen hangs on this within a few steps;
        what is `besides` is passed over."""
        torch, numpy = sys.modules.get("torch"), sys.modules.get("numpy")
        memory = tuple(getattr(m, n) for m, n in ((torch, "Tensor"), (numpy, "ndarray")) if hasattr(m, n))
        level, found = [thing], set()
        for _ in range(4):
            level = [p for p in leaves.referents(*filter(self._may_hold, level))
                     if not isinstance(p, CODE) and id(p) not in found and id(p) not in besides]
            found.update(map(id, level))
            if any(isinstance(p, memory) and id(p) not in seen for p in level):
                return True
            if len(found) > 2000:
                return False
        return False
