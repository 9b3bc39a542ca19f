"""The one audit hook: Python tells it of each file that is opened, renamed or removed, and of each process,
socket and library, before it happens and whoever asks. Nearly all it hears is of no interest:
one look into a dictionary.
"""

from __future__ import annotations

import os
import sys
from _thread import get_ident

from ...looks import isinstance
from ..core import pathways, phases, words
from . import journal

_ears: dict = {}  # event -> what hears it
_lasting: set = set()
_installed = False
on_cut: list = []  # called with the number of a file before os.ftruncate


def listen(event: str, ear: object, lasting: bool = False) -> None:
    """Call `ear(args)` before each `event`; with `lasting` also when recording has stopped, for as long as
    there are images that could be used. It may not raise."""
    global _installed
    _ears[event] = ear
    if lasting:
        _lasting.add(event)
    if not _installed:
        _installed = True
        sys.addaudithook(_hook)


def _hook(event: str, args: tuple, get: object = _ears.get) -> None:
    ear = get(event)
    if ear is not None and not phases.leaving and (phases.phase or (journal.epoch and event in _lasting)):
        try:
            ear(args)
        except Exception as e:
            from ..core import outcome

            outcome.broke(e)


def listen_to_files() -> None:
    """Whatever changes a file of the user's, the journal hears of it first."""
    ears = {
        "open": _opens, "os.rename": _renames, "os.truncate": _truncates,
        "os.remove": lambda args: _goes(args[0], args[1]), "os.rmdir": lambda args: _goes(args[0], args[1]),
        "os.mkdir": lambda args: _goes(args[0], args[2]), "os.link": lambda args: _goes(args[1], args[3]),
        "os.symlink": lambda args: _goes(args[1], args[2]),
    }  # fmt: skip
    for event in ("os.chmod", "os.chown", "os.utime"):
        ears[event] = lambda args: _changes(args[0])
    for event, ear in ears.items():
        listen(event, ear, lasting=True)
    os.register_at_fork(after_in_child=journal.not_ours)


def quiet() -> bool:
    """The journal has nothing to do: no image yet, or a ghost, which changes nothing."""
    return (
        not journal.epoch
        or phases.phase == phases.GHOST
        or (phases.phase == phases.SETUP and phases.target is not None)
    )


def _opens(args: tuple) -> None:
    path, flags = args[0], args[2]
    if not flags & (os.O_WRONLY | os.O_RDWR) or isinstance(path, int) or path is None or os.path.isdir(path):
        return  # a folder: an opener makes a file in it, by os.open(), as tempfile's do
    if phases.phase == phases.GHOST and not phases.depth and get_ident() == phases.main:
        _past_us(pathways.content(path))
    if quiet():
        return
    target = pathways.content(path)
    if flags & os.O_TRUNC:
        journal.touch(target, journal.TRUNCATE)
    else:
        journal.touch(target, journal.APPEND if flags & os.O_APPEND else journal.OVERWRITE)


def _past_us(path: str) -> None:
    """A ghost would really write: it came by another door than open (`from _io import open`, FileIO)."""
    if not pathways.ours(path) and not path.endswith(".pyc") and "__pycache__" not in path:
        from ..core import outcome

        outcome.diverged(words.OPENED_PAST.format(path=path))


def _goes(path: object, dir_fd: object) -> None:
    if isinstance(path, int) or quiet():
        return
    journal.touch(pathways.entry(path, dir_fd), journal.REPLACE)


def _renames(args: tuple) -> None:
    if quiet():
        return
    source, target = pathways.entry(args[0], args[2]), pathways.entry(args[1], args[3])
    journal.touch(source, journal.REPLACE)
    journal.touch(target, journal.REPLACE)
    if os.path.isdir(source) and not os.path.islink(source):  # what is in it comes to new paths
        for here, folders, files in os.walk(source):
            for name in folders + files:
                journal.touch(target + os.path.join(here, name)[len(source):], journal.REPLACE)
        pathways.forget_folders()


def _truncates(args: tuple) -> None:
    if isinstance(args[0], int):
        for call in on_cut:
            call(args[0])
    elif not quiet():
        journal.touch(pathways.content(args[0]), journal.OVERWRITE)


def _changes(path: object) -> None:
    if not isinstance(path, int) and not quiet():
        journal.touch(pathways.content(path), journal.APPEND)
