"""What a shielded call gave back, as a value of the log (its template),
and what a ghost gets in its place (a stand-in).

A stand-in has the form of the real thing: tree, shapes, strides, types, device, whether it asks for
gradients. Its floats are NaN, so that a value which leaks past the log shows;
its integers are those of the first such output, so that the script can index with them.
Backward through a stand-in, once the real tensors are back, would be a graph from before the image:
it ends this life.
"""

from __future__ import annotations

import collections
import copyreg
import enum
import sys

from ...entry import unnumbered
from ...looks import has, isinstance, vars
from ..core import log, outcome, words
from ..core.leaves import PLAIN, attributes, is_user_module, items, quietly

SHARED = 1 << 18  # bytes; bigger stand-ins of one template share their memory
CONTENT_MAX = 1 << 20  # bytes of an integer tensor that are kept as the sample of its template
_ids: dict = {}  # (structure, more) -> number of the template
_quick: dict = {}  # what can be seen of an output at a glance -> number of its template
_known: list = []  # number -> (structure, samples), samples made when first needed
_anchors: dict = {}
_torch: list = []  # torch.Tensor, what tells the level of a transform, torch.autograd.forward_ad


class NotUnderstood(outcome.Obstacle):
    """The kind of output that has no template."""

    sentence = property(lambda self: words.UNKNOWN_OUTPUT.format(what="an operation", type=self))


def template(out: object, *more: object) -> object:
    """The value for the log. The first of its kind comes with a full description;
    `more` keeps apart what looks the same."""
    if not _torch:
        _know_torch()
    tensor, transform_level, forward_ad = _torch
    if transform_level() is not None or forward_ad._current_level >= 0:
        raise NotUnderstood("tensor inside a transform (vmap, grad, forward_ad)")
    quick = _quick_key(out, tensor)
    if quick is not None:
        if more:
            quick = (quick, more)
        number = _quick.get(quick)
        if number is not None:
            return number
    structure, leaves, tensors = _describe(out)
    key = (structure, more)
    number = _ids.get(key)
    described = None
    if number is None:
        number = _ids[key] = len(_known)
        described = (structure, more, [_content(t) for t in tensors])
        _known.append([structure, described[2], None])
    if quick is not None:
        _quick[quick] = number
    return (number, leaves, described) if leaves or described else number


def build(value: object) -> object:
    """A stand-in for a value out of the log."""
    number, leaves, described = (value, (), None) if type(value) is int else value
    if described is not None:
        structure, more, contents = described
        if number != len(_known):
            outcome.diverged(words.TEMPLATES.format(number=number))
        _ids[structure, more] = number
        _known.append([structure, contents, None])
    known = _known[number]
    if known[2] is None:
        known[2] = _samples(known[0], known[1])
    return _Builder(iter(known[2]), iter(leaves or ())).make(known[0])


def torch_tensor() -> type:
    return sys.modules["torch"].Tensor


def torch_module() -> type:
    return sys.modules["torch"].nn.Module


def own_tensors() -> list:
    """Tensors of ours: no walk needs to find them, no closed world to know them."""
    return [s for known in _known for s in (known[2] or ()) if s is not None] + list(_anchors.values())


def _know_torch() -> None:
    torch = sys.modules["torch"]
    _torch[:] = torch.Tensor, torch._C._functorch.maybe_current_level, torch.autograd.forward_ad


def _quick_key(out: object, tensor: type) -> object:
    """Without a walk for what most calls give: a tensor, or a few of them."""
    kind = type(out)
    if kind is tensor:
        return key_of(out)
    if kind in (tuple, list) and len(out) < 9:
        keys = [key_of(each) for each in out if type(each) is tensor]
        return (
            (kind, *keys)
            if keys and len(keys) == len(out) and len({id(each) for each in out}) == len(out)
            else None
        )
    return None


def key_of(t: object) -> tuple:
    """What can be seen of a tensor at a glance: equal keys, equal templates."""
    return t.shape, t.dtype, t.layout, t.is_cpu or t.device, t.requires_grad, t.is_leaf, t.stride()


