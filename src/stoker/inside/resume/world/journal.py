"""The undo journal: what each file of the user's was like at the last images, kept before it is changed, so
that it can be put back.

One folder an image interval, `undo/<epoch>/`:
`journal` (length, CRC-32, marshalled (path, state), in order) and `keep/` with contents.
Of a path only its state at the image counts, so only its first change after an image is written down, and
undoing twice is harmless.
A life that goes to an image begins one more interval before it puts files back:
there the files are as they were found, at the kill.
"""

from __future__ import annotations

import errno
import marshal
import os
import stat
import time
from _thread import RLock, get_ident

from ...entry.aside import aside
from ...looks import isinstance
from ..core import copies, own, pathways, phases, words

ABSENT, SIZE, KEEP, END, PARTS, LINK, FOLDER = "absent", "size", "keep", "end", "parts", "link", "folder"
SIZED = (SIZE, KEEP, END, PARTS)  # states that end with: bytes, mode, mtime_ns
APPEND, OVERWRITE, TRUNCATE, REPLACE = range(4)  # what is about to happen to a path's content
SMALL = 1 << 20  # bytes: copied; larger files are moved aside where nobody has them open, else copied
KEEP_MAX = int(os.environ.get("STOKER_UNDO_CAP") or 8 << 30)  # bytes of copies an image interval
TREE_MAX = 10_000
SYNC_SHARE = 0.005  # of the time is spent on waiting for the disk; copies are waited for always
_HEAD = 8  # bytes: length and CRC-32
_real_listdir, _real_stat, _real_lstat, _real_open, _real_replace = (
    os.listdir,
    os.stat,
    os.lstat,
    os.open,
    os.replace,
)
_clock = time.monotonic

at_kill = False  # this interval began with the files as a life that goes to an image found them
on_break = None  # called with the reason, in the place of giving up older images; does not return
# the interval that began with the newest image; 0 before the first one: nothing can be put back to there
epoch = 0
_states: dict = {}
_fd = -1
_kept = 0
_kept_bytes = 0
_lock = RLock()
_busy: set = set()  # threads that are inside this module
_began = _clock()
_waited = 0.0


class Impossible(Exception):
    """A state that cannot be put back, or not kept; the message is a sentence."""


# ---- keeping

def begin(number: int, found: bool = False) -> None:
    """An image is being taken: from here on a new interval counts. `found`:
    no image, but files as they were found at a resume."""
    global at_kill, epoch, _fd, _kept, _kept_bytes
    if phases.audit:  # what it changes is in its room, and nobody will want it back
        return
    with _lock:
        folder = _folder(number)
        if str(number) not in own.folders(_undo()):
            _lay(number)
        fd = aside(own.open_file(os.path.join(folder, "journal"), os.O_WRONLY | os.O_APPEND))
        if _fd >= 0:
            os.close(_fd)
        at_kill, epoch, _fd, _kept, _kept_bytes = found, number, fd, 0, 0
        phases.undo_broken = ""
        _states.clear()


def _lay(number: int) -> None:
    """The folder of an interval, whole or absent:
    one without a journal would say that nothing can be put back."""
    beside = _folder(f"new-{number}")
    own.make(_undo())
    own.remove(_folder(number))  # no folder
    own.remove(beside)
    own.make(os.path.join(beside, "keep"))
    own.write(os.path.join(beside, "journal"), b"")
    with own.Folder(_undo()) as here:
        _real_replace(f"{here}/new-{number}", f"{here}/{number}")


def sync() -> None:
    """The interval is on the disk, before the image that it begins with is. OSError as the system says."""
    if epoch:
        for folder in (_folder(epoch), _undo()):
            with own.Folder(folder) as here:
                copies.sync_folder(here)


def sync_notes() -> None:
    """As sync, and what was noted in it."""
    os.fdatasync(_fd)
    sync()


def noted() -> list[str]:
    """The paths that this interval knows."""
    return list(_states)


def not_ours() -> None:
    """A forked child is somebody else."""
    global epoch
    epoch = 0


def give_up(reason: str) -> None:
    """Something happened outside that nobody can take back: no image up to now may be used."""
    if epoch and not phases.undo_broken:
        _break("", Impossible(reason))


def keep(path: str, how: int) -> None:
    """As touch, but it says what went wrong: Impossible, OSError.
    Only once `sync_notes` came back is it sure on the disk."""
    with _lock:
        _touch(path, how)


