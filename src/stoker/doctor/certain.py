"""Which calls of a script are reached whenever it runs. Leaves out what a condition, a loop, a with or a try
decides: such calls may still be reached."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence

from stoker.doctor.source import is_main_test

_LEAVES = frozenset({"exit", "_exit", "quit", "abort", "SystemExit", "execv", "execve", "execvp", "execl"})
_DECIDES = (ast.Lambda, ast.IfExp, ast.BoolOp, ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)
_DEFINES = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
_SIMPLE = (ast.Expr, ast.Assign, ast.AnnAssign, ast.AugAssign, ast.Return, ast.Delete)
_YIELDS = (ast.Yield, ast.YieldFrom)


def calls(tree: ast.Module) -> set[ast.Call]:
    """The calls at the top of a file, and in its own functions that are called there, up to the first
    condition under which the script may end early."""
    flow = _Flow(tree)
    flow.follow(tree.body)
    return flow.found


class _Flow:
    """found: the calls that were reached so far."""

    def __init__(self, tree: ast.Module) -> None:
        self.found: set[ast.Call] = set()
        self._functions = _functions(tree)
        self._leaving = _leaving(self._functions)
        self._entered: set[str] = set()

    def follow(self, body: Sequence[ast.stmt]) -> bool:
        """Go through these statements. False where what comes after them may not be reached."""
        for node in body:
            if isinstance(node, _DEFINES):
                continue
            if isinstance(node, ast.If) and is_main_test(node.test):
                if not self.follow(node.body):
                    return False
            elif isinstance(node, _SIMPLE):
                if not self._simple(node):
                    return False
            elif isinstance(node, ast.Raise) or self._may_leave(node):
                return False
        return True

    def _simple(self, node: ast.stmt) -> bool:
        for call in _reached(node):
            name = call.func.id if isinstance(call.func, ast.Name) else ""
            if name in self._functions and name not in self._entered:
                self._entered.add(name)
                self.follow(self._functions[name].body)
            self.found.add(call)
        return not isinstance(node, ast.Return) and not self._may_leave(node)

    def _may_leave(self, node: ast.stmt) -> bool:
        """May the script, or the function around this statement, end well in it?"""
        returns = any(isinstance(each, ast.Return) for each in ast.walk(node))
        return returns or bool(_names(node) & (_LEAVES | self._leaving))


def _functions(tree: ast.Module) -> dict[str, ast.FunctionDef]:
    """The functions of a file that a call by name surely runs: bound once, not decorated, no generators."""
    names = [each for each in ast.walk(tree) if isinstance(each, ast.Name)]
    bound = [each.id for each in names if isinstance(each.ctx, ast.Store)]
    bound += [each.name for each in ast.walk(tree) if isinstance(each, _DEFINES)]
    return {
        each.name: each
        for each in tree.body
        if isinstance(each, ast.FunctionDef)
        and not each.decorator_list
        and bound.count(each.name) == 1
        and not any(isinstance(inner, _YIELDS) for inner in ast.walk(each))
    }


def _leaving(functions: dict[str, ast.FunctionDef]) -> set[str]:
    """Those of the functions that may end the script, themselves or through another of them."""
    names = {name: _names(each) for name, each in functions.items()}
    found = {name for name, used in names.items() if used & _LEAVES}
    while more := {name for name, used in names.items() if name not in found and used & found}:
        found |= more
    return found


def _names(node: ast.AST) -> set[str]:
    found = {each.id for each in ast.walk(node) if isinstance(each, ast.Name)}
    return found | {each.attr for each in ast.walk(node) if isinstance(each, ast.Attribute)}


def _reached(node: ast.AST) -> Iterator[ast.Call]:
    """The calls of a statement that no part of it may skip; arguments before the call that takes them."""
    for child in ast.iter_child_nodes(node):
        if not isinstance(child, _DECIDES):
            yield from _reached(child)
    if isinstance(node, ast.Call):
        yield node
