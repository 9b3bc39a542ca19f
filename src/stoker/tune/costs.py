"""What the script itself does in each step beside computing:
waiting for the device, printing, saving, sweeping, looping in Python. Pure.

The shares are the sampler's, by line; the doctor's lints and the places of the lines say what they are.
The clock knows some of them too.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

from stoker.tune.findings import Cause, Range
from stoker.tune.places import Place
from stoker.tune.reading import Reading
from stoker.tune.view import Line, View

MANY_TENSORS = 40  # parameters from which on an optimizer's loop over them shows

_SYNC = re.compile(
    r"(^|\.)(item|tolist|nonzero|__float__|__int__|__bool__|__index__|__format__|__repr__|synchronize|equal|allclose)$|^(float|int|bool)$"
)
_OUT = re.compile(r"(^|\.)(cpu|numpy|__array__)$")
_SWEEP = re.compile(r"(^|\.)(gc\.collect|empty_cache|malloc_trim|reset_peak_memory_stats)$|^gc\.")
_SAVE = re.compile(
    r"(^|\.)(torch\.save|save_file|save_pretrained|save_checkpoint|(pickle|joblib|dill|cloudpickle)\.dump|savez?(_compressed)?|fsync)$"
)
_LOG = re.compile(
    r"(^|\.)(print|add_scalars?|add_histogram|add_image|log|log_metrics?|set_postfix|set_description|flush|writerows?|write"
    r"|writelines|json\.dumps?|execute|commit|savefig|imsave)$|^logging\."
)
_LOGARITHM = re.compile(r"^(Tensor|torch|math|cmath|numpy)\.log$")
_LAYOUT = re.compile(
    r"(^|\.)(contiguous|permute|transpose|clone|movedim|swapaxes|ascontiguousarray|reshape|as_strided|copy_)$"
)
_COPIES = re.compile(
    r"(^|\.)(deepcopy|replicate|scatter|gather|parallel_apply|data_parallel|load_state_dict|DataParallel\S*)$"
)
_DONE_TOO_OFTEN = ("cleanup", "checkpoint", "validation", "logging")  # to be seen where the loop asks for it
_FILLS = re.compile(r"set_to_none\s*=\s*False|\.grad(\.data)?\.(zero_|fill_)")
_EACH = 0.9  # of the steps: in so many it is in each
_WEIGHT = {"zero_grad": 1.7}  # the zeros are read again, as backward adds to them
_ZERO = re.compile(r"(^|\.)(zero_grad|zero_|fill_)$")


def causes(view: View, reading: Reading) -> Iterator[Cause]:
    """Causes among the script's own lines, each with its share of the step."""
    # what makes a batch is feeding's
    beside = [line for line in view.lines if line.kind not in ("data", "start")]
    lines = [(line, reading.along(line.file, line.line, line.path)) for line in beside]
    yield from _waits(view, reading, lines)
    for row in (
        ("cleanup", _sweeps, "A call such as empty_cache() or gc.collect() runs{often}"),
        ("checkpoint", _saves, "A checkpoint is written{often}"),
        ("validation", _validates, "Validation runs inside the training loop"),
        ("logging", _logs, "The script prints or logs{often}"),
        ("replicas", _copies, "The model is copied and its outputs are gathered in each step"),
        ("per_parameter", _loops_over_parameters, "A Python loop over the parameters runs in each step"),
        ("time_loop", _loops_over_time, "A Python loop over time steps runs in each forward pass"),
        ("zero_grad", _zeroes, "Gradients are filled with zeros in each step"),
        ("layout", _copies_layout, "Tensors are copied to another memory layout in each step"),
    ):
        yield from _of(view, reading, lines, row)


Placed = list[tuple[Line, Place]]


def _of(
    view: View, reading: Reading, lines: Placed, row: tuple[str, Callable[[Line, Place], bool], str]
) -> Iterator[Cause]:
    name, test, text = row
    found = [(line, place) for line, place in lines if test(line, place)]
    by_clock = {"checkpoint": "save", "logging": "log", "validation": "evaluation"}.get(name)
    sampled = _WEIGHT.get(name, 1.0) * sum(line.own for line, _ in found)
    if name == "time_loop" and (ahead := view.clock_share("forward")):
        # what was done step by step goes back step by step
        sampled *= 0.85 * (1 + view.clock_share("backward") / ahead)
    if name == "zero_grad" and not (
        view.flags.get("zero_fill") or any(_FILLS.search(place.text) for _, place in found)
    ):
        return  # dropping them takes a moment too
    clock = view.clock_share(by_clock) if by_clock else 0.0
    if name == "validation" and not any(place.in_step for _, place in found):
        clock = 0.0  # between two epochs it is in its place
    share = max(sampled, clock)
    if not share:
        return
    top = max(found, key=lambda f: f[0].own)[0] if found else None
    file, number = _where(top, reading, name in _DONE_TOO_OFTEN) if top else ("", 0)
    measured = view.logged if name == "logging" and (top is None or top.kind == "log") else None
    often = _often(measured, reading.place(file, number), any(place.seldom for _, place in found))
    wide = 2 * (sampled * (1 - sampled) / max(view.sampled, 1)) ** 0.5 if view.sampled else 0.2 * share
    yield Cause(
        name,
        f"{text.format(often=often)}. This takes {share:.0%} of the time.",
        Range(share, max(0.0, share - wide), min(1.0, share + wide)),
        "clock" if clock > sampled else "sampler",
        file,
        number,
    )


