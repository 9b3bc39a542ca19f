"""Is a life that stands where an image was taken the life that it was taken of? All that an image holds is
compared, to the bit."""

from __future__ import annotations

import sys

from ...looks import isinstance
from ..core import store, words
from ..core.log import equal
from ..image import images, restore
from ..state import storages, walk

# Of an iterator over a loader; what else is kept of it says how to come back to it, and differs in a life
# that came back itself.
LOADER = {
    "k": "the position",
    "ended": "the end",
    "epoch": "the epoch",
    "workers": "the workers",
    "persistent": "the workers",
    "iterable": "the data set",
    "seed": "the seed",
    "made": "the random state",
    "reset": "the random state",
    "consumed": "the random state",
    "drawn": "the order",
    "crc": "the order",
    "sample": "a sample",
    "guard": "the data set",
}
CHUNK = 8 << 20
_ABSENT = object()


def difference(then: dict, data: memoryview, where: dict) -> str:
    """A sentence about the first thing that is not as in the image, of which `then` is the meta and `data`
    the memory; "" if all is. `where`: what was told about its place."""
    seen = walk.Walk().run()
    try:
        copy = storages.Copy()
        now = images._frozen(images._meta(seen, copy, where))
        compared = _Compared(then, data, now, seen)
        return next(filter(None, compared.all()), "")
    finally:
        seen.close()