def keep_end(path: str, begin_at: int) -> None:
    """The file `path` is about to be cut to `begin_at` bytes: keep what is behind them.
    Impossible, OSError."""
    global _kept
    with _lock:
        now = _real_lstat(path)
        _note_folder(path)
        _kept += 1
        name = str(_kept)
        _copy_room(path, now.st_size - begin_at)
        with _keeps() as keep:
            copies.copy(path, f"{keep}/{name}", begin_at)
        _note(path, (END, name, begin_at, now.st_size, stat.S_IMODE(now.st_mode), now.st_mtime_ns), sure=True)


def touch(path: str, how: int) -> None:
    """Keep what `path` (absolute, its folders without symbolic links) was like at the newest image, before it
    is changed. Never raises."""
    if not epoch or phases.undo_broken or get_ident() in _busy or pathways.ours(path):
        return
    _busy.add(get_ident())
    try:
        with _lock:
            _touch(path, how)
    except (OSError, Impossible, ValueError) as e:
        _break(path, e)
    finally:
        _busy.discard(get_ident())


def change(fd: int) -> None:
    """As touch, before an open file is changed in place;
    it may have another name by now than the one it was opened by. Never raises."""
    if not epoch or phases.undo_broken or get_ident() in _busy:
        return
    path = "?"
    _busy.add(get_ident())
    try:
        path = os.readlink(f"/proc/self/fd/{fd}")
        with _lock:
            now = os.fstat(fd)
            if now.st_nlink:
                _part_from_keeps(now)
    except OSError as e:
        _break(path, e)
    finally:
        _busy.discard(get_ident())
    touch(path, OVERWRITE)


def size_of(path: str) -> int:
    """How large a file was at the newest image; 0 for one that is new since."""
    known = _states.get(path)
    if known is None or known[0] not in SIZED:
        return 0
    return known[2] if known[0] == END else known[-3]  # of an end, what is in front of it was not kept


def known_sizes(sizes: dict) -> None:
    """path -> (bytes, mtime_ns) of the files that are open at the image:
    the image itself says how large they were."""
    for path, (size, mtime) in sizes.items():
        _states[path] = (SIZE, size, None, mtime)


def _touch(path: str, how: int) -> None:
    known = _states.get(path)
    try:
        now = _real_lstat(path)
    except OSError as e:
        if e.errno in (errno.ENOENT, errno.ENOTDIR):
            if known is None:
                _note_folder(path)
                _note(path, (ABSENT,))
            return
        raise
    if known is None:
        _note_folder(path)
    if how in (OVERWRITE, TRUNCATE) and now.st_nlink > 1 and stat.S_ISREG(now.st_mode):
        _part_from_keeps(now)
        if _real_lstat(path).st_nlink > 1:
            raise Impossible(words.UNDO_NAMES.format(path=path))
    if known is not None and known[0] == END and how != APPEND:
        _keep_whole(path, known)
    if known is not None and known[0] != SIZE:
        return
    if stat.S_ISLNK(now.st_mode):
        _note(path, (LINK, os.readlink(path), now.st_mtime_ns))
    elif stat.S_ISDIR(now.st_mode):
        if how == REPLACE:
            _touch_tree(path)
        _note(path, _folder_state(now))
    elif stat.S_ISREG(now.st_mode):
        size, mode, mtime = known[1:] if known else (now.st_size, stat.S_IMODE(now.st_mode), now.st_mtime_ns)
        if how == APPEND:
            if known is None:
                _note(path, (SIZE, size, mode, mtime))
            return
        name = _keep(path, now, how)
        _note(path, (KEEP, name, size, mode, mtime), sure=True)


def _folder_state(now: os.stat_result) -> tuple:
    return (FOLDER, stat.S_IMODE(now.st_mode), now.st_mtime_ns)


def _note_folder(path: str) -> None:
    """At a kill the folder around counts too: what changes in it changes its time."""
    folder = os.path.dirname(path)
    if at_kill and folder not in _states:
        try:
            now = _real_lstat(folder)
        except OSError:
            return
        if stat.S_ISDIR(now.st_mode):
            _note(folder, _folder_state(now))


def _keep_whole(path: str, known: tuple) -> None:
    """A file of which the end was kept is about to change in front of it: keep all of it, as it was."""
    global _kept
    _, end, begin_at, *told = known
    _kept += 1
    name = str(_kept)
    _copy_room(path, told[0])
    with _keeps() as keep:
        target = f"{keep}/{name}"
        copies.copy(path, target, 0, begin_at)
        copies.put_behind(target, begin_at, f"{keep}/{end}", told[0] - begin_at)
        os.chmod(target, told[1])
        os.utime(target, ns=(told[2], told[2]))
    _note(path, (KEEP, name, *told), sure=True)


