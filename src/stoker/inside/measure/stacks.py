"""Where the training's time goes, line by line:
a thread looks at the stack of the one that trains, and weighs each look by the time since the last.
It runs only in windows that are marked so, and no time is taken from those.

`stacks`: `{"n", "steps_s", "lines": [{"file", "line", "call", "kind", "share", "path"}]}`. `call`: the
outermost call that leaves the script's files (calls.py). `share`: of the training's time; a look counts for
one line. `path`: `[[file, line]]`, the script's frames down to it.
"""

from __future__ import annotations

import sys
import threading
import time

from ..clock import marks
from . import calls

EVERY_S = 0.004
# a thread that waits for its turn gets it so soon:
# else it would come mostly where the other one gives its turn away
SWITCH_S = 1e-4
LINES = 60
LEAST = 0.003  # of the time; lines below it are left out
DEEP = 200
_KINDS = {"__next__": "data", "__iter__": "start", "backward": "backward"}
_sleep, _clock = time.sleep, time.perf_counter

_shares: dict = {}  # (file, line, call, kind, path) -> seconds
looks = 0
seconds = 0.0
_on: threading.Event | None = None
_switch = 0.005


def begin() -> None:
    """Look from now on."""
    global _on, _switch
    _on, _switch = threading.Event(), sys.getswitchinterval()
    sys.setswitchinterval(SWITCH_S)
    threading.Thread(target=_run, args=(marks.owner, _on), name="stoker-stacks", daemon=True).start()


def end() -> None:
    """Look no more."""
    if _on is not None and not _on.is_set():
        _on.set()
        sys.setswitchinterval(_switch)


def facts(told: dict) -> None:
    """Put `stacks` into the facts, if anything was seen."""
    if not looks:
        return
    ordered = sorted(_shares.items(), key=lambda pair: -pair[1])
    lines = []
    for (file, line, call, kind, path), took in ordered[:LINES]:
        share = took / seconds
        if share >= LEAST:
            lines.append(
                {
                    "file": file,
                    "line": line,
                    "call": call,
                    "kind": kind,
                    "share": round(share, 4),
                    "self": round(share, 4),
                    "path": [list(each) for each in path],
                }
            )
    told["stacks"] = {"n": looks, "steps_s": round(seconds, 4), "lines": lines}


def _run(owner: int, over: threading.Event) -> None:
    global looks, seconds
    last = _clock()
    while not over.is_set():
        _sleep(EVERY_S)
        if over.is_set():
            return
        try:
            key = _look(owner)
        except Exception as e:
            from . import order
            order.fault("the sampler", e)
            return
        moment = _clock()
        if key is not None:
            looks += 1
            seconds += moment - last
            _shares[key] = _shares.get(key, 0.0) + moment - last
        last = moment


def _look(owner: int) -> tuple | None:
    frame, stack = sys._current_frames().get(owner), []
    while frame is not None and len(stack) < DEEP:  # at once: the other thread goes on as soon as it may
        stack.append((frame, frame.f_code, frame.f_lasti, frame.f_lineno))
        frame = frame.f_back
    own, kind, deeper = [], "", None
    for each in stack:
        file = each[1].co_filename
        if calls.own(file):
            own.append((file, *calls.at(each, deeper)))
            deeper = each
        elif file.startswith(calls._OURS):
            kind = _kind(each[0], each[1]) or kind
        else:
            deeper = each
    if not own:
        return None
    own.reverse()
    leaf = next((n for n, each in enumerate(own) if each[3]), len(own) - 1)
    file, line, call, _ = own[leaf]
    return file, line, call, kind or _between(), tuple((each[0], each[1]) for each in own[: leaf + 1])


def _kind(frame: object, code: object) -> str:
    """The clock's kind of one of its own frames."""
    if code.co_filename.endswith("marks.py"):
        if code.co_name == "__call__":
            return "evaluation" if marks._evaluating else "forward"
        if code.co_name == "__next__" and marks._before is not None and marks.steps > 1:
            return "evaluation"
        return _KINDS.get(code.co_name, "")
    if code.co_filename.endswith("timed.py"):
        return {marks.SAVE: "save", marks.LOG: "log", marks.TRANSFER: "transfer"}.get(
            frame.f_locals.get("kind"), ""
        )
    return ""


def _between() -> str:
    """What the clock will call the time between its last mark and the next."""
    if marks._evaluating or (marks._before is not None and marks.steps > 1):
        return "evaluation"
    return {marks.BACK: "optimizer", marks.CALLED: "forward"}.get(marks._after, "other")
