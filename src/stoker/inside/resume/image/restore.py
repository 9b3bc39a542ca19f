"""Putting an image back: the script stands at the same line, its world is compared piece by piece, then
memory is filled in place.

Whatever is not equal, and was not seen to change inside a shield, refuses; nothing is put back on a guess.
"""

from __future__ import annotations

import functools
import re
import sys
import time

from ...looks import isinstance
from ..compute import gradients
from ..core import internals, leaves, outcome, phases, words
from ..data import reopen
from ..state import changed, generators, joined, reachability, storages, walk, walk_values
from . import codec, images

_clock = getattr(time.monotonic, "__wrapped__", time.monotonic)
_JOINTS = re.compile(r"[.\[<{]")  # where a path goes on to a part


@leaves.quietly
def resume() -> dict:
    """Put the image of this life in place; the caller stands at its line. `{"put_back":
    [path], "seconds": float}`; what does not fit ends this life by `outcome.diverged`."""
    begun = _clock()
    torch = sys.modules["torch"]
    work = _Restore(phases.target)
    work.compare()
    images.put_files_back()
    with torch.no_grad():
        work.world()
        work.parts()
    work.look_again()
    with torch.no_grad():
        work.shared()
        work.randomness()
        work.versions()
    work.now.stack[-1].f_locals  # noqa: B018 - a traced frame writes its snapshot back over cells that were just filled
    work.now.close()
    return {"put_back": sorted(set(work.put_back)), "seconds": round(_clock() - begun, 3)}