def forget() -> None:
    """The ghost phase is over; the forms are still known, the samples are let go."""
    for known in _known:
        known[1] = known[2] = None


# -- from an output to its structure

@quietly
def _describe(out: object) -> tuple:
    """(structure, plain leaves, tensors):
    the structure is made of tuples and text and equal for equal forms."""
    walk = _Describer()
    return walk.form(out), walk.leaves, walk.tensors


class _Describer:
    def __init__(self) -> None:
        self.leaves: list = []
        self.tensors: list = []
        self._seen: dict = {}
        self._made: dict = {}  # id -> number of an object that says itself how it is made again
        self._held: list = []  # what it said: as long as that lives, nothing else has its ids

    def form(self, o: object) -> tuple:
        import torch
        kind = type(o)
        if kind in PLAIN:
            self.leaves.append(o)
            return ("c",)
        if isinstance(o, torch.Tensor):
            return self._tensor(o, kind, torch)
        if kind is tuple or kind is list:
            return ("t" if kind is tuple else "l", *[self.form(each) for each in o])
        if kind is dict:
            return ("d", *[self.form(each) for pair in items(o) for each in pair])
        if kind is torch.Size:
            self.leaves.append(tuple(o))
            return ("S",)
        if kind in (torch.dtype, torch.device):
            return ("x", kind.__name__, str(o))
        if isinstance(o, enum.Enum) and o.name is not None:
            return ("x", "member", *_name(kind), o.name)
        if isinstance(o, tuple) and has(kind, "_fields"):
            return ("n", *_name(kind), *[self.form(each) for each in tuple.__iter__(o)])
        if isinstance(o, dict):
            return ("m", *_name(kind), *[self.form(each) for pair in items(o) for each in pair])
        if kind.__module__.partition(".")[0] == "numpy":
            return self._numpy(o, kind)
        if isinstance(o, type):
            return ("x", "class", *_name(o))
        so_far = len(self.leaves), len(self.tensors), dict(self._seen), dict(self._made)
        try:
            return self._object(o, kind)
        except NotUnderstood:
            if not _says_how(kind):
                raise
        del self.leaves[so_far[0]:], self.tensors[so_far[1]:]
        self._seen, self._made = so_far[2:]
        return self._reduced(o, kind)

    def _tensor(self, t: object, kind: type, torch: object) -> tuple:
        if id(t) in self._seen:
            return ("=", self._seen[id(t)])
        if (
            t.layout != torch.strided
            or t.is_conj()
            or t.is_neg()
            or t.is_quantized
            or not _is_whole(t, kind, torch)
        ):
            raise NotUnderstood(f"{kind.__name__} ({t.layout})")
        self._seen[id(t)] = len(self.tensors)
        self.tensors.append(t)
        form = (
            "T",
            str(t.dtype)[6:],
            tuple(t.shape),
            tuple(t.stride()),
            str(t.device),
            t.requires_grad,
            t.is_leaf,
        )
        if kind in (torch.Tensor, torch.nn.Parameter):
            return form
        return ("k", *_name(kind), form, *[self.form(each) for pair in vars(t).items() for each in pair])

    def _numpy(self, o: object, kind: type) -> tuple:
        import numpy

        if (
            (kind is numpy.ndarray or isinstance(o, numpy.generic))
            and not o.dtype.hasobject
            and o.nbytes <= CONTENT_MAX
        ):
            self.leaves.append(log.pack(numpy.asarray(o)))
            return ("a",) if kind is numpy.ndarray else ("s",)
        raise NotUnderstood(kind.__name__)

    def _object(self, o: object, kind: type) -> tuple:
        """An object of a Python class whose whole state is its `__dict__`."""
        if kind.__basicsize__ > object.__basicsize__ + 16 or attributes(o) is None:
            raise NotUnderstood(f"{kind.__module__}.{kind.__qualname__}")
        if id(o) in self._seen:
            raise NotUnderstood(f"a {kind.__qualname__} that contains itself")
        self._seen[id(o)] = -1
        return ("o", *_name(kind), *[self.form(each) for pair in vars(o).items() for each in pair])

    def _reduced(self, o: object, kind: type) -> tuple:
        """As it would be sent by a worker: what is called with what, and the state that is put in then.
        It may lead back to itself."""
        if id(o) in self._made:
            return ("@", self._made[id(o)])
        try:
            make, args, state, *more = (*o.__reduce_ex__(2), None)[:5]
        except (TypeError, ValueError):  # it cannot be sent, or is sent by a name
            more = [True]
        if any(part is not None for part in more) or not isinstance(args, tuple) or not (
                state is None or isinstance(state, dict) or hasattr(kind, "__setstate__")):
            raise NotUnderstood(f"{kind.__module__}.{kind.__qualname__}")
        self._held += o, args, state
        begins = (
            ("x", "function", "copyreg", "__newobj__") if make is copyreg.__newobj__ else self.form(make),
            self.form(args),
        )
        self._made[id(o)] = len(self._made)
        return ("r", *begins, self.form(state))


