"""Two lives in one process, for the tests of walk, image and restore: each scenario makes a world, takes an image at one line, spoils the
world, and comes to the same line again, where the image is put back. Run as a script; prints a JSON line for each scenario."""

from __future__ import annotations

import collections
import contextlib
import dataclasses
import functools
import gc
import importlib.machinery
import itertools
import json
import os
import queue
import random
import sys
import tempfile
import traceback
import types
import weakref

import numpy as np
import torch
from torch import nn

from stoker.inside.resume.compute import side_effects, steps
from stoker.inside.resume.core import leaves, log, outcome, phases
from stoker.inside.resume.image import images, restore
from stoker.inside.resume.state import changed, reachability, storages, walk, walk_heap, warning_filters

SCENARIOS = {}
images.parts += [("leavings", side_effects), ("warned", warning_filters)]


class Refused(Exception):
    pass


def _refused(reason):
    raise Refused(reason)


class Lives:
    """`for _ in lives:` runs twice; `lives.point()` takes the image the first time and resumes the second time."""

    def __init__(self, root):
        self.root, self.second, self.told, self.shifts = root, False, {}, []
        self.acts = (functools.partial(images.take, {}), restore.resume)

    def __iter__(self):
        self.left = [False, True]
        return self

    def __next__(self):
        if not self.left:
            raise StopIteration
        self.second = self.left.pop(0)
        return self

    def point(self):
        if self.second:
            images.TAIL_VALUES = 0
            phases.phase, phases.target = phases.GHOST, images.choose()
            assert phases.target is not None, outcome.state()
        else:
            changed.inside(self.shifts)
            outcome.passed.clear()
        phases.depth = 1
        self.told = self.acts[self.second]()  # one line for both lives
        phases.depth, phases.phase = 0, phases.RECORD
        images.wait()
        assert self.told, f"no image: {outcome.passed}"

    def refuses(self, what="") -> str:
        """Try to take an image that must be refused; the sentence."""
        phases.depth = 1
        outcome.passed.clear()
        try:
            assert not images.take({}), what
        finally:
            phases.depth = 0
        return next(iter(outcome.passed))


Lives.__module__ = f"{leaves.PACKAGE}.lives"  # one of ours, not of the script


def scenario(test):
    SCENARIOS[test.__name__] = test
    return test


def net(seed=0):
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Linear(8, 1))


def train(model, optimizer, steps=2):
    for _ in range(steps):
        optimizer.zero_grad()
        model(torch.randn(16, 4)).pow(2).mean().backward()
        optimizer.step()


def digest(model, optimizer=None):
    state = [t.detach().clone() for t in model.state_dict().values()]
    if optimizer is not None:
        state += [v.clone() for entry in optimizer.state.values() for v in entry.values() if isinstance(v, torch.Tensor)]
    return state


def equal(one, other):
    return len(one) == len(other) and all(a.dtype == b.dtype and torch.equal(a, b) for a, b in zip(one, other))  # noqa: B905


# -- tensors and optimizers


@scenario
def model_and_optimizer_in_place(lives):
    model = net()
    optimizer = torch.optim.Adam(model.parameters())
    train(model, optimizer)
    before, where = digest(model, optimizer), [p.data_ptr() for p in model.parameters()]
    for _ in lives:
        if lives.second:
            train(model, optimizer, 3)
        lives.point()
    assert equal(before, digest(model, optimizer))
    assert where == [p.data_ptr() for p in model.parameters()]


@scenario
def what_moves_on_before_the_writer_comes(lives):
    from stoker.inside.resume.data import loader, loader_state

    images.parts.insert(0, ("loader", loader))
    images.obstacles.append(loader.obstacle)
    start, where = images._start_thread, {"inputs": [1]}

    def late(run, args):
        loader_state.counts["iterators"] += 1
        where["inputs"].append(2)
        start(run, args)

    images._start_thread = late
    lives.acts = (functools.partial(images.take, where), restore.resume)
    try:
        for _ in lives:
            if lives.second:
                loader_state.counts["iterators"] -= 1
                where["inputs"].pop()
            lives.point()
    finally:
        images._start_thread = start
    assert phases.target.where == {"inputs": [1]}


@scenario
def optimizer_state_built_again(lives):
    model = net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    train(model, optimizer)
    before = digest(model, optimizer)
    for _ in lives:
        if lives.second:
            optimizer.state.clear()
        lives.point()
    assert equal(before, digest(model, optimizer))