def _touch_tree(path: str) -> None:
    """A folder is about to be renamed: all that is in it goes away from its path."""
    count = 0
    for here, folders, files in os.walk(path):
        count += len(folders) + len(files)
        if count > TREE_MAX:
            raise Impossible(words.UNDO_TREE.format(path=path, count=TREE_MAX))
        for name in files:
            _touch(os.path.join(here, name), REPLACE)
        for name in folders:
            inner = os.path.join(here, name)
            if inner not in _states:
                now = _real_lstat(inner)
                _note(
                    inner,
                    (LINK, os.readlink(inner), now.st_mtime_ns)
                    if stat.S_ISLNK(now.st_mode)
                    else _folder_state(now),
                )


def _keep(path: str, now: os.stat_result, how: int) -> str:
    """The content of a file, in this interval's folder; by a link where the file itself is not changed."""
    global _kept
    _kept += 1
    name = str(_kept)
    with _keeps() as keep:
        target = f"{keep}/{name}"
        if how == REPLACE and (at_kill or now.st_nlink == 1) and _linked(path, target):
            return name
        if (
            how == TRUNCATE
            and now.st_size > SMALL
            and now.st_nlink == 1
            and not _in_use(now)
            and _moved(path, now, target)
        ):
            return name
        _copy_room(path, now.st_size)
        copies.copy(path, target)
        copies.make_alike(path, target)
    return name


def _linked(path: str, target: str) -> bool:
    try:
        os.link(path, target, follow_symlinks=False)
    except OSError:
        return False
    copies.sync_folder(os.path.dirname(target))
    return True


def _copy_room(path: str, size: int) -> None:
    """Count a copy that is about to be made. Impossible: too large."""
    global _kept_bytes
    _kept_bytes += size
    if _kept_bytes > KEEP_MAX:
        raise Impossible(words.UNDO_CAP.format(path=path, size=KEEP_MAX >> 20))
    room = os.statvfs(_folder(epoch))
    if size > room.f_bavail * room.f_frsize // 2:
        raise Impossible(words.UNDO_ROOM.format(path=path, size=size >> 20))


