"""The tuner's part inside an unmodified script:
it measures itself while it trains, and changes nothing of the user's.

Two things are called from outside: `begin` as a process starts, and `torch_is_here` / `clock_is_here` as
torch is imported there. order.py: what was asked, and facts.json; course.py:
which window comes when; windows.py, look.py: one window; feed.py, ring.py: what loaders hand out;
samples.py, alone.py: the data by itself; stacks.py, calls.py: where the time goes, by line; statics.py:
what was built; effects.py: what leaves the process; trial.py: only the ends of steps.
"""

from __future__ import annotations

import os


def begin(process: object) -> bool:
    """A process starts in a trial's room. False where it has nothing to do with it."""
    from . import order
    if process.role not in ("script", "worker") or not order.read():
        return False
    from .. import scratch
    from . import effects
    effects.install()
    main = script_folder()
    scratch.install(
        os.path.join(order.room, "outside"),
        always=(order.room, os.environ.get("STOKER_HOOKS", "")),
        kept=(os.getcwd(), main),
        since=order.made,
        note=effects.wrote,
    )
    from ..entry import imports
    scratch.other_files(imports.after)
    if process.role == "script":
        order.watch_the_end()
    return True


def script_folder() -> str:
    """The folder of the script that this process is about to run; "" where there is none."""
    from ..entry.processes import command_line
    words = command_line()[1:]
    for word in words:
        if word.endswith(".py") and os.path.exists(word):
            return os.path.dirname(os.path.abspath(word))
    return ""


def torch_is_here(process: object) -> None:
    """Before the clock: what loaders hand out is ours to choose, and the clock measures it."""
    from .. import scratch
    from . import effects, order, taking
    torch = process.torch
    effects.torch_is_here = True
    scratch.torch_files(torch)
    order.facts["torch"] = str(getattr(torch, "__version__", ""))
    mode = order.mode()
    if mode in ("guard", "batch"):
        if process.role == "script":
            taking.other(mode, torch)
        return
    taking.install(torch, process.role)


def clock_is_here(process: object) -> None:
    """Behind the clock: its marks are in place."""
    from . import order, taking
    if process.clock and order.mode() in ("probe", "trial"):
        taking.clock_is_here()
