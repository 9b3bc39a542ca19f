"""Lints about what a training loop pays for at each step:
waiting for the device, printing, saving, growing memory."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Sequence

from stoker.doctor.flow import UNKNOWN, Binding
from stoker.doctor.loops import Event, Training
from stoker.doctor.reader import dotted

_ACCELERATOR = re.compile(r"\b(cuda|mps|xpu|npu|hpu|accelerator|Accelerator|Fabric|deepspeed)\b")
_DEVICE_TEXT = re.compile(r"cuda|mps|xpu|gpu|device|accel|rank", re.IGNORECASE)
_CPU = re.compile(r"(torch\.device\()?['\"]cpu['\"]\)?")
_DETACHING = frozenset({"item", "detach", "detach_", "tolist", "numpy", "data"})
_KEEPS_GRAPH = frozenset(
    {"mean", "sum", "cpu", "clone", "float", "double", "squeeze", "view", "reshape", "to", "cuda"}
)
_ZERO_TENSORS = frozenset({"torch.zeros", "torch.tensor", "torch.zeros_like"})
_PRINTS = frozenset(
    {"print", "tqdm.tqdm.write", "tqdm.auto.tqdm.write", "pprint.pprint", "rich.print", "sys.stdout.write"}
)
_LOGS = frozenset({"info", "warning", "error", "critical"})
_SAVES = frozenset({"torch.save", "safetensors.torch.save_file", "safetensors.torch.save_model"})
_SAVING_METHODS = frozenset({"save_pretrained", "save_state", "save_checkpoint"})


def loss_graph(training: Training) -> Iterator[ast.AST]:
    """In a loop that calls loss.backward(): `total += loss` or `losses.append(loss)`, where the script never
    calls backward() on the sum."""
    loops = [*training.step_loops, *training.framework_steps]
    fed = _fed_to_backward(training) if loops else set()
    for loop in loops:
        losses = _losses(training, loop)
        for event in training.events(loop):
            target, value, appends = _accumulation(event.node)
            if target is None or dotted(target) in fed or (event.no_grad and not appends):
                continue
            if _is_kept(training, loop, event, target, appends) and _carries(training, value, losses):
                yield event.node


def _losses(training: Training, loop: ast.AST) -> set[tuple[ast.AST, str]]:
    """(scope, name) of the values that backward() starts from in a loop."""
    program = training.program
    found = {(loop, n.id) for value in _returned(training, loop) for n in _summands(value)}
    for _, call in training.calls(loop):
        start = training.loss(call) if training.goes_back(call) else None
        if start is not None:
            found |= {(program.scope(call), n.id) for n in _summands(start)}
    return found


def _returned(training: Training, loop: ast.AST) -> Iterator[ast.expr]:
    """The loss that a training_step gives to its framework."""
    for value in training.program.returns(loop) if loop in training.framework_steps else ():
        if isinstance(value, ast.Dict):
            yield from (
                v
                for k, v in zip(value.keys, value.values, strict=True)
                if isinstance(k, ast.Constant) and k.value == "loss"
            )
        elif value is not None:
            yield value


def _summands(node: ast.expr) -> Iterator[ast.Name]:
    """The names in `loss`, `loss / 4`, `a + b`."""
    if isinstance(node, ast.Name):
        yield node
    elif isinstance(node, ast.BinOp):
        yield from _summands(node.left)
        yield from _summands(node.right)
    elif (
        isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr in ("mean", "sum")
    ):
        yield from _summands(node.func.value)


def _fed_to_backward(training: Training) -> set[str]:
    """Names, in any scope, whose value may flow into a backward()."""
    program = training.program
    fed: set[str] = set()
    for call in program.calls:
        if training.goes_back(call) or program.name(call.func).startswith("torch.autograd."):
            fed |= _reads(call)
    fed |= {
        name
        for loop in training.framework_steps
        for value in _returned(training, loop)
        for name in _reads(value)
    }
    flows = [
        ({name for t in targets for name in _reads(t)}, _reads(value))
        for targets, value in _flows(program.nodes)
    ]
    for _ in range(6):
        more = set().union(*(read for bound, read in flows if bound & fed))
        if more <= fed:
            break
        fed |= more
    return fed


def _flows(nodes: Sequence[ast.AST]) -> Iterator[tuple[list[ast.expr], ast.expr]]:
    """(into what, from what) of assignments and of what is appended."""
    for node in nodes:
        if isinstance(node, ast.Assign):
            yield node.targets, node.value
        elif (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Attribute)
            and node.func.attr in ("append", "extend")
        ):
            yield [node.func.value], node


def _reads(node: ast.AST) -> set[str]:
    return {dotted(n) for n in ast.walk(node) if isinstance(n, ast.Name | ast.Attribute)} - {"", "self"}


def _accumulation(node: ast.AST) -> tuple[ast.expr | None, ast.expr | None, bool]:
    """(where to, what, is it a list) of `t += v`, `t = t + v` and `t.append(v)`."""
    if isinstance(node, ast.AugAssign) and isinstance(node.op, ast.Add) and dotted(node.target):
        return node.target, node.value, False
    if (
        isinstance(node, ast.Assign)
        and len(node.targets) == 1
        and isinstance(node.value, ast.BinOp)
        and isinstance(node.value.op, ast.Add)
    ):
        name, left, right = dotted(node.targets[0]), node.value.left, node.value.right
        if name and name in (dotted(left), dotted(right)):
            return node.targets[0], right if name == dotted(left) else left, False
    if (
        isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr == "append"
        and len(node.args) == 1
    ):
        return (node.func.value, node.args[0], True) if dotted(node.func.value) else (None, None, False)
    return None, None, False


def _is_kept(training: Training, loop: ast.AST, event: Event, target: ast.expr, is_list: bool) -> bool:
    """True when what is added to lives longer than a step, and began as a number, a zero tensor,
    or an empty list."""
    program = training.program
    if isinstance(target, ast.Name):
        held = program.reaching(target)
        bound = [b for b in held if isinstance(b, Binding)]
        if len(bound) < len(held) or (is_list and any(b.adds for b in bound)):
            return False
        if (
            event.path
            and program.bindings.get((program.scope(target), target.id))
            and not program.within(target, loop)
        ):
            return False  # a local of a function that is called anew each step
    else:
        owner = program.owner(target)
        bound = program.bindings.get((owner, dotted(target)), []) if owner else []
    own = [b for b in bound if not b.adds and b.node is not program.statement(target) and not _adds_itself(b)]
    if not own or any(e.node is b.node and e.each for b in own for e in training.events(loop)):
        return False
    return all(
        _empty(training, b.value, is_list) if b.index is None else _zero_of_tuple(b, is_list) for b in own
    )


def _adds_itself(bound: Binding) -> bool:
    return isinstance(bound.node, ast.stmt) and _accumulation(bound.node)[0] is not None


def _empty(training: Training, node: ast.expr | None, is_list: bool) -> bool:
    if isinstance(node, ast.Call):
        name = training.program.name(node.func)
        return name == "list" and not node.args if is_list else name in _ZERO_TENSORS
    if is_list:
        return isinstance(node, ast.List) and not node.elts
    return isinstance(node, ast.Constant) and isinstance(node.value, int | float)


def _zero_of_tuple(bound: Binding, is_list: bool) -> bool:
    """`total, count = 0, 0`"""
    if bound.index is None or not isinstance(bound.value, ast.Tuple) or bound.index >= len(bound.value.elts):
        return False
    node = bound.value.elts[bound.index]
    return isinstance(node, ast.List) and not node.elts if is_list else isinstance(node, ast.Constant)


def _carries(
    training: Training, node: ast.expr | None, losses: set[tuple[ast.AST, str]], depth: int = 6
) -> bool:
    """True when a value surely has the graph of one of `losses`."""
    program = training.program
    if node is None or depth <= 0:
        return False
    if isinstance(node, ast.Name):
        reached = program.reaching(node)
        values = [b for b in reached if isinstance(b, Binding)]
        if (
            not values
            or len(values) < len(reached)
            or any(_detaches(b.value) for b in values)
            or _detached_in_place(training, node)
        ):
            return False
        if (program.scope(values[0].node), node.id) in losses:
            return True
        return all(b.value is not UNKNOWN and _bound_carries(training, b, losses, depth - 1) for b in values)
    if isinstance(node, ast.BinOp):
        return _carries(training, node.left, losses, depth - 1) or _carries(
            training, node.right, losses, depth - 1
        )
    if isinstance(node, ast.Call):
        method = node.func
        keeps = (
            isinstance(method, ast.Attribute)
            and method.attr in _KEEPS_GRAPH
            and _carries(training, method.value, losses, depth - 1)
        )
        return keeps or _returns_graph(training, node, None, losses, depth)
    return False


def _bound_carries(training: Training, bound: Binding, losses: set[tuple[ast.AST, str]], depth: int) -> bool:
    if bound.index is None:
        return _carries(training, bound.value, losses, depth)
    if isinstance(bound.value, ast.Call):
        return _returns_graph(training, bound.value, bound.index, losses, depth)
    return False


def _returns_graph(
    training: Training, call: ast.Call, index: int | None, losses: set[tuple[ast.AST, str]], depth: int
) -> bool:
    """True when the function of this file that is called returns a value with its graph."""
    program = training.program
    reached = [f for f in program.reached(call) if f.name != "__init__"]
    values = [v for f in reached for v in program.returns(f)]
    if index is not None:
        values = [v.elts[index] if isinstance(v, ast.Tuple) and index < len(v.elts) else None for v in values]
    return bool(values) and all(v is not None and _carries(training, v, losses, depth - 1) for v in values)


def _detaches(node: ast.expr | None) -> bool:
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
        return node.func.attr in _DETACHING or (node.func.attr in _KEEPS_GRAPH and _detaches(node.func.value))
    if isinstance(node, ast.BinOp):
        return _detaches(node.left) and _detaches(node.right)
    if isinstance(node, ast.Call):
        return dotted(node.func) in ("float", "int")
    return isinstance(node, ast.Attribute) and node.attr == "data"


def _detached_in_place(training: Training, name: ast.Name) -> bool:
    scope = training.program.scope(name)
    return any(
        isinstance(c.func, ast.Attribute)
        and c.func.attr == "detach_"
        and dotted(c.func.value) == name.id
        and training.program.scope(c) is scope
        for c in training.program.calls
    )


# --- waiting for the device
# ----------------------------------------------------------------------------------------------

def may_use_accelerator(training: Training) -> bool:
    """True unless a script surely computes on the CPU only:
    it names no accelerator, and no device that comes from elsewhere."""
    program = training.program
    if training.framework_steps or _ACCELERATOR.search(_code(training)):
        return True
    moves = (
        c
        for c in program.calls
        if isinstance(c.func, ast.Attribute) and c.func.attr == "to" and len(c.args) == 1
    )
    return any(
        UNKNOWN in program.origins(c.args[0]) and _DEVICE_TEXT.search(ast.unparse(c.args[0])) for c in moves
    )


def _code(training: Training) -> str:
    """What the file says, without its comments and docstrings."""
    return " ".join(
        n.attr if isinstance(n, ast.Attribute) else n.id if isinstance(n, ast.Name) else str(n.value)
        for n in training.program.nodes
        if isinstance(n, ast.Attribute | ast.Name)
        or (
            isinstance(n, ast.Constant)
            and isinstance(n.value, str)
            and not isinstance(training.program.parents[n], ast.Expr)
        )
    )


def sync_each_step(training: Training) -> Iterator[ast.AST]:
    """`.item()`, `.cpu()` or float(loss) at each step, in a script that may use an accelerator."""
    if not may_use_accelerator(training):
        return
    for loop in training.batch_loops:
        losses = _losses(training, loop)
        for event, call in training.calls(loop):
            if (
                event.each
                and not _is_action(training, call)
                and (_takes_value(training, call) or _floats(training, call, losses))
            ):
                yield call


def _takes_value(training: Training, call: ast.Call) -> bool:
    """`.item()` and `.cpu()`; not of numpy's values, nor of a batch as the loader gave it,
    which lies on the CPU."""
    if not isinstance(call.func, ast.Attribute) or call.func.attr not in ("item", "cpu") or call.args:
        return False
    inner = call.func.value
    own = training.program.owner(call)
    if own and dotted(inner).startswith("self.") and all(
            b.adds for b in training.program.bindings.get((own, dotted(inner)), [])):
        return False  # a buffer, perhaps a counter, that may lie on the CPU
    while isinstance(inner, ast.Attribute | ast.Call | ast.Subscript):
        inner = inner.func if isinstance(inner, ast.Call) else inner.value
    if not isinstance(inner, ast.Name):
        return True
    reached = training.program.reaching(inner)
    from_loop = bool(reached) and all(isinstance(b, Binding) and isinstance(b.node, ast.For) for b in reached)
    return not from_loop and not training.program.aliases.get(inner.id, "").startswith("numpy")


def _floats(training: Training, call: ast.Call, losses: set[tuple[ast.AST, str]]) -> bool:
    return (
        dotted(call.func) in ("float", "int")
        and len(call.args) == 1
        and _carries(training, call.args[0], losses)
    )


def _is_action(training: Training, call: ast.Call) -> bool:
    """An environment needs the number now: env.step(action.item())."""
    around = (n.func for n in training.program.around(call) if isinstance(n, ast.Call))
    return any(isinstance(f, ast.Attribute) and f.attr == "step" for f in around)


def cpu_round_trip(training: Training) -> Iterator[ast.AST]:
    """A value that is taken to the CPU and back to the device within one step."""
    for loop in training.step_loops:
        for event, call in training.calls(loop):
            if (
                event.each
                and isinstance(call.func, ast.Attribute)
                and _goes_to_device(training, call)
                and _comes_from_cpu(training, call.func.value, loop)
            ):
                yield call


def _goes_to_device(training: Training, call: ast.Call) -> bool:
    if not isinstance(call.func, ast.Attribute) or call.func.attr not in ("to", "cuda"):
        return False
    if call.func.attr == "cuda":
        return True
    if not call.args:
        return False
    made = training.program.origins(call.args[0])
    texts = [ast.unparse(o) for o in made if o is not UNKNOWN] or [ast.unparse(call.args[0])]
    devices = [t for t in texts if not _CPU.fullmatch(t)]
    return bool(devices) and all(_DEVICE_TEXT.search(t) and "dtype" not in t for t in devices)


def _comes_from_cpu(training: Training, node: ast.expr, loop: ast.AST, depth: int = 8) -> bool:
    if depth <= 0:
        return False
    if isinstance(node, ast.Call):
        if isinstance(node.func, ast.Attribute):
            return (
                (node.func.attr == "cpu" and not node.args)
                or _comes_from_cpu(training, node.func.value, loop, depth - 1)
                or (
                    training.program.name(node.func)
                    in ("torch.from_numpy", "torch.as_tensor", "torch.tensor")
                    and len(node.args) > 0
                    and _comes_from_cpu(training, node.args[0], loop, depth - 1)
                )
            )
        return False
    if isinstance(node, ast.Name):
        reached = training.program.reaching(node)
        if (
            len(reached) != 1
            or not isinstance(reached[0], Binding)
            or not isinstance(reached[0].node, ast.Assign)
        ):
            return False
        bound = reached[0]
        if bound.index is not None or not any(e.node is bound.node for e in training.events(loop)):
            return False
        value = bound.value
        if isinstance(value, ast.Call) and value.args and dotted(value.args[0]) == node.id:
            value = value.args[0]  # x = f(x)
        return value is not None and _comes_from_cpu(training, value, loop, depth - 1)
    return False


# --- what is done too often
# ----------------------------------------------------------------------------------------------

def empty_cache(training: Training) -> Iterator[ast.AST]:
    """torch.cuda.empty_cache() at each step."""
    for loop in training.batch_loops:
        yield from (
            c
            for e, c in training.calls(loop)
            if e.each
            and re.search(r"(^|\.)(cuda|mps|accelerator)\.empty_cache$", training.program.name(c.func))
        )


def print_each_step(training: Training) -> Iterator[ast.AST]:
    """print() or logging at each step."""
    for loop in training.batch_loops:
        yield from (c for e, c in training.calls(loop) if e.each and _prints(training, c))


def _prints(training: Training, call: ast.Call) -> bool:
    program = training.program
    name = program.name(call.func)
    if name in _PRINTS:
        return name != "print" or not (
            program.reached(call) or any(a.arg == "print" for a in program.nodes if isinstance(a, ast.arg))
        )
    if not isinstance(call.func, ast.Attribute) or call.func.attr not in _LOGS:
        return False
    made = program.origins(call.func.value)
    return name.startswith("logging.") or (
        bool(made)
        and all(
            isinstance(o, ast.Call) and program.name(o.func) in ("logging.getLogger", "logging.Logger")
            for o in made
        )
    )


def save_each_step(training: Training) -> Iterator[ast.AST]:
    """A checkpoint at each step."""
    for loop in training.batch_loops:
        for event, call in training.calls(loop):
            method = call.func.attr if isinstance(call.func, ast.Attribute) else ""
            own = method in _SAVING_METHODS and not training.program.reached(call)
            saves = own or (training.program.name(call.func) in _SAVES and not _into_memory(training, call))
            if saves and event.each and not event.inner:
                yield call


def _into_memory(training: Training, call: ast.Call) -> bool:
    """torch.save(x, io.BytesIO()) is no checkpoint."""
    made = training.program.origins(call.args[1]) if len(call.args) > 1 else []
    return any(isinstance(o, ast.Call) and training.program.name(o.func) == "io.BytesIO" for o in made)


def retain_graph(training: Training) -> Iterator[ast.AST]:
    """backward(retain_graph=True), if a step calls backward() only once."""
    for loop in training.step_loops:
        backs = [(e, c) for e, c in training.calls(loop) if training.goes_back(c)]
        other = any(training.program.name(c.func) == "torch.autograd.grad" for _, c in training.calls(loop))
        if len(backs) != 1 or other or backs[0][0].inner or not backs[0][0].each:
            continue
        keywords = {k.arg: k.value for k in backs[0][1].keywords}
        asked = keywords.get("retain_graph")
        if isinstance(asked, ast.Constant) and asked.value is True and "create_graph" not in keywords:
            yield backs[0][1]


def data_parallel(training: Training) -> Iterator[ast.AST]:
    """nn.DataParallel, unless the script only uses its `.module`."""
    program = training.program
    names = (
        "torch.nn.DataParallel",
        "torch.nn.parallel.DataParallel",
        "torch.nn.parallel.data_parallel.DataParallel",
    )
    for call in program.calls:
        if program.name(call.func) in names and getattr(program.parents[call], "attr", "") != "module":
            yield call
