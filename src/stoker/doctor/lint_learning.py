"""Lints about what a script learns: gradients, schedules, seeds, evaluation, losses,
and what is kept of the network."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass

from stoker.doctor.flow import UNKNOWN, Binding, Function, keyword, names_in
from stoker.doctor.loops import Event, Training
from stoker.doctor.reader import dotted

_FORKS_RANDOM = re.compile(r"fork_rng|set_rng_state|get_rng_state|setstate|set_state|Generator")
_SEEDS = re.compile(
    r"(^torch\.(cuda\.)?manual_seed(_all)?|^numpy\.random\.seed|^random\.seed|(^|\.)seed_everything|(^|\.)set_seed)$"
)
_ADAPTIVE = re.compile(
    r"(Adam|AdamW|Adamax|NAdam|RAdam|Adagrad|Adadelta|RMSprop|Rprop|Lion|Adafactor|LAMB|Lamb)$"
)
_PATIENT = 21  # ReduceLROnPlateau that waits longer may well be meant to count batches
_DIVIDES = re.compile(r"^(div|div_|mul|mul_|sum|true_divide)$")
_CHANGES_IN_EVAL = re.compile(
    r"^torch\.nn\.(modules\.\w+\.)?(Dropout\w*|AlphaDropout|BatchNorm\w*|SyncBatchNorm|LazyBatchNorm\w*)$"
)
_NO_EVAL = re.compile(
    r"\.eval\(\)|\.train\((mode\s*=\s*)?(False|mode|training|is_train|train|phase)|\.training\s*="
)
_READS_OUT = frozenset({"item", "argmax", "max", "numpy", "cpu", "tolist", "eq"})


def no_zero_grad(training: Training) -> Iterator[ast.AST]:
    """optimizer.step() in a loop that never clears the gradients,
    or clears them between backward and step."""
    program = training.program
    clears = [c for c in program.calls if isinstance(c.func, ast.Attribute) and c.func.attr == "zero_grad"]
    for loop in training.step_loops:
        steps = [
            (e, c)
            for e, c in training.calls(loop)
            if training.steps(c) is not None and e.each and not e.inner
        ]
        known = [(e, c) for e, c in steps if _is_torch_optimizer(training, training.steps(c))]
        outside = all(program.scope(c) is program.scope(loop) and not program.within(c, loop) for c in clears)
        by_hand = re.search(r"\.grad\b|set_to_none", program.text) is not None
        if known and outside and not by_hand and (not clears or not any(e.path for e, _ in known)):
            yield known[0][1]
        yield from (c for e, c in steps if _cleared_just_before(training, c))


def _is_torch_optimizer(training: Training, node: ast.expr | None) -> bool:
    if node is None:
        return False
    names = [
        training.program.name(o.func) if isinstance(o, ast.Call) else ""
        for o in training.program.origins(node)
    ]
    return all(n.startswith("torch.optim.") for n in names)


def _cleared_just_before(training: Training, step: ast.Call) -> bool:
    """`loss.backward(); optimizer.zero_grad(); optimizer.step()`"""
    statement = training.program.statement(step)
    block = _block(training, statement)
    at = block.index(statement) if statement in block else 0
    if at < 2 or step.args:
        return False
    first, second = block[at - 1], block[at - 2]
    if not isinstance(first, ast.Expr) or not isinstance(second, ast.Expr):
        return False
    clear, back = first.value, second.value
    if not (
        isinstance(clear, ast.Call)
        and isinstance(clear.func, ast.Attribute)
        and clear.func.attr == "zero_grad"
    ):
        return False
    return (
        training.goes_back(back)
        and isinstance(step.func, ast.Attribute)
        and ast.unparse(clear.func.value) == ast.unparse(step.func.value)
    )


def _block(training: Training, statement: ast.stmt) -> list[ast.stmt]:
    parent = training.program.parents[statement]
    return next((b for _, b in ast.iter_fields(parent) if isinstance(b, list) and statement in b), [])


def accumulation_undivided(training: Training) -> Iterator[ast.AST]:
    """backward() on each batch and step() on every N-th, with an undivided loss;
    not reported for optimizers such as Adam."""
    program = training.program
    if re.search(r"\.grad\b", program.text):
        return  # the gradients may be scaled by hand
    for loop in training.step_loops:
        steps = [(e, c) for e, c in training.calls(loop) if training.steps(c) is not None and not e.inner]
        clears = [
            e
            for e, c in training.calls(loop)
            if isinstance(c.func, ast.Attribute) and c.func.attr == "zero_grad"
        ]
        backs = [(e, c) for e, c in training.calls(loop) if training.goes_back(c)]
        stepped = [optimizer for _, c in steps if (optimizer := training.steps(c)) is not None]
        optimizers = [o for each in stepped for o in program.origins(each)]
        if len(backs) != 1 or not backs[0][0].each or not clears or any(e.inner for e in clears) or any(
                not isinstance(o, ast.Call) or _ADAPTIVE.search(program.name(o.func)) for o in optimizers):
            continue
        event, back = backs[0]
        rarely = not event.inner and all(_every_nth(e) for e, _ in steps) and not any(e.each for e in clears)
        if (rarely or (event.inner == 1 and _is_micro_loop(training, back, loop))) and not _may_be_scaled(
            training, training.loss(back)
        ):
            yield back


def _is_micro_loop(training: Training, back: ast.Call, loop: ast.AST) -> bool:
    """True when a backward stands in `for micro in range(n)` that draws a batch each time, within a step."""
    program = training.program
    inner = next((n for n in program.around(back) if isinstance(n, ast.For)), None)
    if (
        inner is None
        or inner is loop
        or not program.within(inner, loop)
        or not isinstance(inner.iter, ast.Call)
    ):
        return False
    counts = (
        dotted(inner.iter.func) == "range"
        and len(inner.iter.args) == 1
        and program.value(inner.iter.args[0]) not in (0, 1)
    )
    counter = dotted(inner.target)
    return counts and not any(counter in names_in(s) for s in inner.body)


def _every_nth(event: Event) -> bool:
    return any(isinstance(n, ast.Mod) for g in event.guards for n in ast.walk(g))


def _may_be_scaled(training: Training, node: ast.AST | None, depth: int = 6) -> bool:
    """True unless nothing on the way to a loss divides or multiplies it."""
    program = training.program
    if node is None or depth <= 0:
        return True
    for part in ast.walk(node):
        if isinstance(part, ast.BinOp) and isinstance(part.op, ast.Div | ast.Mult):
            return True
        if isinstance(part, ast.keyword) and part.arg == "reduction":
            return True
        if isinstance(part, ast.Call):
            if isinstance(part.func, ast.Attribute) and _DIVIDES.match(part.func.attr):
                return True
            if any(
                _may_be_scaled(training, v, depth - 1)
                for f in program.reached(part)
                for v in program.returns(f)
            ):
                return True
    if isinstance(node, ast.Name):
        reached = program.reaching(node)
        values = [b.value for b in reached if isinstance(b, Binding) and not b.adds]
        return len(values) < len(reached) or any(
            v is UNKNOWN or _may_be_scaled(training, v, depth - 1) for v in values
        )
    if isinstance(node, ast.Call):  # loss_of(output, y): which one, and with which reduction?
        made = program.origins(node.func)
        return any(keyword(o, "reduction") is not None for o in made if isinstance(o, ast.Call))
    return False


# --- schedules
# -----------------------------------------------------------------------------------------------------------

def scheduler_place(training: Training) -> Iterator[ast.AST]:
    """A schedule with a length in epochs that is stepped per batch, or with a length in batches that is
    stepped per epoch."""
    for loop in training.batch_loops:
        outer = training.outer[loop]
        if not outer:
            continue
        for event, call in training.calls(loop):
            made = training.scheduler(call) if event.each and not event.inner else None
            if made is not None and any(_counted_in_epochs(training, made, o) for o in outer):
                yield call
        for around in outer:
            inside = {e.node for e in training.events(loop)}
            for event, call in training.calls(around):
                made = (
                    training.scheduler(call)
                    if event.each and not event.inner and call not in inside
                    else None
                )
                if made is not None and _counted_in_batches(training, made):
                    yield call


def _counted_in_epochs(training: Training, made: ast.Call, epochs: ast.AST) -> bool:
    """True when the length of a schedule is the number of epochs, or fits into it and would bring the rate to
    nothing at once."""
    program = training.program
    bound = (
        epochs.iter.args[-1 if len(epochs.iter.args) < 2 else 1]
        if isinstance(epochs, ast.For)
        and isinstance(epochs.iter, ast.Call)
        and dotted(epochs.iter.func).endswith("range")
        and epochs.iter.args
        else None
    )
    if bound is None:
        return False
    kind = program.name(made.func).rsplit(".", 1)[-1]
    count = _number(training, bound)
    if kind == "ReduceLROnPlateau":
        patience = keyword(made, "patience", 3)
        return patience is None or (_number(training, patience) or _PATIENT) < _PATIENT
    if kind == "CosineAnnealingLR":
        length = keyword(made, "T_max", 1)
        return length is not None and _same(training, length, bound)
    if kind == "StepLR":
        size, gamma = _number(training, keyword(made, "step_size", 1)), keyword(made, "gamma", 2)
        factor = 0.1 if gamma is None else _number(training, gamma)
        return (
            size is not None
            and count is not None
            and factor is not None
            and 0 < size <= count / 2
            and 0 < factor < 1
            and factor ** (1000 / size) < 1e-3
        )
    if kind == "MultiStepLR":
        listed = program.origins(made.args[1] if len(made.args) > 1 else keyword(made, "milestones") or made)
        elements = [e for o in listed if isinstance(o, ast.List | ast.Tuple) for e in o.elts]
        marks = [mark for e in elements if (mark := _number(training, e)) is not None]
        return (
            len(listed) == 1
            and len(marks) > 1
            and len(marks) == len(elements)
            and count is not None
            and count / 4 <= max(marks) < count
        )
    return False


def _number(training: Training, node: ast.expr | None) -> float | None:
    value = training.program.value(node)
    if value is None and isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):  # range(1, epochs + 1)
        left, right = _number(training, node.left), _number(training, node.right)
        return left + right if left is not None and right is not None else None
    return value if isinstance(value, int | float) and not isinstance(value, bool) else None


def _same(training: Training, length: ast.expr, bound: ast.expr) -> bool:
    plain = bound.left if isinstance(bound, ast.BinOp) and isinstance(bound.op, ast.Add) else bound
    texts = {ast.unparse(n) for n in (bound, plain) if not isinstance(n, ast.Constant)}
    return ast.unparse(length) in texts


def _counted_in_batches(training: Training, made: ast.Call) -> bool:
    """True for OneCycleLR over all batches, and for what is made with len(loader) as its length."""
    kind = training.program.name(made.func).rsplit(".", 1)[-1]
    given = [*made.args[1:], *(k.value for k in made.keywords)]
    if kind == "OneCycleLR" and keyword(made, "steps_per_epoch") is not None:
        steps = keyword(made, "steps_per_epoch")
        return training.program.value(steps) != 1
    lengths = (
        [keyword(made, n) for n in ("total_steps", "T_max", "total_iters", "step_size_up")] if given else []
    )
    return any(_counts_batches(training, n) for n in lengths if n is not None)


def _counts_batches(training: Training, node: ast.expr) -> bool:
    """True for an expression with len(loader) in it."""
    found = [n for o in (*training.program.origins(node), node) if o is not UNKNOWN for n in ast.walk(o)]
    lengths = [n for n in found if isinstance(n, ast.Call) and dotted(n.func) == "len" and len(n.args) == 1]
    return any(all(training.is_loader(o) for o in training.program.origins(n.args[0])) for n in lengths)


def scheduler_order(training: Training) -> Iterator[ast.AST]:
    """scheduler.step() before optimizer.step() in the same loop."""
    for loop in training.step_loops:
        for around in (loop, *training.outer[loop]):
            first = next(
                (n for n, e in enumerate(training.events(around)) if training.steps(e.node) is not None), None
            )
            if first is None:
                continue
            for event in training.events(around)[:first]:
                call = event.node
                if (
                    event.each
                    and not event.inner
                    and isinstance(call, ast.Call)
                    and training.scheduler(call) is not None
                    and not call.args
                    and not call.keywords
                ):
                    yield call


# --- seeds
# ------------------------------------------------------------------------------------------------------------

def seed_in_loop(training: Training) -> Iterator[ast.AST]:
    """The same seed set at each epoch or step,
    in a loop that does not create the network and the optimizer."""
    program = training.program
    if _FORKS_RANDOM.search(program.text):
        return
    for loop in training.step_loops:
        for around in (loop, *training.outer[loop]):
            if any(training._makes_optimizer(c) for _, c in training.calls(around)):
                continue  # a new training each time: it may well begin alike
            for event, call in training.calls(around):
                if (
                    event.each
                    and not event.inner
                    and _SEEDS.search(program.name(call.func))
                    and _same_seed(training, call, event)
                ):
                    yield event.path[0] if event.path else call


def _same_seed(training: Training, call: ast.Call, event: Event) -> bool:
    given = [*call.args, *(k.value for k in call.keywords)]
    if len(given) != 1:
        return False
    return isinstance(training.program.value(given[0]), int)


# --- evaluation
# ----------------------------------------------------------------------------------------------------------

def evaluation_grad(training: Training) -> Iterator[ast.AST]:
    """A loop over a loader, outside no_grad(), that uses the network's outputs but never calls backward()."""
    if re.search(r"requires_grad|set_grad_enabled|\.grad\b", training.program.text):
        return
    yield from (loop for loop, _ in _evaluations(training) if not training.without_gradient(loop))


