"""How much of the whole training is done: from the loops that the calling code stands in,
and how far each of them is.

An iterator does not say where it is, so the text of the script does:
`for epoch in range(1, args.epochs + 1)` and the value of `epoch`.
Nothing of the script's runs for it: no property, no call. Where a loop is not understood, nothing is told.
"""

from __future__ import annotations

import ast
import os
import sys

from ..looks import isinstance
from . import marks

FILE_MAX = 400_000  # bytes of a script that is read: some 80 ms, once
FRAMES_MAX = 40
# frames of libraries between the step and the script's own: more is a framework with loops of its own
FOREIGN_MAX = 4
_BARS = ("tqdm", "track")  # what stands around a range and hands out the same
_PACKAGES = (os.sep + "site-packages" + os.sep, os.sep + "dist-packages" + os.sep)
_OURS = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep
_LOOKS_AT_LOCALS = frozenset(("locals", "vars", "exec", "eval", "dir", "_getframe"))

_FAST = 0x1  # CO_OPTIMIZED: a function, whose variables are in no dictionary

# file -> [(first line, last line, scope, what it goes through)], None where it cannot be read
_loops: dict = {}


class _Unknown(Exception):
    """The text does not tell."""


def done() -> float | None:
    """The part of the training that is done, of 1; asked by a step of the optimizer. None: not known."""
    try:
        loops = [each for frame in reversed(_frames()) for each in _standing_in(frame)]
        part = 0.0
        if loops and loops[-1] is None:  # the innermost may be the way through a loader
            loops.pop()
            way = marks.current
            part = way.batches / way.length if way is not None and way.trained and way.length else 0.0
        if not loops or None in loops:
            return None
        for index, total in reversed(loops):
            part = (index + min(part, 1.0)) / total
        return round(min(part, 1.0), 6)
    except _Unknown:
        return None


def _frames() -> list:
    """The script's own frames that the step was called from, the innermost first."""
    found: list = []
    foreign = 0
    torch = os.path.dirname(sys.modules["torch"].__file__) + os.sep
    frame = sys._getframe(1)
    for _ in range(FRAMES_MAX):
        if frame is None or foreign > FOREIGN_MAX:
            break
        path = frame.f_code.co_filename
        if not path.startswith((_OURS, torch)):
            if any(each in path for each in _PACKAGES) or path.startswith("<frozen"):
                foreign += 1
            else:
                found.append(frame)
        frame = frame.f_back
    return found


def _standing_in(frame: object) -> list:
    """Of each loop of this frame that goes on, the outermost first:
    (index, how often it is gone through), None for one that is not understood.
    Both may be fractions where a loop counts by itself."""
    path = frame.f_code.co_filename
    if path not in _loops:
        _loops[path] = _read(path)
    here = [
        each
        for each in _loops[path] or ()
        if each[0] <= frame.f_lineno <= each[1] and _is_scope_of(each[2], frame.f_code)
    ]
    if not here:
        return []
    names = _Names(frame)
    try:
        return [
            _where(through, names) for _, _, _, through in sorted(here, key=lambda each: (each[0], -each[1]))
        ]
    finally:
        names.close()


def _read(path: str) -> list | None:
    """All loops of a file. It is read below `open`, which exact resume watches."""
    from importlib.machinery import SourceFileLoader
    try:
        data = SourceFileLoader("stoker", path).get_data(path)
        return _collected(ast.parse(data)) if len(data) <= FILE_MAX else None
    except (OSError, SyntaxError, ValueError, RecursionError):
        return None