class _Restore:
    def __init__(self, target):
        self.meta, self.data, self.drop = target.meta, memoryview(target.data), images.dropped()
        self._look()
        self.put_back = []
        facts, mark = self.meta["facts"].items(), (walk_values.SPARSE_GRAD,)
        # gradients
        self.sparse = {path: fact for path, fact in facts if type(fact) is tuple and fact[:1] == mark}
        self.named_twice = set(self.meta["alias"].values())
        self.files, self.opened, self.h5 = (
            {tree[2]: tree[1] for tree in self._trees() if tree[0] == "opened"},
            {},
            {},
        )
        self.anew = {tree[2]: tree for tree in self._trees() if tree[0] == "object"}
        self.free, self.kept = self._free(), self._kept()

    def _look(self) -> None:
        gradients.drop_sparse()
        self.now, self.made, self.objects = walk.Walk().run(), {}, {}

    # -- what may differ

    def _free(self) -> dict:
        """Where differences are put back, and how far below: {path: marks of what follows it}.
        Optimizer state, and what recording saw change inside shields."""
        found = {f"{path}.state": "[" for path in self.meta["optimizers"]} | {
            f"T:{'.'.join(tree[3])}": "=" for tree in self.anew.values()
        }
        for path, name, tree in self.meta["shifts"]:
            told, marks = (
                (path, "=[{" if tree[0] == "set" else "=[") if name is None else (f"{path}.{name}", "=.[<{")
            )
            found[told] = found.get(told, "") + marks
        return found

    def _kept(self) -> set:
        """Objects within what is put back that cannot be built again:
        the script's own, made anew by this life, take their place. They must be what they were."""
        found, built = set(), {*self.files, *self.anew}
        for tree in self._trees():
            if tree[0] == "memory":
                built.add(tree[1])
            elif tree[0] == "same" and not self._makes_generator(tree[1]):
                found.add(tree[1])
        return found - built

    def _trees(self) -> list:
        """All trees of values of the image, with those within them."""
        trees = [tree for _, _, tree in self.meta["shifts"]] + [
            tree for entries in self.meta["optimizers"].values() for _, tree in entries
        ]
        for tree in trees:  # grows
            trees += codec.parts(tree)
        return trees

    def is_free(self, path: str) -> bool:
        """Whether this is put back and need not be equal; the innermost that speaks of it decides."""
        ends = [len(path), *reversed([m.start() for m in _JOINTS.finditer(path)])]
        for at in ends:
            if path[:at] in self.kept:
                return False
            if (path[at : at + 1] or "=") in self.free.get(path[:at], ()):
                return True
        return False

    def differs(self, path: str, then, now) -> None:
        name = walk.tell(path, self.now.frames)
        outcome.diverged(words.OTHER_STATE.format(name=name, then=_short(then), now=_short(now)))

    # -- comparing

    def compare(self) -> None:
        then, now = [tuple(f) for f in self.meta["frames"]], [tuple(f) for f in self.now.frames]
        if then != now:
            outcome.diverged(words.OTHER_STACK.format(then=_place(then), now=_place(now)))
        self._facts(self.meta["facts"], self.now.facts)
        self._facts(self.meta["alias"], self.now.alias, words.ALIAS)
        self._kinds("arrays", self.meta["arrays"], self.now.arrays)
        self._kinds("random generators", self.meta["rngs"], self.now.rngs)
        self._tensors()

    def _facts(self, then: dict, now: dict, prefix: str = "") -> None:
        for path, value in then.items():
            if path in self.sparse:
                continue
            other = now.get(path, _ABSENT)
            if (other is _ABSENT or not walk.same(_tuples(value), _tuples(other))) and not self.is_free(path):
                self.differs(
                    path,
                    f"{prefix}{_short(value)}",
                    "absent" if other is _ABSENT else f"{prefix}{_short(other)}",
                )
        for path, value in now.items():
            if path not in then and not self.is_free(path):
                self.differs(path, "absent", f"{prefix}{_short(value)}")

    def _kinds(self, what: str, then: dict, now: dict) -> None:
        for path in then:
            if path not in now and not self.is_free(path):
                self.differs(path, what, "absent")
        for path in now:
            if path not in then and not self.is_free(path):
                self.differs(path, "absent", what)

    def _tensors(self) -> None:
        members = self.meta["members"]
        for path, (_, form, *_) in members.items():
            tensor = self.now.tensors.get(path)
            if tensor is None:
                if not self.is_free(path) and not path.endswith(".grad") and not self._of_sparse_grad(path):
                    self.differs(path, f"a tensor {form[2]}", "absent")
                continue
            now = storages.form(tensor)
            if now != tuple(_tuples(form)) and not self.is_free(path):
                self.differs(path, f"a {_form(form)}", f"a {_form(now)}")
        for path in self.now.tensors:
            if path not in members and not self.is_free(path) and not path.endswith(".grad"):
                self.differs(path, "absent", f"a tensor {tuple(self.now.tensors[path].shape)}")

    def world(self) -> None:
        """All that the script holds."""
        self.memory()
        self.arrays()
        self.values()

    # -- memory

    def bytes_of(self, source):
        _, offset, size = source
        return self.data[offset : offset + size]

    def memory(self) -> None:
        """Each storage of the image into the storage that now stands for it;
        only stand-ins get new memory."""
        groups: dict = {}
        for path, (group, *_) in self.meta["members"].items():
            groups.setdefault(group, []).append(path)
        users: dict = {}
        for path, tensor in self.now.tensors.items():
            if not storages.store_cannot(tensor):
                users.setdefault(storages.storage_key(tensor), set()).add(path)
        own = reachability.behind(reachability.ours())
        own_memory = {storages.storage_key(t) for t in self.now.own_tensors(own)}
        for group, paths in groups.items():
            if group >= 0:
                self._group(group, [p for p in paths if not self._left_out(p)], users, own_memory)
        for path in list(self.now.tensors):
            if path.endswith(".grad") and path not in self.meta["members"] and "gradients" not in self.drop:
                owner = self.now.owners[path][0]
                owner.grad = None
        for path in self.meta["members"]:
            if path.endswith(".grad") and path not in self.now.tensors:
                self._grad(path)
        for path in self.sparse:
            self._sparse_grad(path)

    def _left_out(self, path: str) -> bool:
        return "buffers" in self.drop and "._buffers[" in path

    def _group(self, group: int, paths: list, users: dict, own_memory: set) -> None:
        source = self.meta["groups"][group]
        there = {p: self.now.tensors[p] for p in paths if p in self.now.tensors and not self.is_rebuilt(p)}
        keys = {storages.storage_key(t) for t in there.values()}
        if len(keys) == 1 and not keys & own_memory:
            key = next(iter(keys))
            first = next(iter(there.values()))
            fits = (
                users[key] <= set(paths)
                and first.untyped_storage().nbytes() == source[-2 if source[0] == "same" else -1]
            )
            if fits and all(
                storages.place(t) == tuple(_tuples(self.meta["members"][p][2])) for p, t in there.items()
            ):
                self._fill(first, source, paths[0])
                self.made[group] = first
                return
        for path in paths:
            # another view each time: takes no other memory
            if path.endswith(walk_values.SPARSE_ENDS) and not self._of_sparse_grad(path):
                self.differs(path, "a part of a sparse tensor", "a different memory layout")
        if source[0] == "same":
            self.differs(paths[0], "memory that never changes", "a different memory layout")
        if there:
            self._may_move(there, own_memory)
            for path, tensor in there.items():
                tensor.data = self._view(group, self.meta["members"][path])

    def is_rebuilt(self, path: str) -> bool:
        """Whether a tensor is of another form now,
        so that a new one takes its place (only below a path that is free)."""
        tensor = self.now.tensors.get(path)
        return tensor is not None and storages.form(tensor) != tuple(_tuples(self.meta["members"][path][1]))

    def _may_move(self, there: dict, own_memory: set) -> None:
        for path, tensor in there.items():
            if storages.storage_key(tensor) in own_memory:
                continue
            in_a_module = ("._parameters[" in path or "._buffers[" in path) and not path.endswith(".grad")
            if in_a_module or self._has_array(tensor):
                self.differs(path, "separate memory", "memory that other objects share")

    def _has_array(self, tensor) -> bool:
        storage = tensor.untyped_storage()
        low, high = storage.data_ptr(), storage.data_ptr() + storage.nbytes()
        return any(low < hi and lo < high for lo, hi in map(reachability._span, self.now.arrays.values()))

    def _fill(self, tensor, source, path: str) -> None:
        flat = storages.flat(tensor)
        if source[0] == "same":
            if not storages.is_still(flat.data_ptr(), *self.meta["proofs"][source[2]]):
                self.differs(path, "unchanged since the setup", "different numbers")
            return
        if source[2]:
            flat.copy_(_bytes_tensor(self.bytes_of(source)))

    def _view(self, group: int, member):
        """A tensor of the recorded form on the group's memory, which is made when there is none."""
        torch = sys.modules["torch"]
        _, form, (stride, offset), _ = member
        if group not in self.made:
            source = self.meta["groups"][group]
            if source[0] == "same":
                raise codec.CannotBuild("a tensor: the image has only a checksum of its content")
            raw = (
                _bytes_tensor(self.bytes_of(source)).clone()
                if source[2]
                else torch.empty(0, dtype=torch.uint8)
            )
            self.made[group] = raw.to(form[3])
        storage = self.made[group].untyped_storage()
        return torch.empty(0, dtype=codec.dtype_of(form[1]), device=form[3]).set_(
            storage, offset, tuple(form[2]), tuple(stride)
        )

    def _grad(self, path: str) -> None:
        owner = self.now.tensors.get(path[: -len(".grad")])
        if owner is None:
            if not self.is_free(path):
                self.differs(path, "a gradient", "absent")
            return
        owner.grad = self._find(path)

    def _sparse_grad(self, path: str) -> None:
        """On the memory of its parts,
        which it may share with what the script holds (the indices are the batch)."""
        torch = sys.modules["torch"]
        owner = self.now.tensors.get(path[: -len(".grad")])
        if owner is None:
            self.differs(path, "a gradient", "absent")
        *_, shape, _device, coalesced, _dims = _tuples(self.sparse[path])
        members = self.meta["members"]
        where, numbers = (
            self._view(members[part][0], members[part]) for part in (f"{path}<_indices>", f"{path}<_values>")
        )
        if "gradients" not in self.drop:
            owner.grad = torch.sparse_coo_tensor(where, numbers, tuple(shape), is_coalesced=coalesced)

    def _of_sparse_grad(self, path: str) -> bool:
        return path.rpartition("<")[0] in self.sparse

    # -- arrays, values, generators

    def arrays(self) -> None:
        for path, (told, source) in self.meta["arrays"].items():
            array = self.now.arrays.get(path)
            if array is None:
                continue
            kind = storages.kind_of(array)
            if (kind, tuple(array.shape)) != (told[0], tuple(told[1])):
                self.differs(path, f"an array {told[0]} {tuple(told[1])}", f"an array {kind} {array.shape}")
            if source[0] == "file":
                continue
            if source[0] == "same":
                if not storages.is_still(
                    array.__array_interface__["data"][0], *self.meta["proofs"][source[2]]
                ):
                    self.differs(path, "unchanged since the setup", "different numbers")
                continue
            saved = (
                sys.modules["numpy"]
                .frombuffer(self.bytes_of(source), dtype=array.dtype)
                .reshape(tuple(told[1]))
            )
            if saved.tobytes() == array.tobytes():
                continue
            if not array.flags.writeable:
                self.differs(path, "a read-only array", "different values")
            array[...] = saved

    def _find(self, path: str):
        """What a tree means by a path: a tensor, array or object of this life,
        or a tensor made from the image."""
        if path in self.files:
            return self._file(path)
        if path in self.anew:
            return self._object(path)
        member = self.meta["members"].get(path)
        if member is not None:
            if path in self.now.tensors and not self.is_rebuilt(path):
                return self.now.tensors[path]
            return self._new_tensor(member, path)
        if path in self.meta["arrays"]:
            if path in self.now.arrays:
                return self.now.arrays[path]
            return self._new_array(path)
        found = self.now.find(path)
        if found is not None:
            return found
        if self._makes_generator(path):
            return self._new_generator(path)
        raise codec.CannotBuild(walk.tell(path, self.now.frames))

    def _file(self, path: str):
        """One that is opened again, by whichever of its names comes first."""
        if path not in self.opened:
            self.opened[path] = codec.open_again(self.files[path], self.now.find(path), self.h5)
        return self.opened[path]

    def _object(self, path: str):
        """One of a class of Python's, which may hold itself."""
        if path not in self.objects:
            self.objects[path] = codec.place_of(self.anew[path], self.now.find(path))
            codec.fill(self.objects[path], self.anew[path], self._find)
        return self.objects[path]

    def _new_tensor(self, member, path: str):
        torch = sys.modules["torch"]
        if member[0] < 0 or not member[1][5]:
            raise codec.CannotBuild(walk.tell(path, self.now.frames))
        made = self.now.fresh.get(path)
        if made is None:
            made = self._view(member[0], member)
            if member[1][0] == "torch.nn.parameter.Parameter":
                made = torch.nn.Parameter(made, requires_grad=member[1][4])
            elif member[1][0] != "torch.Tensor":
                raise codec.CannotBuild(walk.tell(path, self.now.frames))
            self.now.fresh[path] = made.requires_grad_(member[1][4])
        return made

    def _makes_generator(self, path: str) -> bool:
        """Whether there was a generator that can be made anew:
        a sampler did in its `__iter__`, a data set at its first sample."""
        return (
            path in self.meta["rngs"]
            and path not in self.named_twice
            and generators.maker(_tuples(self.meta["rngs"][path])) is not None
        )

    def _new_generator(self, path: str):
        """Its state comes last, with that of all others."""
        if path not in self.now.rngs:
            self.now.rngs[path] = generators.maker(_tuples(self.meta["rngs"][path]))()
        return self.now.rngs[path]

    def _new_array(self, path: str):
        told, source = self.meta["arrays"][path]
        # fields; an order in memory that is not kept
        if source[0] != "data" or told[0][0] not in "<>|=" or tuple(told[3:]) != (True,):
            raise codec.CannotBuild(walk.tell(path, self.now.frames))
        return (
            sys.modules["numpy"]
            .frombuffer(bytearray(self.bytes_of(source)), dtype=told[0])
            .reshape(tuple(told[1]))
        )

    def values(self) -> None:
        try:
            for path, entries in self.meta["optimizers"].items():
                optimizer = self.now.optimizers.get(path)
                if optimizer is None:
                    self.differs(path, "an optimizer", "absent")
                if "optimizer" in self.drop:
                    optimizer.state.clear()
                else:
                    codec.build_optimizer(optimizer, entries, self._find)
            for path, name, tree in self.meta["shifts"]:
                if "value" not in self.drop:
                    self._shift(path, name, tree)
        except codec.CannotBuild as e:
            outcome.diverged(words.NOT_BUILT.format(name=e))

    def _shift(self, path: str, name, tree) -> None:
        if self.now.find(path) is None and self.is_free(path):
            return  # within something that is built anew as a whole
        owner = self._find(path)
        told = path if name is None else f"{path}.{name}"
        if name is None:
            if tree[0] != "same":
                codec.build(tree, self._find, owner)
        else:
            held = getattr(owner, "__dict__", {})
            before = held.get(name, _ABSENT)
            if tree[0] == "absent":
                if name in held:
                    held.pop(name)
                elif images.is_in_place(owner, name):
                    object.__delattr__(owner, name)
                return
            value = codec.build(tree, self._find, before)
            if before is not value:
                write = type.__setattr__ if issubclass(type(owner), type) else object.__setattr__
                (
                    held.__setitem__
                    if isinstance(held, dict) and name in held
                    else functools.partial(write, owner)
                )(name, value)
        changed.inside([(owner, name)])
        self.put_back.append(walk.tell(told, self.now.frames))

    def parts(self) -> None:
        for name, part in images.parts:
            if name in self.meta["parts"]:
                part.load(self.meta["parts"][name], codec.Stored(self))

    def look_again(self) -> None:
        """All must hang together as it did. What samplers and data sets of the script's did on the way back
        to their place they had done before the image already: then the world is put back a second time."""
        self.now.close()
        if reopen.ran_own_code:
            self._look()
            self.compare()
            with sys.modules["torch"].no_grad():
                self.world()
        else:
            self.now = walk.Walk().run()
        then, now = self.meta["alias"], self.now.alias
        for path in {**then, **now}:
            first = then.get(path) or now.get(path)
            other = then.get(path) != now.get(path) and not self._is_of_a_file(path)
            if other and (first in self.anew or isinstance(self.now.find(first), walk.CONTAINERS)):
                self.differs(
                    path,
                    words.ALIAS + first if path in then else "another",
                    "another" if path in then else words.ALIAS + first,
                )

    def _is_of_a_file(self, path: str) -> bool:
        return any(path[:m.start()] in self.files for m in _JOINTS.finditer(path))

    def shared(self) -> None:
        """What lay in the memory of something else lies there again."""
        apart = joined.put_back(self.meta)
        if apart is not None:
            self.differs(
                apart[0],
                f"in memory shared with {walk.tell(apart[1], self.now.frames)}",
                "in separate memory",
            )

    def randomness(self) -> None:
        """Generators that the script holds, then the global ones, last of all."""
        if "rng" in self.drop:
            return
        for path, state in self.meta["rngs"].items():
            if path in self.now.rngs:
                generators.put_back(self.now.rngs[path], _tuples(state))
        torch = sys.modules["torch"]
        if self.meta["cuda"] is not None:
            torch.cuda.set_rng_state_all(
                [_bytes_tensor(memoryview(bytearray(state))) for state in self.meta["cuda"]]
            )
        internals.set_rngs(_tuples(self.meta["world"]))

    def versions(self) -> None:
        """How often each tensor was written to, behind all that writes."""
        told = {}
        for path, (*_, version) in self.meta["members"].items():
            tensor = self.now.fresh.get(path)
            if tensor is None and not self.is_rebuilt(path):
                tensor = self.now.tensors.get(path)
            if tensor is not None and not tensor.is_inference():
                told[id(tensor)] = tensor, version
        if told:
            internals.set_versions(
                [tensor for tensor, _ in told.values()], [version for _, version in told.values()]
            )


def _tuples(value):
    return tuple(_tuples(v) for v in value) if isinstance(value, (list, tuple)) else value


_ABSENT = object()


def _bytes_tensor(view):
    torch = sys.modules["torch"]
    if view.readonly:
        view = memoryview(bytearray(view))
    return torch.frombuffer(view, dtype=torch.uint8) if view.nbytes else torch.empty(0, dtype=torch.uint8)


def _form(form) -> str:
    flags = "" if not form[4] else ", with gradient" if form[5] else ", with history"
    return (
        f"{form[0].rpartition('.')[2]} {str(form[1]).rpartition('.')[2]} {tuple(form[2])} on {form[3]}{flags}"
    )


def _place(frames: list) -> str:
    return f"{frames[-1][0]}:{frames[-1][2]} in {frames[-1][1]}" if frames else "no line of the script"


def _short(value) -> str:
    told = value if isinstance(value, str) else repr(value)
    return told if len(told) <= 80 else told[:77] + "..."