def _often(measured: float | None, place: Place, seldom: bool) -> str:
    """ " in each step" only where that is known. measured: the share of the steps in which it was seen."""
    if measured:
        return " in each step" if measured >= _EACH else f" about every {max(2, round(1 / measured))} steps"
    return " in each step" if place.each_step and not seldom else ""


# --- waiting for the device
# --------------------------------------------------------------------------------------------------

def _waits(view: View, reading: Reading, lines: Placed) -> Iterator[Cause]:
    """A wait for the device costs at most what the host could have done meanwhile."""
    taken = [(line, place) for line, place in lines if _syncs(line, place)]
    wait = sum(line.own for line, _ in taken)
    if not wait:
        return
    share = min(wait, 1 - wait)
    out = sum(line.own for line, place in taken if _calls(_OUT, line, place))
    trip = reading.lint("cpu-round-trip")
    name = (
        "ping_pong"
        if out >= 0.5 * wait or (trip and any(line.line in trip.lines for line, _ in taken))
        else "sync"
    )
    if name == "ping_pong":
        share = max(share, min(wait, 0.5))
    top = max(taken, key=lambda t: t[0].own)[0]
    what = (
        "Tensors are copied from the device to the host and back"
        if name == "ping_pong"
        else "The host waits for the device"
    )
    yield Cause(
        name,
        (
            f"{what} in each step. This takes {wait:.0%} of the time. Up to {share:.0%} of the step could "
            "overlap with other work."
        ),
        Range(share, 0.5 * share, min(1.0, 1.3 * share)),
        "sampler",
        *_where(top, reading),
    )


def _where(line: Line, reading: Reading, outermost: bool = False) -> tuple[str, int]:
    """The line to look at: the innermost (or outermost) one on the path that runs within the training loop;
    else where the time goes. The outermost one calls nothing that the training needs."""
    places = [reading.place(file, number) for file, number in line.path]
    inner = [*places[1:], Place()]  # where the call on the line leads to
    for i in range(len(places)) if outermost else reversed(range(len(places))):
        needed = outermost and inner[i].computes and not inner[i].evaluates
        if places[i].in_step and not needed:
            return line.path[i]
    return line.file, line.line


def _calls(pattern: re.Pattern[str], line: Line, place: Place) -> bool:
    """The line's call, or one that led to it, is of this kind."""
    return bool(pattern.search(line.call)) or any(pattern.search(name) for name in place.chain)


# --- what the lines are
# ------------------------------------------------------------------------------------------------------

def _syncs(line: Line, place: Place) -> bool:
    if (
        (place.text and not place.in_step)
        or place.seldom
        or place.reports
        or "parameters" in place.loops
        or _sweeps(line, place)
    ):
        return False
    return _calls(_SYNC, line, place) or _calls(_OUT, line, place) or (place.asks and not line.call)


def _sweeps(line: Line, place: Place) -> bool:
    return _calls(_SWEEP, line, place)


def _saves(line: Line, place: Place) -> bool:
    # the best weights so far
    kept = _calls(_COPIES, line, place) and "state_dict" in place.text and "load_state" not in place.text
    return line.kind == "save" or (
        (kept or _calls(_SAVE, line, place)) and line.kind not in ("forward", "backward")
    )


def _validates(line: Line, place: Place) -> bool:
    """Within the training loop; between two epochs it is in its place."""
    inside = place.in_step or not place.text
    return inside and (line.kind == "evaluation" or place.evaluates) and not _saves(line, place)


def _logs(line: Line, place: Place) -> bool:
    """Time in calls that print or log, and in functions and loops of the training loop that do nothing else.
    What an evaluation computes before it prints is no logging."""
    if line.kind == "log":
        return True
    if line.kind == "evaluation":
        return False
    if _calls(_LOG, line, place) and not _LOGARITHM.search(line.call):
        return True
    reports = place.in_step and (place.logs or "reports" in place.loops)
    return reports and not place.evaluates and line.kind not in ("forward", "backward", "data")


def _copies(line: Line, place: Place) -> bool:
    named = (
        "replica" in place.text.lower()
        and line.kind not in ("backward", "optimizer")
        and "parameters" in place.loops
    )
    return (_calls(_COPIES, line, place) or named) and not _saves(line, place)


def _loops_over_parameters(line: Line, place: Place) -> bool:
    other = _saves(line, place) or _zeroes(line, place) or _copies(line, place)
    return "parameters" in place.loops and not place.reports and not other


def _loops_over_time(line: Line, place: Place) -> bool:
    return (
        "time" in place.loops
        and "parameters" not in place.loops
        and line.kind in ("forward", "other", "")
        and (place.forward or place.in_step)
        and not place.evaluates
        and not place.reports
        and not _copies(line, place)
    )


def _zeroes(line: Line, place: Place) -> bool:
    return bool(_ZERO.search(line.call)) and ("zero_grad" in line.call + place.text or ".grad" in place.text)


def _copies_layout(line: Line, place: Place) -> bool:
    moves = (
        bool(_LAYOUT.search(line.call))
        or "rearrange" in line.call
        or (line.call.endswith(".to") and "memory_format" in place.text)
    )
    return moves and (place.forward or place.in_step or not place.text)