@scenario
def lbfgs_lists(lives):
    model = nn.Linear(3, 1)
    optimizer = torch.optim.LBFGS(model.parameters(), max_iter=3, history_size=4)
    x = torch.randn(9, 3)

    def closure():
        optimizer.zero_grad()
        loss = model(x).pow(2).mean()
        loss.backward()
        return loss

    optimizer.step(closure).item()
    want = dict(optimizer.state_dict()["state"][0])
    want["old_dirs"] = [t.clone() for t in want["old_dirs"]]
    count = len(want)
    for _ in lives:
        if lives.second:
            optimizer.state.clear()
        lives.point()
    now = optimizer.state[model.weight]
    assert len(now) == count
    assert now["n_iter"] == want["n_iter"]
    assert equal(now["old_dirs"], want["old_dirs"])


@scenario
def extra_optimizer_state_goes(lives):
    model = net()
    optimizer = torch.optim.Adam(model.parameters())
    for _ in lives:
        if lives.second:
            train(model, optimizer)
            model.zero_grad(set_to_none=True)
        lives.point()
    assert not optimizer.state


@scenario
def gradients_present_and_absent(lives):
    one, two = nn.Parameter(torch.ones(3)), nn.Parameter(torch.ones(3))
    one.grad = torch.full((3,), 5.0)
    for _ in lives:
        if lives.second:
            one.grad, two.grad = None, torch.ones(3)
        lives.point()
    assert one.grad.tolist() == [5.0] * 3
    assert two.grad is None


@scenario
def every_dtype_and_shape(lives):
    names = "float16 bfloat16 float32 float64 complex64 complex128 bool uint8 int8 int16 int32 int64".split()
    made = {name: (torch.randn(3, 4) * 3).to(getattr(torch, name)) for name in names}
    made["zero_dim"], made["empty"] = torch.tensor(2.5), torch.empty(0, 3)
    made["float8"] = torch.randn(4).to(torch.float8_e4m3fn)
    made["nan"] = torch.tensor([float("nan"), -0.0, float("inf")])
    raw = {k: v.clone() for k, v in made.items()}
    for _ in lives:
        if lives.second:
            zero(*made.values())
        lives.point()
    for name, t in made.items():
        a, b = raw[name].contiguous().reshape(-1), t.contiguous().reshape(-1)
        assert a.view(torch.uint8).tolist() == b.view(torch.uint8).tolist() if a.numel() else True, name


@scenario
def views_strides_expanded(lives):
    base = torch.arange(24.0).reshape(4, 6)
    column, turned, wide = base[:, 2], base.t(), torch.tensor([7.0]).expand(5)
    small = torch.randn(100_000)[10:14]
    want = [t.clone() for t in (base, column, turned, wide, small)]
    for _ in lives:
        if lives.second:
            base.zero_()
            wide[:1].zero_()
            small.zero_()
        lives.point()
    assert equal(want, [base, column, turned, wide, small])
    base[0, 2] = 99.0
    assert column[0] == 99.0
    assert turned[2, 0] == 99.0


@scenario
def stand_ins_share_again_what_shared(lives):
    whole = torch.arange(6.0)
    pair = [whole[:3], whole[3:]]
    apart = [torch.zeros(2), torch.ones(2)]
    for _ in lives:
        if lives.second:  # as a ghost would have made them: shared where they were apart, apart where they were shared
            pair = [torch.full((3,), float("nan")) for _ in range(2)]
            both = torch.full((2,), float("nan"))
            apart = [both.detach(), both.detach()]
            whole = pair[0].new_full((6,), float("nan"))
            del both, _
            _ = lives
        lives.point()
    assert pair[1].tolist() == [3.0, 4.0, 5.0]
    assert apart[0].tolist() == [0.0, 0.0]
    assert apart[1].tolist() == [1.0, 1.0]
    whole[3] = -1.0
    assert pair[1][0] == -1.0
    assert pair[0].untyped_storage().data_ptr() == pair[1].untyped_storage().data_ptr()
    apart[0].add_(1)
    assert apart[1].tolist() == [1.0, 1.0]


@scenario
def numpy_alias_stays(lives):
    buffer = np.arange(5.0)
    tensor = torch.from_numpy(buffer)
    other = torch.ones(3).numpy()
    for _ in lives:
        if lives.second:
            buffer[:] = -1
            other[:] = 9
        lives.point()
    assert buffer.tolist() == [0, 1, 2, 3, 4]
    assert other.tolist() == [1, 1, 1]
    tensor[0] = 42
    assert buffer[0] == 42


@scenario
def shared_memory_stays_shared(lives):
    flag = torch.zeros(3).share_memory_()
    where = flag.data_ptr()
    for _ in lives:
        if lives.second:
            flag.fill_(7)
        lives.point()
    assert flag.tolist() == [0, 0, 0]
    assert flag.is_shared()
    assert flag.data_ptr() == where


@scenario
def requires_grad_is_compared(lives):
    weight = torch.ones(2, requires_grad=True)
    try:
        for _ in lives:
            if lives.second:
                weight.requires_grad_(False)
            lives.point()
    except Refused as e:
        assert "weight" in str(e), e
        return
    raise AssertionError("not refused")


