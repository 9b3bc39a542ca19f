"""Ready diffs for changes that are mechanical: one line, seen in the source. Offered, never applied;
"" where the change needs thought."""

from __future__ import annotations

import ast
import difflib
import os
import re

from stoker.tune.findings import Cause
from stoker.tune.reading import Reading

EVERY = {"logging": 50, "checkpoint": 500, "validation": 500}
_COUNTER = re.compile(r"step|iter|batch|(^|_)i(dx)?$|^n$|count", re.IGNORECASE)


def offer(reading: Reading, cause: Cause) -> str:
    """The unified diff for a cause; "" where none can be given. What comes out parses as Python."""
    real = os.path.realpath(cause.file) if cause.file else ""
    text = reading.sources.get(real)
    if not text or not cause.line:
        return ""
    if cause.name in EVERY and reading.place(cause.file, cause.line).seldom:
        return ""  # it is done each N steps already
    lines = text.splitlines(keepends=True)
    changed = _CHANGES.get(cause.name, _nothing)(lines, cause.line, cause.name)
    if changed is None or changed == lines:
        return ""
    try:
        ast.parse("".join(changed))
    except SyntaxError:
        return ""
    name = os.path.basename(real)
    return "".join(difflib.unified_diff(lines, changed, f"a/{name}", f"b/{name}", n=2))


def _nothing(lines: list[str], line: int, name: str) -> list[str] | None:
    return None


def _item(lines: list[str], line: int, name: str) -> list[str] | None:
    """`total += loss.item()` -> `total += loss.detach()`: the sum stays on the device until it is read."""
    node = _statement(lines, line)
    sums = isinstance(node, ast.AugAssign) or (
        isinstance(node, ast.Assign) and isinstance(node.value, ast.BinOp)
    )
    if not sums or lines[line - 1].count(".item()") != 1:
        return None
    return _with(lines, line, lines[line - 1].replace(".item()", ".detach()"))


def _without(lines: list[str], line: int, name: str) -> list[str] | None:
    """The call is taken out; a block that would be empty keeps a `pass`."""
    node = _statement(lines, line)
    if not isinstance(node, ast.Expr) or node.lineno != node.end_lineno:
        return None
    gone = _with(lines, line, "")
    try:
        ast.parse("".join(gone))
        return gone
    except SyntaxError:
        return _with(lines, line, _indent(lines[line - 1]) + "pass\n")


def _seldom(lines: list[str], line: int, name: str) -> list[str] | None:
    """The statement is done each N steps, by a counter that is there already."""
    node = _statement(lines, line)
    counter = _counter(lines, line)
    if counter is None or not isinstance(node, ast.Expr | ast.Assign) or node.lineno != line:
        return None
    indent = _indent(lines[line - 1])
    step = "\t" if indent.endswith("\t") else "    "
    body = [step + text if text.strip() else text for text in lines[line - 1: node.end_lineno]]
    return [
        *lines[: line - 1],
        f"{indent}if {counter} % {EVERY[name]} == 0:\n",
        *body,
        *lines[node.end_lineno :],
    ]


def _drop(lines: list[str], line: int, name: str) -> list[str] | None:
    """Gradients are dropped instead of being filled."""
    old = lines[line - 1]
    if "set_to_none=False" in old.replace(" ", ""):
        return _with(lines, line, re.sub(r"set_to_none\s*=\s*False", "set_to_none=True", old))
    new = re.sub(r"(\b[\w.]+\.grad)(\.data)?\.(zero_\(\)|fill_\(0(\.0)?\))", r"\1 = None", old)
    return _with(lines, line, new) if new != old else None


def _detach(lines: list[str], line: int, name: str) -> list[str] | None:
    """`losses.append(loss)` -> `losses.append(loss.detach())`."""
    node = _statement(lines, line)
    call = node.value if isinstance(node, ast.Expr) else None
    if (
        not isinstance(call, ast.Call)
        or getattr(call.func, "attr", "") != "append"
        or not isinstance(call.args[0], ast.Name)
    ):
        return None
    return _with(
        lines, line, lines[line - 1].replace(f"({call.args[0].id})", f"({call.args[0].id}.detach())")
    )


_CHANGES = {
    "sync": _item,
    "cleanup": _without,
    "anomaly": _without,
    "logging": _seldom,
    "checkpoint": _seldom,
    "validation": _seldom,
    "zero_grad": _drop,
    "graph_kept": _detach,
}


def _indent(text: str) -> str:
    return text[: len(text) - len(text.lstrip())]


def _with(lines: list[str], line: int, new: str) -> list[str]:
    return [*lines[: line - 1], *([new] if new else []), *lines[line:]]


def _statement(lines: list[str], line: int) -> ast.stmt | None:
    """The innermost statement that a line is part of."""
    found = [
        n
        for n in ast.walk(ast.parse("".join(lines)))
        if isinstance(n, ast.stmt) and n.lineno <= line <= (n.end_lineno or n.lineno)
    ]
    return max(found, key=lambda n: n.lineno, default=None)


def _counter(lines: list[str], line: int) -> str | None:
    """A name that counts in the loop around a line: of enumerate(...), or one that `+= 1` raises."""
    loops = [n for n in ast.walk(ast.parse("".join(lines))) if isinstance(n, ast.For | ast.While)]
    around = [n for n in loops if n.lineno < line <= (n.end_lineno or 0)]
    for loop in sorted(around, key=lambda n: -n.lineno)[:1]:
        if (
            isinstance(loop, ast.For)
            and isinstance(loop.iter, ast.Call)
            and getattr(loop.iter.func, "id", "") == "enumerate"
            and isinstance(loop.target, ast.Tuple)
            and isinstance(loop.target.elts[0], ast.Name)
        ):
            return loop.target.elts[0].id
        if (
            isinstance(loop, ast.For)
            and isinstance(loop.iter, ast.Call)
            and getattr(loop.iter.func, "id", "") in ("range", "trange")
            and isinstance(loop.target, ast.Name)
        ):
            return loop.target.id
        for node in ast.walk(loop):
            if (
                isinstance(node, ast.AugAssign)
                and isinstance(node.op, ast.Add)
                and isinstance(node.value, ast.Constant)
                and node.value.value == 1
                and _COUNTER.search(ast.unparse(node.target))
            ):
                return ast.unparse(node.target)
    return None