def evaluation_mode(training: Training) -> Iterator[ast.AST]:
    """An evaluation loop with a network that has dropout or batch norm, in a file that never calls eval()."""
    if _NO_EVAL.search(training.program.text):
        return
    for loop, made in _evaluations(training):
        owner = training.program.classes.get(dotted(made.func))
        inside = owner if owner is not None else made
        if any(
            isinstance(n, ast.Call) and _CHANGES_IN_EVAL.match(training.program.name(n.func))
            for n in ast.walk(inside)
        ):
            yield loop


def _evaluations(training: Training) -> Iterator[tuple[ast.For | ast.AsyncFor, ast.Call]]:
    """(loop, how its network was made) of each loop that evaluates a network which another loop trains."""
    program = training.program
    if not training.step_loops:
        return
    for loop in program.loops:
        if isinstance(loop, ast.While) or not training.loaders(loop):
            continue
        if program.within(loop, _none_or(training, loop)):
            continue
        calls = [c for e, c in training.calls(loop) if not e.no_grad]
        reads = any(isinstance(c.func, ast.Attribute) and c.func.attr in _READS_OUT for c in calls)
        around = program.scope(loop)
        goes_back = any(
            training.goes_back(c) or training.steps(c) is not None for _, c in training.calls(loop)
        )
        later = isinstance(around, Function) and any(training.goes_back(n) for n in ast.walk(around))
        if (
            not reads
            or goes_back
            or (later and not any(program.within(s, around) for s in training.step_loops))
        ):
            continue
        made = next(
            (
                m
                for c in calls
                if isinstance(c.func, ast.Name | ast.Attribute)
                and (m := training.module(c.func))
                and not _loss_class(training, m)
            ),
            None,
        )
        if made is not None:
            yield loop, made