@scenario
def shape_is_compared(lives):
    box = [torch.ones(2)]
    try:
        for _ in lives:
            if lives.second:
                box[0] = torch.ones(3)
            lives.point()
    except Refused as e:
        assert "box" in str(e), e
        return
    raise AssertionError("not refused")


@scenario
def sparse_constants(lives):
    def made():
        coo = torch.tensor([[0.0, 2.0], [3.0, 0.0]]).to_sparse()
        loose = torch.sparse_coo_tensor([[1, 1, 0]], [1.0, 2.0, 3.0], (2,))
        return [coo, loose, coo.to_sparse_csr(), coo.to_sparse_csc(), coo.to_sparse_bsr((1, 1)), torch.zeros(2).to_sparse()]

    want, held, dense = [t.to_dense() for t in made()], made(), torch.ones(2)
    for _ in lives:
        if lives.second:
            held = made()
            held[0]._values().zero_(), held[0]._indices().zero_(), held[2].values().zero_(), held[3].row_indices().zero_()
            dense.zero_()
        lives.point()
    assert all(torch.equal(a.to_dense(), b) for a, b in zip(held, want))  # noqa: B905
    assert dense.tolist() == [1.0, 1.0]


@scenario
def values_of_a_sparse_tensor(lives):
    made = [torch.eye(3).to_sparse().values(), torch.eye(2).to_sparse_csr().values()]
    for _ in lives:
        if lives.second:
            made[0].zero_()
        lives.point()
    assert [v.tolist() for v in made] == [[1.0] * 3, [1.0] * 2]


@scenario
def sparse_form_is_compared(lives):
    box = [torch.eye(3).to_sparse()]
    for other in (torch.eye(3).to_sparse_csr(), torch.ones(3, 3).to_sparse(), torch.eye(3)):
        try:
            for _ in lives:
                if lives.second:
                    box[0] = other
                lives.point()
        except Refused as e:
            assert "box" in str(e), e
        else:
            raise AssertionError("not refused")
        phases.phase, phases.target, box[0] = phases.RECORD, None, torch.eye(3).to_sparse()


@scenario
def sparse_ones_below_a_change_keep_their_memory(lives):
    held = {"a": torch.eye(3).to_sparse()}
    lives.shifts = [(held, None)]
    try:
        for _ in lives:
            if lives.second:
                held["a"] = torch.ones(3, 3).to_sparse()
            lives.point()
    except Refused as e:
        assert "sparse" in str(e), e
        return
    raise AssertionError("not refused")


@scenario
def what_cannot_be_saved_is_refused(lives):
    lives.second = False
    trained = torch.ones(4, 2).to_sparse().requires_grad_()
    assert "sparse" in lives.refuses()
    del trained
    quantized = torch.quantize_per_tensor(torch.randn(3), 0.1, 0, torch.qint8)
    assert "quantized" in lives.refuses()
    del quantized
    scripted = torch.jit.script(nn.Linear(2, 2))
    assert "jit" in lives.refuses()
    assert scripted is not None


@scenario
def a_living_graph_is_refused(lives):
    weight = torch.ones(3, requires_grad=True)
    loss = (weight * weight).sum()
    assert "loss" in lives.refuses()
    loss.backward()
    total = 0
    for _ in lives:
        lives.point()
    assert total == 0


@scenario
def attributes_on_tensors(lives):
    tensor = torch.ones(2)
    tensor.note, tensor.more = 3, torch.zeros(1)
    for _ in lives:
        if lives.second:
            tensor.more.add_(1)
        lives.point()
    assert tensor.more.item() == 0
    try:
        for _ in lives:
            if lives.second:
                tensor.note = 4
            lives.point()
    except Refused as e:
        assert "note" in str(e)
        return
    raise AssertionError("not refused")


# -- places


class Slotted:
    __slots__ = ("__private", "inside")

    def __init__(self, value):
        self.inside = self.__private = value


class Meta(type):
    pass


class Owner(metaclass=Meta):
    kept = torch.ones(2)


Pair = collections.namedtuple("Pair", "left right")


@dataclasses.dataclass
class Data:
    value: object
    more: list = dataclasses.field(default_factory=list)


@functools.lru_cache
def cached(n):
    return torch.full((2,), float(n))


def with_default(x, seen=[torch.ones(2)]):  # noqa: B006
    return seen[0]


def with_attribute():
    pass


def suspended(tensor):
    here = tensor * 1
    yield here
    yield here + 1


class Strange(dict):
    def __getattr__(self, name):
        raise RuntimeError("a walk runs no code of the user's")

    def __len__(self):
        raise RuntimeError("a walk runs no code of the user's")

    def __iter__(self):
        raise RuntimeError("a walk runs no code of the user's")

    @property
    def trap(self):
        raise RuntimeError("a walk runs no code of the user's")


def zero(*tensors):
    for each in tensors:
        each.zero_()


