"""Finds the training loops of a script by what they do (backward, optimizer.step),
through the functions of the same file.

A *step loop* is the innermost loop around an optimizer's step;
the loops around it are its *outer* loops (epochs, folds).
"""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

from stoker.doctor.flow import UNKNOWN, Binding, Function, Loop, Program, keyword
from stoker.doctor.reader import dotted
from stoker.doctor.source import is_main_test

CALL_DEPTH = 3  # functions behind functions that a loop is followed into
EVENTS_AT_MOST = 20_000
OPTIM, SCHEDULER = "torch.optim.", "torch.optim.lr_scheduler."
NO_GRAD = re.compile(r"(^|\.)(no_grad|inference_mode)$")
_WRAPPERS = frozenset(
    {"enumerate", "tqdm", "trange", "iter", "list", "track", "islice", "auto", "cycle", "progress_bar"}
)
_SAME_MODULE = frozenset(
    {"to", "cuda", "cpu", "train", "eval", "float", "double", "half", "bfloat16", "requires_grad_", "apply"}
)
_MODULE_WRAPPERS = re.compile(
    r"(DataParallel|DistributedDataParallel|torch\.compile|torch\.jit\.script|FullyShardedDataParallel)$"
)
_LIGHTNING = re.compile(r"(^|\.)LightningModule$")
_ENGINE = re.compile(r"(Accelerator|Fabric|initialize)$")  # they take the loss in backward(loss)
_EPOCH = re.compile(
    r"(.*_)?(epochs?|ep|e|_|episode|i_episode|ep_?\d|fold|run|generation)(_?(idx|num|i|no))?", re.IGNORECASE
)


@dataclass(frozen=True)
class Event:
    """A node that a loop's pass runs through. guards: the tests it stands under. inner: loops between.
    path: the calls that lead there."""

    node: ast.AST
    guards: tuple[ast.AST, ...] = ()
    inner: int = 0
    path: tuple[ast.Call, ...] = ()
    no_grad: bool = False

    @property
    def each(self) -> bool:
        """Runs at each pass, whatever a test says."""
        return not self.guards


