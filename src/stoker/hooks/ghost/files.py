"""What the script writes: real and undoable while recording and in the tail, swallowed in the ghost phase, put back at a resume.

Prints are in streams.py, open() in opening.py, open files in handles.py, bare descriptors in descriptors.py, os.remove and its like in
effects.py, the way back in journal.py and undo.py; here they come together.
"""

from __future__ import annotations

import builtins
import io
import os

from . import at_exit, descriptors, effects, journal, life, opening, programs, streams, tape, words

put_back: list = []  # the paths that were put back at the start of this life
_first_seen: dict = {}  # number of an image -> the first interval in which it was whole


def install_early() -> None:
    """Before anything else is imported, so that `from os import remove` gets what can be taken back. Under 1 ms."""
    tape.begin()
    tape.replace(builtins, "open", opening.open_, tape.Of("builtins"))
    io.open = builtins.open
    tape.replace(os, "open", opening.os_open, tape.Of("os"))
    at_exit.install_early()
    effects.install_early()
    programs.install_early()
    descriptors.install_early()
    streams.install_early()


def install() -> None:
    """torch is there, the phase is SETUP: prints, torch.save and the journal too. A life that goes to an image finds the files as they were
    then, before the script does anything more."""
    import atexit

    from . import audit

    atexit.register(_let_go)
    streams.install()
    effects.install()
    descriptors.install()
    audit.listen_to_files()
    life.on_tail_end.append(release)
    if life.target is not None:
        _begin_at(life.target)


def _let_go() -> None:
    if life.phase not in (life.GHOST, life.TAIL):
        streams.let_go()
        if opening.handles is not None:
            opening.handles.let_go()


def _begin_at(image: object) -> None:
    from . import fate

    if life.audit:  # its files are in their place since its start
        return
    try:
        put_back[:] = undo(image)
    except (journal.Impossible, OSError, KeyError) as e:
        fate.diverged(str(e))


# ---- at an image, and at the resume

def save(_store: object = None) -> dict:
    """Everything written is in the files; from here on a new interval of the journal. journal.Impossible: a sentence why not here."""
    from . import scan

    scan.drain_writers()
    printed = streams.save()
    for path, (size, mtime) in opening.read_back.items():
        if not _is(path, size, mtime):
            _refuse(words.READ_BACK.format(path=path))
    if path := opening.read_on():
        raise journal.Impossible(words.READ_ON.format(path=path))
    open_files = opening.files_open().save()
    scan.unknown_writers(opening.handles.known_descriptors())
    number = max([0, *journal.epochs()]) + 1
    _forget_intervals(number)
    journal.begin(number)
    journal.known_sizes(_sizes(open_files))
    return {"epoch": number, "open": open_files, "printed": printed, "written": sorted(opening.written),
            "out_bytes": scan.out_bytes()}


def _refuse(reason: str) -> None:
    from . import fate

    fate.refuse(reason)
    raise journal.Impossible(reason)


def load(state: dict, _store: object = None) -> None:
    """As a ghost, at the place of the image: the stand-ins become the files. What does not fit is `fate.diverged`."""
    from . import fate, scan

    try:
        scan.drain_writers()
        printed = streams.save()
        if printed[:2] != tuple(state["printed"][:2]):
            raise journal.Impossible(words.OTHER_PRINTS.format(then=state["printed"][1], now=printed[1]))
        opening.files_open().load(state["open"])
        opening.written.update(state["written"])
        if journal.epoch != state["epoch"]:
            journal.begin(state["epoch"])
        journal.known_sizes(_sizes(state["open"]))
    except (journal.Impossible, OSError, ValueError) as e:
        fate.diverged(str(e))


def undo(image: object) -> list[str]:
    """Put every file back as it was at an image; gives the changed paths. journal.Impossible: the sentence why that cannot be."""
    streams.drop()
    if image is None:
        return []
    from . import undo as way_back

    state = image.meta["parts"]["files"]
    before, life.depth = life.depth, 1
    try:
        return way_back.put_back(state["epoch"], _sizes(state["open"]))
    finally:
        life.depth = before


def release() -> None:
    """The tail was right: what it printed goes out."""
    streams.release()


def _sizes(open_files: list) -> dict:
    return {path: (size, mtime) for _, path, writes, _, size, mtime in open_files if writes}


def _forget_intervals(number: int) -> None:
    """Journals older than the oldest image. An image is written beside training: it belongs to the interval before it was first seen,
    or to the one before that."""
    from . import store

    there = store.numbers(life.folder)
    for n in [each for each in _first_seen if each not in there]:
        del _first_seen[n]
    for n in there:
        _first_seen.setdefault(n, number if life.resumed is None or n > life.resumed.n else 0)
    if there:
        journal.forget(min(_first_seen[n] for n in there) - 2)


def _is(path: str, size: int, mtime: int) -> bool:
    try:
        now = os.lstat(path)
    except OSError:
        return False
    return (now.st_size, now.st_mtime_ns) == (size, mtime)