def _collected(tree: ast.AST) -> list:
    """What it goes through: (target, iterable) of a `for`, a list of (counter, limit) of a `while`.
    The rest of the text is let go."""
    found, waiting = [], [(tree, ("<module>", 0))]
    while waiting:
        node, scope = waiting.pop()
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            first = min([node.lineno, *(d.lineno for d in node.decorator_list)])
            scope = (node.name, first)
        elif isinstance(node, (ast.ClassDef, ast.Lambda)):
            scope = (getattr(node, "name", "<lambda>"), node.lineno)
        elif isinstance(node, (ast.For, ast.While)):
            through = (node.target, node.iter) if isinstance(node, ast.For) else _limits(node)
            found.append((node.lineno, max(each.end_lineno or 0 for each in node.body), scope, through))
        waiting += [(child, scope) for child in ast.iter_child_nodes(node)]
    return found


def _is_scope_of(scope: tuple, code: object) -> bool:
    return scope[0] == code.co_name and (scope[0] == "<module>" or scope[1] == code.co_firstlineno)


# ---- one loop

def _where(through: tuple | list, names: _Names) -> tuple | None:
    try:
        return _of_for(*through, names) if isinstance(through, tuple) else _of_while(through, names)
    except _Unknown:
        return None


def _of_for(target: ast.AST, iterable: ast.AST, names: _Names) -> tuple:
    """`for epoch in range(...)`, a bar around it, `for i, x in enumerate(...)` of something with a length."""
    what = _bare(iterable)
    if (
        isinstance(what, ast.Call)
        and _name_of(what.func) == "enumerate"
        and isinstance(target, ast.Tuple)
        and what.args
    ):
        inner = _bare(what.args[0])
        if isinstance(inner, ast.Call):
            start, stop, step = _range(inner, names)
            total = len(range(start, stop, step))
        else:
            total = _length(names.value(inner))
        begins = [*what.args[1:], *(each.value for each in what.keywords)]
        first = names.number(begins[0]) if begins else 0
        return _checked(names.number(target.elts[0]) - first, total)
    if not isinstance(what, ast.Call) or not isinstance(target, ast.Name):
        raise _Unknown
    start, stop, step = _range(what, names)
    return _checked((names.number(target) - start) // step, len(range(start, stop, step)))


def _bare(node: ast.AST) -> ast.AST:
    """Without the bar around it."""
    while isinstance(node, ast.Call) and _name_of(node.func) in _BARS and node.args:
        node = node.args[0]
    return node


def _range(call: ast.Call, names: _Names) -> tuple[int, int, int]:
    if _name_of(call.func) not in ("range", "trange") or not call.args:
        raise _Unknown
    values = [names.number(each) for each in call.args]
    if not all(type(each) is int for each in values) or (len(values) == 3 and not values[2]):
        raise _Unknown
    return (
        (0, values[0], 1) if len(values) == 1 else (values[0], values[1], values[2] if len(values) > 2 else 1)
    )


def _of_while(limits: list, names: _Names) -> tuple:
    """How far the counter is that is nearest to its limit."""
    parts = []
    for counter, limit in limits:
        count, last = names.number(counter), names.number(limit)
        if last > 0 and 0 <= count <= last + 1:
            parts.append((min(count, last), last))
    if not parts:
        raise _Unknown
    return max(parts, key=lambda part: part[0] / part[1])


def _limits(loop: ast.While) -> list:
    """(counter, limit) of `while step < last:` and of a `break` behind `if step > last:`.
    The counter is one that the loop only adds to."""
    tests = [(loop.test, (ast.Lt, ast.LtE)), *((test, (ast.Gt, ast.GtE)) for test in _breaks(loop))]
    return [
        (test.left, test.comparators[0])
        for test, ways in tests
        if isinstance(test, ast.Compare)
        and len(test.ops) == 1
        and isinstance(test.ops[0], ways)
        and _only_grows(test.left, loop)
    ]


def _breaks(loop: ast.While) -> list:
    """The tests of all `if ...: break` of this loop itself."""
    found, waiting = [], list(loop.body)
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.If):
            if any(isinstance(each, ast.Break) for each in node.body):
                found.append(node.test)
            waiting += [*node.body, *node.orelse]
        elif isinstance(node, (ast.With, ast.Try)):
            waiting += node.body
    return found


