"""Follows names through one Python file without running it:
what may a name stand for, which function does a call reach.

Knows Python, not training. An answer of `UNKNOWN` means that nobody can say from this file alone;
who asks must then hold his tongue.
"""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

from stoker.doctor.reader import dotted

UNKNOWN = None
Function = ast.FunctionDef | ast.AsyncFunctionDef
Scope = ast.Module | ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda | ast.ClassDef
Loop = ast.For | ast.AsyncFor | ast.While
_DEPTH = 8  # names behind names; deeper is unknown
_MANY = 12  # origins or call sites; more is unknown


@dataclass(frozen=True)
class Binding:
    """One place where a name gets a value. value:
    UNKNOWN where it comes from a loop, an import or `+=`. index: its place in a tuple."""

    node: ast.AST
    value: ast.expr | None
    index: int | None = None
    adds: bool = False  # `+=` and its like


class Program:
    """One parsed file and its names."""

    def __init__(self, tree: ast.Module, text: str = "") -> None:
        self.tree, self.text = tree, text
        self.parents: dict[ast.AST, ast.AST] = {
            child: node for node in ast.walk(tree) for child in ast.iter_child_nodes(node)
        }
        self.nodes = list(ast.walk(tree))
        self.calls = [n for n in self.nodes if isinstance(n, ast.Call)]
        self.loops = [n for n in self.nodes if isinstance(n, Loop)]
        self.functions = [n for n in self.nodes if isinstance(n, Function)]
        self.classes = {n.name: n for n in self.nodes if isinstance(n, ast.ClassDef)}
        self._scopes: dict[ast.AST, Scope] = {}
        self._origins: dict[tuple[ast.AST, int], list[ast.expr | None]] = {}
        # function -> the calls in this file that surely reach it
        self.sites: dict[ast.AST, list[ast.Call]] = {}
        for _ in range(2):  # the second time with what is known of parameters
            self.sites = self._find_sites()
            self._origins.clear()

    # --- names as Python resolves them
    # ---------------------------------------------------------------------------------------

    @cached_property
    def aliases(self) -> dict[str, str]:
        """Imported name -> what it is called where it comes from."""
        found: dict[str, str] = {}
        for node in self.nodes:
            if isinstance(node, ast.Import):
                found |= {
                    a.asname or a.name.split(".")[0]: a.name if a.asname else a.name.split(".")[0]
                    for a in node.names
                }
            elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
                found |= {a.asname or a.name: f"{node.module}.{a.name}" for a in node.names}
        return found

    def name(self, node: ast.expr) -> str:
        """The dotted name of a function or class with imports undone: "torch.nn.Linear";
        "" for what has none."""
        first, dot, rest = dotted(node).partition(".")
        return self.aliases.get(first, first) + dot + rest

    def scope(self, node: ast.AST) -> Scope:
        """The function, lambda, class body or module a node stands in."""
        if node not in self._scopes:
            at = self.parents.get(node, self.tree)
            came = node
            while not isinstance(at, Scope) or (isinstance(at, Function) and came not in at.body) or (
                    # decorators and defaults belong outside
                    isinstance(at, ast.ClassDef) and came not in at.body):
                came, at = at, self.parents[at]
            self._scopes[node] = at
        return self._scopes[node]

    def statement(self, node: ast.AST) -> ast.stmt:
        """The innermost statement a node is part of."""
        while not isinstance(node, ast.stmt):
            node = self.parents[node]
        return node

    def around(self, node: ast.AST) -> Iterator[ast.AST]:
        """The nodes a node stands in, from the inside to the outside."""
        while node in self.parents:
            node = self.parents[node]
            yield node

    def within(self, node: ast.AST, outer: ast.AST) -> bool:
        """True when `node` stands in `outer`."""
        return node is outer or any(n is outer for n in self.around(node))

    def dead(self, node: ast.AST) -> bool:
        """True for what stands under `if False`."""
        came = node
        for outer in self.around(node):
            if isinstance(outer, ast.If | ast.IfExp) and isinstance(outer.test, ast.Constant):
                body = outer.body if isinstance(outer.body, list) else [outer.body]
                if came is not outer.test and (came in body) != bool(outer.test.value):
                    return True
            came = outer
        return False

    def owner(self, function: ast.AST) -> ast.ClassDef | None:
        """The class whose method a function is."""
        return next((n for n in (function, *self.around(function)) if isinstance(n, ast.ClassDef)), None)

    @cached_property
    def bindings(self) -> dict[tuple[Scope, str], list[Binding]]:
        """(scope, name) -> where it is bound, in order of lines. `self.x` is kept under (class, "self.x")."""
        found: dict[tuple[Scope, str], list[Binding]] = defaultdict(list)
        shared = {
            (self.scope(n), name): self.tree
            for n in self.nodes
            if isinstance(n, ast.Global)
            for name in n.names
        }
        for node in self.nodes:
            for target, value, index, adds in _targets(node):
                scope = self.scope(node)
                name = dotted(target)
                if name.startswith("self.") and name.count(".") == 1 and (owner := self.owner(node)):
                    found[owner, name].append(Binding(node, value, index, adds))
                elif isinstance(target, ast.Name):
                    found[shared.get((scope, name), scope), name].append(Binding(node, value, index, adds))
            if isinstance(node, Function | ast.ClassDef):
                found[self.scope(node), node.name].append(Binding(node, UNKNOWN))
        for bound in found.values():
            bound.sort(key=lambda b: (getattr(b.node, "lineno", 0), getattr(b.node, "col_offset", 0)))
        return found

    def reaching(self, node: ast.Name) -> list[Binding | ast.arg]:
        """The bindings whose value a name may hold where it is read;
        empty for a name that this file does not bind."""
        scope: Scope = self.scope(node)
        here = self.bindings.get((scope, node.id), [])
        args = _parameter(scope, node.id)
        if here:
            found, sure = self._before(node, scope, here)
            return [*found] if sure or args is None else [*found, args]
        if args is not None:
            return [args]
        while not isinstance(scope, ast.Module):
            scope = self.scope(scope)
            if isinstance(scope, ast.ClassDef):
                continue
            if outer := self.bindings.get((scope, node.id)):
                return list(outer)
            if (args := _parameter(scope, node.id)) is not None:
                return [args]
        return []

    def _before(self, node: ast.Name, scope: Scope, here: list[Binding]) -> tuple[list[Binding], bool]:
        """The bindings that can come last before `node`, walking backwards;
        True when one of them surely ran."""
        found: list[Binding] = []
        at: ast.AST = self.statement(node)
        if isinstance(at, ast.While):
            found += [b for b in here if self.within(b.node, at)]
        while at is not scope and at in self.parents:
            parent = self.parents[at]
            block = next((b for _, b in ast.iter_fields(parent) if isinstance(b, list) and at in b), [at])
            for sibling in reversed(block[:block.index(at)]):
                inside = [b for b in here if self.within(b.node, sibling)]
                found += [b for b in inside if b not in found]
                if inside and _surely(sibling, {b.node for b in inside if not b.adds}):
                    return found, True
            if isinstance(parent, Loop) and at in parent.body:
                own = [b for b in here if b.node is parent]
                if own:
                    return found + own, True
                found += [b for b in here if self.within(b.node, parent) and b not in found]
            elif isinstance(parent, ast.With | ast.AsyncWith) and (
                own := [b for b in here if b.node is parent]
            ):
                return found + own, True
            elif isinstance(parent, ast.Try) and at not in parent.body:
                found += [
                    b for b in here if any(self.within(b.node, s) for s in parent.body) and b not in found
                ]
            at = parent
        return found, False

    # --- what a name stands for
    # ----------------------------------------------------------------------------------------------

    def origins(self, node: ast.expr, depth: int = _DEPTH) -> list[ast.expr | None]:
        """The expressions, no names any more, that `node` may stand for;
        UNKNOWN among them for each way that leads out of sight."""
        key = (node, depth)
        if key not in self._origins:
            self._origins[key] = [UNKNOWN]  # what leads back to itself is unknown
            found = list(dict.fromkeys(self._resolve(node, depth)))
            self._origins[key] = found if len(found) <= _MANY else [UNKNOWN]
        return self._origins[key]

    def _resolve(self, node: ast.expr, depth: int) -> Iterator[ast.expr | None]:
        if depth <= 0:
            yield UNKNOWN
        elif isinstance(node, ast.IfExp):
            yield from self.origins(node.body, depth - 1)
            yield from self.origins(node.orelse, depth - 1)
        elif isinstance(node, ast.NamedExpr):
            yield from self.origins(node.value, depth - 1)
        elif isinstance(node, ast.Name):
            held = self.reaching(node)
            yield from (
                (o for b in held for o in self._bound(b, node, depth - 1)) if held else (UNKNOWN,)
            )
        elif isinstance(node, ast.Attribute):
            owner = self.owner(node)
            bound = (
                self.bindings.get((owner, dotted(node)), [])
                if owner and dotted(node).startswith("self.")
                else []
            )
            real = [b for b in bound if not (isinstance(b.value, ast.Constant) and b.value.value is None)]
            bound = real or bound  # `self.x = None` only keeps the place free
            yield from (o for b in bound for o in self._bound(b, node, depth - 1)) if bound else (UNKNOWN,)
        elif isinstance(node, ast.Call) and (
            reached := [f for f in self.reached(node) if f.name != "__init__"]
        ):
            yield from (o for f in reached for o in self._returned(f, None, depth - 1))
        else:
            yield node

    def _bound(self, bound: Binding | ast.arg, node: ast.expr, depth: int) -> Iterator[ast.expr | None]:
        if isinstance(bound, ast.arg):
            yield from (
                o
                for given in self.given(bound)
                for o in (self.origins(given, depth) if given is not UNKNOWN else [UNKNOWN])
            )
        elif bound.adds or bound.value is UNKNOWN:
            yield UNKNOWN
        elif bound.index is None:
            yield from self.origins(bound.value, depth)
        else:
            yield from self._element(bound.value, bound.index, depth)

    def _element(self, value: ast.expr, index: int, depth: int) -> Iterator[ast.expr | None]:
        """The origins of one place of a tuple."""
        if (
            isinstance(value, ast.Tuple | ast.List)
            and index < len(value.elts)
            and not any(isinstance(e, ast.Starred) for e in value.elts)
        ):
            yield from self.origins(value.elts[index], depth)
        elif isinstance(value, ast.Call) and (
            reached := [f for f in self.reached(value) if f.name != "__init__"]
        ):
            yield from (o for f in reached for o in self._returned(f, index, depth))
        else:
            yield UNKNOWN

    def returns(self, function: ast.AST) -> list[ast.expr | None]:
        """What a function's return statements give; UNKNOWN for a bare one."""
        return [
            n.value for n in ast.walk(function) if isinstance(n, ast.Return) and self.scope(n) is function
        ]

    def _returned(self, function: ast.AST, index: int | None, depth: int) -> Iterator[ast.expr | None]:
        values = self.returns(function)
        for value in values or [UNKNOWN]:
            if value is UNKNOWN or depth <= 0:
                yield UNKNOWN
            elif index is not None:
                yield from self._element(value, index, depth - 1)
            else:
                yield from self.origins(value, depth - 1)

    # --- calls
    # --------------------------------------------------------------------------------------------------------

    def reached(self, call: ast.Call) -> list[ast.FunctionDef | ast.AsyncFunctionDef]:
        """The functions of this file that a call may run; for a class its `__init__`.
        Empty where none is known for sure."""
        func = call.func
        if isinstance(func, ast.Name):
            found = [
                b.node for b in self.reaching(func) if isinstance(b, Binding) and isinstance(b.node, Function)
            ]
            if not found and func.id in self.classes:
                found = self.methods(self.classes[func.id], "__init__")
            return found
        if not isinstance(func, ast.Attribute):
            return []
        if isinstance(func.value, ast.Name) and func.value.id in ("self", "cls"):
            owner = self.owner(call)
            return self.methods(owner, func.attr) if owner else []
        made = self.classes_of(func.value)
        return [f for c in made for f in self.methods(c, func.attr)]

    def classes_of(self, node: ast.expr) -> list[ast.ClassDef]:
        """The classes of this file that a value is surely an instance of;
        empty where it may be something else."""
        if isinstance(node, ast.Attribute) and not dotted(node).startswith("self."):
            return []
        key = (node, -1)
        if key in self._origins:
            return []
        self._origins[key] = [UNKNOWN]  # asked again while it is being answered: unknown
        try:
            found = [
                self.classes.get(o.func.id)
                if isinstance(o, ast.Call) and isinstance(o.func, ast.Name)
                else None
                for o in self.origins(node, 5)
            ]
        finally:
            del self._origins[key]
        return [c for c in found if c] if all(found) else []

    def methods(self, owner: ast.ClassDef, name: str) -> list[ast.FunctionDef | ast.AsyncFunctionDef]:
        """The method a class of this file has or inherits within it; none or one."""
        for _ in range(5):
            found = next((n for n in owner.body if isinstance(n, Function) and n.name == name), None)
            if found:
                return [found]
            base = next((self.classes[dotted(b)] for b in owner.bases if dotted(b) in self.classes), None)
            if base is None or base is owner:
                return []
            owner = base
        return []

    def _find_sites(self) -> dict[ast.AST, list[ast.Call]]:
        found: dict[ast.AST, list[ast.Call]] = defaultdict(list)
        for call in self.calls:
            for function in self.reached(call):
                found[function].append(call)
        return found

    def given(self, arg: ast.arg) -> list[ast.expr | None]:
        """What the calls in this file give for a parameter; UNKNOWN where none does."""
        function = self.parents[self.parents[arg]]
        if not isinstance(function, Function):
            return [UNKNOWN]
        sites = self.sites.get(function, [])
        if not sites or len(sites) > _MANY:
            return [UNKNOWN]
        method = isinstance(self.scope(function), ast.ClassDef)
        return [_argument(function, arg, call, method) for call in sites]

    # --- values
    # --------------------------------------------------------------------------------------------------------

    def value(self, node: ast.expr | None) -> object:
        """The constant an expression stands for, defaults of argparse options among them;
        None where it is not one."""
        if node is None:
            return None
        if isinstance(node, ast.Attribute) and not dotted(node).startswith("self."):
            return self.options.get(node.attr)
        found = {o.value if isinstance(o, ast.Constant) else None for o in self.origins(node)}
        return next(iter(found)) if len(found) == 1 else None

    @cached_property
    def options(self) -> dict[str, object]:
        """Option of argparse -> its default."""
        found: dict[str, object] = {}
        for call in self.calls:
            if not isinstance(call.func, ast.Attribute) or call.func.attr != "add_argument":
                continue
            flags = [a.value for a in call.args if isinstance(a, ast.Constant) and isinstance(a.value, str)]
            name = (
                next((f for f in flags if f.startswith("--")), flags[0] if flags else "")
                .lstrip("-")
                .replace("-", "_")
            )
            default = keyword(call, "default")
            if name and isinstance(default, ast.Constant):
                found[name] = default.value
        return found


