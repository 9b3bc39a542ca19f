"""How long it would take to come back to an image, and how far a life is that comes back.

What a ghost does once more is timed for a moment of each second while recording.

A ghost does again what the script does between the calls that it skips.
To each event it adds its own work. What a life that came back has really taken stands in the place of both,
up to its image.
"""

from __future__ import annotations

import functools
import time

from . import phases

EVENT_S = 5e-6  # a ghost's own work for one event, beyond what recording takes between the calls
MOMENT_S = 0.05
TELL_S = 1.0  # between two words of how far a life is that comes back
EVENTS = 64  # without steps of an optimizer, so many events are a round of the script's loop
_clock = getattr(time.monotonic, "__wrapped__", time.monotonic)
# the way back that this life came: events, seconds, and the seconds of training that it saved
_gone = (0, 0.0, 0.0)
_begun = 0.0
_setup_s = 0.0
_own_s = _timed_s = 0.0  # all moments together: what the script did itself, how long they were
_open = False
_until = 0.0
_from = 0.0  # when the moment began, 0 before it has
_edge, _steps = 0, 0  # events and steps at the last round's end
_moment_s = 0.0
_tell_at = 0.0
# the clock when the script took over, None within a shield or when nothing is timed
left: float | None = None


def begin(since: float, setup_s: float, gone: tuple) -> None:
    """Recording goes on from here. `since`: the clock at the end of set-up, or of the way back;
    `gone`: as `_gone`."""
    global _begun, _gone, _setup_s
    _begun, _gone, _setup_s = since, gone, setup_s


def trained_s() -> float:
    """Seconds of training so far that a life from the start would have to repeat."""
    return _gone[2] + (_clock() - _begun if _begun else 0.0)


def foretell(events: int, stall_s: float) -> dict:
    """For an image after so many events, which took `stall_s` to take: `{"back_s":
    seconds from the end of set-up until it is restored,
    "setup_s", "trained_s"}`; empty when nothing was timed yet. Putting back takes about as long as taking."""
    if not _timed_s:
        return {}
    own_s = _own_s / _timed_s * max(0.0, _clock() - _begun - stall_s)
    back_s = _gone[1] + own_s + (events - _gone[0]) * EVENT_S + stall_s
    return {"back_s": round(back_s, 3), "setup_s": round(_setup_s, 3), "trained_s": round(trained_s(), 1)}


def look() -> None:
    """Time the script's own work for a moment; asked about once a second."""
    global _open, _until, _from, _edge, _steps, left
    if _begun and not _open:
        _open, _until, _from, _edge, _steps, left = (
            True,
            _clock() + MOMENT_S,
            0.0,
            phases.log.n,
            phases.steps,
            None,
        )
        phases.on_enter.insert(0, _stops)
        phases.on_leave.append(_goes_on)


def skipped(real: object) -> object:
    """`real` is called outside of shields, and not by a ghost: its time does not count."""
    @functools.wraps(real)
    def call(*args: object, **kwargs: object) -> object:
        global left
        if left is None:
            return real(*args, **kwargs)
        begun = _clock()
        try:
            return real(*args, **kwargs)
        finally:
            if left is not None:
                left += _clock() - begun
    return call


def _stops() -> None:
    global left, _moment_s
    if left is not None:
        _moment_s += _clock() - left
        left = None


def _goes_on() -> None:
    """Whole rounds of the loop are timed, from one step to another:
    else what comes behind a long call would be seen too often."""
    global left, _from, _edge, _steps, _moment_s
    now = _clock()
    if phases.steps != _steps or phases.log.n - _edge >= EVENTS:
        _edge, _steps = phases.log.n, phases.steps
        if not _from:
            _from, _moment_s = now, 0.0
        elif now > _until:
            _shut(now - _from)
            return
    if _from:
        left = now


def _shut(seconds: float) -> None:
    global _open, _own_s, _timed_s
    _open = False
    phases.on_enter.remove(_stops)
    phases.on_leave.remove(_goes_on)
    _own_s, _timed_s = _own_s + _moment_s, _timed_s + seconds


def announce() -> None:
    """From here until all is repeated, `state.json` says how far this life is: {"back":
    {"attempt", "step", "of"}}; `of` is the step of the image, None once it is restored."""
    phases.on_leave.append(_tell)
    phases.on_tail_end.append(_arrived)


def _tell() -> None:
    global _tell_at
    now = _clock()
    if now < _tell_at:
        return
    from . import outcome

    _tell_at = now + TELL_S
    goal = phases.target.step if phases.target is not None else None
    outcome.write_state(back={"attempt": phases.attempt, "step": phases.steps, "of": goal})


def _arrived() -> None:
    if _tell in phases.on_leave:
        phases.on_leave.remove(_tell)