class Training:
    """The training loops of one file, and what the things in them are."""

    def __init__(self, program: Program) -> None:
        self.program = program
        self._events: dict[ast.AST, list[Event]] = {}
        methods = (c.func for c in program.calls if isinstance(c.func, ast.Attribute))
        self._zeroed = {ast.unparse(m.value) for m in methods if m.attr == "zero_grad"}

    # --- loops
    # --------------------------------------------------------------------------------------------------------

    @cached_property
    def step_loops(self) -> list[ast.AST]:
        """The loops each pass of which may step an optimizer after a backward."""
        return [loop for loop in self.program.loops if any(self.goes_back(e.node) for e in self.events(loop))
                and any(e.inner == 0 and self.steps(e.node) for e in self.events(loop))]

    @cached_property
    def outer(self) -> dict[ast.AST, list[ast.AST]]:
        """Step loop -> the loops that run it again and again, through calls too."""
        found: dict[ast.AST, list[ast.AST]] = defaultdict(list)
        for loop in self.program.loops:
            for event in self.events(loop):
                if event.node in self.step_loops and event.node is not loop:
                    found[event.node].append(loop)
        return found

    @cached_property
    def batch_loops(self) -> list[ast.AST]:
        """What runs once a batch: step loops, but none over epochs with all data at once, and the steps a
        framework calls."""
        return [
            loop for loop in self.step_loops if self.loaders(loop) or not self._counts_epochs(loop)
        ] + self.framework_steps

    @cached_property
    def framework_steps(self) -> list[ast.AST]:
        """The training_step of each LightningModule:
        the framework calls it once a batch, and goes back from what it returns."""
        return [
            f
            for f in self.program.functions
            if f.name == "training_step"
            and isinstance(owner := self.program.scope(f), ast.ClassDef)
            and self.inherits(owner, _LIGHTNING)
        ]

    def _counts_epochs(self, loop: ast.AST) -> bool:
        if not isinstance(loop, ast.For):
            return False
        calls = {
            self.program.name(n.func).rsplit(".", 1)[-1]
            for n in ast.walk(loop.iter)
            if isinstance(n, ast.Call)
        }
        first = loop.target.elts[0] if isinstance(loop.target, ast.Tuple) else loop.target
        return bool(calls & {"range", "trange", "count"}) and bool(_EPOCH.fullmatch(dotted(first)))

    def events(self, loop: ast.AST) -> list[Event]:
        """Everything one pass of a loop runs through, in order,
        with the functions of this file that it calls."""
        if loop not in self._events:
            walk = _Walk(self.program)
            head = [loop.test] if isinstance(loop, ast.While) else []
            for node in head:
                walk.visit(node, Event(node))
            walk.block(list(getattr(loop, "body", ())), Event(loop))
            self._events[loop] = walk.found
        return self._events[loop]

    def calls(self, loop: ast.AST) -> Iterator[tuple[Event, ast.Call]]:
        """The calls among the events."""
        return ((e, e.node) for e in self.events(loop) if isinstance(e.node, ast.Call))

    # --- what is what
    # --------------------------------------------------------------------------------------------------------

    def steps(self, node: ast.AST) -> ast.expr | None:
        """The optimizer that a call steps; None where it steps none."""
        if (
            not isinstance(node, ast.Call)
            or not isinstance(node.func, ast.Attribute)
            or node.func.attr != "step"
        ):
            return None
        if self.is_optimizer(node.func.value):
            return node.func.value
        # scaler.step(optimizer)
        return node.args[0] if len(node.args) == 1 and self.is_optimizer(node.args[0]) else None

    def is_optimizer(self, node: ast.expr) -> bool:
        """True for what torch.optim made, what takes .parameters() as it is made, or what the file also calls
        zero_grad() on."""
        made = self.program.origins(node)
        if all(made):
            return all(isinstance(o, ast.Call) and self._makes_optimizer(o) for o in made)
        return (
            ast.unparse(node) in self._zeroed
            and isinstance(node, ast.Name | ast.Attribute)
            and not self.module(node)
        )

    def _makes_optimizer(self, call: ast.Call) -> bool:
        name = self.program.name(call.func)
        if name.startswith(OPTIM):
            return not name.startswith((SCHEDULER, "torch.optim.swa_utils"))
        given = {
            n.func.attr
            for a in call.args[:1]
            for n in ast.walk(a)
            if isinstance(n, ast.Call) and isinstance(n.func, ast.Attribute)
        }
        return not given.isdisjoint(("parameters", "named_parameters")) and "clip" not in name

    def scheduler(self, node: ast.AST) -> ast.Call | None:
        """The torch scheduler (as it is made) that a call steps without arguments of its own;
        None where that is not sure."""
        if (
            not isinstance(node, ast.Call)
            or not isinstance(node.func, ast.Attribute)
            or node.func.attr != "step"
        ):
            return None
        made = self.program.origins(node.func.value)
        only = made[0] if len(made) == 1 else None
        if isinstance(only, ast.Call) and self.program.name(only.func).startswith(SCHEDULER):
            return only
        return None

    def goes_back(self, node: ast.AST) -> bool:
        """True for a call of backward() that is torch's."""
        return (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Attribute)
            and node.func.attr in ("backward", "manual_backward")
            and not self.program.reached(node)
        )

    def loss(self, node: ast.Call) -> ast.expr | None:
        """What a backward() starts from: `loss` of loss.backward(), scaler.scale(loss).backward(),
        accelerator.backward(loss)."""
        if not isinstance(node.func, ast.Attribute):
            return None
        value = node.func.value
        if (
            isinstance(value, ast.Call)
            and isinstance(value.func, ast.Attribute)
            and value.func.attr == "scale"
            and len(value.args) == 1
        ):
            return value.args[0]
        if not node.args or node.keywords:
            return value
        made = [
            self.program.name(o.func) if isinstance(o, ast.Call) else ""
            for o in self.program.origins(value)
            if o is not UNKNOWN
        ]
        return node.args[0] if not made or any(_ENGINE.search(n) for n in made) else value

    def module(self, node: ast.expr) -> ast.Call | None:
        """How the network was made that a value is: Net(...) of this file or nn.X(...);
        None where it may be something else."""
        made = [self._unwrapped(o) for o in self.program.origins(node)]
        sure = made and all(o is not None and self._makes_module(o) for o in made)
        return made[0] if sure else None

    def _unwrapped(self, node: ast.expr | None) -> ast.Call | None:
        for _ in range(6):
            if not isinstance(node, ast.Call):
                return None
            if isinstance(node.func, ast.Attribute) and node.func.attr in _SAME_MODULE:
                inner = node.func.value
            elif node.args and _MODULE_WRAPPERS.search(self.program.name(node.func)):
                inner = node.args[0]
            else:
                return node
            found = self.program.origins(inner) if not isinstance(inner, ast.Call) else [inner]
            node = found[0] if len(found) == 1 else None
        return None

    def _makes_module(self, call: ast.Call) -> bool:
        name = self.program.name(call.func)
        if name.startswith("torch.nn.") and name.count(".") == 2:
            return name[len("torch.nn."):][:1].isupper()
        if re.match(r"torchvision\.models\.[a-z]\w*$", name):
            return True
        return name in self.program.classes and self.is_module(self.program.classes[name])

    def is_module(self, owner: ast.ClassDef) -> bool:
        """True for a class that is a torch network."""
        return self.inherits(owner, re.compile(r"^torch\.nn\.(modules\.\w+\.)?Module$"))

    def inherits(self, owner: ast.ClassDef, base: re.Pattern[str], depth: int = 4) -> bool:
        """True when a class has a base of that name, within this file or just behind it."""
        for node in owner.bases:
            name = self.program.name(node)
            if base.search(name) or (
                depth
                and name in self.program.classes
                and self.inherits(self.program.classes[name], base, depth - 1)
            ):
                return True
        return False

    # --- loaders
    # --------------------------------------------------------------------------------------------------------

    def is_loader(self, call: ast.AST | None) -> bool:
        """True for a call that makes a torch DataLoader."""
        return (
            isinstance(call, ast.Call)
            and re.match(r"torch\.utils\.data(\.\w+)*\.DataLoader$", self.program.name(call.func)) is not None
        )

    def loaders(self, loop: ast.AST) -> list[ast.Call]:
        """The DataLoader(...) calls a loop surely goes through; empty where it may be something else."""
        if not isinstance(loop, ast.For | ast.AsyncFor):
            return []
        node = loop.iter
        while (
            isinstance(node, ast.Call)
            and node.args
            and self.program.name(node.func).rsplit(".", 1)[-1] in _WRAPPERS
        ):
            node = node.args[0]
        zipped = node.args if isinstance(node, ast.Call) and dotted(node.func) == "zip" else [node]
        found = [o for n in zipped for o in self._behind_progress(n)]
        loaders = [o for o in found if isinstance(o, ast.Call) and self.is_loader(o)]
        return loaders if len(loaders) == len(found) else []

    def _behind_progress(self, node: ast.expr) -> list[ast.expr | None]:
        found = self.program.origins(node)
        only = found[0] if len(found) == 1 else UNKNOWN
        if (
            isinstance(only, ast.Call)
            and only.args
            and self.program.name(only.func).rsplit(".", 1)[-1] in _WRAPPERS
        ):
            return self.program.origins(only.args[0])
        return found

    def without_gradient(self, node: ast.AST, depth: int = 3) -> bool:
        """True when a node surely or possibly runs under no_grad:
        by a `with`, a decorator, or the functions that call it."""
        for outer in self.program.around(node):
            if isinstance(outer, ast.With | ast.AsyncWith) and turns_off(self.program, outer):
                return True
            if isinstance(outer, Function):
                if any(NO_GRAD.search(dotted(getattr(d, "func", d))) for d in outer.decorator_list):
                    return True
                sites = self.program.sites.get(outer, [])
                return not depth or any(self.without_gradient(s, depth - 1) for s in sites)
        return False


