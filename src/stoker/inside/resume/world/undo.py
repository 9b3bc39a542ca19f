"""What each file of the user's is to be like, by the undo journal, and making it so;
killed in the middle and called again it ends the same.
as_found.py sees to it that nothing is lost by that until the image is accepted.
"""

from __future__ import annotations

import os

from ..core import copies, own, phases, words
from . import journal
from .journal import ABSENT, END, FOLDER, KEEP, LINK, PARTS, SIZE, SIZED, Impossible

_BESIDE = ".stoker-undo"


def wanted(number: int, sizes: dict) -> dict:
    """path -> what was there when interval `number` began, as in the journal;
    of all files that may be something else now. `sizes`:
    path -> (bytes, mtime_ns) of the files that were open for writing then. Impossible:
    a sentence that says why nobody can know."""
    states = journal.states_at(number)
    for path, (size, mtime) in sizes.items():
        known = states.get(path)
        if known is None:
            states[path] = (SIZE, size, None, mtime)
        elif known[0] in SIZED:
            states[path] = (*known[:-3], size, known[-2], mtime)
    return states


def check(states: dict) -> None:
    """Impossible: the sentence that says why these cannot be put back."""
    for path, state in states.items():
        if state[0] in (SIZE, END) and os.path.islink(path):
            raise Impossible(words.UNDO_LOST.format(path=path))
        if state[0] in SIZED and any(_size(kept) < size for kept, size in journal.content(path, state)):
            raise Impossible(words.UNDO_LOST.format(path=path))


def _size(path: str) -> int:
    """Of a file; -1 of anything else."""
    return os.path.getsize(path) if os.path.isfile(path) else -1


def differs(path: str, state: tuple) -> bool:
    """Whether something has to be done. False of a file only where nobody could have changed its content."""
    if state[0] == ABSENT:
        return os.path.lexists(path)
    if state[0] == FOLDER:
        return not os.path.isdir(path) or os.path.islink(path)
    if state[0] == LINK:
        return not os.path.islink(path) or os.readlink(path) != state[1]
    return state[0] != SIZE or _size(path) != state[1]


def restore(path: str, state: tuple) -> None:
    """Make `path` what the state says, unless nothing is to be there. What stands in its way is removed."""
    os.makedirs(os.path.dirname(path), exist_ok=True)
    if state[0] == FOLDER:
        clear(path)
        os.mkdir(path, 0o700)
        os.chmod(path, state[1])
    elif state[0] == LINK:
        clear(path)
        os.symlink(state[1], path)
        os.utime(path, ns=(state[2], state[2]), follow_symlinks=False)
    elif state[0] in (KEEP, PARTS):
        new = beside(path)
        copies.join(journal.content(path, state), new)
        like(new, state)
        put_in_place(new, path)
    elif state[0] == SIZE:
        copies.cut(path, state[1])
        like(path, state)
    else:
        (_, before), (kept, more) = journal.content(path, state)
        copies.put_behind(path, before, kept, more)
        like(path, state)


def put_in_place(new: str, path: str) -> None:
    """A file, in the place of whatever is there."""
    if os.path.isdir(path) and not os.path.islink(path):
        clear(path)
    os.replace(new, path)


def beside(path: str) -> str:
    """A free name next to a path; what a life that was killed has left there is gone."""
    clear(path + _BESIDE)
    return path + _BESIDE


def like(path: str, state: tuple) -> None:
    """Mode and time of a file as its state says."""
    if state[-2] is not None:
        os.chmod(path, state[-2])
    os.utime(path, ns=(state[-1], state[-1]))


def clear(path: str) -> None:
    """Nothing is at `path` any more. A folder that is not empty goes aside."""
    if os.path.isdir(path) and not os.path.islink(path):
        if os.listdir(path):
            put_aside(path)
        else:
            os.rmdir(path)
    elif os.path.lexists(path):
        os.unlink(path)


def remove(path: str) -> None:
    """Nothing is at `path` any more; all that was is kept elsewhere."""
    if os.path.isdir(path) and not os.path.islink(path):
        own.remove(path)
    elif os.path.lexists(path):
        os.unlink(path)


def put_aside(path: str, ending: str = "", stays: bool = False) -> None:
    """What stands at `path` goes to this attempt's folder of things aside, or also there."""
    import shutil

    aside = place_aside(path, ending)
    folder = os.path.isdir(path) and not os.path.islink(path)
    try:
        if stays and not folder:
            os.link(path, aside, follow_symlinks=False)
        else:
            os.rename(path, aside)
    except OSError:
        if folder:
            shutil.copytree(path, aside, symlinks=True)
        else:
            shutil.copy2(path, aside, follow_symlinks=False)
        if not stays:
            own.remove(path) if folder else os.unlink(path)


def place_aside(path: str, ending: str = "") -> str:
    """A free name in this attempt's folder of things aside:
    the path below it, and a number if it was put aside before."""
    folder = aside_folder(phases.attempt)
    base = os.path.join(folder, path.lstrip(os.sep) + ending)
    own.make(folder)
    own.make(os.path.dirname(base), links=True)
    place, n = base, 1
    while os.path.lexists(place):
        n += 1
        place = f"{base}.{n}"
    return place


def aside_folder(attempt: int) -> str:
    """Where things of the user's are kept that an attempt has put something else in the place of."""
    return os.path.join(phases.folder, "aside", str(attempt))
