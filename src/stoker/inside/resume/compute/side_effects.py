"""What a module's call leaves behind, so that a ghost, which skips the call, finds it too:
what it sets in attributes of modules (`self.loss = ...` in forward, as in the tutorial on style transfer),
what it and hooks write elsewhere (call_writes.py), how many steps of optimizers it made, and how far torch
has counted the hooks that were registered in it:
a life that went on with a smaller number could give that of a hook that is there to another one.
"""

from __future__ import annotations

import functools
import sys
import weakref

from ... import looks
from ...looks import isinstance
from ..core import outcome, phases
from ..core.leaves import PLAIN
from . import call_writes, lazy, stand_ins

MOST = 64  # in one call; of a model that leaves more behind a script reads few
MODULES = 1000
_NOTHING = object()
steps = 0  # of optimizers, made within the call that is going on or was the last
left: dict = {}  # (id of a module, name) -> (module, name, value): set in the call that is going on
_places = looks.WeakKeys()  # module that the script calls -> {id of one in it: the names that lead there}
# id of a module that the script calls -> (how far hooks were counted, a weak reference, its
# call_writes.Writers)
_writers: dict = {}
_UNKNOWN = (-1, None, None)
_touched: dict = {}  # id of a module -> (a weak reference, names of the attributes that were set in calls)
_UNTOUCHED = (lambda: None, frozenset())
# how far hooks were counted, how many modules were called, the call_writes.Writers of a backward then
_backward = (None, None, None)
_set: list = []  # torch's own __setattr__
_kind = -1  # of our events
_handle: object = None  # torch's class of what registering a hook gives
numbers = 0  # of hooks, before the call that is going on
looked: list = []  # what `call_writes.before` saw


def install() -> None:
    """Once torch is imported."""
    global _handle, _kind
    _kind = phases.log.kind("left", placed=False, compared=_compared)
    _handle = sys.modules["torch.utils.hooks"].RemovableHandle
    module = sys.modules["torch"].nn.Module
    real = module.__setattr__
    kinds = frozenset((sys.modules["torch"].Tensor, list, tuple, dict)) | PLAIN
    _set[:] = [real]
    get_own = object.__getattribute__

    @functools.wraps(real)
    def __setattr__(self: object, name: str, value: object) -> None:
        if not phases.depth or phases.phase not in (phases.RECORD, phases.TAIL):
            return real(self, name, value)
        if isinstance(value, module):
            return lazy.joins(real, self, name, value)
        own = get_own(self, "__dict__")
        buffers = own.get("_buffers") or {}
        before = buffers[name] if name in buffers else own.get(name, _NOTHING)
        real(self, name, value)
        if name in buffers:
            if _form(before) != _form(value):  # else its memory is filled, whatever stands there
                _touch(self, "_buffers")
        elif name in own and not _same(before, value):
            _touch(self, name)
            if len(left) < MOST and (type(value) in kinds or call_writes.has_attributes(type(value))):
                left[id(self), name] = (self, name, value)
    module.__setattr__ = __setattr__


def _form(buffer: object) -> tuple:
    return getattr(buffer, "shape", None), getattr(buffer, "dtype", None)


def _touch(module: object, name: str) -> None:
    known, names = _touched.get(id(module), _UNTOUCHED)
    if known() is not module:
        if len(_touched) > MODULES:
            for number in [number for number, (other, _) in _touched.items() if other() is None]:
                del _touched[number]
        _touched[id(module)] = weakref.ref(module), {name}
    else:
        names.add(name)


def moved() -> list:
    """[(owner, name)] of what calls were seen to change, each of them:
    attributes of modules, and what hooks and forwards write to."""
    modules = [(known(), names) for known, names in _touched.values()]
    pairs = [(module, name) for module, names in modules if module is not None for name in names]
    for writers in [*(each for _, of, each in _writers.values() if of() is not None), _backward[2]]:
        pairs += writers.moved() if writers is not None else []
    return pairs


def _same(before: object, value: object) -> bool:
    return before is value or (type(before) is type(value) and type(value) in PLAIN and before == value)


def begins(root: object) -> None:
    """A module that the script calls."""
    global numbers, steps
    numbers, steps = _handle.next_id, 0
    if left:
        left.clear()
    if looked:  # of a call that has raised
        looked.clear()
    if lazy.joined or lazy.instead:
        lazy.begins()
    try:
        writers = _writers_of(root)
        if writers:
            looked[:] = call_writes.before(writers)
    except Exception as e:
        outcome.broke(e)


def told(root: object, out: object, args: tuple) -> bool:
    """A module was called: log what it left behind. `out`: what it gave, `args`: what it was given.
    True if nothing was, and nothing that runs in it is known to write."""
    now = _handle.next_id
    if not left and not looked and now == numbers and not steps:
        return not _writers_of(root)
    forms = _forms([((), root)])
    changes = call_writes.told(looked, (out, *args))
    looked.clear()
    put(changes, forms, now if now != numbers else None, steps)
    phases.steps += steps
    return False


