"""What a user of another tool has to write into a training script before that tool can look at it,
done by machine.

For benchmarks/rivals.py. An edit is of the text, so that its lines can be counted;
what the benchmark itself needs (an early end) is not counted.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass

Loop = ast.For


@dataclass
class Edited:
    """A script as its user would have changed it."""

    source: str
    lines: int  # written anew
    moved: int = 0  # that only got another indentation


class CannotEditError(Exception):
    """The tool has no place for this script; the text says why."""


# --- the step and its names
# --------------------------------------------------------------------------------------------------

@dataclass
class Training:
    """Where a script trains: its innermost loop, and the words for model, optimizer and loader."""

    loop: Loop
    scope: ast.AST  # the function (or module) that the loop stands in
    model: str
    optimizer: str
    loader: ast.expr | None
    loss: str


def training(source: str) -> Training:
    """Find the training step by its backward(), as a reader does."""
    tree = ast.parse(source)
    loops = [n for n in ast.walk(tree) if isinstance(n, Loop)]
    trains = [n for n in loops if _calls(n, {"backward"})]
    if not trains:  # the step is a function of its own
        steps = {f.name for f in ast.walk(tree) if isinstance(f, ast.FunctionDef) and _calls(f, {"backward"})}
        trains = [n for n in loops if _calls(n, steps)]
    loop = next(n for n in trains if not any(m is not n and m in trains for m in ast.walk(n)))
    holders = [
        n for n in ast.walk(tree) if isinstance(n, (ast.FunctionDef, ast.Module)) and loop in ast.walk(n)
    ]
    model, optimizer = _optimized(tree)
    # __init__ knows it by its argument, the loop by the attribute
    if optimizer.startswith("self.") and "." not in model:
        model = f"self.{model}"
    losses = [
        ast.unparse(n.func.value)
        for n in ast.walk(loop)
        if isinstance(n, ast.Call) and getattr(n.func, "attr", "") == "backward"
    ]
    return Training(loop, holders[-1], model, optimizer, _loader(loop), losses[0] if losses else "loss")


def _calls(node: ast.AST, names: set[str]) -> bool:
    calls = [n.func for n in ast.walk(node) if isinstance(n, ast.Call)]
    return any(getattr(f, "attr", getattr(f, "id", "")) in names for f in calls)


def _optimized(tree: ast.AST) -> tuple[str, str]:
    """The words for the model and the optimizer: `optimizer = torch.optim.X(model.parameters(), ...)`."""
    for node in ast.walk(tree):
        if (
            not isinstance(node, ast.Assign)
            or not isinstance(node.value, ast.Call)
            or "optim" not in ast.unparse(node.value.func)
        ):
            continue
        owner = next(
            n.func.value
            for n in ast.walk(node.value)
            if isinstance(n, ast.Call) and getattr(n.func, "attr", "") == "parameters"
        )
        parts = ast.unparse(owner).split(".")
        return ".".join(parts[:2] if parts[0] == "self" else parts[:1]), ast.unparse(node.targets[0])
    raise CannotEditError("no optimizer was found")


def _loader(loop: Loop) -> ast.expr | None:
    found = loop.iter
    if isinstance(found, ast.Call) and getattr(found.func, "id", "") == "enumerate":
        found = found.args[0]
    if isinstance(found, ast.Call):
        return found if "DataLoader" in ast.unparse(found.func) else None
    return found


# --- TraceML
# ------------------------------------------------------------------------------------------------------------

ENOUGH = "import itertools as _i, time as _t; _steps, _since = _i.count(1), _t.monotonic()"
LEAVE = "if next(_steps) >= {steps} and _t.monotonic() - _since > {seconds}: raise SystemExit(0)"


def for_traceml(source: str, steps: int, seconds: float) -> Edited:
    """As its README shows: import, init, and the body of the loop under trace_step.
    The run ends after so many steps and seconds."""
    found, lines = training(source), source.splitlines()
    first, last = found.loop.body[0].lineno - 1, found.loop.body[-1].end_lineno
    pad = " " * found.loop.body[0].col_offset
    body = [("    " + line) if line.strip() else line for line in lines[first:last]]
    put = [
        f"{pad}with traceml.trace_step({found.model}):",
        *body,
        pad + LEAVE.format(steps=steps, seconds=seconds),
    ]
    lines[first:last] = put
    top = _after_docstring(source)
    lines[top:top] = ["import traceml_ai as traceml", 'traceml.init(mode="auto")', ENOUGH]
    return Edited("\n".join(lines) + "\n", lines=3, moved=len(body))


def _after_docstring(source: str) -> int:
    first = ast.parse(source).body[0]
    return first.end_lineno if isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant) else 0


# --- loadtune
# ------------------------------------------------------------------------------------------------------------

WORKLOAD = """\
import sys
from pathlib import Path