def _only_grows(counter: ast.AST, loop: ast.While) -> bool:
    text, grows = ast.dump(_loaded(counter)), False
    for node in ast.walk(loop):
        if isinstance(node, ast.AugAssign) and ast.dump(_loaded(node.target)) == text:
            if not isinstance(node.op, ast.Add):
                return False
            grows = True
        elif isinstance(node, ast.Assign) and any(ast.dump(_loaded(each)) == text for each in node.targets):
            return False
    return grows


def _loaded(node: ast.AST) -> ast.AST:
    """The same name or attribute, as if it were read."""
    if isinstance(node, ast.Name):
        return ast.Name(node.id, ast.Load())
    return ast.Attribute(node.value, node.attr, ast.Load()) if isinstance(node, ast.Attribute) else node


def _checked(index: int, total: int) -> tuple[int, int]:
    if not 0 <= index < total:
        raise _Unknown
    return index, total


def _name_of(node: ast.AST) -> str:
    return node.id if isinstance(node, ast.Name) else node.attr if isinstance(node, ast.Attribute) else ""


def _length(value: object) -> int:
    """Of something whose length runs none of the script's code."""
    if type(value) in (list, tuple, range, dict):
        return len(value)
    raise _Unknown


# ---- values of names

class _Names:
    """What the names of a frame stand for. Before Python 3.13 to look at locals makes a dictionary of them,
    which is kept, and holds what the function would have let go: it is emptied again.
    A function that asks for it by itself is not looked into."""

    def __init__(self, frame: object) -> None:
        code = frame.f_code
        self._globals, self._close = frame.f_globals, False
        if code.co_name == "<module>":
            self._locals: object = frame.f_globals
            return
        if not code.co_flags & _FAST:
            raise _Unknown
        if sys.version_info < (3, 13):
            if _LOOKS_AT_LOCALS & {*code.co_names} or frame.f_trace is not None or sys.gettrace() is not None:
                raise _Unknown
            self._close = True
        self._locals = frame.f_locals

    def close(self) -> None:
        if self._close:
            self._locals.clear()

    def number(self, node: ast.AST) -> int | float:
        """The value of a plain sum. Raises _Unknown."""
        if isinstance(node, ast.BinOp):
            left, right = self.number(node.left), self.number(node.right)
            if isinstance(node.op, (ast.FloorDiv, ast.Div)) and not right:
                raise _Unknown
            for kind, act in _SUMS.items():
                if isinstance(node.op, kind):
                    return act(left, right)
            raise _Unknown
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
            return -self.number(node.operand)
        if (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Name)
            and len(node.args) == 1
            and not node.keywords
        ):
            if node.func.id == "len":
                return _length(self.value(node.args[0]))
            if node.func.id == "int":
                return int(self.number(node.args[0]))
            raise _Unknown
        value = self.value(node)
        if type(value) not in (int, float):
            raise _Unknown
        return value

    def value(self, node: ast.AST) -> object:
        """What a name, an attribute or an entry of a dictionary stands for."""
        if isinstance(node, ast.Constant):
            return node.value
        if isinstance(node, ast.Name):
            for names in (self._locals, self._globals):
                if node.id in names:
                    return names[node.id]
        elif isinstance(node, ast.Attribute):
            from inspect import getattr_static
            return getattr_static(self.value(node.value), node.attr, None)
        elif isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Constant):
            holder = self.value(node.value)
            if type(holder) is dict and node.slice.value in holder:
                return holder[node.slice.value]
        raise _Unknown


_SUMS = {
    ast.Add: lambda a, b: a + b,
    ast.Sub: lambda a, b: a - b,
    ast.Mult: lambda a, b: a * b,
    ast.FloorDiv: lambda a, b: a // b,
    ast.Div: lambda a, b: a / b,
}