def _none_or(training: Training, loop: ast.For | ast.AsyncFor) -> ast.AST:
    """A step loop that the loop stands in: what happens there may be part of a step.
    The loop's own target where there is none."""
    return next((s for s in training.step_loops if training.program.within(loop, s)), loop.target)


def _loss_class(training: Training, made: ast.Call) -> bool:
    return training.program.name(made.func).endswith("Loss")


# --- losses
# ------------------------------------------------------------------------------------------------------------

@dataclass(frozen=True)
class _Squash:
    """softmax or sigmoid in its three shapes, and the losses that do it themselves."""

    functions: frozenset[str]
    method: str
    layer: str
    losses: frozenset[str]


_SQUASHES = (
    _Squash(
        frozenset({"torch.softmax", "torch.nn.functional.softmax", "torch.special.softmax"}),
        "softmax",
        "torch.nn.Softmax",
        frozenset({"torch.nn.functional.cross_entropy", "torch.nn.CrossEntropyLoss"}),
    ),
    _Squash(
        frozenset({"torch.sigmoid", "torch.nn.functional.sigmoid", "torch.special.expit"}),
        "sigmoid",
        "torch.nn.Sigmoid",
        frozenset({"torch.nn.functional.binary_cross_entropy_with_logits", "torch.nn.BCEWithLogitsLoss"}),
    ),
)


