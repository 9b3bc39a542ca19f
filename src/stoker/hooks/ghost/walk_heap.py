"""What the garbage collector knows, looked at once per image and at the speed of C: tensors, loops, and containers that may hold arrays."""

from __future__ import annotations

import gc
import itertools
import sys
import types
import weakref

from . import leaves, walk_kinds

NEITHER, TENSOR, HOLDER, GENERATOR, ITERATOR, MARK, KEEPER = range(7)
CODE = (
    types.FunctionType, type, types.ModuleType, types.CodeType, types.BuiltinFunctionType, types.GetSetDescriptorType,
    types.MethodDescriptorType, types.WrapperDescriptorType, types.MemberDescriptorType, types.FrameType, property,
    staticmethod, classmethod, weakref.ref,
)  # fmt: skip
_HOLDERS = bytes(int(code in (HOLDER, KEEPER)) for code in range(256))


class _Mark:
    """Made after the baseline: when the garbage collector no longer shows it, somebody froze what it knows."""

    __slots__ = ("me",)

    def __init__(self):
        self.me = [self]


_mark = None


class _Codes(dict):
    """class -> what its objects are to us."""

    def __missing__(self, kind):
        torch = sys.modules.get("torch")
        if kind is _Mark:
            code = MARK
        elif torch is not None and hasattr(torch, "Tensor") and issubclass(kind, torch.Tensor):
            code = TENSOR
        elif kind is types.GeneratorType:
            code = GENERATOR
        elif kind in walk_kinds.ITERATORS:
            code = ITERATOR
        elif issubclass(kind, CODE) or kind.__module__ == "numpy.random.bit_generator" or kind.__module__.startswith(leaves.PACKAGE):
            code = NEITHER
        elif walk_kinds.is_user_kind(kind) and any(word in vars(base) for base in kind.__mro__ for word in ("__next__", "__exit__")):
            code = KEEPER  # of the script's: a `for` or a `with` may be all that holds it
        else:
            code = HOLDER
        if len(self) > 20000:
            self.clear()
        self[kind] = code
        return code


_codes = _Codes()


def baseline() -> None:
    """Call once when torch was imported: what lives now is the libraries' and is never looked at again."""
    global _mark
    gc.freeze()
    _mark = _Mark()


class Heap:
    """All objects that the garbage collector tracks and that came after the baseline, the older ones first."""

    def __init__(self):
        self.objects = gc.get_objects(2)
        self.objects += gc.get_objects(1)
        self.objects += gc.get_objects(0)
        self._code = bytes(map(_codes.__getitem__, map(type, self.objects)))

    def pick(self, code: int) -> list:
        found, at, wanted = [], self._code.find(code), self.objects
        while at >= 0:
            found.append(wanted[at])
            at = self._code.find(code, at + 1)
        return found

    def fresh_holders(self, seen: dict, known: set) -> tuple:
        """Containers that may hold arrays, are not the script's and were never looked at; and the ids of all that are not the script's."""
        inside = list(itertools.compress(self.objects, self._code.translate(_HOLDERS)))
        ids = list(map(id, inside))
        foreign = set(ids).difference(seen)
        fresh = foreign - known
        return list(itertools.compress(inside, map(fresh.__contains__, ids))) if fresh else [], foreign

    def frozen(self) -> bool:
        """Whether the script hid objects from the garbage collector, and so from us."""
        return _mark is not None and self._code.find(MARK) < 0

    def holds_memory(self, thing, seen: dict, besides: set) -> bool:
        """Whether a tensor or array that was not seen hangs on this within a few steps; what is `besides` is passed over."""
        torch, numpy = sys.modules.get("torch"), sys.modules.get("numpy")
        memory = tuple(getattr(m, n) for m, n in ((torch, "Tensor"), (numpy, "ndarray")) if hasattr(m, n))
        level, found = [thing], set()
        for _ in range(4):
            level = [p for p in gc.get_referents(*level) if not isinstance(p, CODE) and id(p) not in found and id(p) not in besides]
            found.update(map(id, level))
            if any(isinstance(p, memory) and id(p) not in seen for p in level):
                return True
            if len(found) > 2000:
                return False
        return False
