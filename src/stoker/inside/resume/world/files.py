"""What the script writes: real and undoable while recording and in the tail, swallowed in the ghost phase,
put back at a resume.

Prints are in streams.py, open() in opening.py, open files in handles.py, bare descriptors in descriptors.py,
os.remove and its like in effects.py, the way back in journal.py and undo.py; here they come together.
"""

from __future__ import annotations

import builtins
import io
import os

from ..core import early_log, phases, store, words
from . import at_exit, descriptors, effects, journal, known_files, opening, programs, streams

images_in_use: list = []  # called for the numbers of images that others than a start may use
_first_seen: dict = {}  # number of an image -> the first interval in which it was whole
_old: set = set()  # images that were there when this life began


def install_early() -> None:
    """Before anything else is imported,
    so that `from os import remove` gets what can be taken back. Under 1 ms."""
    phases.on_another_life.append(give_back)
    early_log.begin()
    early_log.replace(builtins, "open", opening.open_, early_log.Of("builtins"))
    io.open = builtins.open
    early_log.replace(os, "open", opening.os_open, early_log.Of("os"))
    at_exit.install_early()
    effects.install_early()
    programs.install_early()
    descriptors.install_early()
    streams.install_early()


def install() -> None:
    """torch is there, the phase is SETUP: prints, torch.save and the journal too.
    A life that goes to an image leaves the files as it finds them until it is there (`put_back`)."""
    import atexit

    from . import audit_hook

    atexit.register(_let_go)
    streams.install()
    effects.install()
    descriptors.install()
    audit_hook.listen_to_files()
    phases.on_tail_end.append(release)
    _old.update(_images() if phases.target is not None else ())
    if phases.target is not None and not phases.audit:
        _try(_look_ahead)


def _let_go() -> None:
    if phases.phase not in (phases.GHOST, phases.TAIL):
        streams.let_go()
        if opening.handles is not None:
            opening.handles.let_go()


def _look_ahead() -> None:
    """Could the files be put back? A ghost reads large ones that the
    script wrote as they were at the image."""
    from . import undo

    states = undo.wanted(*_at(phases.target))
    undo.check(states)
    for path, state in states.items():
        if state[0] in journal.SIZED:
            opening.at_image[path] = (state[1] if state[0] == journal.KEEP else path, state[-3], state[-1])


def put_back() -> None:
    """As a ghost, at the place of the image, with all that was compared equal:
    the files are now what they were then."""
    if not phases.audit:  # its files are in their place since its start
        from . import as_found

        _try(lambda: as_found.put_back(*_at(phases.target)))


def _try(call: object) -> None:
    from ..core import outcome

    before, phases.depth = phases.depth, 1
    try:
        call()
    except (journal.Impossible, OSError, KeyError, ValueError) as e:
        outcome.diverged(str(e))
    finally:
        phases.depth = before


def _at(image: object) -> tuple:
    """(interval that an image begins, sizes of the files that were open for writing)."""
    state = image.meta["parts"]["files"]
    return state["epoch"], _sizes(state["open"])


# ---- at an image, and at the resume

def save(_store: object = None) -> dict:
    """Everything written is in the files; from here on a new interval of the journal. journal.Impossible:
    a sentence why not here."""
    from . import foreign_writers

    foreign_writers.drain_writers()
    printed = streams.save()
    for path, (size, mtime) in opening.read_back.items():
        if not _is(path, size, mtime):
            _refuse(words.READ_BACK.format(path=path))
    if path := opening.read_on():
        raise journal.Impossible(words.READ_ON.format(path=path))
    open_files = opening.files_open().save()
    foreign_writers.unknown_writers(opening.handles.known_descriptors())
    number = max([0, *journal.epochs()]) + 1
    _forget_intervals(number)
    journal.begin(number)
    journal.known_sizes(_sizes(open_files))
    return {"epoch": number, "open": open_files, "printed": printed, "written": sorted(known_files.written),
            "out_bytes": foreign_writers.out_bytes()}


def _refuse(reason: str) -> None:
    from ..core import outcome

    outcome.refuse(reason)
    raise journal.Impossible(reason)


def load(state: dict, _store: object = None) -> None:
    """As a ghost, at the place of the image: the stand-ins become the files.
    What does not fit is `outcome.diverged`."""
    from ..core import outcome
    from . import foreign_writers

    try:
        foreign_writers.drain_writers()
        printed = streams.save()
        if printed[:2] != tuple(state["printed"][:2]):
            raise journal.Impossible(words.OTHER_PRINTS.format(then=state["printed"][1], now=printed[1]))
        opening.files_open().load(state["open"])
        known_files.written.update(state["written"])
    except (journal.Impossible, OSError, ValueError) as e:
        outcome.diverged(str(e))


def give_back() -> None:
    """The image is not used: what was printed since is dropped, and every file is what it was at the kill."""
    from . import as_found

    streams.drop()
    as_found.give_back()


def release() -> None:
    """The tail was right: what it printed goes out, and the files are the script's."""
    from . import as_found

    as_found.accept()
    streams.release()


def _sizes(open_files: list) -> dict:
    return {path: (size, mtime) for _, path, writes, _, size, mtime in open_files if writes}


def _forget_intervals(number: int) -> None:
    """Journals older than the oldest image that is needed. An image is written beside training:
    it belongs to the interval before it was first seen, or to the one before that."""
    there = _images()
    for n in [each for each in _first_seen if each not in there]:
        del _first_seen[n]
    for n in there:
        _first_seen.setdefault(n, number if n not in _old else 0)
    if there:
        journal.forget(min(_first_seen[n] for n in there) - 2)


def _images() -> list:
    """Those that a start may use and those that an audit uses, in this order:
    a room is made before its images go."""
    return store.numbers(phases.folder) + [n for call in images_in_use for n in call()]


def _is(path: str, size: int, mtime: int) -> bool:
    try:
        now = os.lstat(path)
    except OSError:
        return False
    return (now.st_size, now.st_mtime_ns) == (size, mtime)
