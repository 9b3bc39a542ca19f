"""Lints about loaders and data sets: order, workers, pinned memory, caches."""

from __future__ import annotations

import ast
import os
import re
from collections.abc import Iterator

from stoker.doctor.flow import UNKNOWN, Binding, keyword
from stoker.doctor.loops import Training
from stoker.doctor.reader import dotted

_ORDERS = ("shuffle", "sampler", "batch_sampler")
_HARDWARE = re.compile(r"cuda|gpu|accel|mps|xpu|device", re.IGNORECASE)
_SHUFFLED_BY_HAND = re.compile(r"randperm|permutation|\bshuffle\(|sampler|random\.sample|Sampler")
_TORCH_DATASETS = re.compile(
    r"^torchvision\.datasets\.\w+$|^torch\.utils\.data(\.\w+)*\.(TensorDataset|Subset|ConcatDataset)$"
)
_ITERABLE = re.compile(r"(^|\.)IterableDataset$")
_SPLITS = re.compile(
    r"get_worker_info|worker_init_fn|split_by_worker|split_dataset_by_node|split_by_node|worker_id"
)
_RANDOM = re.compile(r"\b(randn?|randint|normal|uniform|choice|random|randperm|shuffle)\b")
_ANY_DEVICE = re.compile(
    r"cuda|mps|xpu|gpu|device|accel|rank|fabric|trainer|lightning|deepspeed", re.IGNORECASE
)
_COUNTS_CPUS = frozenset({"os.cpu_count", "multiprocessing.cpu_count", "torch.multiprocessing.cpu_count"})
_TF_RANDOM = re.compile(
    r"^tensorflow\.(image\.random_|image\.stateless_random_|random\.)|^tf\.(image\.random_|random\.)"
)


def unshuffled(training: Training) -> Iterator[ast.AST]:
    """A training loader that is read for several epochs without shuffling,
    or is shuffled only if there is a GPU."""
    for loop in training.step_loops:
        if training.outer[loop]:
            yield from (call for call in training.loaders(loop) if _lacks_order(training, call))


def _lacks_order(training: Training, call: ast.Call) -> bool:
    program = training.program
    if len(call.args) > 2 or any(k.arg in _ORDERS for k in call.keywords):
        return False
    data = keyword(call, "dataset", 0)
    stars = [k.value for k in call.keywords if k.arg is None]
    if any(isinstance(a, ast.Starred) for a in call.args) or len(stars) > 1 or data is None:
        return False
    if stars:
        return _only_with_hardware(training, stars[0])
    if _SHUFFLED_BY_HAND.search(program.text):
        return False
    made = program.origins(data)
    return bool(made) and all(isinstance(o, ast.Call) and _is_ordered(training, o) for o in made)


def _is_ordered(training: Training, made: ast.Call) -> bool:
    """True for a data set that surely gives its samples by number, and not new random ones each time."""
    program = training.program
    name = program.name(made.func)
    if _TORCH_DATASETS.match(name):
        return True
    owner = program.classes.get(name)
    get = (
        program.methods(owner, "__getitem__")
        if owner is not None and not training.inherits(owner, _ITERABLE)
        else []
    )
    return bool(get) and not _RANDOM.search(ast.unparse(get[0]))


def _only_with_hardware(training: Training, star: ast.expr) -> bool:
    """True when **kwargs gets its `shuffle` only under `if cuda`."""
    program = training.program
    if not isinstance(star, ast.Name):
        return False
    base = program.origins(star)
    keys = [found for o in base if (found := _keys(o)) is not None]
    if not base or len(keys) < len(base):
        return False
    if any(k in found for found in keys for k in _ORDERS):
        return len(base) == 2 and _differs_by_hardware(training, star, base)
    scope = program.scope(star)
    under_hardware = False
    for call, key in _later_keys(training, star.id, scope):
        if key is UNKNOWN:
            return False
        if key in _ORDERS:
            tests = [
                n.test for n in program.around(call) if isinstance(n, ast.If) and program.within(n, scope)
            ]
            if not tests or not all(_asks_hardware(training, t) for t in tests):
                return False
            under_hardware = True
    return under_hardware


def _differs_by_hardware(training: Training, star: ast.Name, base: list[ast.expr | None]) -> bool:
    """`kwargs = {..., "shuffle": True} if use_cuda else {...}`"""
    reached = training.program.reaching(star)
    value = reached[0].value if len(reached) == 1 and isinstance(reached[0], Binding) else None
    with_order = [bool(set(_keys(o) or ()) & set(_ORDERS)) for o in base]
    return (
        isinstance(value, ast.IfExp) and _asks_hardware(training, value.test) and with_order == [True, False]
    )


def _asks_hardware(training: Training, test: ast.expr) -> bool:
    made = training.program.origins(test)
    return bool(_HARDWARE.search(ast.unparse(test))) or any(
        o is not UNKNOWN and _HARDWARE.search(ast.unparse(o)) for o in made
    )


def _keys(node: ast.expr | None) -> set[object] | None:
    """The keys of {...} or dict(...); None where they cannot be told."""
    if (
        isinstance(node, ast.Call)
        and dotted(node.func) == "dict"
        and not node.args
        and all(k.arg for k in node.keywords)
    ):
        return {k.arg for k in node.keywords}
    if not isinstance(node, ast.Dict):
        return None
    keys = [k for k in node.keys if isinstance(k, ast.Constant)]
    return {k.value for k in keys} if len(keys) == len(node.keys) else None