def _moved(path: str, now: os.stat_result, target: str) -> bool:
    """A large file that is about to be emptied becomes ours; in its place stands an empty one like it."""
    if now.st_uid != os.geteuid() or _extended(path) or not _linked(path, target):
        return False
    empty = f"{path}.stoker-{os.getpid()}"
    try:
        _note(empty, (ABSENT,))
        os.close(_real_open(empty, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
        os.chown(empty, -1, now.st_gid)
        os.chmod(empty, stat.S_IMODE(now.st_mode))
        _real_replace(empty, path)
    except OSError:
        os.unlink(target)
        if os.path.lexists(empty):
            os.unlink(empty)
        return False
    return True


def _extended(path: str) -> bool:
    try:
        return bool(os.listxattr(path, follow_symlinks=False))
    except OSError:
        return False


def _in_use(now: os.stat_result) -> bool:
    """Whether this process has the file open or mapped."""
    for fd in _real_listdir("/proc/self/fd"):
        try:
            there = _real_stat("/proc/self/fd/" + fd)
        except OSError:
            continue
        if (there.st_dev, there.st_ino) == (now.st_dev, now.st_ino):
            return True
    mark = f" {now.st_ino} "
    with open("/proc/self/maps", encoding="utf-8", errors="replace") as maps:
        return any(mark in line for line in maps)


def _part_from_keeps(now: os.stat_result) -> None:
    """The file that is about to be overwritten is, by a link, also what was kept under another path:
    the kept one becomes a copy."""
    for number in epochs():
        with _keeps(number) as folder:
            for name in _real_listdir(folder):
                kept = os.path.join(folder, name)
                there = _real_lstat(kept)
                if (there.st_dev, there.st_ino) == (now.st_dev, now.st_ino):
                    copies.copy(kept, kept + ".new")
                    copies.make_alike(kept, kept + ".new")
                    _real_replace(kept + ".new", kept)
                    copies.sync_folder(folder)


def _note(path: str, state: tuple, sure: bool = False) -> None:
    """Written down, and on the disk, before the change;
    where changes come thick and fast, the waiting is capped."""
    global _waited
    body = marshal.dumps((path, state))
    data = _head(body) + body
    if pathways.real_write(_fd, data) != len(data):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    _states[path] = state
    begun = _clock()
    if sure or _waited < 1.0 + SYNC_SHARE * (begun - _began):
        os.fdatasync(_fd)
        _waited += _clock() - begun


def _head(body: bytes) -> bytes:
    from zlib import crc32

    return len(body).to_bytes(4, "little") + crc32(body).to_bytes(4, "little")


def _break(path: str, error: Exception) -> None:
    """What is needed to put this file back cannot be kept: images up to now are of no use;
    the user's write goes on."""
    if on_break is not None:
        on_break(
            str(error) if isinstance(error, Impossible) else words.UNDO_FAILED.format(path=path, error=error)
        )
    phases.undo_broken = (
        str(error) if isinstance(error, Impossible) else words.UNDO_FAILED.format(path=path, error=error)
    )
    try:
        with own.Folder(_folder(epoch)) as here:
            _real_replace(f"{here}/journal", f"{here}/broken")
        os.ftruncate(_fd, 0)
        pathways.real_write(_fd, phases.undo_broken.encode(errors="replace"))
        os.fsync(_fd)
    except OSError:
        pass
    from ..core import outcome

    outcome.pass_point(phases.undo_broken)
    outcome.write_state()  # "not resumable" until the next image


def _folder(number: int | str) -> str:
    return os.path.join(_undo(), str(number))


def _undo() -> str:
    return os.path.join(phases.folder, "undo")


def _keeps(number: int = 0) -> own.Folder:
    """Where contents are kept, in this interval or another."""
    return own.Folder(os.path.join(_folder(number or epoch), "keep"))


# ---- reading it

def epochs() -> list[int]:
    """All intervals that are kept, oldest first."""
    return sorted(int(name) for name in own.folders(_undo()) if name.isdigit())


def forget(before: int) -> None:
    """Images older than that of this interval are gone, and so is what would put their files back."""
    for number in epochs():
        if number < before:
            drop(number)
    for name in own.folders(_undo()):
        if not name.isdigit():  # a life ended while it made one, or dropped one
            own.remove(_folder(name))


def drop(number: int) -> None:
    """Forget one interval; never is there a half removed one under its number."""
    global epoch
    if number == epoch:
        epoch = 0
    aside = _folder(f"old-{number}")
    own.remove(aside)
    with own.Folder(_undo()) as here:
        _real_replace(f"{here}/{number}", f"{here}/old-{number}")
    own.remove(aside)


def read(number: int) -> dict:
    """path -> state at the image that began this interval;
    a torn last record was never followed by its change."""
    folder = _folder(number)
    try:
        why = own.read(os.path.join(folder, "broken"), 2000)
    except OSError:
        pass
    else:
        raise Impossible(why.decode(errors="replace") or words.UNDO_GONE)
    states: dict = {}
    try:
        data = own.read(os.path.join(folder, "journal"))
    except OSError as e:
        raise Impossible(words.UNDO_GONE) from e
    at = 0
    while at + _HEAD <= len(data):
        length = int.from_bytes(data[at:at + 4], "little")
        body = data[at + _HEAD:at + _HEAD + length]
        if len(body) < length or _head(body) != data[at:at + _HEAD]:
            break
        path, state = marshal.loads(body)
        if state[0] in (KEEP, END):
            state = (state[0], os.path.join(folder, "keep", state[1]), *state[2:])
        states[path] = state
        at += _HEAD + length
    return states


def states_at(number: int) -> dict:
    """path -> what it was like at the image with which interval `number` began, over all intervals since.
    Impossible says why not."""
    found: dict = {}
    if number not in epochs():
        raise Impossible(words.UNDO_GONE)
    for each in reversed(epochs()):
        if each >= number:
            for path, state in read(each).items():
                found[path] = _over(path, state, found.get(path))
    return found


def _over(path: str, state: tuple, later: tuple | None) -> tuple:
    """A state of which a part is the content that the path had later: it may have changed since."""
    if state[0] not in (SIZE, END) or later is None or later[0] not in (KEEP, END, PARTS):
        return state
    before = state[1] if state[0] == SIZE else state[2]
    parts = _first(content(path, later), before)
    if state[0] == END:
        parts.append((state[1], state[3] - before))
    return (PARTS, tuple(parts), *state[-3:])


def content(path: str, state: tuple) -> list[tuple[str, int]]:
    """[(file, how many of its first bytes)] that one after the other are what a file held in this state."""
    if state[0] == END:
        return _first([(path, state[2]), (state[1], state[3] - state[2])], state[-3])
    return _first(
        {SIZE: [(path, state[-3])], KEEP: [(state[1], state[-3])], PARTS: state[1]}.get(state[0], ()),
        state[-3],
    )


def _first(parts: list, size: int) -> list[tuple[str, int]]:
    found = []
    for file, count in parts:
        found.append((file, max(0, min(count, size))))
        size -= count
    return found