def _is_whole(t: object, kind: type, torch: object) -> bool:
    """Whether numbers and attributes are all that there is of a tensor:
    its class only says what operations make of it (`MetaTensor` of
    MONAI, boxes and masks of torchvision), and it asks for no gradient itself."""
    if kind in (torch.Tensor, torch.nn.Parameter):
        return True
    plain = (
        kind.__torch_dispatch__ is torch.Tensor.__torch_dispatch__
        and kind.__basicsize__ == torch.Tensor.__basicsize__
    )
    return plain and not (t.requires_grad and t.is_leaf)


def _says_how(kind: type) -> bool:
    """Whether a class of a library has a way of its own to be sent: a path, a date, a batch of graphs.
    One of the script's may count how often it is asked."""
    own = any(
        getattr(kind, word, None) is not getattr(object, word, None)
        for word in ("__reduce__", "__reduce_ex__", "__getstate__")
    )
    return own and not is_user_module(kind.__module__, sys.modules.get(kind.__module__))


def _name(kind: type) -> tuple:
    """Where the next life finds a class; that of a namedtuple may be called otherwise than its variable."""
    module, name = kind.__module__, kind.__qualname__
    try:
        if _class(module, name) is kind:
            return module, name
    except (KeyError, AttributeError):
        pass
    for name, thing in list((attributes(sys.modules.get(module)) or {}).items()):
        if thing is kind:
            return module, name
    raise NotUnderstood(f"{module}.{kind.__qualname__}")


def _class(module: str, name: str) -> type:
    found = sys.modules[module]
    for part in name.split("."):
        found = getattr(found, part)
    return found


@quietly
def _content(t: object) -> object:
    """The bytes of an integer tensor, None for what is filled with NaN,
    and for what is too big (filled with zeros)."""
    import torch
    if t.is_floating_point() or t.is_complex() or t.numel() * t.element_size() > CONTENT_MAX:
        return None
    t = t.detach().cpu().contiguous().reshape(-1)
    return bytes(t.view(torch.uint8).numpy().tobytes()) if t.numel() else b""


# -- from a structure to a stand-in

def _samples(structure: tuple, contents: list) -> list:
    found: list = []

    def look(s: object) -> None:
        if type(s) is tuple and s:
            if s[0] == "T":
                found.append(s)
            else:
                for each in s[1:]:
                    look(each)
    look(structure)
    return [_sample(s, content) for s, content in zip(found, contents)]  # noqa: B905 - Python 3.9


