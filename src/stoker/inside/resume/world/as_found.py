"""While it is not certain that an image is used, nothing of the user's is lost:
before the files are put back to an image, how each of them was found is kept, as an interval of the journal
that begins there; the repeated part of training is noted in it too.
An image that is refused, or a life that is killed on the way, ends with the files as they were found.

`put_back`, then `accept` or `give_back`. The mark `put_back` in the resume folder says that neither has come
yet, and whose it is.
"""

from __future__ import annotations

import os

from ..core import copies, early_log, own, phases
from . import journal, undo
from .journal import ABSENT, APPEND, END, FOLDER, KEEP, LINK, REPLACE, SIZE, Impossible

# in phases.folder: interval, attempt, pid and start of the process that put files back
MARK = early_log.PUT_BACK
ASIDE_KEPT = 3  # attempts
_found: list = []  # paths of which this life has kept how they were found, before it put any back


def put_back(number: int, sizes: dict) -> list[str]:
    """All files as they were when interval `number` began, `sizes` as in undo.wanted.
    Gives the paths that were changed. Impossible: a sentence that says why it cannot be;
    nothing was touched then."""
    give_back()
    states = undo.wanted(number, sizes)
    undo.check(states)
    changing = [path for path in sorted(states) if undo.differs(path, states[path])]
    _keep(changing, states, sizes)
    for path in changing:
        if states[path][0] != ABSENT:
            undo.restore(path, states[path])
    for path in reversed(changing):
        if states[path][0] == ABSENT:
            undo.remove(path)
    os.sync()
    return changing


def _keep(changing: list, states: dict, sizes: dict) -> None:
    """How these files are found, on the disk before any of them changes;
    and of those that were open, how large they are."""
    number = max([0, *journal.epochs()]) + 1
    journal.begin(number, found=True)
    try:
        for path in changing:
            if states[path][0] in (SIZE, END):
                journal.keep_end(path, journal.content(path, states[path])[0][1])
            else:
                journal.keep(path, REPLACE)
        for path in sizes.keys() - set(changing):
            journal.keep(path, APPEND)
        journal.sync_notes()
        _found[:] = journal.noted()
        _write_mark(number)
    except (OSError, Impossible):
        journal.drop(number)
        raise
    journal.on_break = _broken


def _broken(reason: str) -> None:
    """What the script is about to change could not be kept: before it does, this life has left its way."""
    from ..core import outcome

    outcome.diverged(reason)


def accept() -> None:
    """The image is used: what was found is of no use any more but for the user, who finds it in the folder of
    things aside."""
    journal.on_break = None
    if not own.lies(_mark()):
        return
    found = journal.read(_read_mark()[0])
    _remove_mark()
    for path in _found:
        _set_aside(path, found.get(path, (ABSENT,)))
    _found.clear()
    _forget_old_asides()


def _set_aside(path: str, state: tuple) -> None:
    try:
        if state[0] == LINK:
            os.symlink(state[1], undo.place_aside(path))
        elif state[0] == KEEP:
            os.link(state[1], undo.place_aside(path))
        elif state[0] == END:
            os.link(state[1], undo.place_aside(path, f".from-byte-{state[2]}"))
    except OSError as e:
        from ..core import outcome

        outcome.say(f"Stoker could not make a copy of {path}: {e}")


def begin(folder: str) -> None:
    """`give_back`, at the start of a process, before anything else is known. Raises nothing:
    what could not be done is told."""
    before = phases.folder, phases.attempt, phases.depth
    try:
        phases.folder, phases.attempt, phases.depth = (
            folder,
            int(os.environ.get("STOKER_ATTEMPT", "1") or 1),
            1,
        )
        give_back()
    except Exception as e:
        _tell([f"all ({type(e).__name__}: {e})"])
    finally:
        phases.folder, phases.attempt, phases.depth = before


def at_the_end(folder: str) -> None:
    """`begin`, by the agent, once an attempt has ended: what state.json says of it stays."""
    from ..core import outcome

    before, phases.folder = phases.folder, folder
    outcome.passed.update(outcome._state().get("points_passed") or {})
    phases.folder = before
    begin(folder)


def give_back() -> None:
    """All files as they were found, where a life has put some back and no image was accepted;
    nothing otherwise, or while that life goes on in another process."""
    import fcntl

    if not own.lies(_mark()):
        return
    fd = own.open_file(_mark(), os.O_RDONLY)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX)  # one process at a time
        if own.lies(_mark()):
            _of_mark(*_read_mark())
    finally:
        os.close(fd)


