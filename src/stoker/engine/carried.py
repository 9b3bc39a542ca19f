"""Variables that a training loop carries from one pass to the next, found by reading its source:
the variables that `engine.keep` should hold.

A variable is carried if a pass reads the variable before it sets it, or changes a container or generator from
outside the loop.
The counter of `enumerate` is carried too: in a resumed epoch, it starts at 0 again.
"""

from __future__ import annotations

import ast
import linecache
import random
from collections import deque
from types import FrameType
from typing import Any

import numpy
import torch

CHANGES = {
    "append",
    "extend",
    "add",
    "update",
    "insert",
    "appendleft",
    "remove",
    "pop",
    "add_",
    "mul_",
    "copy_",
    "lerp_",
}
CONTAINERS = (list, dict, set, deque, torch.Tensor, numpy.ndarray)
GENERATORS = (torch.Generator, numpy.random.Generator, numpy.random.RandomState, random.Random)
MAKES = {
    "list",
    "dict",
    "set",
    "deque",
    "defaultdict",
    "Counter",
    "zeros",
    "ones",
    "empty",
    "full",
    "tensor",
    "zeros_like",
}


def carried(frame: FrameType) -> list[str]:
    """Names of carried variables, in source order, for the loop over `engine.epochs` or `engine.batches` that
    the frame executes.

    Names in a call of `keep` are left out. Empty if the source cannot be read.
    """
    loop = _loop_at(frame)
    if loop is None:
        return []
    kept = {
        word
        for call in ast.walk(loop)
        if isinstance(call, ast.Call) and _method(call) == "keep"
        for word in _names_of_keep(call)
    }
    kept |= {
        word
        for call in _calls_before(frame, loop)
        if _method(call) == "keep"
        for word in _names_of_keep(call)
    }
    found: dict[str, None] = {}
    containers: set[str] = set()
    made = _containers_made(loop)
    for inner in _training_loops(loop):
        seen = _Reader()
        seen.block(inner.body)
        found |= dict.fromkeys(name for name in seen.carried)
        found |= dict.fromkeys(_numbered(inner))
        containers |= {
            name
            for name in _changed(inner)
            if name in made or isinstance(frame.f_locals.get(name), CONTAINERS)
        }
        containers |= {
            n.id
            for n in ast.walk(inner)
            if isinstance(n, ast.Name) and isinstance(frame.f_locals.get(n.id), GENERATORS)
        }
    names = [*found, *sorted(containers)]
    return [name for name in dict.fromkeys(names) if name not in kept]


def _training_loops(node: ast.AST) -> list[ast.For]:
    """The loops over epochs and batches in a piece of source, without those under `with engine.eval(...)`:
    no save is made in these."""
    if isinstance(node, ast.With) and any(
        isinstance(i.context_expr, ast.Call) and _method(i.context_expr) == "eval" for i in node.items
    ):
        return []
    own = [node] if isinstance(node, ast.For) and _of_engine(node) else []
    return [*own, *(loop for child in ast.iter_child_nodes(node) for loop in _training_loops(child))]


def _of_engine(loop: ast.For) -> bool:
    """Does it go through epochs or batches of an engine?"""
    calls = [n for n in ast.walk(loop.iter) if isinstance(n, ast.Call)]
    return any(_method(call) in ("epochs", "batches") for call in calls)


def _numbered(loop: ast.For) -> list[str]:
    """The number of `for number, batch in enumerate(engine.batches(...))`, if the body reads it."""
    counts = (
        isinstance(loop.iter, ast.Call)
        and isinstance(loop.iter.func, ast.Name)
        and loop.iter.func.id == "enumerate"
    )
    if not counts or not isinstance(loop.target, ast.Tuple) or not isinstance(loop.target.elts[0], ast.Name):
        return []
    number = loop.target.elts[0].id
    reads = {
        n.id
        for statement in loop.body
        for n in ast.walk(statement)
        if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Load)
    }
    return [number] if number in reads else []


def _tree(frame: FrameType) -> ast.Module | None:
    source = "".join(linecache.getlines(frame.f_code.co_filename, frame.f_globals))
    try:
        return ast.parse(source) if source else None
    except SyntaxError:
        return None


def _loop_at(frame: FrameType) -> ast.For | None:
    """The outermost `for` at the frame's line."""
    tree = _tree(frame)
    loops = (
        [
            n
            for n in ast.walk(tree)
            if isinstance(n, ast.For) and n.lineno <= frame.f_lineno <= (n.iter.end_lineno or n.lineno)
        ]
        if tree
        else []
    )
    return min(loops, key=lambda n: n.col_offset, default=None)


