"""A deterministic walk over everything the script can reach:
each thing gets the path by which it is reached first.

Two lives that stand at the same line of the same script give the same paths,
so a path says where a value belongs.
"""

from __future__ import annotations

import array
import builtins
import collections
import functools
import sys
import types

from ...looks import isinstance, vars
from ..core import leaves, phases
from ..core.leaves import PLAIN
from . import library_held, stack_values, walk_heap, walk_kinds, walk_settings

ATTR, ITEM, CELL, GRAD = "attr", "item", "cell", "grad"  # how a thing hangs on its owner
_MODULE_WORDS = frozenset(
    (
        "__builtins__ __loader__ __spec__ __cached__ __doc__ __file__ __package__ __name__ "
        "__warningregistry__"
    ).split()
)
# the modules by id, names of those of the script, ids of the variables of all
_modules: tuple = ((), (), frozenset())


class Walk:
    """One pass over the script's world.

    `facts`: path -> what is equal in two lives: plain values, and for each container its class and size ·
    `tensors`, `arrays`, `rngs`, `optimizers`: path -> object · `alias`:
    path -> the earlier path of the same object · `owners`:
    path -> (owner, key, how), where a value can be put back · `bulk`:
    path -> long list kept as one fact · `frames`:
    (file, function, line) from the outermost in · `unknown`:
    (path, class) of C objects that nobody understands · `refusals`:
    sentences about what can be reached but not be saved.
    """

    def __init__(self):
        self.facts, self.tensors, self.arrays, self.rngs, self.optimizers = {}, {}, {}, {}, {}
        self.alias, self.owners, self.bulk, self.seen = {}, {}, {}, {}
        self.frames, self.stack, self.unknown, self.refusals, self.strict, self.weak = [], [], [], [], [], []
        self.queue, self.unordered, self.leave_out, self.weak_sets = [], [], [], []
        # all that was visited stays alive during the walk; containers and objects by path
        self.keep, self.things = [], {}
        self.fresh: dict = {}  # tensors that a restore made, by path
        self.heap = None  # all that the garbage collector knows, when a whole walk was done
        self.inside = set()  # then also: ids of what only iterators of loaders hold
        self.dicts = set()  # ids of the dictionaries of attributes that were gone through
        self.module_dicts = frozenset()
        self.snapshots: list = []
        self.traced = False  # this walk runs in a trace function of ours
        self._by_path: dict = {}

    @leaves.quietly
    def run(self, heap: bool = True) -> Walk:
        """Walk from all roots; the caller stands inside our own code (`phases.depth` > 0). Without `heap`:
        no look for what only a value stack holds, a quarter of the time."""
        self._stack_roots(sys._getframe(1))
        self._module_roots()
        self._library_roots()
        self.drain()
        if heap:
            stack_values.add(self)
            library_held.add(self)
        else:
            library_held.add_known(self)
        self._digest_roots()
        self._finish()
        return self

    @leaves.quietly
    def over(self, root, path: str = "root") -> Walk:
        """Walk from one object only, for a census."""
        self._know_modules()
        self.add(root, path)
        self.drain()
        self._finish()
        return self

    # -- what the handlers of walk_kinds use

    def add(self, thing, path, owner=None, key=None, how="") -> None:
        """Hang one more thing into the walk; plain values are noted at once."""
        kind = type(thing)
        if kind in PLAIN:
            self.facts[path] = leaves.text(thing) if kind is str else thing
            if how:
                self.owners[path] = (owner, key, how)
        else:
            self.queue.append((thing, path, owner, key, how))

    def add_attributes(self, thing, path, skip=()) -> None:
        found = leaves.attributes(thing)
        if found:
            self.dicts.add(id(found))
            facts, owners, queue = self.facts, self.owners, self.queue
            for name, value in list(found.items()):
                if name in skip or (type(name) is str and name.startswith("_stoker")):
                    continue
                kind = type(value)
                where = f"{path}.{name}"
                if kind in PLAIN:
                    facts[where] = leaves.text(value) if kind is str else value
                    owners[where] = (thing, name, ATTR)
                else:
                    queue.append((value, where, thing, name, ATTR))
        for name, descriptor in walk_kinds.slots_of(type(thing)):
            try:
                self.add(descriptor.__get__(thing), f"{path}.{name}", thing, name, ATTR)
            except AttributeError:
                pass

    def knows(self, thing) -> bool:
        """Whether it was gone through, as a thing or as the attributes of one."""
        return id(thing) in self.seen or id(thing) in self.dicts

    def own_tensors(self, ids: set) -> list:
        """Tensors among these ids that the walk did not reach: our own."""
        return [t for t in self.heap.pick(walk_heap.TENSOR) if id(t) in ids and id(t) not in self.seen]

    def find(self, path: str):
        """Any object that was visited, by its path; None when there is none."""
        if path in self.things:
            return self.things[path]
        if not self._by_path:
            self._by_path = {self.seen[id(thing)]: thing for thing in self.keep}
        return self._by_path.get(path)

    def locals_of(self, frame):
        """The names of a frame. Until Python 3.12 this fills a snapshot that would keep every local alive;
        `close` empties it again."""
        inner = frame.f_locals
        if type(inner) is dict and inner is not frame.f_globals and frame.f_code.co_flags & 1:
            self.snapshots.append((frame, inner))
        return inner

    def _forget_snapshots(self) -> None:
        forget_stale()
        last = self.stack[-1] if self.stack else None
        while self.snapshots:
            frame, inner = self.snapshots.pop()
            # the frame, this variable, the call: anybody else is the script, which called locals()
            if sys.getrefcount(inner) > 3:
                continue
            if frame is last and self.traced:  # its snapshot is written back when the trace function returns
                if forget_stale not in phases.on_enter:
                    phases.on_enter.append(forget_stale)
                # the frame alone holds it: nothing lives longer because we looked
                _stale.append((id(frame), frame.f_code))
            else:
                inner.clear()

    # -- roots

    def _know_modules(self) -> list:
        global _modules
        now = tuple(map(id, sys.modules.values()))
        if _modules[0] != now:
            spaces = frozenset(id(vars(m)) for m in list(sys.modules.values()) if type(m) is types.ModuleType)
            # held here, they would outlive Python's own end
            _modules = (now, tuple(name for name, _ in leaves.user_modules()), spaces)
        self.module_dicts = _modules[2]
        self.seen[id(vars(builtins))] = ""
        return [(name, sys.modules[name]) for name in _modules[1]]

    def _stack_roots(self, frame) -> None:
        self._know_modules()
        while frame is not None:
            file = frame.f_code.co_filename
            if leaves.is_ours(file):
                self.traced = self.traced or frame.f_code.co_name == "_at_line"
            elif not file.startswith("<frozen"):
                self.stack.append(frame)
            frame = frame.f_back
        self.stack.reverse()
        for n, frame in enumerate(self.stack):
            code = frame.f_code
            self.frames.append((code.co_filename, code.co_name, frame.f_lineno))
            inner = self.locals_of(frame)
            if inner is frame.f_globals:
                if id(inner) not in self.module_dicts:
                    self.names(inner, f"G{n}:{code.co_filename}")
                continue
            for name, value in list(inner.items()):
                self.add(value, f"F{n}:{code.co_name}.{name}")

    def _module_roots(self) -> None:
        for name, module in self._know_modules():
            self.names(vars(module), f"M:{name}")

    def names(self, names: dict, path: str) -> None:
        self.seen[id(names)] = path
        for name, value in list(names.items()):
            if name not in _MODULE_WORDS:
                self.add(value, f"{path}.{name}", names, name, ITEM)

    def _library_roots(self) -> None:
        """What the script may have given to a library for keeps."""
        for path, thing in walk_settings.library_roots():
            self.add(thing, path)

    def _digest_roots(self) -> None:
        """What verify-resume keeps of what the script drops.
        What the script holds has its path from there, and no number here:
        modules that look alike have one order in one life and another in the next."""
        held = [thing for call in phases.also_held for thing in call() if id(thing) not in self.seen]
        for n, thing in enumerate(held):
            self.add(thing, f"R:digest[{n}]")
        self.drain()

    def drain(self) -> None:
        """Go through all that waits, and what it leads to."""
        queue, seen, keep = self.queue, self.seen, self.keep
        handlers, find, alias, owners = walk_kinds.HANDLERS, walk_kinds.find, self.alias, self.owners
        for thing, path, owner, key, how in queue:
            kind = type(thing)
            handler = handlers.get(kind, 0)
            if handler == 0:
                handler = find(kind)
            if handler is None:
                continue
            if kind in PLAIN:
                self.add(thing, path, owner, key, how)
                continue
            first = seen.get(id(thing))
            if first is not None:
                if first:
                    alias[path] = first
                continue
            seen[id(thing)] = path
            keep.append(thing)
            if how:
                owners[path] = (owner, key, how)
            handler(self, thing, path)
        queue.clear()
        if self.unordered:
            self._drain_sets()

    def _drain_sets(self) -> None:
        """Elements of sets that were reached in no other way have no order:
        fine as long as they hold no tensors."""
        waiting, self.unordered = self.unordered, []
        for path, others in waiting:
            alone = sorted(
                (v for v in others if id(v) not in self.seen), key=lambda v: leaves.name_of(type(v))
            )
            before = len(self.tensors) + len(self.arrays) + len(self.rngs)
            for n, value in enumerate(alone):
                self.add(value, f"{path}{{{n}}}")
            self.drain()
            # which they are
            self.facts[path] += (tuple(sorted(filter(None, (self.seen.get(id(v)) for v in others)))),)
            if len(alone) > 1 and len(self.tensors) + len(self.arrays) + len(self.rngs) > before:
                self.refusals.append(
                    f"the set {tell(path, self.frames)}, which holds tensors in no fixed order"
                )

    def close(self) -> None:
        """Let go of everything that was seen: a walk holds the whole world."""
        if self.heap is not None:
            self.heap.objects.clear()  # the heap contains itself
        self._forget_snapshots()
        names = (
            "queue keep things owners bulk tensors arrays rngs optimizers stack unknown strict leave_out "
            "weak weak_sets fresh unordered"
        )
        for name in names.split():
            getattr(self, name).clear()
        self._by_path.clear()

    def _finish(self) -> None:
        """Give addresses used as numbers, and weak references, the path of what they mean."""
        seen, facts = self.seen, self.facts
        for path, value in facts.items():
            if type(value) is int and value > 0xFFFFFFFF and (seen.get(value) or value in _SINGLES):
                facts[path] = ("id", seen.get(value) or _SINGLES[value])
        for path, ref in self.weak:
            target = ref if type(ref) is int else id(ref())  # the id of None is nobody's
            facts[path] = ("weak", None if target == id(None) else seen.get(target, "?"))
        for path, refs in self.weak_sets:  # which they are, as far as something else leads to them
            targets = [ref() for ref in refs]
            facts[path] += (
                tuple(
                    sorted(filter(None, (seen.get(id(target)) for target in targets if target is not None)))
                ),
            )
            del targets


