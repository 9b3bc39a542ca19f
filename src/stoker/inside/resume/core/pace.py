"""When an image is wanted: often enough that little is lost, seldom enough that nobody notices."""

from __future__ import annotations

import os
import time

from . import own, phases

FIRST_S = 30.0
LEAST_S, MOST_S = 60.0, 600.0
COST = 0.02  # of a life's time, for images and for tries that came to nothing
LOOK_S = 0.25  # how often a life looks whether its caretaker asks for an image
PRIOR_S = 4 * 3600.0  # how long a run lives before it was ever lost
# bytes a second that the writer's thread gets through: beside training, but on the same machine
_WRITE = 1.5e9
_clock = getattr(time.monotonic, "__wrapped__", time.monotonic)
_wall = getattr(time.time, "__wrapped__", time.time)
_begun = 0.0
_between_s = PRIOR_S  # what this run lives between two losses
_every_s = FIRST_S
_every_steps = 0
_fixed = False
_last_at, _last_step = 0.0, 0
_spent = _wasted = 0.0
_hold_until = 0.0
_urged = False
writing = False  # an image is on its way to the disk
wished = False  # an image is wanted at the next point, whatever the clock says
not_before = 0.0  # the clock before which no image is due, whatever happens


def begin() -> None:
    """A life is recorded from now on."""
    global _begun, _last_at, _last_step, _between_s, _every_s, _every_steps, _fixed
    _begun = _last_at = _clock()
    _last_step = phases.steps
    wanted = os.environ.get("STOKER_IMAGE_EVERY", "auto")
    if wanted.endswith("steps") and wanted[:-5].isdigit():
        _every_steps = int(wanted[:-5])
    elif wanted.endswith("s") and wanted[:-1].replace(".", "", 1).isdigit():
        _every_s, _fixed = float(wanted[:-1]), True
    _between_s = _losses()
    _look_ahead()


def begun() -> bool:
    """Whether this life is recorded yet."""
    return bool(_begun)


def wish() -> None:
    """An image is wanted at the next point, a signal came, a limit is near:
    points are to look at each event."""
    global not_before, _urged, wished
    wished, _urged, not_before = True, True, 0.0


def due() -> bool:
    """Whether an image is wanted; asked at each event, from `not_before` on."""
    now = _clock()
    if (
        _every_steps
        and phases.steps - _last_step < _every_steps
        and (phases.steps != _last_step or now - _last_at < FIRST_S)
    ):
        return False  # where no steps can be counted (they happen inside a module), time counts
    return now >= _hold_until and (bool(_every_steps) or now - _last_at >= _every_s)


def took(begun: float, size: int) -> None:
    """An image was taken. Young and Daly:
    the best time between two is sqrt(2 * cost * time between losses)."""
    global _last_at, _last_step, _every_s, _spent, _hold_until
    stall = _clock() - begun
    _spent += stall
    if not _fixed:
        cost = stall + size / _WRITE
        _every_s = max(min(max((2 * cost * _between_s) ** 0.5, LEAST_S), MOST_S), cost / COST)
    _last_at, _last_step, _hold_until = begun, phases.steps, 0.0
    _look_ahead()


def passed(begun: float) -> None:
    """A point was none. The next may be one, as long as trying costs little."""
    global _wasted, _hold_until
    now = _clock()
    _wasted += now - begun
    if _wasted > 0.5 + COST * (now - _begun):
        _hold_until = now + min(MOST_S, (now - begun) / COST)
        _look_ahead()


def looked() -> None:
    """Nobody asks for an image."""
    _look_ahead()


def _look_ahead() -> None:
    global not_before
    not_before = (
        0.0 if _every_steps or _urged else min(max(_hold_until, _last_at + _every_s), _clock() + LOOK_S)
    )


def told() -> dict:
    """For `show`: the interval in seconds or steps, and the share of the time that images cost so far."""
    interval = {"every_steps": _every_steps} if _every_steps else {"every_s": round(_every_s, 1)}
    return {**interval, "cost": round((_spent + _wasted) / max(_clock() - _begun, 1e-9), 5)}


def _losses() -> float:
    """Mean time between losses: each life but the first began because another was lost."""
    path = os.path.join(phases.folder, "lives")
    now = _wall()
    try:
        with open(path, "a+", encoding="ascii", opener=own.open_made) as f:
            f.write(f"{now:.0f}\n")
            f.seek(0)
            starts = [float(line) for line in f.read().split()[-50:]]
    except (OSError, ValueError):
        return PRIOR_S
    return (PRIOR_S + max(0.0, now - starts[0])) / len(starts)
