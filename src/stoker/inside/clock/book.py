"""steps.jsonl: a line each second with what the time went to, and how a process ended.
Files, not arithmetic; none of it in a step.

A line (O_APPEND, one write, all ranks): `{"at", "pid", "rank", "step" (so far), "steps" (in this line),
"s", "ms": {kind: ms}, "batches", "samples" (of trained loaders), "p50_ms", "p90_ms", "p99_ms", "max_ms",
"batch", "of"?, "done"? (part of the training), "epochs"?: [{"loader", "s", "batches", "step"}], "gpu_ms"?:
{"gap", "transfer", "forward", "backward", "optimizer"}, "gpu_dropped"?, "each"?: [[step, us of each kind,
in the order of marks.KINDS]]}`.
- `ms` adds up to `s`; kinds that did not occur are left out.
- The first step has a line of its own, with `"first": true` and `setup_s`.
- The pauses grow with the run: a line each second, then each 10 s, then each 60 s.

At its end a process adds to processes.jsonl: `{"ended": steps, "optimizers", "loaders", "batches",
"evaluated", "backward"}`; the last three are complete only if no step was made. plane/steps.py reads it
all.
"""

from __future__ import annotations

import atexit
import json
import os
import sys
import time

from ..entry.aside import aside
from ..entry.processes import record
from . import marks

FILE = "steps.jsonl"
# so many lines, a line each so many seconds: a week is some 3 MB
LINES = ((600, 1), (1_700, 10), (1 << 62, 60))
EACH_MAX = 20_000  # rows in one line of the form for measuring

_FLAGS = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
_fd = -1
_identity = (0, 0)  # device and inode: a script may close descriptors that it does not know
_pid = 0
_lines = 0
_from = 0  # ns: the line that is being made begins here
_epochs: list = []
_first: dict | None = None  # what came before the first step
_rows: list = []
_row_before: list = []
_ended = False
BUSY_NS = 1_000_000_000
_busy_from = -BUSY_NS


def open_beside(records: str) -> bool:
    """Open the file of this attempt, whose folder holds `records`. False where that cannot be."""
    global _fd, _identity, _pid
    if _fd >= 0:
        return True
    try:
        _fd = aside(os.open(_by_its_second_name(os.path.abspath(records)), _FLAGS, 0o644))
        info = os.fstat(_fd)
    except (OSError, ValueError):
        return False
    _identity, _pid = (info.st_dev, info.st_ino), os.getpid()
    marks.write, marks.first_step, marks.busy, marks.pass_over = write, begins, busy, epoch_ends
    if os.environ.get("STOKER_CLOCK") == "steps":
        marks.each_step = _each_step
    atexit.register(_at_exit)
    return True


def _by_its_second_name(records: str) -> str:
    """The file lies in the attempt's folder. It is opened by a link within `records`:
    what is open there is known to be none of the script's files."""
    first, second = os.path.join(os.path.dirname(records), FILE), os.path.join(records, FILE)
    os.close(os.open(first, _FLAGS, 0o644))
    try:
        os.link(first, second)
    except FileExistsError:
        pass
    except OSError:  # a file system without links
        return first
    return second


def opened() -> bool:
    return _fd >= 0


def again() -> bool:
    """A forked child that trains has a record of its own. False where there is none."""
    global _pid, _lines, _first, _ended
    if _fd < 0:
        return False
    _pid, _lines, _first, _ended = os.getpid(), 0, None, False
    _epochs.clear()
    _rows.clear()
    marks.durations.clear()
    marks.samples = marks.batches = 0
    marks.spent[:] = [0] * len(marks.spent)
    return True


def begins(moment: int, setup: int) -> None:
    """The loop's first call is about to happen; `setup` ns after the import of torch."""
    global _from, _first
    _from, _first = moment, {"setup_s": _seconds(setup)}