def softmax_before_loss(training: Training) -> Iterator[ast.AST]:
    """softmax() before a loss that applies softmax itself, or sigmoid() before a loss that takes logits."""
    program = training.program
    for call in program.calls:
        given = keyword(call, "input", 0)
        if given is None or len(call.args) + len(call.keywords) < 2:
            continue
        made = program.origins(call.func) if not program.name(call.func).startswith("torch.") else []
        kinds = {program.name(o.func) if isinstance(o, ast.Call) else "" for o in made} or {
            program.name(call.func)
        }
        if any(kinds <= squash.losses and _is_applied(training, given, squash) for squash in _SQUASHES):
            yield call


def _is_applied(training: Training, node: ast.expr, squash: _Squash, depth: int = 4) -> bool:
    """True when a value is surely the result of the function, of the method,
    or of a network that ends with the layer."""
    found = training.program.origins(node)
    return (
        bool(found)
        and depth > 0
        and all(isinstance(o, ast.Call) and _applies(training, o, squash, depth) for o in found)
    )


def _applies(training: Training, call: ast.Call, squash: _Squash, depth: int) -> bool:
    program = training.program
    if program.name(call.func) in squash.functions:
        return True
    if not isinstance(call.func, ast.Name | ast.Attribute):
        return False
    made = training.module(call.func)
    if made is None:  # x.softmax(1), but neither module.softmax(x) nor self.softmax(x)
        foreign = dotted(call.func).partition(".")[0] in {*program.aliases, "self"}
        return isinstance(call.func, ast.Attribute) and call.func.attr == squash.method and not foreign
    kind = program.name(made.func)
    if kind == squash.layer:
        return True
    if kind == "torch.nn.Sequential":
        return (
            bool(made.args)
            and isinstance(made.args[-1], ast.Call)
            and program.name(made.args[-1].func) == squash.layer
        )
    owner = program.classes.get(dotted(made.func))
    forward = program.methods(owner, "forward") if owner is not None else []
    values = [v for f in forward for v in program.returns(f)]
    return bool(values) and all(v is not None and _is_applied(training, v, squash, depth - 1) for v in values)


# --- what is kept
# --------------------------------------------------------------------------------------------------------

def whole_model_saved(training: Training) -> Iterator[ast.AST]:
    """torch.save(model)."""
    for call in training.program.calls:
        if (
            training.program.name(call.func) == "torch.save"
            and call.args
            and isinstance(call.args[0], ast.Name | ast.Attribute)
            and training.module(call.args[0]) is not None
        ):
            yield call