def keyword(call: ast.Call, name: str, place: int | None = None) -> ast.expr | None:
    """What a call gives as `name`, by name or at a place; None for nothing."""
    named = next((k.value for k in call.keywords if k.arg == name), None)
    if (
        named is not None
        or place is None
        or len(call.args) <= place
        or any(isinstance(a, ast.Starred) for a in call.args[: place + 1])
    ):
        return named
    return call.args[place]


def names_in(node: ast.AST) -> set[str]:
    """All plain names that an expression reads."""
    return {n.id for n in ast.walk(node) if isinstance(n, ast.Name)}


def _targets(node: ast.AST) -> Iterator[tuple[ast.expr, ast.expr | None, int | None, bool]]:
    """(target, value, place in the value, is it `+=`) for everything a node binds."""
    if isinstance(node, ast.Assign):
        for target in node.targets:
            yield from _unpacked(target, node.value)
    elif isinstance(node, ast.AnnAssign | ast.NamedExpr):
        if node.value is not None:
            yield node.target, node.value, None, False
    elif isinstance(node, ast.AugAssign):
        yield node.target, UNKNOWN, None, True
    elif isinstance(node, ast.For | ast.AsyncFor | ast.comprehension):
        yield from ((t, UNKNOWN, None, False) for t, *_ in _unpacked(node.target, UNKNOWN))
    elif isinstance(node, ast.With | ast.AsyncWith):
        for item in node.items:
            if item.optional_vars is not None:
                yield from ((t, UNKNOWN, None, False) for t, *_ in _unpacked(item.optional_vars, UNKNOWN))


