"""Puts the user's files back as they were at an image. What is there now goes aside, into `aside/<attempt>/`; killed in the middle and
called again it ends the same.
"""

from __future__ import annotations

import os
import shutil
import stat

from . import journal, life, pathways, words
from .journal import ABSENT, FOLDER, KEEP, LINK, SIZE, Impossible

ASIDE_KEPT = 3  # attempts


def put_back(number: int, sizes: dict) -> list[str]:
    """All files as they were when interval `number` began; `sizes`: path -> (bytes, mtime_ns) of the files that were open for writing then.
    Gives the paths that were changed. Impossible: a sentence that says why it cannot be; nothing was touched then."""
    states = wanted(number, sizes)
    _check(states)
    changed = [path for path in sorted(states) if states[path][0] in (FOLDER, LINK, SIZE, KEEP) and _restore(path, states[path])]
    changed += [path for path in sorted(states, reverse=True) if states[path][0] == ABSENT and _away(path)]
    os.sync()
    journal.start_over(number)
    _forget_old_asides()
    return changed


def wanted(number: int, sizes: dict) -> dict:
    """path -> what is to be there, as in the journal; of all files that may be something else now."""
    states = journal.states_at(number)
    for path, (size, mtime) in sizes.items():
        known = states.get(path)
        if known is None:
            states[path] = (SIZE, size, None, mtime)
        elif known[0] in (SIZE, KEEP):
            states[path] = (*known[:-3], size, known[-2], mtime)
    return states


def _check(states: dict) -> None:
    for path, state in states.items():
        if state[0] == SIZE:
            try:
                now = os.lstat(path)
            except OSError as e:
                raise Impossible(words.UNDO_LOST.format(path=path)) from e
            if not stat.S_ISREG(now.st_mode) or now.st_size < state[1]:
                raise Impossible(words.UNDO_LOST.format(path=path))
        elif state[0] == KEEP and (not os.path.exists(state[1]) or os.path.getsize(state[1]) < state[2]):
            raise Impossible(words.UNDO_LOST.format(path=path))


def _restore(path: str, state: tuple) -> bool:
    os.makedirs(os.path.dirname(path), exist_ok=True)
    if state[0] == FOLDER:
        return _folder(path, state[1])
    if state[0] == LINK:
        return _link(path, state[1])
    if state[0] == SIZE:
        return _cut(path, *state[1:])
    return _content(path, *state[1:])


def _folder(path: str, mode: int) -> bool:
    if os.path.isdir(path) and not os.path.islink(path):
        return False
    _away(path)
    os.mkdir(path, 0o700)
    os.chmod(path, mode)
    return True


def _link(path: str, to: str) -> bool:
    if os.path.islink(path) and os.readlink(path) == to:
        return False
    _away(path)
    os.symlink(to, path)
    return True


def _cut(path: str, size: int, mode: int | None, mtime: int) -> bool:
    """What was written behind the image's end goes aside."""
    if os.path.getsize(path) == size:
        return False
    aside = _place(path, f".from-byte-{size}")
    fd = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    try:
        os.lseek(fd, size, os.SEEK_SET)
        with open(aside, "wb") as f:
            while True:
                data = pathways.real_read(fd, 1 << 20)
                if not data:
                    break
                f.write(data)
        os.ftruncate(fd, size)
        os.fsync(fd)
    finally:
        os.close(fd)
    _like(path, mode, mtime)
    return True


def _content(path: str, kept: str, size: int, mode: int | None, mtime: int) -> bool:
    new = f"{path}.stoker-undo"
    journal.copy(kept, new)
    os.truncate(new, size)
    _like(new, mode, mtime)
    _away(path, keep=True)
    os.replace(new, path)
    return True


def _like(path: str, mode: int | None, mtime: int) -> None:
    if mode is not None:
        os.chmod(path, mode)
    os.utime(path, ns=(mtime, mtime))


def _away(path: str, keep: bool = False) -> bool:
    """Whatever stands at `path` goes aside; with `keep` it stays there too until it is replaced."""
    if not os.path.lexists(path):
        return False
    if os.path.isdir(path) and not os.path.islink(path) and not os.listdir(path):
        os.rmdir(path)
        return True
    aside = _place(path, "")
    try:
        if keep and not os.path.isdir(path):
            os.link(path, aside, follow_symlinks=False)
        else:
            os.rename(path, aside)
    except OSError:
        (shutil.copytree if os.path.isdir(path) and not os.path.islink(path) else shutil.copy2)(path, aside)
        if not keep:
            journal.remove(path) if os.path.isdir(path) else os.unlink(path)
    return True


def _place(path: str, ending: str) -> str:
    """A free name in this attempt's folder of things aside: the path below it, and a number if it was put aside before."""
    base = os.path.join(life.folder, "aside", str(life.attempt), path.lstrip(os.sep) + ending)
    os.makedirs(os.path.dirname(base), 0o700, exist_ok=True)
    place, n = base, 1
    while os.path.lexists(place):
        n += 1
        place = f"{base}.{n}"
    return place


def _forget_old_asides() -> None:
    folder = os.path.join(life.folder, "aside")
    try:
        kept = sorted((int(name) for name in os.listdir(folder) if name.isdigit()), reverse=True)
    except OSError:
        return
    for old in kept[ASIDE_KEPT:]:
        journal.remove(os.path.join(folder, str(old)))