from loadtune import Workload

class Ready(Exception):
    pass

def get_workload():
    path = Path(__file__).with_name("script.py")
    names = {"__name__": "__main__", "__file__": str(path), "Ready": Ready, "Workload": Workload}
    sys.argv[1:] = []
    try:
        exec(compile(path.read_text(), str(path), "exec"), names)
    except Ready as ready:
        return ready.args[0]
"""

# loadtune asks how busy all cores are before it tries more workers. What other processes do beside a
# benchmark would keep it from its best answers: here its meter counts its own processes only.
# No line of a user's.
METER = """
import time
import psutil

def _used():
    total = 0.0
    for process in [psutil.Process(), *psutil.Process().children(recursive=True)]:
        try:
            total += sum(process.cpu_times()[:4])
        except psutil.NoSuchProcess:
            continue
    return total

def _percent(interval=None, last=[0.0, 0.0]):
    used, now = _used(), time.monotonic()
    share = (used - last[0]) / max(1e-9, now - last[1]) / psutil.cpu_count()
    last[:] = used, now
    return min(100.0, max(0.0, 100 * share))

psutil.cpu_percent = _percent
"""


def for_loadtune(source: str, name: str) -> tuple[Edited, str]:
    """The script whose loop has become a `train_step`, given to a Workload;
    and the workload file beside it."""
    found, lines = training(source), source.splitlines()
    if found.loader is None:
        raise CannotEditError("it has no DataLoader, and loadtune builds the loader itself")
    header, pad = slice(found.loop.lineno - 1, found.loop.body[0].lineno - 1), " " * found.loop.col_offset
    loader = ast.unparse(found.loader)
    body = [
        ("    " + line) if line.strip() else line
        for line in lines[header.stop : found.loop.body[-1].end_lineno]
    ]
    model, optimizer = (
        word if word.isidentifier() else word.rpartition(".")[2] for word in (found.model, found.optimizer)
    )
    again = sorted(_kept(found) - {model, optimizer, "batch", "device"})
    keep = (
        [f"{pad}    {'global' if isinstance(found.scope, ast.Module) else 'nonlocal'} {', '.join(again)}"]
        if again
        else []
    )
    over = ast.unparse(found.loop.iter).replace(loader, "[batch]", 1)
    step = [
        f"{pad}def train_step({model}, {optimizer}, batch, device):",
        *keep,
        f"{pad}    for {ast.unparse(found.loop.target)} in {over}:",
        *body,
        f"{pad}    return {found.loss}",
    ]
    put = [
        f"{pad}data_loader = {loader}",
        f"{pad}raise Ready(Workload({name!r}, make_dataset=lambda: data_loader.dataset, make_model=lambda: "
        f"{found.model}, "
        f"train_step=train_step, make_optimizer=lambda _: {found.optimizer}, "
        "default_batch_size=data_loader.batch_size or data_loader.sampler.batch_size, "
        "collate_fn=data_loader.collate_fn if data_loader.batch_size else None))",
    ]
    lines[header.start:found.loop.body[-1].end_lineno] = [*step, *put]
    text, kept_folders = re.subn(
        r"with tempfile\.TemporaryDirectory\(\) as (\w+):",
        r"for \1 in [tempfile.mkdtemp()]:",
        "\n".join(lines),
    )
    written = (
        len(step)
        - len(body)
        + len(put)
        + kept_folders
        + sum(bool(line.strip()) for line in WORKLOAD.splitlines())
    )
    return Edited(text + "\n", lines=written, moved=len(body)), WORKLOAD + METER


def _kept(found: Training) -> set[str]:
    """Names that the step writes and that live on around it."""
    inside = {n.id for part in found.loop.body for n in _names(part)}
    within = {id(n) for n in ast.walk(found.loop)}
    scope = found.scope
    arguments = {a.arg for a in scope.args.args} if isinstance(scope, ast.FunctionDef) else set()
    outside = {n.id for n in _names(scope) if id(n) not in within} | arguments
    return inside & outside


def _names(node: ast.AST) -> Iterator[ast.Name]:
    return (n for n in ast.walk(node) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store))


def workers(source: str) -> int:
    """num_workers as the script has it."""
    found = re.search(r"DataLoader\([^\n]*num_workers=(\d+)", source)
    return int(found[1]) if found else 0
