"""When an image is due, and the place for it:
the start of a line of the innermost frame outside torch whose callers are not in the middle of an expression,
best where a loop begins anew. A ghost comes to the very same line by the same way.
"""

from __future__ import annotations

import os
import sys
import time

from ...entry import by_hand
from ..compute import graphs, places, shield_parts
from ..core import bytecode, outcome, pace, phases, resume_cost, words
from ..world import journal, printed
from . import checks, ending, images, restore, unsupported

_monotonic = getattr(time.monotonic, "__wrapped__", time.monotonic)  # the real one
PATIENCE_S = 0.5  # that long a loop's beginning is waited for, then any line will do
GIVE_UP_S = 20.0
_HERE = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
_TORCH = f"{os.sep}torch{os.sep}"
_LIBRARY = os.path.dirname(os.__file__)

_due_event = -1  # how many events had been when an image became due
_armed = 0  # how many events had been when the trace was set
_armed_at = 0.0
_lines = 0
_tracing = None  # the frame that is traced
_backwards = by_hand.Backwards()
_misses = 0  # points in a row at which no image could be taken: another kind of place is tried in turn
on_arrival: list = []  # called where an audit stands at the place of the image that it is compared with
taken = None  # the clock's: called with the seconds that an image took, or a try of one
_told = {"setup_s": 0.0, "ghost_from": 0.0, "resumed_at": 0.0, "step": 0, "seconds": 0.0, "put_back": []}


def install() -> None:
    """From here on each shielded call says that it returned."""
    places.after_event = after_event


def begin() -> None:
    """This life trains from now on, and is recorded, or is on its way back."""
    now, back = _monotonic(), phases.resumed
    if back is None:
        _told.update(setup_s=now - phases.born, ghost_from=now, resumed_at=now)
    if phases.phase == phases.RECORD:
        pace.begin()
        gone = (
            (0, 0.0, 0.0)
            if back is None
            else (back.events, told()["ghost_s"], back.where.get("trained_s", 0.0))
        )
        resume_cost.begin(_told["resumed_at"], _told["setup_s"], gone)


def told() -> dict:
    """How this life came to where it is."""
    ghost_s = _told["resumed_at"] - _told["ghost_from"]
    return {
        "attempt": phases.attempt,
        "step": _told["step"],
        "seconds": round(_told["seconds"] + ghost_s, 3),
        "ghost_s": round(ghost_s, 3),
        "lost_steps": phases.steps - _told["step"],
        "put_back": _told["put_back"],
    }


def after_event(step: bool = False, graph_freed: bool = False) -> None:
    """A shielded call has returned. If an image is due, look for the place."""
    if graph_freed and _backwards.is_step(phases.steps > _backwards.steps):
        phases.steps += 1
    if _monotonic() < pace.not_before or phases.depth or places.held:
        return
    if phases.phase == phases.RECORD:
        ending.look()
        if _tracing is None:
            if _due(step or (graph_freed and _backwards.steps > 0)):
                _arm()
        elif _monotonic() - _armed_at > GIVE_UP_S:  # its frame has come to no line of its own since
            _untrace()
            _pass(words.NO_CLEAN_FRAME)
        if ending.asked_at:
            ending.after_event()
    elif _tracing is None:
        goal = _goal()
        if goal is not None and phases.log.n == goal["armed"]:
            _arm()


def _goal() -> object:
    """What was told about the place that this life goes to:
    a ghost to that of its image, an audit in its tail to that of the next; else
    None."""
    if phases.phase == phases.GHOST:
        return phases.target.where
    return phases.goal if phases.phase == phases.TAIL else None


def _due(step: bool) -> bool:
    """The step of an optimizer is the better place; with none in sight, any shielded call."""
    global _due_event
    if not (pace.wished or (pace.due() and not graphs.undecided())):
        return False
    if _due_event < 0:
        _due_event = phases.log.n
    return step or pace.wished or phases.log.n - _due_event > 30 or _misses % 4 > 1


def _arm() -> None:
    """Trace the frame in which the image can be taken."""
    global _armed, _armed_at, _lines
    try:
        if _foreign_trace():
            _pass(words.FOREIGN_TRACE)
            return
        frame = _place(sys._getframe(2))
        if frame is None:
            _pass(words.NO_CLEAN_FRAME)
            return
        _armed, _armed_at, _lines = phases.log.n, _monotonic(), 0
        _trace(frame)
    except Exception as e:
        _untrace()
        outcome.broke(e)


def _trace(frame: object) -> None:
    global _tracing
    _tracing = frame
    frame.f_trace = _at_line
    frame.f_trace_lines = True
    sys.settrace(_no_other_frame)


def _untrace() -> None:
    global _tracing
    if _tracing is not None:
        sys.settrace(None)
        _tracing.f_trace = None
        _tracing = None