def _later_keys(training: Training, name: str, scope: ast.AST) -> Iterator[tuple[ast.AST, object]]:
    """(where, key) of everything that is put into a dict after it was made;
    UNKNOWN for a key that cannot be told."""
    program = training.program
    for node in program.nodes:
        if (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Attribute)
            and dotted(node.func) == f"{name}.update"
            and program.scope(node) is scope
        ):
            yield from ((node, k.arg) for k in node.keywords)
            for given in node.args:
                for o in program.origins(given):
                    keys = _keys(o)
                    yield from ((node, k) for k in keys) if keys is not None else ((node, UNKNOWN),)
        elif (
            isinstance(node, ast.Subscript)
            and isinstance(node.ctx, ast.Store)
            and dotted(node.value) == name
            and (program.scope(node) is scope)
        ):
            yield node, node.slice.value if isinstance(node.slice, ast.Constant) else UNKNOWN


def duplicated_data(training: Training) -> Iterator[ast.AST]:
    """A loader with several workers reads an IterableDataset, and each worker reads all samples. The doctor
    finds this only if the script contains the class of the dataset."""
    program = training.program
    if _SPLITS.search(program.text):
        return
    for call in program.calls:
        workers = _workers(training, call)
        data = keyword(call, "dataset", 0)
        if workers is None or workers < 2 or data is None:
            continue
        owners = program.classes_of(data)
        iters = [f for o in owners if training.inherits(o, _ITERABLE) for f in program.methods(o, "__iter__")]
        if owners and len(iters) == len(owners) and not any(_RANDOM.search(ast.unparse(o)) for o in owners):
            yield call


def _workers(training: Training, call: ast.Call) -> float | None:
    """num_workers of a DataLoader(...), where it can be told."""
    if not training.is_loader(call):
        return None
    given = keyword(call, "num_workers", 5)
    if given is None:
        stars = [o for k in call.keywords if k.arg is None for o in training.program.origins(k.value)]
        if len(stars) != 1 or not isinstance(stars[0], ast.Dict):
            return None
        given = next((v for k, v in zip(stars[0].keys, stars[0].values, strict=True)
                      if isinstance(k, ast.Constant) and k.value == "num_workers"), None)
    if given is None:
        return None
    made = training.program.origins(given)
    if made and all(isinstance(o, ast.Call) and training.program.name(o.func) in _COUNTS_CPUS for o in made):
        return os.cpu_count() or 1
    value = training.program.value(given)
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def too_many_workers(training: Training, cpus: float) -> Iterator[ast.AST]:
    """More workers than cores that this process may use."""
    for call in training.program.calls:
        workers = _workers(training, call)
        if workers is not None and workers > max(1, round(cpus)):
            yield call


def pin_without_gpu(training: Training) -> Iterator[ast.AST]:
    """pin_memory=True in a file that mentions no GPU or other device."""
    program = training.program
    if not training.step_loops or _ANY_DEVICE.search(ast.unparse(program.tree)):
        return
    for call in program.calls:
        asked = keyword(call, "pin_memory", 7) if training.is_loader(call) else None
        if isinstance(asked, ast.Constant) and asked.value is True:
            yield call


def shuffle_before_cache(training: Training) -> Iterator[ast.AST]:
    """tf.data: shuffle() or a random map() before cache(), and no shuffle() after it."""
    program = training.program
    if not any(name.startswith("tensorflow") for name in program.aliases.values()):
        return
    for call in program.calls:
        if not isinstance(call.func, ast.Attribute) or call.func.attr != "cache" or len(call.args) > 1:
            continue
        before = _chain(training, call.func.value)
        methods = [m for m, _ in before]
        frozen_order = "shuffle" in methods and "take" not in methods and not _shuffled_later(training, call)
        if frozen_order or any(m == "map" and _is_random(training, c) for m, c in before):
            yield call


def _chain(training: Training, node: ast.expr, depth: int = 12) -> list[tuple[str, ast.Call]]:
    """(method, call) of a chain a.b().c(), through names that are bound once, from first to last;
    only chains of a tf.data.Dataset."""
    found: list[tuple[str, ast.Call]] = []
    for _ in range(depth):
        made = training.program.origins(node)
        only = made[0] if len(made) == 1 else None
        if not isinstance(only, ast.Call) or not isinstance(only.func, ast.Attribute):
            return []
        name = training.program.name(only.func)
        if name.startswith(("tensorflow.data.", "tensorflow_datasets.")):
            return found[::-1]
        found.append((only.func.attr, only))
        node = only.func.value
    return []


def _shuffled_later(training: Training, cache: ast.Call) -> bool:
    """True when shuffle() follows, in the chain or on the name that the chain is given."""
    program = training.program
    for call in program.calls:
        if isinstance(call.func, ast.Attribute) and call.func.attr == "shuffle":
            node: ast.AST | None = call.func.value
            for _ in range(12):
                made = program.origins(node) if isinstance(node, ast.expr) else []
                if cache in made:
                    return True
                only = made[0] if len(made) == 1 else None
                node = (
                    only.func.value
                    if isinstance(only, ast.Call) and isinstance(only.func, ast.Attribute)
                    else None
                )
    return False


def _is_random(training: Training, call: ast.Call) -> bool:
    """map(f) with a function of this file, or a lambda, that draws random numbers."""
    program = training.program
    if not call.args:
        return False
    given = call.args[0]
    bodies: list[ast.AST] = [given] if isinstance(given, ast.Lambda) else []
    if isinstance(given, ast.Name):
        bodies = [
            b.node
            for b in program.reaching(given)
            if isinstance(b, Binding) and isinstance(b.node, ast.FunctionDef)
        ]
    return any(
        isinstance(n, ast.Call) and _TF_RANDOM.match(program.name(n.func))
        for b in bodies
        for n in ast.walk(b)
    )