def turns_off(program: Program, node: ast.With | ast.AsyncWith) -> bool:
    """True for `with torch.no_grad()` and its like, also under another name."""
    for item in node.items:
        made = program.origins(item.context_expr)
        names = [program.name(o.func) if isinstance(o, ast.Call) else "?" for o in made]
        if any(NO_GRAD.search(n) or n == "?" or n.endswith("set_grad_enabled") for n in names):
            return True
    return False


class _Walk:
    """Collects events in the order in which they run."""

    def __init__(self, program: Program) -> None:
        self.program = program
        self.found: list[Event] = []
        self.stack: list[ast.AST] = []

    def block(self, body: list[ast.stmt], at: Event) -> None:
        for node in body:
            self.visit(node, at)
            if isinstance(node, ast.If) and any(
                isinstance(s, ast.Continue | ast.Return) for s in ast.walk(node)
            ):
                at = _under(at, node.test)  # what follows does not run each time

    def visit(self, node: ast.AST, at: Event) -> None:
        if len(self.found) > EVENTS_AT_MOST or isinstance(node, Function | ast.ClassDef | ast.Lambda):
            return
        if isinstance(node, ast.stmt | ast.Call):
            self.found.append(Event(node, at.guards, at.inner, at.path, at.no_grad))
        if isinstance(node, ast.If):
            self.visit(node.test, at)
            branch = at if is_main_test(node.test) or _always(node.test) else _under(at, node.test)
            self.block(node.body, branch)
            self.block(node.orelse, _under(at, node.test))
        elif isinstance(node, ast.IfExp):
            self.visit(node.test, at)
            self.visit(node.body, _under(at, node.test))
            self.visit(node.orelse, _under(at, node.test))
        elif isinstance(node, ast.BoolOp):
            self.visit(node.values[0], at)
            for value in node.values[1:]:
                self.visit(value, _under(at, node.values[0]))
        elif isinstance(node, Loop):
            inside = Event(node, at.guards, at.inner + 1, at.path, at.no_grad)
            self.visit(node.test if isinstance(node, ast.While) else node.iter, at)
            self.block(node.body, inside)
            self.block(node.orelse, at)
        elif isinstance(node, ast.Try):
            self.block(node.body, at)
            for handler in node.handlers:
                self.block(handler.body, _under(at, handler))
            self.block([*node.orelse, *node.finalbody], at)
        elif isinstance(node, ast.Match):
            self.visit(node.subject, at)
            for case in node.cases:
                self.block(case.body, _under(at, case))
        elif isinstance(node, ast.With | ast.AsyncWith):
            for item in node.items:
                self.visit(item.context_expr, at)
            self.block(
                node.body,
                Event(node, at.guards, at.inner, at.path, at.no_grad or turns_off(self.program, node)),
            )
        else:
            for child in ast.iter_child_nodes(node):
                self.visit(child, at)
            if isinstance(node, ast.Call):
                self.call(node, at)

    def call(self, node: ast.Call, at: Event) -> None:
        """Goes into the functions a call runs; into a closure handed to step() too."""
        reached = list(self.program.reached(node))
        if isinstance(node.func, ast.Attribute) and node.func.attr == "step":
            closure = [*node.args, *filter(None, [keyword(node, "closure")])]
            reached += [b.node for a in closure if isinstance(a, ast.Name) for b in self.program.reaching(a)
                        if isinstance(b, Binding) and isinstance(b.node, Function)]
        if len(at.path) >= CALL_DEPTH or len(reached) != 1 or reached[0] in self.stack:
            return
        function = reached[0]
        off = any(NO_GRAD.search(dotted(getattr(d, "func", d))) for d in function.decorator_list)
        self.stack.append(function)
        self.block(function.body, Event(node, at.guards, at.inner, (*at.path, node), at.no_grad or off))
        self.stack.pop()


def _under(at: Event, test: ast.AST) -> Event:
    return Event(at.node, (*at.guards, test), at.inner, at.path, at.no_grad)


def _always(test: ast.expr) -> bool:
    return isinstance(test, ast.Constant) and bool(test.value)