def hiding_places():
    def t():
        return torch.ones(2)

    def closure():
        inside = t()

        def f():
            return inside

        return f, inside

    places = {}
    for name, make in {
        "list": lambda x: [x], "tuple": lambda x: (x,), "dict": lambda x: {"a": {3: x}}, "odd key": lambda x: {("a", 1): x},
        "default dict": lambda x: collections.defaultdict(list, a=[x]), "ordered": lambda x: collections.OrderedDict(a=x),
        "deque": lambda x: collections.deque([x], maxlen=3), "set": lambda x: {x}, "slots": Slotted, "namedtuple": lambda x: Pair(x, 1),
        "dataclass": Data, "partial": lambda x: functools.partial(print, x), "method": lambda x: Data(x).__eq__,
        "mapping proxy": lambda x: types.MappingProxyType({"a": x}), "namespace": lambda x: types.SimpleNamespace(a=x),
        "exception": ValueError, "cycle": lambda x: itertools.cycle([x]), "chain": lambda x: itertools.chain([x]), "zip": lambda x: zip([x]),
        "bound append": lambda x: [x].append, "iterator": lambda x: iter([x]), "cell": types.CellType, "object array": object_array,
        "subclass": lambda x: Strange(a=x), "user dict": lambda x: collections.UserDict(a=x), "chain map": lambda x: collections.ChainMap({"a": x}),
        "dict values": lambda x: {"a": x}.values(), "map": lambda x: map(str, [x]), "frozenset": lambda x: frozenset([x]),
    }.items():  # fmt: skip
        value = t()
        places[name] = (make(value), value)
    places["closure"] = closure()
    value = t()
    generator = suspended(value)
    places["generator"] = (generator, next(generator))
    return places


def object_array(x):
    found = np.empty(1, dtype=object)
    found[0] = x
    return found


@scenario
def hiding_places_are_walked(lives):
    places = hiding_places()
    with_attribute.kept = torch.ones(2)
    lives.cached = cached(1)
    names = {"code": "kept = None\ndef f():\n    return kept\n"}
    exec(names.pop("code"), names)
    names["kept"] = torch.ones(2)
    reach = names["f"]
    del names
    checks = {name: pair[1] for name, pair in places.items()}
    del places["list"]
    holders = {name: pair[0] for name, pair in places.items()}
    only = {name: weakref.ref(value) for name, value in checks.items()}
    del places, checks
    only.pop("list")
    for _ in lives:
        if lives.second:
            zero(Owner.kept, lives.cached, with_default(0), with_attribute.kept, reach(), *(ref() for ref in only.values()))
        lives.point()
    wrong = [name for name, ref in only.items() if ref().tolist() != [1.0, 1.0]]
    assert not wrong, wrong
    assert holders
    for value in (Owner.kept, lives.cached, with_default(0), with_attribute.kept, reach()):
        assert value.tolist() == [1.0, 1.0]


@scenario
def loops_that_only_a_value_stack_holds(lives):
    for x in suspended(torch.ones(2)):
        for _ in lives:
            if lives.second:
                x.zero_()
            lives.point()
        assert x.tolist() == [1.0, 1.0]
        break
    for one, other in zip([torch.ones(2)], [torch.zeros(3)]):  # noqa: B905
        for _ in lives:
            if lives.second:
                one.zero_()
            lives.point()
        assert one.tolist() == [1.0, 1.0]
        assert other.tolist() == [0.0] * 3


def rows(of):
    yield from of


class Ahead:
    """Holds the next one, as prefetchers do; nobody may ask it for anything."""

    def __init__(self, source):
        self.source, self.coming = source, torch.full((2,), 7.0)

    def __iter__(self):
        return self

    def __next__(self):
        now, self.coming = self.coming, next(self.source)
        return now

    def __length_hint__(self):
        raise AssertionError

    def __getattr__(self, name):
        raise AssertionError(name)


class Kept:
    def __init__(self):
        self.backup = torch.full((2,), 3.0)

    def __enter__(self):
        return 1

    def __exit__(self, *error):
        assert self.backup.tolist() == [3.0, 3.0]


def the_only(kind):
    found, = (thing for thing in gc.get_objects() if type(thing) is kind)
    return found


@scenario
def what_only_a_for_or_a_with_holds(lives):
    for x in Ahead(iter([torch.ones(2), torch.zeros(2)])):
        for _ in lives:
            if lives.second:
                the_only(Ahead).coming.zero_(), x.zero_()
            lives.point()
        assert the_only(Ahead).coming.tolist() == [1.0, 1.0]
        assert x.tolist() == [7.0, 7.0]
        break
    for _ in lives:
        with Kept():
            if lives.second:
                the_only(Kept).backup.zero_()
            lives.point()