def _surely(statement: ast.AST, binders: set[ast.AST]) -> bool:
    """True when one of `binders` runs whenever the statement does."""
    if isinstance(statement, ast.If):
        return all(any(_surely(s, binders) for s in branch) for branch in (statement.body, statement.orelse))
    if isinstance(statement, ast.With | ast.AsyncWith):
        return statement in binders or any(_surely(s, binders) for s in statement.body)
    return statement in binders and not isinstance(statement, Loop)


def _unpacked(
    target: ast.expr, value: ast.expr | None
) -> Iterator[tuple[ast.expr, ast.expr | None, int | None, bool]]:
    if not isinstance(target, ast.Tuple | ast.List):
        yield target, value, None, False
        return
    starred = any(isinstance(e, ast.Starred) for e in target.elts)
    for n, element in enumerate(target.elts):
        if isinstance(element, ast.Tuple | ast.List | ast.Starred):
            yield from (
                (t, UNKNOWN, None, False) for t, *_ in _unpacked(getattr(element, "value", element), UNKNOWN)
            )
        else:
            yield element, UNKNOWN if starred else value, None if value is UNKNOWN or starred else n, False


def _parameters(function: ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda) -> Sequence[ast.arg]:
    return [*function.args.posonlyargs, *function.args.args, *function.args.kwonlyargs]


