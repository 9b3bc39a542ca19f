"""What all parts of exact resume share: the phase this life is in, whether we stand inside a shield, and how
one phase becomes the next.

A life is one process that trains, from its start to its death. The first one is recorded;
the next replays the record as a ghost up to an image, restores it, repeats what was lost under the eyes of
the tail check, and records on.
"""

from __future__ import annotations

import _thread
import os
import time

OFF, SETUP, RECORD, GHOST, TAIL = range(5)
NAMES = ("off", "setup", "record", "ghost", "tail")

phase = OFF  # SETUP -> RECORD, or SETUP -> GHOST -> TAIL -> RECORD; OFF: every hook steps aside
depth = 0  # > 0: inside a shield or inside our own code: nothing is logged
steps = 0  # so far, of optimizers or by hand, those of the ghost included
main = _thread.get_ident()  # only this thread's events count
identity = object.__hash__  # of what lives: as good as id(), of which audit hooks are told each time
folder = ""  # where log, images and state.json live, over all lives of a run
attempt = 0
# code of the script's runs once more on the way back (a data set is read, a process of set-up works):
# it writes nowhere
again = False
leaving = False  # this process is about to become another life: what it does now is not the script's
log = None  # the Log of this life
target = None  # the Image that this life goes to, or None
resumed = None  # the Image that this life was restored from, or None
audit = ""  # the resume folder of the run that this life audits (auditor.py); "" in every other life
goal = None  # of an audit: what was told about the place of the image that it is compared with
on_setup_end: list = []  # called once, with depth > 0, before the first shielded event
on_ghost_end: list = []  # called once, with depth > 0, when the image is restored
# called once, with depth > 0, when all that was lost is repeated and equal (at once if nothing was lost)
on_tail_end: list = []
on_enter: list = []  # called at each way into a shield, in this order; most of the time there is nothing
on_leave: list = []  # called at each way out of one
# called at the way into a shield from a place that comes to it for the 1st, 2nd, 4th, 8th, ...
# time, while recording
on_seldom = None
look: object = tuple  # tells where the random numbers of Python and numpy stand; `seen`: what it told last
seen: tuple = ()
on_draw = None  # called at the way out of a shield when they stand elsewhere
# called before this process becomes another life: what this one has done to files is taken back
on_another_life: list = []
# called with an optimizer (None: any) and a number, where a ghost skips so many steps
on_ghost_step: list = []
also_held: list = []  # called for things that a walk goes to last: what is kept of what the script drops
undo_broken = ""  # why images before now can no longer be put back (world/journal.py)
on_error = None  # what takes the faults of the calls above
# an error that a signal handler of the script's or a library's has just raised:
# no fault of ours, wherever it comes out
from_signal = None
_fork_hooked = False
born = time.monotonic()  # nearly the first that this process does


def here() -> bool:
    """Whether what happens now is an event: a phase that logs, the main thread, outside every shield."""
    return not depth and phase and _thread.get_ident() == main


def training() -> bool:
    """As `here()`, and set-up is over: only then are values taken out of tensors events.
    Set-up runs for real in each life."""
    return not depth and phase > SETUP and _thread.get_ident() == main


def replaying() -> bool:
    """Whether an answer of the world (clock, files, entropy) comes from the log by `log.take`, instead of
    from the world by `log.put`:
    in set-up of a life that goes to an image, as a ghost, and in the tail."""
    return phase >= GHOST or (phase == SETUP and target is not None)


def enter(frame: object = None) -> object:
    """Go inside a shield; only when `here()`. The first time, set-up is over. `frame`:
    that of the caller; given back is its `log.Spot`."""
    global depth
    depth = 1
    if phase == SETUP:
        end_setup()
    if on_enter:
        for call in on_enter[:]:
            call()
    if frame is None:
        return None
    spot = log.spots.get((identity(frame.f_code), frame.f_lasti)) or log.spot(frame)
    if phase == RECORD:
        count = spot.passed = spot.passed + 1
        if not count & (count - 1) and on_seldom is not None:
            on_seldom()
    return spot


def leave() -> None:
    global depth, from_signal
    from_signal = None
    if look() != seen:
        on_draw()
    if on_leave:
        for call in on_leave[:]:
            call()
    depth = 0


def end_setup() -> None:
    """Everything before this was, and will be in each life, run for real; from here on the log decides."""
    global phase
    phase = GHOST if target is not None else RECORD
    _call(on_setup_end)


def end_ghost() -> None:
    """The image is restored: what was lost is repeated next."""
    global phase, target, resumed
    phase, resumed, target = TAIL, target, None
    _call(on_ghost_end)
    if not log.left():
        log.go_on()
        end_tail()


def end_tail() -> None:
    """All that was lost is repeated, and was equal:
    from here on this life is recorded as the first one was."""
    global phase, depth
    before, depth = depth, 1
    phase = RECORD
    _call(on_tail_end)
    depth = before


def _call(waiting: list) -> None:
    for call in waiting:
        try:
            call()
        except Exception as e:
            on_error(e)


def off_in_children() -> None:
    """A forked child is somebody else: loader workers, helpers. No hook acts there."""
    global _fork_hooked
    if not _fork_hooked:
        _fork_hooked = True
        os.register_at_fork(after_in_child=_in_child)


def _in_child() -> None:
    """What a process of set-up does to the world (a pool that prepares
    files) it has done in the recorded life."""
    global again
    again = again or (phase == SETUP and target is not None)
    turn_off()


def turn_off() -> None:
    global phase
    phase = OFF