def write(moment: int) -> None:
    """One line about all since the last one. The first step has a line of its own."""
    global _from, _lines, _first
    first = _first if marks.steps else None
    if first is not None:
        _first = None
    line = {
        "at": round(time.time(), 3),
        "pid": _pid,
        "rank": _rank(),
        "step": marks.steps,
        "steps": marks.steps - marks._lead_was,
        "s": _seconds(moment - _from),
        "ms": _kinds(marks.spent),
        "batches": marks.batches,
        "samples": marks.samples,
        **_spread(marks.durations),
        **_position(),
        **_progress(),
        **({"first": True, **first} if first is not None else {}),
        **({"epochs": _epochs[:]} if _epochs else {}),
        **({"each": _rows[:]} if _rows else {}),
    }
    if marks.device is not None:
        line.update(marks.device.collect())
    elif marks.steps:
        from . import device
        device.look()
    _put(line)
    _epochs.clear()
    _rows.clear()
    marks.durations.clear()
    marks.batches = marks.samples = 0
    for kind in range(len(marks.spent)):
        marks.spent[kind] = 0
    _row_before[:] = marks.spent
    _from, _lines = moment, _lines + 1
    each_s = next(seconds for most, seconds in LINES if _lines < most)
    marks.write_at = moment + each_s * 1_000_000_000


def busy(moment: int) -> None:
    """An evaluation or a save begins, in which no line may come for long:
    whoever waits for the next step is told, by a file's age."""
    global _busy_from
    if _fd < 0 or moment - _busy_from < BUSY_NS:
        return
    _busy_from = moment
    try:
        path = os.path.join(os.environ["STOKER_HOOKS"], f"busy-{_pid}")
        os.close(os.open(path, os.O_WRONLY | os.O_TRUNC | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600))
        os.utime(path)
    except (OSError, KeyError):
        pass


def epoch_ends(way: object, moment: int) -> None:
    """A pass over a loader that was trained on has come to its end."""
    _epochs.append(
        {"loader": way.number, "s": _seconds(moment - way.began), "batches": way.batches, "step": marks.steps}
    )


def _position() -> dict:
    """Which batch of how many, in the pass that goes on."""
    way = marks.current
    told = {}
    if way is not None and way.trained:
        told = {"batch": way.batches, "of": way.length} if way.length else {"batch": way.batches}
    return told


def _progress() -> dict:
    """The part of the whole training that is done, where the loops around the step tell."""
    if marks._after != marks.STEPPED:
        return {}
    try:
        from . import progress
        done = progress.done()
    except Exception as e:
        record(progress=f"unknown: {type(e).__name__}: {e}")
        return {}
    return {} if done is None else {"done": done}


def _spread(durations: list) -> dict:
    """How long steps took: the middle, the slow tenth, the slowest."""
    if not durations:
        return {}
    ordered = sorted(durations)
    last = len(ordered) - 1
    shares = (("p50", 0.5), ("p90", 0.9), ("p99", 0.99), ("max", 1.0))
    return {f"{name}_ms": round(ordered[int(last * share)] / 1e6, 4) for name, share in shares}


def _kinds(spent: list) -> dict:
    return {name: round(ns / 1e6, 4) for name, ns in zip(marks.KINDS, spent) if ns}  # noqa: B905


def _each_step() -> None:
    """A row: the step, and us of each kind."""
    if len(_rows) < EACH_MAX:
        before = _row_before or [0] * len(marks.spent)
        _rows.append([marks.steps, *(round((a - b) / 1e3, 1) for a, b in zip(marks.spent, before))])  # noqa: B905
    _row_before[:] = marks.spent


def _rank() -> int | None:
    for name in ("RANK", "SLURM_PROCID", "OMPI_COMM_WORLD_RANK"):
        if os.environ.get(name, "").isdigit():
            return int(os.environ[name])
    return None


def _seconds(ns: int) -> float:
    return round(ns / 1e9, 6)


def _put(line: dict) -> None:
    global _fd
    try:
        info = os.fstat(_fd)
        if (info.st_dev, info.st_ino) == _identity:
            # O_APPEND: lines of ranks do not mix
            os.write(_fd, (json.dumps(line, separators=(",", ":")) + "\n").encode())
            return
    except OSError:
        pass
    _fd = -1
    marks.stop()


def _at_exit() -> None:
    """The last line; and whether this process trained, for who asks later."""
    global _ended
    if _ended or _pid != os.getpid() or "torch" not in sys.modules:
        return
    _ended = True
    try:
        if marks.owner and marks._step_from and _fd >= 0:
            marks.settle_all()
            write(marks.last)
        if marks.steps or any(marks.seen.values()):
            record(ended=marks.steps, **marks.seen)
        marks._roots.clear()  # or these classes keep the script's module alive, and each `__del__` waiting
    except Exception as e:
        marks.broke(e)
