"""Tensors that a module's call leaves in attributes of modules (`self.loss = ...` in forward, as in the tutorial on style transfer): the
script may go on with them, so that a ghost, which skips the call, gets stand-ins for them as it does for what the call gives back. And
how far torch has counted the hooks that were registered in it: a life that went on with a smaller number could give that of a hook that is
there to another one.
"""

from __future__ import annotations

import functools
import sys
import weakref

from . import life, stand_ins

MOST = 64  # in one call; of a model that leaves more behind a script reads few
_LEFT = "left"
left: dict = {}  # (id of a module, name) -> (module, name, tensor): set in the call that is going on
_places: object = weakref.WeakKeyDictionary()  # module that the script calls -> {id of one in it: the names that lead there}
_set: list = []  # torch's own __setattr__
_handle: object = None  # torch's class of what registering a hook gives
_numbers = 0  # of hooks, before the call that is going on


def install() -> None:
    """Once torch is imported."""
    global _handle
    _handle = sys.modules["torch.utils.hooks"].RemovableHandle
    module = sys.modules["torch"].nn.Module
    tensor, real = sys.modules["torch"].Tensor, module.__setattr__
    _set[:] = [real]

    @functools.wraps(real)
    def __setattr__(self: object, name: str, value: object) -> None:
        real(self, name, value)
        if life.depth and type(value) is tensor and life.phase in (life.RECORD, life.TAIL) and name in self.__dict__ and len(left) < MOST:
            left[id(self), name] = (self, name, value)
    module.__setattr__ = __setattr__


def begins() -> None:
    """A module that the script calls."""
    global _numbers
    _numbers = _handle.next_id
    if left:
        left.clear()


def told(root: object, value: object) -> object:
    """For the log: the value of a module's call, with the forms of what it left behind."""
    numbers = _handle.next_id
    if not left and numbers == _numbers:
        return value
    forms = []
    for owner, name, tensor in list(left.values()):
        place = _place(root, owner)
        if place is not None and owner.__dict__.get(name) is tensor:
            try:
                forms.append((*place, name, stand_ins.template(tensor)))
            except stand_ins.NotUnderstood:  # what the script does not read is no obstacle
                pass
    left.clear()
    return (_LEFT, value, numbers, tuple(forms)) if forms or numbers != _numbers else value


def parted(value: object) -> tuple:
    """(what the call gave back, what it left behind) of a value from the log."""
    return (value[1], value[2:]) if type(value) is tuple and value[0] == _LEFT else (value, None)


def hand_out(root: object, numbers: int, forms: tuple) -> None:
    """As a ghost: stand-ins where the call would have left tensors."""
    _handle.next_id = numbers
    for *place, name, form in forms:
        owner = root
        for word in place:
            owner = owner._modules[word]
        _set[0](owner, name, stand_ins.build(form))


def save(_store: object = None) -> int:
    """What an image keeps of this part."""
    return _handle.next_id


def load(numbers: int, _store: object = None) -> None:
    _handle.next_id = numbers


def _place(root: object, owner: object) -> tuple | None:
    known = _places.get(root)
    if known is None or id(owner) not in known:
        known = _places[root] = {id(module): tuple(filter(None, name.split("."))) for name, module in root.named_modules()}
    return known.get(id(owner))