@scenario
def loops_that_look_alike_are_told_apart(lives):
    one, other = [torch.ones(2), torch.ones(2)], [torch.zeros(2), torch.zeros(2)]

    def pair(turned):  # the garbage collector shows the older loop first
        if turned:
            b = rows(other)
            return zip(rows(one), b)  # noqa: B905
        a = rows(one)
        return zip(a, rows(other))  # noqa: B905

    for _ in lives:
        for x, y in pair(lives.second):
            if lives.second:
                x.zero_(), y.fill_(5)
            lives.point()
            assert x.tolist() == [1.0, 1.0]
            assert y.tolist() == [0.0, 0.0]
            break


@scenario
def loops_that_nothing_tells_apart_are_refused(lives):
    for x in rows([torch.ones(2)]):
        for y in rows([torch.zeros(2)]):
            del x, y
            assert "that Stoker cannot distinguish" in lives.refuses()
            break
        break


@scenario
def data_that_only_the_for_statement_holds(lives):
    from torch.utils.data import DataLoader, TensorDataset

    from stoker.inside.resume.data import loader, loader_state

    loader.install()
    number = loader_state.counts["iterators"] + 1
    for (x,) in DataLoader(TensorDataset(torch.arange(8.0).reshape(4, 2)), 2):
        walked = walk.Walk().run()
        assert f"D:loader {number}.dataset.tensors[0]" in walked.tensors
        walked.close()
        assert x.tolist() == [[0.0, 1.0], [2.0, 3.0]]
        break
    assert lives


@scenario
def what_a_data_set_hides_is_not_excused(lives):
    from torch.utils.data import DataLoader, TensorDataset

    from stoker.inside.resume.data import loader

    loader.install()
    phases.log, phases.phase = log.Log(os.path.join(phases.folder, "log")), phases.RECORD
    data = TensorDataset(torch.arange(8.0).reshape(2, 4).t())
    for workers in (0, 2):
        for _ in DataLoader(data, 2, num_workers=workers):
            walked = walk.Walk().run()
            assert not reachability.unseen(walked), workers
            walked.close()
            data.box = hiding_place()
            data.box.path = torch.ones(5)
            walked = walk.Walk().run()
            assert "cannot find a variable" in reachability.unseen(walked)[0], workers
            walked.close()
            del data.box
            break
    assert lives


@scenario
def many_samples_in_one_list(lives):
    pairs = [(torch.full((2,), float(n)), torch.tensor(n)) for n in range(100)]
    named = {str(n): (torch.tensor(n), n) for n in range(100)}
    plain, nested = [(n, str(n)) for n in range(100)], [(n, [n, (n,)]) for n in range(100)]
    for _ in lives:
        if lives.second:
            pairs[50][0].zero_(), named["7"][0].zero_()
        lives.point()
    assert [int(a[0] + b) for a, b in pairs] == [2 * n for n in range(100)]
    assert named["7"][0].item() == 7
    for shape in (lambda: plain.append((1, "")), lambda: nested[7][1].append(3)):
        try:
            for _ in lives:
                if lives.second:
                    shape()
                lives.point()
        except Refused as e:
            assert "plain" in str(e) or "nested" in str(e), e
        else:
            raise AssertionError("a change was not seen")
        phases.phase, phases.target = phases.RECORD, None


@scenario
def keyed_by_id(lives):
    one, two = nn.Linear(1, 1), nn.Linear(1, 1)
    states = collections.defaultdict(dict)
    states[id(one)]["found"], states[id(two)]["found"] = torch.ones(1), torch.zeros(1)
    order = [id(two), id(one)]
    for _ in lives:
        if lives.second:
            states[id(one)]["found"].fill_(5)
        lives.point()
    assert states[id(one)]["found"].item() == 1
    assert len(order) == 2


# -- values


def refused_when(lives, make, change, word):
    box = make()
    try:
        for _ in lives:
            if lives.second:
                change(box)
            lives.point()
    except Refused as e:
        assert word in str(e), e
        return
    raise AssertionError(f"not refused: {word}")


def setting(key, value):
    return lambda box: box.__setitem__(key, value)