def _forms(roots: list) -> tuple:
    """(words that lead to a module, name, form) of the attributes in `left`. `roots`:
    [(words, module that the script calls)]."""
    forms = []
    for owner, name, new in list(left.values()):
        places = ((*words, *place) for words, root in roots if (place := _place(root, owner)) is not None)
        place = next(places, None)
        if place is not None and looks.attributes(owner).get(name) is new:
            try:
                forms.append((*place, name, stand_ins.template(new)))
            except (stand_ins.NotUnderstood, RecursionError):  # what the script does not read is no obstacle
                pass
    left.clear()
    return tuple(forms)


def put(changes: tuple, forms: tuple = (), hooks: int | None = None, made: int = 0) -> None:
    """An event of its own, behind that of the call, where there is something to tell. `made`: steps."""
    if (changes or forms or hooks is not None or made) and phases.phase:
        phases.log.put(_kind, (hooks, forms, changes, made))


def _compared(value: tuple) -> tuple:
    """Times and the like may be among the plain values:
    a tail compares what was written where, and the forms."""
    hooks, forms, changes, made = value
    return (
        hooks,
        made,
        [(*where, _bare(form)) for *where, form in forms],
        [
            (key, what, names, [*map(_bare, written_forms)], gone)
            for key, what, names, written_forms, gone in changes
        ],
    )


def _bare(form: object) -> object:
    return form[0] if type(form) is tuple and form[0] != "is" else form


def _taken() -> tuple | None:
    """What the call left behind whose event was just taken; None: nothing."""
    return phases.log.take(_kind) if phases.log.peek() == _kind else None


def hand_out(root: object, known: tuple) -> None:
    """As a ghost: the same, with stand-ins for tensors."""
    found = _taken()
    if found is None:
        return
    known_hooks, forms, changes, made = found
    phases.steps += made
    for call in phases.on_ghost_step if made else ():
        call(None, made)
    writers = _writers_of(root) if changes else None
    if known_hooks is not None:
        _handle.next_id = known_hooks
    for form in forms:
        _set_again(root, *form)
    if changes:
        call_writes.hand_out(writers, changes, known)


def _set_again(owner: object, *words: object) -> None:
    *place, name, form = words
    for word in place:
        owner = owner._modules[word]
    _set[0](owner, name, stand_ins.build(form))


def _writers_of(root: object) -> call_writes.Writers:
    """The script's own code that its call runs: hooks and forwards.
    Looked for anew when there are other hooks."""
    count, of, writers = _writers.get(id(root), _UNKNOWN)
    if count != _handle.next_id or of() is not root:
        if len(_writers) > MODULES:  # a script that makes a module for each step
            _writers.clear()
        known, writers = writers if of is not None and of() is root else None, call_writes.of_module(root)
        if known is not None:
            writers.changed.update(known.changed)
        _writers[id(root)] = (_handle.next_id, weakref.ref(root), writers)
    return writers


def backward_begins(roots: object, count: int) -> list:
    """Before a backward: what its hooks may write to, as it is. `roots()`:
    [(number, module that the script calls)], of so many."""
    left.clear()
    if _handle.next_id == _backward[0] and count == _backward[1] and not _backward[2]:
        return ()
    return call_writes.before(_writers_of_backward(roots, count))


def told_of_backward(looked_at: list, roots: object) -> None:
    """What hooks wrote in a backward, and what they set in attributes of modules."""
    if looked_at or left:
        put(call_writes.told(looked_at, ()), _forms([((number,), root) for number, root in roots()]))


def hand_out_of_backward(roots: object, count: int) -> None:
    """As a ghost: the same."""
    found = _taken()
    if found is None:
        return
    for number, *form in found[1]:
        _set_again(dict(roots())[number], *form)
    if found[2]:
        call_writes.hand_out(_writers_of_backward(roots, count), found[2], ())


def hand_out_of_data(track: object) -> None:
    """As a ghost: what was written when a batch was read."""
    found = _taken()
    if found is not None:
        call_writes.hand_out(track.writers(), found[2], ())


def _writers_of_backward(roots: object, count: int) -> call_writes.Writers:
    global _backward
    if _backward[:2] != (_handle.next_id, count):
        changed = _backward[2].changed if _backward[2] is not None else {}
        _backward = (_handle.next_id, count, call_writes.of_backward(roots()))
        _backward[2].changed.update(changed)
    return _backward[2]


def save(_store: object = None) -> int:
    """What an image keeps of this part. It may be taken where nothing was shielded, before `install`."""
    return sys.modules["torch.utils.hooks"].RemovableHandle.next_id


def load(hooks: int, _store: object = None) -> None:
    sys.modules["torch.utils.hooks"].RemovableHandle.next_id = hooks


def _place(root: object, owner: object) -> tuple | None:
    known = _places.get(root)
    if known is None or id(owner) not in known:
        known = _places[root] = {
            id(module): tuple(filter(None, name.split("."))) for name, module in looks.named_modules(root)
        }
    return known.get(id(owner))