def _parameter(scope: Scope, name: str) -> ast.arg | None:
    if not isinstance(scope, Function | ast.Lambda):
        return None
    more = [a for a in (scope.args.vararg, scope.args.kwarg) if a]
    return next((a for a in [*_parameters(scope), *more] if a.arg == name), None)


def _argument(function: Function, arg: ast.arg, call: ast.Call, method: bool) -> ast.expr | None:
    """What one call gives for a parameter, its default included; UNKNOWN behind stars."""
    if any(isinstance(a, ast.Starred) for a in call.args) or any(k.arg is None for k in call.keywords):
        return UNKNOWN
    named = next((k.value for k in call.keywords if k.arg == arg.arg), None)
    if named is not None:
        return named
    ordered = [*function.args.posonlyargs, *function.args.args]
    static = any(dotted(d) == "staticmethod" for d in function.decorator_list)
    places = ordered[1:] if method and not static else ordered
    if arg in places and places.index(arg) < len(call.args):
        return call.args[places.index(arg)]
    if arg in ordered and (from_end := len(ordered) - ordered.index(arg)) <= len(function.args.defaults):
        return function.args.defaults[-from_end]
    if arg in function.args.kwonlyargs:
        return function.args.kw_defaults[function.args.kwonlyargs.index(arg)]
    return UNKNOWN