@scenario
def plain_values_are_compared(lives):
    for make, change, word in (
        (lambda: {"best": 3}, setting("best", 4), "in the image: 3; now: 4"),
        (lambda: {"best": 1}, setting("best", True), "in the image: 1; now: True"),
        (lambda: {"best": 0.0}, setting("best", -0.0), "in the image: 0.0; now: -0.0"),
        (lambda: {"best": 1}, setting("best", 1.0), "in the image: 1; now: 1.0"),
        (lambda: {"best": "a"}, setting("best", None), "best"),
        (lambda: {"best": np.float32(1)}, setting("best", np.float32(2)), "best"),
        (lambda: {"best": bytearray(b"abc")}, lambda box: box["best"].__setitem__(0, 120), "best"),
        (lambda: {"best": memoryview(bytearray(b"abc"))}, lambda box: box["best"].__setitem__(0, 120), "best"),
        (lambda: {"best": [1.0] * 100}, lambda box: box["best"].__setitem__(50, 2.0), "best"),
        (lambda: {"best": {1, 2}}, lambda box: box["best"].add(3), "best"),
        (lambda: {"best": itertools.count(3)}, lambda box: next(box["best"]), "best"),
        (lambda: {"best": iter([1, 2, 3])}, lambda box: next(box["best"]), "best"),
        (lambda: {"best": Data(1)}, lambda box: setattr(box["best"], "value", 2), "best"),
        (lambda: {"best": [1]}, lambda box: box["best"].append(2), "best"),
        (lambda: {"best": [1, 2]}, lambda box: box["best"].pop(), "best"),
        (lambda: {"best": Data(1)}, setting("best", Pair(1, 2)), "best"),
        (lambda: {"best": [[1], [1]]}, lambda box: box["best"].__setitem__(1, box["best"][0]), "best"),
    ):
        refused_when(lives, make, change, word)
        again()


@scenario
def local_variables_are_named(lives):
    patience = 3
    try:
        for _ in lives:
            if lives.second:
                patience = 4
            lives.point()
    except Refused as e:
        assert "patience in image_lives.py:local_variables_are_named differs (in the image: 3; now: 4)" in str(e), e
        return
    raise AssertionError(patience)


@scenario
def nan_equals_nan(lives):
    best = float("nan")
    for _ in lives:
        if lives.second:
            best = float("inf") - float("inf")
        best = abs(best)
        lives.point()
    assert best != best  # noqa: PLR0124


@scenario
def weak_references_are_compared(lives):
    class Thing:
        pass

    kept = [Thing()]
    ref = weakref.ref(kept[0])
    try:
        for _ in lives:
            if lives.second:
                kept[0] = Thing()
            lives.point()
    except Refused as e:
        assert "ref" in str(e), e
        return
    raise AssertionError(ref)


@scenario
def changes_seen_in_a_shield_are_put_back(lives):
    model = net()
    model.calls, model.seen, model.table, model.hidden = 3, [1, 2], {"a": 1}, torch.ones(2)
    model.big, model.raw, model.names = list(range(100)), bytearray(b"xyz"), {"x"}
    model.nested = {"a": [torch.ones(1), {"b": 2}]}
    lives.shifts = [(model, name) for name in ("calls", "hidden", "nested", "late")]
    lives.shifts += [(thing, None) for thing in (model.seen, model.table, model.big, model.raw, model.names)]
    model.late = (1, torch.full((2,), 4.0))
    seen = model.seen
    for _ in lives:
        if lives.second:
            model.calls, model.hidden, model.nested = 0, None, None
            del model.late
            model.seen.clear(), model.table.clear(), model.big.clear(), model.raw.clear(), model.names.clear()
        lives.point()
    assert (model.calls, model.seen, model.table, model.big) == (3, [1, 2], {"a": 1}, list(range(100)))
    assert (bytes(model.raw), model.names) == (b"xyz", {"x"})
    assert model.seen is seen
    assert model.hidden.tolist() == [1.0, 1.0]
    assert model.nested["a"][0].tolist() == [1.0]
    assert model.nested["a"][1] == {"b": 2}
    assert model.late[1].tolist() == [4.0, 4.0]
    assert any("calls" in name for name in lives.told["put_back"])


@scenario
def a_census_sees_what_changes(lives):
    model = net()
    model.calls, model.log = 0, []
    counter = {"n": 0}
    before = walk.Walk().run(heap=False)
    model.calls += 1
    model.log.append(1)
    counter["n"] += 1
    model.hidden = torch.ones(1)
    after = walk.Walk().run(heap=False)
    found = [(type(owner).__name__, name) for owner, name in walk.changed(before, after)]
    before.close()
    after.close()
    assert sorted(found, key=str) == sorted([("Sequential", "calls"), ("list", None), ("dict", None), ("Sequential", "hidden")], key=str), found


# -- random generators


@scenario
def random_generators(lives):
    torch_g, python_g = torch.Generator().manual_seed(3), random.Random(4)
    numpy_g, old, philox = np.random.default_rng(5), np.random.RandomState(6), np.random.Generator(np.random.Philox(7))
    old.normal(), np.random.normal(), random.gauss(0, 1)  # half of a pair of Gaussians waits

    def draw():
        return [torch.rand(2, generator=torch_g).tolist(), python_g.random(), numpy_g.random(), old.normal(), old.rand(), philox.random(),
                torch.rand(1).item(), random.gauss(0, 1), random.random(), np.random.normal(), np.random.rand()]  # fmt: skip

    for _ in lives:
        lives.point()
        if lives.second:
            assert draw() == lives.want
        else:
            lives.want = draw()