def forget_stale() -> None:
    """Empty snapshots of frames that were traced at the last walk and still run;
    called when no trace function runs."""
    if forget_stale in phases.on_enter:
        phases.on_enter.remove(forget_stale)
    waiting, frame = dict(_stale), sys._getframe(1)
    _stale.clear()
    while frame is not None and waiting:
        if waiting.pop(id(frame), None) is frame.f_code:
            inner = frame.f_locals
            if type(inner) is dict and sys.getrefcount(inner) <= 3:
                inner.clear()
        frame = frame.f_back


_stale: list = []


def tell(path: str, frames=()) -> str:
    """A path in the words of the script: `best in main (train.py)`."""
    head, _, rest = path.partition(":")
    if head[:1] == "F" and head[1:].isdigit():
        where, _, name = rest.partition(".")
        file = frames[int(head[1:])][0].rpartition("/")[2] if int(head[1:]) < len(frames) else ""
        return f"{name} in {file}:{where}" if file else f"{name} in {where}"
    if head == "M":
        module, _, name = rest.partition(".")
        return f"{name} in the script" if module == "__main__" else f"{name} in module {module}"
    return rest or path


def same(a, b) -> bool:
    """Whether two facts are equal to the bit; NaN equals NaN, True is not 1, 0.0 is not -0.0."""
    if type(a) is not type(b):
        return False
    if type(a) is float:
        return a.hex() == b.hex()
    if type(a) is tuple:
        return len(a) == len(b) and all(map(same, a, b))
    return a == b


def changed(before: Walk, after: Walk) -> list:
    """What differs between two snapshots, as [(owner, name)]:
    an attribute of an object, or, with None, all that a container holds."""
    found = {}
    for now, then in ((after, before), (before, after)):
        for path, value in now.facts.items():
            if path not in then.facts or not same(then.facts[path], value):
                _note(found, now, path)
        for ours, theirs in (
            (now.tensors, then.tensors),
            (now.arrays, then.arrays),
            (now.things, then.things),
        ):
            for path, thing in ours.items():
                if theirs.get(path) is not thing:
                    _note(found, now, path, replaced=True)
    return list(found.values())


def _note(found: dict, now: Walk, path: str, replaced: bool = False) -> None:
    owner, key, how = now.owners.get(path, (None, None, ""))
    if how == ITEM:
        key = None
    if not replaced and isinstance(now.things.get(path), CONTAINERS):
        owner, key = now.things[path], None
    if owner is not None and how != GRAD:
        found[id(owner), key] = (owner, key)


# whose addresses libraries keep too
_SINGLES = {id(thing): repr(thing) for thing in (None, True, False, ..., NotImplemented, ())}
CONTAINERS = (list, dict, set, collections.deque, bytearray, array.array, functools._lru_cache_wrapper)