class _Compared:
    """Each part gives sentences; the first one counts, so what says most comes first."""

    def __init__(self, then: dict, data: memoryview, now: dict, seen: object) -> None:
        self.then, self.data, self.now, self.seen = then, data, now, seen

    def all(self) -> object:
        yield self._frames()
        yield from self._facts("facts", "")
        yield from self._facts("alias", words.ALIAS)
        yield from self._tensors()
        yield from self._arrays()
        yield from self._random()
        for path, entries in self.then["optimizers"].items():
            if not equal(entries, self.now["optimizers"].get(path)):
                yield self._other(f"{path}.state", "", "a different state")
        yield from self._shifts()
        yield from self._parts()

    def _other(self, path: str, then: object, now: object) -> str:
        return words.OTHER_STATE.format(
            name=walk.tell(path, self.seen.frames), then=_short(then), now=_short(now)
        )

    def _frames(self) -> str:
        then, now = self.then["frames"], self.now["frames"]
        return (
            ""
            if equal(then, now)
            else words.OTHER_STACK.format(then=restore._place(then), now=restore._place(now))
        )

    def _facts(self, name: str, prefix: str) -> object:
        then, now = self.then[name], self.now[name]
        for path in [*then, *(each for each in now if each not in then)]:
            a, b = then.get(path, _ABSENT), now.get(path, _ABSENT)
            if a is _ABSENT or b is _ABSENT or not walk.same(a, b):
                yield self._other(
                    path, *(each if each is _ABSENT else f"{prefix}{_short(each)}" for each in (a, b))
                )

    def _tensors(self) -> object:
        then, now = self.then["members"], self.now["members"]
        first: tuple = ({}, {})  # for each storage the first path that leads to it
        done = set()
        for path in [*then, *(each for each in now if each not in then)]:
            if path not in then or path not in now:
                yield self._other(path, *("a tensor" if path in each else _ABSENT for each in (then, now)))
                continue
            (group, *a), (other, *b) = then[path], now[path]
            if not equal(a, b):
                told = [f"a tensor {tuple(each[0][2])} {each[0][1]} {each[1]}" for each in (a, b)]
                yield self._other(path, *told)
            if group >= 0 and first[0].setdefault(group, path) != first[1].setdefault(other, path):
                yield self._other(
                    path, *(f"{words.ALIAS}{each}" for each in (first[0][group], first[1][other]))
                )
            if group >= 0 and group not in done:
                done.add(group)
                if self._memory(path, self.then["groups"][group], _bytes_of(self.seen.tensors[path])):
                    yield self._views(group)

    def _views(self, group: int) -> str:
        """Their memory differs. torch rounds it up, and what no tensor looks at was never written:
        what they see of it decides."""
        source = self.then["groups"][group]
        raw = bytearray(self.data[source[1]:source[1] + source[2]]) if source[0] == "data" else b""
        torch = sys.modules["torch"]
        for path, (other, form, (stride, offset), _) in self.then["members"].items():
            if other != group:
                continue
            with torch.no_grad():
                now = self.seen.tensors[path].detach().reshape(-1).clone()
                if len(raw):
                    then = (
                        torch.empty(0, dtype=now.dtype)
                        .set_(
                            torch.frombuffer(raw, dtype=torch.uint8).untyped_storage(),
                            offset,
                            tuple(form[2]),
                            tuple(stride),
                        )
                        .reshape(-1)
                        .clone()
                    )
                size = now.numel() * now.element_size()
                if not len(raw) or bytes(_bytes_of(then)[:size]) != bytes(_bytes_of(now)[:size]):
                    return self._other(path, "", "different numbers")
        return ""

    def _arrays(self) -> object:
        then, now = self.then["arrays"], self.now["arrays"]
        for path in [*then, *(each for each in now if each not in then)]:
            if path not in then or path not in now or not equal(then[path][0], now[path][0]):
                yield self._other(path, *(each[path][0] if path in each else _ABSENT for each in (then, now)))
            elif then[path][1][0] != "file":
                yield self._memory(path, then[path][1], memoryview(self.seen.arrays[path].tobytes()))

    def _memory(self, path: str, source: tuple, now: memoryview) -> str:
        """`source`: where the image has it, or its checksum."""
        if source[0] == "same":
            same = (now.nbytes, store.checksum(now)) == tuple(self.then["proofs"][source[2]])
        else:
            then = self.data[source[1]:source[1] + source[2]]
            same = then.nbytes == now.nbytes and all(bytes(then[at:at + CHUNK]) == bytes(now[at:at + CHUNK])
                                                     for at in range(0, then.nbytes, CHUNK))
        return "" if same else self._other(path, "", "different numbers")

    def _random(self) -> object:
        for name in ("rngs", "cuda", "world"):
            if not equal(self.then[name], self.now[name]):
                yield words.AUDIT_RANDOM.format(name="the random generators")

    def _shifts(self) -> object:
        """What was seen to change inside calls; each life has looked at another time."""
        now = {(path, name): tree for path, name, tree in self.now["shifts"]}
        for path, name, tree in self.then["shifts"]:
            if not equal(_sorted(tree), _sorted(now.get((path, name), tree))):
                yield self._other(path if name is None else f"{path}.{name}", "", "a different state")

    def _parts(self) -> object:
        then, now = self.then["parts"], self.now["parts"]
        a, b = then["files"], now["files"]
        if [each[:5] for each in a["open"]] != [each[:5] for each in b["open"]]:
            yield words.OTHER_STATE.format(
                name=words.AUDIT_FILE, then=_short(a["open"]), now=_short(b["open"])
            )
        if not equal(tuple(a["printed"]), tuple(b["printed"])):
            yield words.OTHER_STATE.format(
                name=words.AUDIT_PRINTED, then=_short(a["printed"][1:]), now=_short(b["printed"][1:])
            )
        yield from self._loaders(then.get("loader") or {}, now.get("loader") or {})

    def _loaders(self, then: dict, now: dict) -> object:
        if not equal(then.get("counts"), now.get("counts")):
            yield words.LOADER_OTHERS
        there = {each["number"]: each for each in now.get("iterators", ())}
        for each in then.get("iterators", ()):
            other = there.pop(each["number"], None)
            if other is None:
                yield words.LOADER_GONE.format(n=each["number"])
                continue
            for name, what in LOADER.items():
                if not equal(_ordered(each[name]), _ordered(other[name])):
                    told = words.AUDIT_LOADERS.format(part=what, n=each["number"])
                    yield words.OTHER_STATE.format(
                        name=told, then=_short(each[name]), now=_short(other[name])
                    )
        if there:
            yield words.LOADER_OTHERS
        if [each[0] for each in then.get("samplers", {}).values()] != [
            each[0] for each in now.get("samplers", {}).values()
        ]:
            yield words.SAMPLER_OTHER


def _bytes_of(tensor: object) -> memoryview:
    """All of the memory that it is a part of."""
    storage = tensor.untyped_storage()
    return store.memory(storage.data_ptr(), storage.nbytes()) if storage.nbytes() else memoryview(b"")


def _ordered(kept: object) -> object:
    """What workers left, in their order and not in that in which they came."""
    return sorted(kept.items()) if isinstance(kept, dict) else kept


def _sorted(tree: object) -> object:
    """A tree of codec.py in which sets have an order."""
    if isinstance(tree, (list, tuple)):
        if tree[:1] in (("set",), ("frozenset",)) and isinstance(tree[1], list) and tree[2:] in ((), (None,)):
            return (tree[0], sorted(map(repr, tree[1])))
        return tuple(map(_sorted, tree))
    return tree


def _short(value: object) -> str:
    if value is _ABSENT:
        return "absent"
    if value == "":
        return "the recorded value"
    return restore._short(value)