@scenario
def a_generator_that_a_sampler_made(lives):
    model = net()
    lives.shifts = [(model, "source")]
    model.source = torch.Generator().manual_seed(3)
    torch.rand(5, generator=model.source)
    for _ in lives:
        if lives.second:
            model.source = None
        lives.point()
        if lives.second:
            assert model.source is not None
        lives.drawn = torch.rand(2, generator=model.source).tolist()
        lives.want = getattr(lives, "want", lives.drawn)
        assert lives.drawn == lives.want
    again()
    model.second = model.source  # which of its two holders has the right one, nobody knows
    lives.shifts = [(model, "source"), (model, "second")]
    try:
        for _ in lives:
            if lives.second:
                model.source = model.second = None
            lives.point()
    except Refused:
        return
    raise AssertionError("built anew for two")


@scenario
def what_a_generator_called_leaves_no_trace(lives):
    def batches():
        for n in range(6):
            if lives.second is False:
                with contextlib.suppress(KeyError):  # as a loader inside it would
                    {}[n]
            yield n

    model = net()
    for _ in lives:
        lives.loop = batches()
        hold = [lives.loop]
        next(hold[0])
        lives.point()
        next(hold[0])
    assert len(list(model.parameters())) == 6


@scenario
def arrays_of_records(lives):
    table = np.zeros(3, dtype=[("a", "i4"), ("b", "f8"), ("c", "S3")])
    table["a"], table["b"], table["c"] = 7, 1.5, b"xyz"
    for _ in lives:
        if lives.second:
            table["a"], table["b"], table["c"] = 0, 2.5, b"no"
        lives.point()
    assert table.tolist() == [(7, 1.5, b"xyz")] * 3


@scenario
def an_array_in_another_order_is_not_built_anew(lives):
    model = net()
    lives.shifts = [(model, "seen")]
    model.seen = np.ones((3, 4))
    for _ in lives:
        if lives.second:
            del model.seen
        lives.point()
    assert model.seen.tolist() == np.ones((3, 4)).tolist()
    again()
    lives.shifts = [(model, "seen")]
    model.seen = np.asfortranarray(np.ones((3, 4)))
    try:
        for _ in lives:
            if lives.second:
                del model.seen
            lives.point()
    except Refused as e:
        assert "cannot recreate" in str(e), e
        return
    raise AssertionError(model.seen.flags)


# -- closed world


def hiding_place():
    """A place that the walk does not look into: an attribute of its own (`path`) of an object of importlib, which is not the script's."""
    return importlib.machinery.SourceFileLoader("nothing", "nowhere")


@scenario
def what_no_path_reaches_is_refused(lives):
    box = hiding_place()
    for _ in lives:  # what is known from set-up and has died since is no longer known
        lives.point()
    box.path = torch.ones(5)
    assert "cannot find a variable" in lives.refuses()
    del box.path
    box.path = np.ones(7)
    assert "array" in lives.refuses()
    del box.path
    for _ in lives:
        lives.point()


@scenario
def what_libraries_held_before_is_known_while_it_stays(lives):
    box = hiding_place()
    box.path = np.ones(7)
    seen = walk.Walk().run()
    reachability.know(seen)
    seen.close()
    for _ in lives:
        lives.point()
    inside = vars(box).pop("path")
    inside[0] = 5
    box.path = inside
    del inside
    assert "array" in lives.refuses()


def ones():
    return np.ones(7)


def a_cell():
    inside = 0
    return (lambda: inside).__closure__[0]


# name: (an empty container, how an array comes into it, how it goes). Collected tuples are tracked no more.
CONTAINERS = {
    "list": (list, lambda c: c.append(ones()), lambda c: c.clear()),
    "item of a list": (lambda: [0, 0], lambda c: c.__setitem__(1, ones()), lambda c: c.__setitem__(1, 0)),
    "item of a dict": (lambda: {1: 2}, lambda c: c.__setitem__(1, ones()), lambda c: c.__setitem__(1, 2)),
    "ordered dict": (lambda: collections.OrderedDict(a=1), lambda c: c.__setitem__("a", ones()), lambda c: c.__setitem__("a", 1)),
    "deque": (collections.deque, lambda c: c.append(ones()), lambda c: c.clear()),
    "simple queue": (queue.SimpleQueue, lambda c: c.put(ones()), lambda c: c.get()),
    "cell": (a_cell, lambda c: setattr(c, "cell_contents", ones()), lambda c: setattr(c, "cell_contents", 0)),
    "object": (hiding_place, lambda c: setattr(c, "path", ones()), lambda c: delattr(c, "path")),
    "partial": (lambda: functools.partial(print), lambda c: setattr(c, "part", ones()), lambda c: delattr(c, "part")),
    "tuples in a list": (list, lambda c: (c.append((1, (2, (ones(),)))), *map(gc.collect, (2, 2, 2))), lambda c: c.clear()),
    "dicts in a list": (list, lambda c: c.append({"a": {"b": ones()}}), lambda c: c.clear()),
    "array of objects": (lambda: np.empty(2, object), lambda c: c.__setitem__(0, ones()), lambda c: c.__setitem__(0, None)),
    "array of another class": (list, lambda c: c.append(ones().view(np.recarray)), lambda c: c.clear()),
}