def _sample(described: tuple, content: object) -> object:
    import torch
    _, dtype, shape, stride, device, _, _ = described
    with torch.inference_mode(False), torch.no_grad():
        t = torch.empty_strided(shape, stride, dtype=getattr(torch, dtype), device=device)
        filled = float("nan") if t.is_floating_point() or t.is_complex() else 0
        if 0 in stride and 0 not in shape:  # expanded
            return torch.full((), filled, dtype=t.dtype, device=device).expand(shape)
        if filled or content is None:
            return t.fill_(filled)
        if content:
            t.copy_(torch.frombuffer(bytearray(content), dtype=torch.uint8).view(t.dtype).reshape(shape))
        return t


class _Builder:
    def __init__(self, samples: object, leaves: object) -> None:
        self._samples, self._leaves = samples, leaves
        self._made: list = []
        self._objects: list = []

    def make(self, s: tuple) -> object:
        what = s[0]
        if what == "T":
            self._made.append(_stand_in(next(self._samples), s[5], s[6]))
            return self._made[-1]
        if what == "c":
            return next(self._leaves)
        if what == "=":
            return self._made[s[1]]
        if what in ("t", "l"):
            made = [self.make(each) for each in s[1:]]
            return tuple(made) if what == "t" else made
        if what == "d":
            return dict(self._pairs(s[1:]))
        return self._rarer(what, s)

    def _rarer(self, what: str, s: tuple) -> object:
        import torch
        if what == "S":
            return torch.Size(next(self._leaves))
        if what == "@":
            return self._objects[s[1]]
        if what == "r":
            return self._reduced(*s[1:])
        if what == "x" and len(s) > 3:
            return _class(s[2], s[3]) if len(s) == 4 else _class(s[2], s[3])[s[4]]
        if what == "x":
            return torch.device(s[2]) if s[1] == "device" else getattr(torch, s[2][6:])
        if what in ("a", "s"):
            array = log.unpack(next(self._leaves))
            return array if what == "a" else array[()]
        kind = _class(s[1], s[2])
        if what == "k":
            return self._of_subclass(kind, s[3], s[4:])
        if what == "n":
            return kind(*[self.make(each) for each in s[3:]])
        pairs = self._pairs(s[3:])
        if what == "o":
            made = object.__new__(kind)
            vars(made).update(pairs)
            return made
        if issubclass(kind, collections.defaultdict):
            return kind(None, pairs)
        try:
            return kind(**dict(pairs))
        except TypeError:
            return kind(pairs)

    @quietly
    def _of_subclass(self, kind: type, plain: tuple, attributes: tuple) -> object:
        made = self.make(plain).as_subclass(kind)
        self._made[-1] = made
        vars(made).update(self._pairs(attributes))
        return made

    def _reduced(self, make: tuple, args: tuple, state: tuple) -> object:
        made = self.make(make)(*self.make(args))
        self._objects.append(made)
        said = self.make(state)
        if hasattr(made, "__setstate__"):
            made.__setstate__(said)
        elif said is not None:
            vars(made).update(said)
        return made

    def _pairs(self, forms: tuple) -> list:
        flat = [self.make(each) for each in forms]
        return list(zip(flat[::2], flat[1::2]))  # noqa: B905 - Python 3.9


def _stand_in(sample: object, requires_grad: bool, leaf: bool) -> object:
    import torch
    big = sample.numel() * sample.element_size() > SHARED
    if not requires_grad:
        return sample.detach() if big or 0 in sample.stride() else sample.clone()
    with torch.enable_grad():
        if leaf:
            return sample.detach().clone().requires_grad_()
        anchor = _anchor(sample.dtype, sample.device)
        return anchor.expand(sample.shape) if big else sample + anchor


def _anchor(dtype: object, device: object) -> object:
    import torch
    anchor = _anchors.get((dtype, device))
    if anchor is None:
        with torch.inference_mode(False):
            anchor = torch.full((), float("nan"), dtype=dtype, device=device, requires_grad=True)
        unnumbered.register(anchor.register_hook, poison)
        _anchors[dtype, device] = anchor
    return anchor


def poison(_: object) -> None:
    """A hook of autograd: backward came to what a ghost has made."""
    outcome.diverged(words.OLD_GRAPH)