def _calls_before(frame: FrameType, loop: ast.For) -> list[ast.Call]:
    tree = _tree(frame)
    return [n for n in ast.walk(tree) if isinstance(n, ast.Call) and n.lineno < loop.lineno] if tree else []


def _method(call: ast.Call) -> str:
    return call.func.attr if isinstance(call.func, ast.Attribute) else ""


def _names_of_keep(call: ast.Call) -> list[str]:
    values = [word.value.id for word in call.keywords if isinstance(word.value, ast.Name)]
    return [*(word.arg for word in call.keywords if word.arg), *values]


def _containers_made(loop: ast.For) -> set[str]:
    """Names that the loop sets to a container: no frame has them yet."""
    displays = (ast.List, ast.Dict, ast.Set, ast.ListComp, ast.DictComp, ast.SetComp)

    def makes(value: ast.expr) -> bool:
        called = value.func if isinstance(value, ast.Call) else None
        return isinstance(value, displays) or getattr(called, "attr", getattr(called, "id", "")) in MAKES

    pairs = [
        pair
        for n in ast.walk(loop)
        if isinstance(n, ast.Assign)
        for target in n.targets
        for pair in _pairs(target, n.value)
    ]
    return {target.id for target, value in pairs if isinstance(target, ast.Name) and makes(value)}


def _pairs(target: ast.expr, value: ast.expr) -> list[tuple[ast.expr, ast.expr]]:
    """(name, value) of an assignment; `a, b = [], 0` has two."""
    if isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple) and len(target.elts) == len(value.elts):
        return list(zip(target.elts, value.elts, strict=True))
    return [(target, value)]


def _changed(loop: ast.For) -> set[str]:
    """Names whose containers are changed in the loop and not made in it."""
    made = {n.id for n in ast.walk(loop) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}
    names = set()
    for node in ast.walk(loop):
        method = node.func if isinstance(node, ast.Call) else None
        if not isinstance(method, ast.Attribute) or method.attr not in CHANGES:
            holder = None
        else:
            holder = method.value
        if isinstance(holder, ast.Name):
            names.add(holder.id)
        if (
            isinstance(node, ast.Subscript)
            and isinstance(node.ctx, ast.Store)
            and isinstance(node.value, ast.Name)
        ):
            names.add(node.value.id)
    return names - made


class _Reader(ast.NodeVisitor):
    """Goes through statements in their order: which names are read before they are set, and set at all."""

    def __init__(self) -> None:
        self.set: set[str] = set()
        self.read_first: dict[str, None] = {}
        self.set_ever: set[str] = set()

    @property
    def carried(self) -> list[str]:
        return [name for name in self.read_first if name in self.set_ever]

    def block(self, statements: list[ast.stmt]) -> None:
        for statement in statements:
            self.visit(statement)

    def visit_Name(self, node: ast.Name) -> None:
        if isinstance(node.ctx, ast.Load):
            if node.id not in self.set:
                self.read_first[node.id] = None
        else:
            self.set.add(node.id)
            self.set_ever.add(node.id)

    def visit_Assign(self, node: ast.Assign) -> None:
        self.visit(node.value)
        for target in node.targets:
            self.visit(target)

    def visit_AugAssign(self, node: ast.AugAssign) -> None:
        self.visit(node.value)
        if isinstance(node.target, ast.Name):
            self.visit_Name(ast.Name(node.target.id, ast.Load()))
        self.visit(node.target)

    def visit_For(self, node: ast.For) -> None:
        self.visit(node.iter)
        self.visit(node.target)
        if _of_engine(node):  # has a batch left in every pass: no save is made after the last one
            self.block(node.body)
        else:
            self._maybe(node.body)

    def visit_While(self, node: ast.While) -> None:
        self.visit(node.test)
        self._maybe(node.body)

    def visit_If(self, node: ast.If) -> None:
        self.visit(node.test)
        before = set(self.set)
        self.block(node.body)
        after_body, self.set = self.set, set(before)
        self.block(node.orelse)
        self.set &= after_body

    def _maybe(self, body: list[ast.stmt]) -> None:
        """A body that may run not at all: what it sets counts as set inside of it only."""
        before = set(self.set)
        self.block(body)
        self.set = before

    def visit_FunctionDef(self, node: ast.FunctionDef) -> None:
        self.set.add(node.name)

    def visit_Lambda(self, node: ast.Lambda) -> None:
        self.visit(node.body)

    def visit_ListComp(self, node: Any) -> None:
        self._comprehension(node)

    visit_SetComp = visit_GeneratorExp = visit_DictComp = visit_ListComp

    def _comprehension(self, node: Any) -> None:
        inside = {n.id for g in node.generators for n in ast.walk(g.target) if isinstance(n, ast.Name)}
        for n in ast.walk(node):
            if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Load) and n.id not in inside:
                self.visit_Name(n)
