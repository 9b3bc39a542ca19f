"""Who takes the order, and what then is called at the end of each of its steps."""

from __future__ import annotations

import os
import threading
import time

from ..clock import marks
from ..entry.processes import START
from . import feed, look, order, trial, windows

RANKS_LOOK_S = 0.5  # between two looks whether others train too
_pid = 0  # of the process that has looked whether it takes the order
_what = ""
_loop_from = 0.0
_watch = None  # statics', once this process has the order


def other(mode: str, torch: object) -> None:
    """The guard and the search for the largest batch have marks of their own."""
    if mode == "guard":
        from . import guard
        guard.begin(torch, order.order, order.room)
    else:
        from . import batch
        batch.begin(torch, order.order, order.room)


def install(torch: object, what: str) -> None:
    """Wait for the first step; in mode `probe`, hold the loaders already."""
    global _what
    _what = what
    from torch.optim import optimizer
    if order.order.get("seed") is not None:
        from . import seeds
        seeds.begin(torch, order.order["seed"])
    if what == "script" and order.mode() == "probe":
        feed.install(torch)
        from . import statics
        statics.watch(torch)
    optimizer.register_optimizer_step_post_hook(_stepped)
    marks.stepped_by_hand = _stepped_by_hand


def _stepped_by_hand(*step: object) -> None:
    _stepped(*step)
    marks.step_ends(*step)


def clock_is_here() -> None:
    """The loop's first call is told by the clock."""
    if _what != "script":
        return
    first = marks.first_step

    def begins(moment: int, setup: int) -> None:
        global _loop_from
        _loop_from = time.monotonic()
        order.facts["setup_s"] = round(_loop_from - START, 4)
        order.facts["memory"] = [[0, look.resident()]]
        order.progress("start", 0)
        first(moment, setup)

    marks.first_step = begins


def _stepped(optimizer: object, args: object, kwargs: object) -> None:
    """After each step of any optimizer, before the clock: only the first one matters."""
    global _pid
    if _pid == os.getpid():
        if _watch is not None:
            _watch(optimizer)
        return
    _pid = os.getpid()
    try:
        if _what == "script" and _pid == order._pid and order.take():
            _begin(optimizer)
        else:
            order.line("ranks.jsonl", pid=_pid)
            if not order.taken_by() and order.take():
                _rank()
    except Exception as e:
        order.fault("the first step", e)


def _rank() -> None:
    """The first of the ranks that a script has started: that there are some is all that is told of them."""
    import sys
    distributed = sys.modules["torch"].distributed
    joined = distributed.is_available() and distributed.is_initialized()
    order._pid = _pid
    order.facts.update(
        ranks=distributed.get_world_size() if joined else 2, flags={"distributed": bool(joined)}, steps_seen=1
    )
    order.collect.clear()
    order.write("enough")


def _begin(optimizer: object) -> None:
    seconds, steps = float(order.order.get("seconds") or 0), int(order.order.get("steps") or 0)
    order.facts["first_step_s"] = round(time.monotonic() - _loop_from, 5) if _loop_from else None
    order.collect.append(_known)
    if order.mode() == "trial":
        marks.each_step = trial.stepper(seconds, steps)
        return
    windows.watch_the_clock()
    from . import statics
    from .course import Course
    global _watch
    _watch = statics.stepped
    statics.stepped(optimizer)
    marks.each_step = _mover(Course(seconds or 20.0), steps)
    threading.Thread(
        target=_too_long, args=((seconds or 20.0) * 1.2 + 2.0,), name="stoker-deadline", daemon=True
    ).start()


def _too_long(seconds: float) -> None:
    """No step comes any more, an evaluation of minutes it may be: what is known is told then."""
    time.sleep(seconds)
    order.finish("enough")


def _mover(course: object, most: int) -> object:
    """Moves the course on by a step; at its end, and as soon as another process trains too,
    this process ends."""
    from . import statics
    looked, way = time.monotonic(), course.run()

    def step() -> None:
        nonlocal looked
        try:
            if time.monotonic() - looked > RANKS_LOOK_S:
                looked = time.monotonic()
                if _others():
                    course.over()
                    order.finish("enough")
            windows._gather()
            if order.facts.get("trying", "R1") == "R1":
                statics.step_ends(windows._total[marks.BACKWARD])
            next(way)
            if not most or marks.steps < most:
                return
        except StopIteration:
            pass
        except Exception as e:
            order.fault("the course", e)
            for line in feed.known():
                line.source = feed.REAL
            order.facts.pop("trying", None)
        order.finish("enough")
    return step


def _known(facts: dict) -> None:
    """What every trial can tell."""
    import sys
    torch = sys.modules["torch"]
    facts["steps_seen"] = marks.steps
    facts["cores"] = look.cores()
    facts["threads"] = torch.get_num_threads()
    facts["cuda"] = bool(torch.cuda.is_available() and torch.cuda.is_initialized())
    facts["ranks"] = max(1 + _others(), int(os.environ.get("WORLD_SIZE", "1") or 1))


def _others() -> int:
    try:
        with open(os.path.join(order.room, "ranks.jsonl"), encoding="utf-8") as f:
            return len(set(f.read().split("\n")) - {""})
    except OSError:
        return 0