def _of_mark(number: int, attempt: int, pid: int, began: int) -> None:
    goes_on = _began(pid) == began
    mine = goes_on and pid == os.getpid()
    if goes_on and not mine and attempt == phases.attempt:
        return
    if number in journal.epochs():
        journal.on_break = None
        failed = _all_as_found(journal.read(number), mine)
        if failed:
            _tell(failed)
            with own.Folder(os.path.join(phases.folder, "undo")) as here:
                os.rename(f"{here}/{number}", undo.place_aside("/not-given-back"))
        else:
            journal.drop(number)
    _found.clear()
    _remove_mark()
    if not mine:
        _tell_given_back(attempt)


def _all_as_found(states: dict, mine: bool) -> list[str]:
    """Gives what could not be done, each with its reason. A later life puts aside what it finds:
    somebody may have changed it since."""
    failed = []

    def one(path: str, state: tuple) -> None:
        try:
            undo.beside(path)
            changed = state[0] in (ABSENT, KEEP, LINK) and undo.differs(path, state) and not _is(path, state)
            if changed and not mine and os.path.lexists(path):
                undo.put_aside(path, stays=state[0] != ABSENT)
            _as_found(path, state)
        except OSError as e:
            failed.append(f"{path} ({e.strerror or e})")

    for path in sorted(states):
        if states[path][0] != ABSENT:
            one(path, states[path])
    for path in sorted(states, reverse=True):
        if states[path][0] == ABSENT:
            one(path, states[path])
    for path in sorted(states, reverse=True):
        if states[path][0] == FOLDER:
            one(path, ("time", *states[path][1:]))
    os.sync()
    return failed


def _as_found(path: str, state: tuple) -> None:
    if state[0] == "time":
        os.utime(path, ns=(state[2], state[2]))
    elif state[0] == ABSENT:
        undo.remove(path)
    elif state[0] == KEEP:
        _file_as_found(path, state)
    elif undo.differs(path, state):
        undo.restore(path, state)
    elif state[0] == SIZE:
        undo.like(path, state)


def _file_as_found(path: str, state: tuple) -> None:
    """The file itself, with all that hangs on it, where it could be kept by a link; else a copy."""
    os.makedirs(os.path.dirname(path), exist_ok=True)
    new = undo.beside(path)
    if _is(path, state):
        return
    try:
        os.link(state[1], new)
    except OSError:
        copies.copy(state[1], new)
        copies.make_alike(state[1], new)
    undo.put_in_place(new, path)


def _is(path: str, state: tuple) -> bool:
    """Whether this is the very file that was kept."""
    try:
        return state[0] == KEEP and os.path.samestat(os.lstat(path), os.lstat(state[1]))
    except OSError:
        return False


def _tell(failed: list[str]) -> None:
    from ..core import outcome

    outcome.write_state(not_given_back={"attempt": phases.attempt, "files": failed[:20]})


def _tell_given_back(attempt: int) -> None:
    """That the files were given back after that attempt, and in which attempt's folder of things aside is
    what stood in their place."""
    from ..core import outcome

    told = [each for each in outcome._state().get("given_back") or () if each.get("attempt") != attempt]
    outcome.write_state(given_back=[*told, {"attempt": attempt, "aside": phases.attempt}])


# ---- the mark

def _mark() -> str:
    return os.path.join(phases.folder, MARK)


def _write_mark(number: int) -> None:
    told = f"{number} {phases.attempt} {os.getpid()} {_began(os.getpid())}\n".encode()
    own.write(_mark(), told, sync=True)
    _sync()


def _read_mark() -> tuple:
    return tuple(int(word) for word in own.read(_mark()).split())


def _remove_mark() -> None:
    own.remove(_mark())
    _sync()


def _sync() -> None:
    with own.Folder(phases.folder) as here:
        copies.sync_folder(here)


def _began(pid: int) -> int:
    """When a process began, in ticks since the machine did; 0 if there is none."""
    try:
        with open(f"/proc/{pid}/stat", encoding="ascii", errors="replace") as f:
            words = f.read().rpartition(")")[2].split()
    except OSError:
        return 0
    return 0 if words[0] in "ZX" else int(words[19])


def _forget_old_asides() -> None:
    folder = os.path.join(phases.folder, "aside")
    kept = sorted((int(name) for name in own.folders(folder) if name.isdigit()), reverse=True)
    for old in kept[ASIDE_KEPT:]:
        own.remove(os.path.join(folder, str(old)))
