"""The global random numbers of Python and numpy:
a ghost skips the library's draws, so the script's own draws after them would differ.

Seen from the ways into and out of shields: when the script draws after a shielded call drew, the state in
between goes into the log as a note to that call's event; the ghost puts it back there.
Where only the library draws, or only the script, nothing is logged.
"""

from __future__ import annotations

import functools
import marshal
import operator
import os
import sys

from ..core import early_log, internals, outcome, own, phases

_FIRST = "start"  # in phases.folder: the generators as the first life found them
_starts: dict = {}  # "python", "numpy", "torch" -> state
_names: list = []  # of what `_look` looks at
_inside = _outside = ()  # what could be seen at the way into the last shield, and out of it
_pending = None  # (event, state) after the last library draw that the script has not drawn after


class _Watched:
    """ctypes views into the states: position and first word, and where half of a pair of Gaussians waits."""

    python = inst = numpy = None


def python_begins(random: object) -> None:
    """`random` is imported: from now on its state can be watched."""
    _Watched.python, _Watched.inst = internals.python_views(random._inst), random._inst
    _watch("python.value", "inst.gauss_next")


def numpy_begins(numpy: object) -> None:
    bits = numpy.random.mtrand._rand._bit_generator
    if type(bits).__name__ == "MT19937":
        _Watched.numpy = (*internals.numpy_views(bits), bits)
        _Watched.position, _Watched.word = _Watched.numpy[:2]
        _watch("position.value", "word.value")


def _watch(*names: str) -> None:
    """`_look` gets a form without a line of Python: it is asked on each way out of a shield."""
    global _look
    _names.extend(name for name in names if name not in _names)
    _look = functools.partial(operator.attrgetter(*_names), _Watched)
    if phases.look is not tuple:
        phases.look, phases.seen = _look, (*phases.seen, *_look()[len(phases.seen):])


def _look() -> tuple:
    """Changes whenever somebody drew: the positions, and words for the case that a position came round."""
    return ()


def start(which: str) -> None:
    """A generator has just come to be: a life that goes to an image begins with the state of the first life,
    any other keeps its own."""
    recorded = _recorded().get(which)
    if recorded is not None:
        _SET[which](recorded)
    _starts[which] = recorded if recorded is not None else _GET[which]()


def keep_start() -> None:
    """This process trains, and is the first life."""
    own.write(os.path.join(phases.folder, _FIRST), marshal.dumps(_starts))


def _recorded() -> dict:
    if early_log.early != early_log.GHOST and phases.target is None:
        return {}
    try:
        return marshal.loads(own.read(os.path.join(os.environ["STOKER_RESUME_DIR"], _FIRST)))
    except (OSError, ValueError, EOFError, TypeError, KeyError):
        return {}


_GET = {"python": internals.python_rng, "numpy": internals.numpy_rng, "torch": internals.torch_rng}
_SET = {
    "python": internals.set_python_rng,
    "numpy": internals.set_numpy_rng,
    "torch": internals.set_torch_rng,
}


def install() -> None:
    if "random" in sys.modules and _Watched.python is None:
        python_begins(sys.modules["random"])
        start("python")
    if "numpy" in sys.modules and _Watched.numpy is None:
        numpy_begins(sys.modules["numpy"])
        start("numpy")
    if phases.target is None:
        phases.on_setup_end.append(_begin)
    else:
        phases.on_leave.append(_leave_as_ghost)
        phases.on_ghost_end.append(_begin)


def _begin() -> None:
    """No longer a ghost, or never one. Until somebody draws,
    it is enough to ask at each way out of a shield."""
    if _leave_as_ghost in phases.on_leave:
        phases.on_leave.remove(_leave_as_ghost)
    if _pending is None:
        phases.look, phases.seen, phases.on_draw = _look, _look(), _look_closely
    else:
        _look_closely()


def _look_closely() -> None:
    """From here on it is told who draws, by a look on the way in too.
    The way out that has just found it comes to `_leave` without one, and takes it for the library:
    if it was the script, the ghost finds the same where it puts this state back."""
    phases.look, phases.seen = tuple, ()
    phases.on_enter.append(_enter)
    phases.on_leave.append(_leave)


def save() -> object:
    """What belongs into an image: a state in waiting.
    If the script has drawn after it, the ghost needs it before it comes here."""
    global _pending
    if _pending is not None and _look() != _outside:
        phases.log.note(*_pending)
        _pending = None
    return _pending


def load(state: object) -> None:
    """After the generators have been restored from the image."""
    global _pending, _outside
    _pending, _outside = state, _look()


def _enter() -> None:
    global _inside, _pending
    now = _look()
    if _pending is not None and now != _outside:
        phases.log.note(*_pending)
        _pending = None
    _inside = now


def _leave() -> None:
    global _outside, _pending
    now = _look()
    if now != _inside or (_pending is not None and _has_gauss(_pending[1])):
        _pending = (phases.log.n, _state())
    elif _pending is not None:
        _pending = (phases.log.n, _pending[1])
    _outside = now


def _leave_as_ghost() -> None:
    state = phases.log.noted(phases.log.n)
    if state is not None:
        _restore(state)


def _state() -> tuple:
    try:
        return internals.python_rng() if _Watched.python is not None else None, internals.numpy_rng()
    except Exception as e:
        outcome.broke(e)
        return None, None


def _has_gauss(state: tuple) -> bool:
    """numpy's legacy generator keeps the second of a pair of Gaussians aside: using it up changes no word."""
    return bool(state[1] and state[1][2])


def _restore(state: tuple) -> None:
    if state[0] is not None:
        internals.set_python_rng(state[0])
    internals.set_numpy_rng(state[1])