@scenario
def what_held_no_array_before_may_hold_one_now(lives):
    """No container is known for good: each look is a whole one."""
    box = hiding_place()
    for name, (make, put, take) in CONTAINERS.items():
        box.path = make()
        seen = walk.Walk().run()
        reachability.know(seen)
        seen.close()
        for _ in range(9):
            for _ in lives:
                lives.point()
            put(box.path)
            assert "array" in lives.refuses(name), name
            take(box.path)
            if name != "list":
                break
    del box.path
    for _ in lives:
        lives.point()


@scenario
def a_frozen_heap_is_refused(lives):
    gc.freeze()
    assert "gc.freeze" in lives.refuses()
    gc.unfreeze()
    for _ in lives:
        lives.point()


@scenario
def unknown_c_objects_under_a_module_are_refused(lives):
    import operator

    call = operator.methodcaller("strip", 3)
    for _ in lives:
        lives.point()
    model = net()
    model.call = call
    assert "methodcaller" in lives.refuses()


@scenario
def large_constants_by_checksum(lives):
    data, array = torch.randn(500_000), np.arange(400_000.0)
    seen = walk.Walk().run()
    storages.remember_constants(seen)
    seen.close()
    for _ in lives:
        lives.point()
    assert phases.target.bytes < 1 << 20, phases.target.bytes
    try:
        for _ in lives:
            if lives.second:
                array[7] += 1
            lives.point()
        raise AssertionError("not refused")
    except Refused as e:
        assert "array" in str(e), e
    data[3] += 1
    phases.phase = phases.RECORD
    lives.second = False
    phases.depth = 1
    newest = max(images.store.numbers(phases.folder))
    assert images.take({})
    images.wait()
    assert max(images.store.numbers(phases.folder)) == newest  # thrown away: the constant had changed
    assert images.take({})
    images.wait()
    phases.depth = 0
    assert max(images.store.numbers(phases.folder)) > newest


@scenario
def a_walk_lets_go(lives):
    thing = torch.ones(3)
    gone = weakref.ref(thing)
    for _ in lives:
        lives.point()
    del thing
    walk.forget_stale()  # as the next shielded call does
    assert gone() is None, gc.get_referrers(gone())
    assert lives is not None


@scenario
def nothing_outlives_the_function_that_was_looked_at(lives):
    def trained():
        thing = torch.ones(3)
        phases.depth = 1
        assert images.take({}), outcome.passed
        phases.depth = 0
        return weakref.ref(thing)

    gone = trained()
    images.wait()
    assert gone() is None, gc.get_referrers(gone())
    assert lives is not None


@scenario
def locals_that_the_script_keeps_are_left_alone(lives):
    kept = locals()
    first = torch.ones(1)
    kept = locals()
    for _ in lives:
        lives.point()
    walk.forget_stale()
    assert kept["first"] is first


@scenario
def walks_are_deterministic(lives):
    model = net()
    paths = [list(walk.Walk().run(heap=False).facts) for _ in range(2)]
    assert paths[0] == paths[1]
    assert model is not None


@scenario
def what_was_changed_within_is_kept_while_something_leads_to_it(lives):
    kept = [1, 2]
    lives.shifts = [(kept, 0), ([3, 4], 0), ([steps._logged_closure(None, [])], 0)]
    for _ in lives:
        lives.point()
        assert lives.second or [owner for owner, _ in changed.shifts.values()] == [kept], changed.shifts


def again():
    """A clean table for the next scenario."""
    images.wait()
    phases.depth, phases.phase, phases.target, phases.steps = 0, phases.RECORD, None, 0
    changed.forget()
    outcome.passed.clear()
    storages.forget_constants()
    gc.collect()
    root = tempfile.mkdtemp(dir=BASE)
    phases.folder = root
    if phases.log is not None:
        phases.log.close()
    phases.log = log.Log(os.path.join(root, "log"))
    phases.log.open()
    seen = walk.Walk().run()
    reachability.know(seen)
    seen.close()


def main():
    outcome.diverged = _refused  # would begin another life
    walk_heap.baseline()
    for name in sys.argv[2:] or list(SCENARIOS):
        again()
        told = ""
        try:
            SCENARIOS[name](Lives(phases.folder))
        except BaseException:
            told = traceback.format_exc()
        print(json.dumps({"name": name, "error": told[-3000:]}), flush=True)


BASE = sys.argv[1] if __name__ == "__main__" else ""
if __name__ == "__main__":
    main()
