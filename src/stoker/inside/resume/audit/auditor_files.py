"""What an audit finds of the files that the script writes:
in its scratch folder they are what they were at the image it begins at.

The undo journal of the run says what that was, and hears of each change before it happens.
What it does not name is as it was.
"""

from __future__ import annotations

import os
import shutil

from ... import scratch
from ..core import phases, words
from ..world import files, journal, undo

LARGE = 64 << 20  # bytes: a larger file is not copied; most such are only written anew
MOST = 1 << 30  # of all copies
_epoch = 0
_cannot: object = None
_known: dict = {}  # path -> its state at the image, of all that was laid out
_not_copied: set = set()
_written: set = set()  # all that the script ever wrote, up to the next image


def lay_out(state: dict, later: dict, cannot: object) -> None:
    """All that the run has changed since the image, as it was then;
    from here on whatever it changes besides is looked at. `state`, `later`:
    what this image and the next have of files. `cannot(why)` ends the audit without a verdict."""
    global _epoch, _cannot
    _cannot = cannot
    _epoch, sizes = state["epoch"], files._sizes(state["open"])
    _written.update(later["written"])
    before, phases.depth = phases.depth, 1
    try:
        _known.update(_of_the_run(undo.wanted, _epoch, sizes))
        left = min(MOST, shutil.disk_usage(phases.audit).free // 2)
        for path in sorted(_known):
            left -= _put(path, _known[path], left)
        again = _of_the_run(undo.wanted, _epoch, sizes)
    except (journal.Impossible, OSError) as e:
        cannot(str(e))
    finally:
        phases.depth = before
    if any(again.get(path) != known for path, known in _known.items()):
        cannot(words.AUDIT_FILES)
    scratch.look = _look


def _of_the_run(call: object, *args: object) -> object:
    """The journal reads that of `phases.folder`."""
    before, phases.folder = phases.folder, phases.audit
    try:
        return call(*args)
    finally:
        phases.folder = before


def _put(path: str, known: tuple, left: int) -> int:
    """One path in the scratch folder; the bytes that were copied."""
    there = scratch.elsewhere(path)
    if not there:
        return 0
    if known[0] == journal.ABSENT:
        scratch.hide(path)
        return 0
    os.makedirs(os.path.dirname(there), 0o700, exist_ok=True)
    if known[0] == journal.LINK:
        os.symlink(known[1], there)
    elif known[0] == journal.FOLDER:
        os.makedirs(there, 0o700, exist_ok=True)
    else:
        parts = journal.content(path, known)
        size = sum(count for _, count in parts)
        if size > min(LARGE, left):
            _not_copied.add(path)
            return 0
        for source, count in parts:
            _copy(source, there, count)
        return size
    return 0


def _copy(source: str, target: str, size: int) -> None:
    with open(source, "rb") as f, open(target, "ab") as out:
        while size:
            part = f.read(min(size, 1 << 20))
            if not part:
                raise journal.Impossible(words.UNDO_LOST.format(path=source))
            out.write(part)
            size -= len(part)


def _look(path: str) -> None:
    """The script reads a file of the user's, or goes on in it:
    is it what it was? Of a worker of a loader nobody asks."""
    if phases.phase < phases.GHOST or path.startswith(phases.audit + os.sep):
        return
    there = os.path.join(scratch._real(os.path.dirname(path)), os.path.basename(path))
    if there in _not_copied:
        _cannot(words.AUDIT_LARGE.format(path=path))
    before, phases.depth = phases.depth, 1
    try:
        # known: it is read under another name
        changed = there in _known or there in _of_the_run(journal.states_at, _epoch)
    except (journal.Impossible, OSError):
        if there in _written:
            _cannot(words.AUDIT_LONG_AGO.format(path=path))
        return
    finally:
        phases.depth = before
    if changed:
        _cannot(words.AUDIT_LATE.format(path=path))