def _no_other_frame(frame: object, event: str, arg: object) -> None:
    return None


def _place(frame: object) -> object:
    """The innermost usable frame from here on outwards, all of whose callers are between two expressions."""
    frames = []
    while frame is not None:
        frames.append(frame)
        frame = frame.f_back
    dirty = [i for i, f in enumerate(frames) if not _ours(f) and bytecode.holds_values(f, False)]
    collecting = [i for i in dirty if bytecode.collects(frames[i])]
    if len(collecting) == 1:  # the walk finds that list; of several it could not tell which is which
        dirty.remove(collecting[0])
    outermost_dirty = max(dirty, default=-1)
    for i, f in enumerate(frames):
        # the frame itself may be in the middle of one now: its next line is not
        if i >= outermost_dirty and _usable(f):
            return f
    return None


def _usable(frame: object) -> bool:
    name = frame.f_code.co_filename
    return not (
        _ours(frame)
        or _TORCH in name
        or name.startswith("<frozen")
        or (name.startswith(_LIBRARY) and "-packages" not in name)
    )


def _ours(frame: object) -> bool:
    return frame.f_code.co_filename.startswith(_HERE)


def _foreign_trace() -> bool:
    if sys.gettrace() is not None:
        return True
    monitoring = getattr(sys, "monitoring", None)
    return monitoring is not None and any(monitoring.get_tool(i) is not None for i in range(6))


def _at_line(frame: object, event: str, arg: object) -> object:
    global _lines
    try:
        goal = _goal()
        if goal is None and phases.phase != phases.RECORD:
            _untrace()
            return None
        if event == "line" and not phases.depth:
            _lines += 1
            if goal is not None:
                if _lines == goal["lines"]:
                    _untrace()
                    _resume(frame) if phases.phase == phases.GHOST else _arrive(frame)
                    return None
            elif _good(frame):
                _untrace()
                _take(frame)
                return None
            elif _monotonic() - _armed_at > GIVE_UP_S:
                _untrace()
                _pass(words.NO_CLEAN_FRAME)
                return None
        elif event == "return":
            outer = _place(frame.f_back) if frame.f_back is not None else None
            _untrace()
            if outer is None:
                _pass(words.NO_CLEAN_FRAME)
            else:
                _trace(outer)
            return None
    except Exception as e:
        _untrace()
        outcome.broke(e)
        return None
    return _at_line


def _good(frame: object) -> bool:
    if bytecode.holds_values(frame, True):
        return False
    return pace.wished or _misses % 2 == 1 or bytecode.at_loop(frame) or _monotonic() - _armed_at > PATIENCE_S


def _where(frame: object) -> dict:
    code = frame.f_code
    return {"armed": _armed, "lines": _lines, "event": phases.log.n, "step": phases.steps,
            "line": f"{code.co_filename}:{frame.f_lineno} in {code.co_name}+{frame.f_lasti}"}


@resume_cost.skipped
def _take(frame: object) -> None:
    global _due_event, _misses
    if shield_parts.raised:
        _pass(words.RAISED.format(error=shield_parts.raised))
        return
    phases.depth, begun = 1, _monotonic()
    try:
        why = outcome.refused() or unsupported.standing()
        if why:
            outcome.refuse(why)
        elif images.take(
            {
                **_where(frame),
                "path": checks.save(),
                "printed": printed.place(),
                "trained_s": resume_cost.trained_s(),
            },
            begun,
        ):
            images.last_event, _due_event, pace.wished, _misses = phases.log.n, -1, False, 0
        else:
            _missed(begun)
    except (journal.Impossible, ValueError) as e:
        _pass(str(e), begun)
    finally:
        phases.depth = 0
        if taken is not None:
            taken(_monotonic() - begun)


def _pass(reason: str, begun: float = 0.0) -> None:
    outcome.pass_point(reason)
    _missed(begun or _monotonic())


def _missed(begun: float) -> None:
    global _misses
    _misses += 1
    pace.passed(begun)


def _compare(here: dict, there: dict) -> None:
    for what in ("event", "step", "line"):
        if here[what] != there[what]:
            outcome.diverged(words.OTHER_POINT.format(what=what, then=there[what], now=here[what]))
    for difference in checks.compare_at_image(there["path"]):
        outcome.diverged(difference)


def _arrive(frame: object) -> None:
    """An audit has come to the place of the image that it is compared with."""
    _compare(_where(frame), phases.goal)
    phases.depth = 1
    for call in on_arrival:
        call()


def _resume(frame: object) -> None:
    checks.import_again(phases.target.where["path"])
    _compare(_where(frame), phases.target.where)
    phases.depth = 1
    try:
        _told.update(resumed_at=_monotonic(), step=phases.steps)
        _told.update(restore.resume())
        graphs.guard()
        phases.end_ghost()
    finally:
        phases.depth = 0
