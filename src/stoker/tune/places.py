"""Where the lines of a training script stand:
within a loop over parameters or over time, in a report, in an evaluation, in each step.

Reads the doctor's picture of the file (flow, loops); says nothing where that is not sure.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from stoker.doctor.flow import Function, Loop, Program, keyword
from stoker.doctor.loops import CALL_DEPTH, Training
from stoker.doctor.source import Source

Spot = tuple[str, int]  # file, line

_PARAMETERS = re.compile(
    r"\b(named_)?(parameters|buffers|modules|children)\(|\bparam(eter)?s\b|param_groups|\bgrads\b|state_dict\(\)"
)
_SLICES = re.compile(r"\.(unbind|split|unfold|transpose|permute)\(|torch\.(unbind|split)\(")
_REPORTS = re.compile(
    r"(^|\.)(print|log|debug|info|warning|write|writerow|add_scalars?|add_histogram|add_image|log_metrics?|log_dict|set_postfix)$"
)
_LOGARITHM = re.compile(r"^(torch|math|cmath|numpy|np)\.")
_EVALUATES = re.compile(r"eval|valid|(^|_)val(_|$)|test|accuracy|score|metric", re.IGNORECASE)
_TAKES = re.compile(r"(^|\.)(unlink|remove|rmtree|popleft|get_nowait|recv|recv_bytes|readline)$")
_CHANGES = re.compile(r"^(set_|update|resample|reshuffle|shuffle|advance|next_|step|on_epoch|grow|anneal)")
_DRAWS = re.compile(
    r"^(torch\.(rand|randn|randint|randperm|normal|bernoulli)\w*|(numpy\.)?random\.\w+|np\.random\.\w+)$"
)
_RANDOM_TRANSFORM = re.compile(
    r"(^|\.)transforms(\.v2)?\.(Random\w+|ColorJitter|AutoAugment|RandAugment|TrivialAugmentWide|AugMix)$"
)
_RANKS = re.compile(
    r"(^|\.)(init_process_group|DistributedDataParallel)$|^torch\.multiprocessing\.(spawn|start_processes)$"
)
_ASKS_DIGITS = re.compile(r"allow_tf32$|allow_(bf16|fp16)_reduced_precision_reduction$")
_TOLERANT = ("torch.allclose", "torch.isclose", "torch.testing.assert_close")
_DEBUGS = re.compile(
    r"(^|\.)(set_detect_anomaly|detect_anomaly|profiler\.profile|emit_nvtx|set_warn_always|settrace|setprofile)$"
)
_PAIRS = re.compile(r"(^|[._])(cdist|pdist|pairwise_distance|cosine_similarity)$")
_WITHIN_BATCH = re.compile(r"arange\(|eye\(|diag|masked_fill|hardest|negatives?\b|margin")
_MATMULS = ("torch.matmul", "torch.mm", "torch.einsum")
_FORWARD = ("forward", "__call__")
_READERS = ("__getitem__", "__getitems__", "__iter__", "__next__")


@dataclass(frozen=True)
class Place:
    """Where a line stands."""

    text: str = ""
    # "parameters", "reports", "time": of the loops around it, those over batches and epochs aside
    loops: frozenset[str] = frozenset()
    function: str = ""
    reports: bool = False  # its function prints or logs, and goes neither forward nor back
    computes: bool = False  # its function trains, or returns a value that the script goes on with
    logs: bool = False  # its function prints or logs at each call, and computes nothing else
    evaluates: bool = False  # its function is an evaluation
    forward: bool = False  # within a module's forward
    each_step: bool = False  # runs at each pass of a training loop, whatever a test says
    in_step: bool = False  # runs within the training loop, perhaps under a test
    seldom: bool = False  # stands under a test with a remainder: `if step % 50 == 0`
    asks: bool = False  # it decides by a value: `if x:`, `assert x`, an f-string
    calls: tuple[str, ...] = ()
    chain: tuple[str, ...] = ()  # the calls that led to it, by name, where a path is known
    runs: frozenset[str] = frozenset()  # the kinds of loops within the functions of this file that it calls


def _line(node: ast.AST) -> int:
    """The line of a statement or expression."""
    return getattr(node, "lineno", 0)


class Sites:
    """One file, asked for the places that rules care about."""

    def __init__(self, real: str, one: Source) -> None:
        self.real, self.text = real, one.text
        self.program = Program(one.tree or ast.Module([], []), one.text)
        self.training = Training(self.program)
        self.lines = one.text.splitlines()
        self._training: dict[ast.AST, bool] = {}
        loops = [
            e
            for loop in self.training.batch_loops
            for e in self.training.events(loop)
            if hasattr(e.node, "lineno")
        ]
        self.in_step = {_line(e.node) for e in loops}
        self.each_step = {_line(e.node) for e in loops if e.each}
        self.seldom = {
            _line(e.node) for e in loops if any(isinstance(n, ast.Mod) for g in e.guards for n in ast.walk(g))
        }

    def places(self) -> dict[Spot, Place]:
        """A Place for each line on which a statement or an expression begins."""
        found: dict[Spot, Place] = {}
        for node in self.program.nodes:
            if not isinstance(node, ast.stmt | ast.expr) or isinstance(node, ast.ClassDef):
                continue
            key = (self.real, node.lineno)
            old = found.get(key) or self._place(node)
            name = (
                self.program.name(node.func) or getattr(node.func, "attr", "")
                if isinstance(node, ast.Call)
                else ""
            )
            asks = old.asks or isinstance(
                node, ast.If | ast.While | ast.Assert | ast.IfExp | ast.FormattedValue
            )
            inside = self._inside(node) if name and isinstance(node, ast.Call) else frozenset()
            found[key] = replace(old, loops=old.loops | self._loops(node), runs=old.runs | inside, asks=asks,
                                 calls=(*old.calls, name) if name else old.calls)
        return found

    def _place(self, node: ast.AST) -> Place:
        function = (
            node
            if isinstance(node, Function)
            else next((n for n in self.program.around(node) if isinstance(n, Function)), None)
        )
        at = _line(node)
        text = self.lines[at - 1].strip() if at <= len(self.lines) else ""
        step: dict[str, Any] = {
            "each_step": at in self.each_step, "in_step": at in self.in_step, "seldom": at in self.seldom,
        }
        if function is None:
            return Place(text, **step)
        trains = self._trains(function)
        reports = not trains and self._reports(function)
        computes = trains or _returns(function)
        return Place(
            text,
            function=function.name,
            reports=reports,
            computes=computes,
            logs=reports and not computes and self._reports(function, always=True),
            forward=function.name in _FORWARD,
            evaluates=not trains and bool(_EVALUATES.search(function.name)),
            **step,
        )

    def _trains(self, function: ast.AST, depth: int = CALL_DEPTH) -> bool:
        """It goes back or steps an optimizer, by itself or through what it calls."""
        if (known := self._training.get(function)) is not None:
            return known
        self._training[function] = False  # while it is looked at: a function that calls itself
        calls = [c for c in ast.walk(function) if isinstance(c, ast.Call)]
        found = any(self.training.goes_back(c) or self.training.steps(c) is not None for c in calls)
        found = found or (
            depth > 0 and any(self._trains(f, depth - 1) for c in calls for f in self.program.reached(c))
        )
        self._training[function] = found
        return found

    def _reports(self, outer: ast.AST, always: bool = False) -> bool:
        """It prints or logs. always: under no test."""
        calls = (c for c in ast.walk(outer) if isinstance(c, ast.Call) and self._is_report(c))
        return any(not (always and self._is_tested(c, outer)) for c in calls)

    def _is_report(self, call: ast.Call) -> bool:
        name = self.program.name(call.func) or getattr(call.func, "attr", "")
        logarithm = bool(_LOGARITHM.search(name)) or (name.endswith(".log") and not call.args)
        return bool(_REPORTS.search(name)) and not logarithm

    def _is_tested(self, call: ast.Call, outer: ast.AST) -> bool:
        for around in self.program.around(call):
            if around is outer:
                return False
            if isinstance(around, ast.If | ast.IfExp | ast.ExceptHandler):
                return True
        return False

    # --- loops
    # --------------------------------------------------------------------------------------------------------

    def _loops(self, node: ast.AST) -> frozenset[str]:
        kinds: set[str] = set()
        for around in [node, *self.program.around(node)]:
            if isinstance(around, Function):
                break
            for head in _heads(around):
                kinds |= self._kind(head, around)
        return frozenset(kinds)

    def _inside(self, call: ast.Call) -> frozenset[str]:
        """The kinds of the loops in the functions that a call reaches, those that train aside."""
        kinds: set[str] = set()
        for function in self.program.reached(call):
            if not self._trains(function):
                kinds |= {k for n in ast.walk(function) for head in _heads(n) for k in self._kind(head, n)}
        return frozenset(kinds)

    def _kind(self, head: ast.expr, loop: ast.AST) -> set[str]:
        if loop in self.training.step_loops or any(loop in outer for outer in self.training.outer.values()):
            return set()
        behind = [
            o
            for n in ast.walk(head)
            if isinstance(n, ast.Name)
            for o in self.program.origins(n)
            if o is not None
        ]
        texts = [ast.unparse(head), *(ast.unparse(o) for o in behind)]
        if any(_PARAMETERS.search(t) for t in texts):
            return {"reports" if self._reports(loop) else "parameters"}
        return {"time"} if self._over_time(head, loop, texts) else set()

    def _over_time(self, head: ast.expr, loop: ast.AST, texts: list[str]) -> bool:
        """Through the slices of a tensor: `for x in xs.unbind(1)`, or `for t in range(n): ... xs[:, t]`."""
        if any(_SLICES.search(t) for t in texts):
            return True
        counts = isinstance(head, ast.Call) and self.program.name(head.func) in (
            "range",
            "reversed",
            "enumerate",
        )
        if not counts or not isinstance(loop, ast.For):
            return False
        names = {n.id for n in ast.walk(loop.target) if isinstance(n, ast.Name)}
        inside = [n for statement in loop.body for n in ast.walk(statement) if isinstance(n, ast.Subscript)]
        return any(isinstance(n, ast.Name) and n.id in names for s in inside for n in ast.walk(s.slice))

    # --- what the whole file says
    # --------------------------------------------------------------------------------------------

    def epochs(self) -> bool:
        """The loop over batches stands in another loop."""
        return any(self.training.outer[loop] for loop in self.training.step_loops)

    def turns(self) -> bool | None:
        """Optimizers of two names step in one loop, with a backward between them;
        None where no two are seen."""
        together = None
        for loop in self.training.step_loops:
            last, since = "", False
            for _, call in self.training.calls(loop):
                since = since or self.training.goes_back(call)
                if (optimizer := self.training.steps(call)) is not None:
                    name = ast.unparse(optimizer)
                    if last and name != last:
                        if since:
                            return True
                        together = False
                    last, since = name, False
        return together

    def batch_pairs(self) -> Spot | None:
        """`a @ b.t()` beside `arange(len(a))`, cdist and their like in a step:
        samples of one batch are compared with each other."""
        if not _WITHIN_BATCH.search(self.text):
            return None
        for node in self.program.nodes:
            if self._compares(node) and (_line(node) in self.in_step or self._place(node).forward):
                return self.real, _line(node)
        return None

    def _compares(self, node: ast.AST) -> bool:
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.MatMult):
            return _turned(node.right)
        if not isinstance(node, ast.Call):
            return False
        name = self.program.name(node.func) or getattr(node.func, "attr", "")
        return bool(_PAIRS.search(name)) or (name in _MATMULS and any(_turned(a) for a in node.args[1:]))

    def sets_on_dataset(self) -> Spot | None:
        """`train_set.level = epoch` or `train_set.set_epoch(epoch)`
        in a loop around the loop over batches."""
        made = [keyword(call, "dataset", 0) for call in self.program.calls if self.training.is_loader(call)]
        names = {ast.unparse(node) for node in made if node is not None}
        for loop in {o for outer in self.training.outer.values() for o in outer}:
            for event in self.training.events(loop):
                if any(self._is_data(target, names) for target in self._changed(event.node)):
                    return self.real, _line(event.node)
        return None

    def _changed(self, node: ast.AST) -> Iterator[ast.expr]:
        """The objects whose attributes a statement sets, or a call surely changes."""
        targets = (
            node.targets
            if isinstance(node, ast.Assign)
            else [node.target]
            if isinstance(node, ast.AugAssign)
            else []
        )
        yield from (t.value for t in targets if isinstance(t, ast.Attribute | ast.Subscript))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            reached = list(self.program.reached(node))
            sets = any(
                isinstance(n, ast.Attribute) and isinstance(n.ctx, ast.Store)
                for f in reached
                for n in ast.walk(f)
            )
            if sets or (not reached and _CHANGES.search(node.func.attr)):
                yield node.func.value

    @staticmethod
    def _is_data(node: ast.expr, names: set[str]) -> bool:
        text = ast.unparse(node)
        return (
            text in names or text.endswith(".dataset") or any(text.startswith(f"{name}.") for name in names)
        )

    def distributed(self) -> Spot | None:
        """Where it starts ranks, or becomes one."""
        return next(
            ((self.real, c.lineno) for c in self.program.calls if _RANKS.search(self.program.name(c.func))),
            None,
        )

    def fine(self) -> Spot | None:
        """Where it needs the digits of float32: a difference over a small number, a tight tolerance in a
        step, or the wish itself."""
        return next(
            (
                (self.real, _line(n))
                for n in self.program.nodes
                if self._wishes_digits(n) or self._needs_digits(n)
            ),
            None,
        )

    def _wishes_digits(self, node: ast.AST) -> bool:
        if (
            isinstance(node, ast.Assign)
            and isinstance(node.value, ast.Constant)
            and node.value.value is False
        ):
            return any(_ASKS_DIGITS.search(ast.unparse(t)) for t in node.targets)
        return (
            isinstance(node, ast.Call)
            and self.program.name(node.func) == "torch.set_float32_matmul_precision"
            and [getattr(a, "value", None) for a in node.args] == ["highest"]
        )

    def _needs_digits(self, node: ast.AST) -> bool:
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Div) and self._small(node.right):
            return any(isinstance(n, ast.BinOp) and isinstance(n.op, ast.Sub) for n in ast.walk(node.left))
        compares = isinstance(node, ast.Call) and self.program.name(node.func) in _TOLERANT
        return compares and (_line(node) in self.in_step or self._place(node).forward)

    def _small(self, node: ast.expr) -> bool:
        """A number of at most 0.01, or twice such a one."""
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mult):
            return self._small(node.left) or self._small(node.right)
        value = self.program.value(node)
        return isinstance(value, float) and 0 < value <= 0.01

    def debugs(self) -> Spot | None:
        """Where a debugging or profiling mode is turned on for all steps."""
        return next(
            (
                (self.real, c.lineno)
                for c in self.program.calls
                if _DEBUGS.search(self.program.name(c.func))
                and not (c.args and isinstance(c.args[0], ast.Constant) and not c.args[0].value)
            ),
            None,
        )

    def draws(self) -> Spot | None:
        """A data set that draws random numbers for a sample, or has a transform that is called Random..."""
        for owner in self.program.classes.values():
            for method in (
                m for name in ("__getitem__", "__getitems__") for m in self.program.methods(owner, name)
            ):
                for call in (n for n in ast.walk(method) if isinstance(n, ast.Call)):
                    if _DRAWS.search(self.program.name(call.func)):
                        return self.real, call.lineno
        return next(
            (
                (self.real, c.lineno)
                for c in self.program.calls
                if _RANDOM_TRANSFORM.search(self.program.name(c.func))
            ),
            None,
        )

    def takes_away(self) -> Spot | None:
        """A data set that removes, or takes out of a queue, what it has read."""
        for owner in self.program.classes.values():
            for method in (m for name in _READERS for m in self.program.methods(owner, name)):
                for call in (n for n in ast.walk(method) if isinstance(n, ast.Call)):
                    if _TAKES.search(self.program.name(call.func) or getattr(call.func, "attr", "")):
                        return self.real, call.lineno
        return None


def _returns(function: ast.AST) -> bool:
    """A function gives a value back."""
    return any(isinstance(n, ast.Return | ast.Yield) and n.value is not None for n in ast.walk(function))


def _heads(node: ast.AST) -> list[ast.expr]:
    """What a loop or a comprehension goes through."""
    if isinstance(node, ast.ListComp | ast.GeneratorExp | ast.SetComp | ast.DictComp):
        return [g.iter for g in node.generators]
    return [node.iter] if isinstance(node, Loop) and not isinstance(node, ast.While) else []


def _turned(node: ast.expr) -> bool:
    """`x.t()`, `x.T`, `x.transpose(0, 1)`: samples become columns.
    `k.transpose(-2, -1)`, as in attention, turns each sample by itself."""
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
        around = sorted(ast.unparse(each) for each in node.args)
        return node.func.attr == "t" or (node.func.attr in ("transpose", "permute") and around == ["0", "1"])
    return isinstance(node, ast.Attribute) and node.attr == "T"
