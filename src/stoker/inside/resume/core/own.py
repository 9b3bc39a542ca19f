"""Where Stoker writes and deletes in a run's resume folder:
no link is followed, neither there nor on the way from the state folder to it.

`remove` is like the agent's (base/removal.py hands that one on). It stands here once more:
the hooks travel without the agent, into the script's process, and must call what the operating system gives,
not what was put in its place. Files are named by /proc/self/fd and the open folder:
of such a name the undo journal knows that it is none of the user's.
"""

from __future__ import annotations

import errno
import os
import stat

from . import phases

FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_RUN = os.environ.get("STOKER_RUN_DIR", "")
_open, _close, _read, _write, _fsync = os.open, os.close, os.read, os.write, os.fsync
_stat, _fstat, _mkdir, _unlink, _rmdir, _replace, _rename = (
    os.stat,
    os.fstat,
    os.mkdir,
    os.unlink,
    os.rmdir,
    os.replace,
    os.rename,
)
_scandir, _chmod, _getpid = os.scandir, os.chmod, os.getpid


class Folder:
    """`with Folder(path) as here`: the open folder as a path,
    which means the same whatever happens to its name."""

    def __init__(self, path: str, make: bool = False) -> None:
        self.fd = open_folder(path, make)

    def __enter__(self) -> str:
        return f"/proc/self/fd/{self.fd}"

    def __exit__(self, *_: object) -> None:
        _close(self.fd)


def open_folder(path: str, make: bool = False, links: bool = False) -> int:
    """A descriptor of a folder of Stoker's. `make`:
    it and those above it in the run folder are made where they are not;
    a link in the place of one goes, unless `links` says that links there are the user's. Raises OSError."""
    top, names, firm = _way(path)
    try:
        fd = _open(top, FOLDER & ~os.O_NOFOLLOW)
    except FileNotFoundError:
        if firm or not make:
            raise
        _make(top)  # outside of a run; only where it is not there: each call is seen by the recording
        fd = _open(top, FOLDER & ~os.O_NOFOLLOW)
    for number, name in enumerate(names):
        try:
            inner = _open(name, FOLDER, dir_fd=fd) if not make or number < firm else _made(fd, name, links)
        finally:
            _close(fd)
        fd = inner
    return fd


def _make(path: str) -> None:
    """The folder and those above it. Not `os.makedirs`: that calls functions that are recorded."""
    try:
        _mkdir(path, 0o700)
    except FileExistsError:
        pass
    except FileNotFoundError:
        _make(os.path.dirname(path))
        _mkdir(path, 0o700)


def _way(path: str) -> tuple:
    """(folder to begin at, which may be a link; names from there on, which may not;
    how many of these are never made)."""
    if _RUN and path.startswith(_RUN + os.sep):
        runs, run = os.path.split(_RUN)
        state, name = os.path.split(runs)
        return state, [name, run, *_names(path[len(_RUN):])], 2
    for folder in (phases.audit, phases.folder):
        if folder and path.startswith(folder + os.sep):
            return folder, _names(path[len(folder):]), 0
    return os.path.dirname(path), [os.path.basename(path)], 0


def _names(path: str) -> list[str]:
    return [name for name in path.split(os.sep) if name]


def _made(parent: int, name: str, links: bool) -> int:
    """A folder in an open one, which was there or is new."""
    try:
        return _open(name, FOLDER, dir_fd=parent)
    except FileNotFoundError:
        pass
    except NotADirectoryError:
        if links or not stat.S_ISLNK(_stat(name, dir_fd=parent, follow_symlinks=False).st_mode):
            raise
        _unlink(name, dir_fd=parent)
    try:
        _mkdir(name, 0o700, dir_fd=parent)
    except FileExistsError:  # somebody else made it
        pass
    return _open(name, FOLDER, dir_fd=parent)


def make(path: str, links: bool = False) -> None:
    """The folder is there, and is no link; as `open_folder`."""
    _close(open_folder(path, True, links))


# ---- files

def open_file(path: str, flags: int) -> int:
    """A descriptor of a regular file of Stoker's. Raises OSError."""
    with Folder(os.path.dirname(path)) as here:
        fd = _open(
            f"{here}/{os.path.basename(path)}", flags | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, 0o600
        )
    if not stat.S_ISREG(_fstat(fd).st_mode):
        _close(fd)
        raise OSError(errno.EINVAL, "not a regular file", path)
    return fd


def open_made(path: str, flags: int) -> int:
    """As `open_file`; the file is made where it is not, and a link in its place goes."""
    try:
        return open_file(path, flags | os.O_CREAT)
    except OSError as e:
        if e.errno != errno.ELOOP:
            raise
    remove(path)
    return open_file(path, flags | os.O_CREAT)


def read(path: str, most: int = 1 << 30) -> bytes:
    """What a regular file of Stoker's holds, or its first bytes. Raises OSError."""
    fd = open_file(path, os.O_RDONLY)
    try:
        parts = []
        while most > 0:
            part = _read(fd, min(most, 1 << 20))
            if not part:
                break
            parts.append(part)
            most -= len(part)
        return b"".join(parts)
    finally:
        _close(fd)


def write(path: str, data: bytes, sync: bool = False, beside: str = "") -> None:
    """A file of Stoker's, whole or not at all:
    written beside, by that name if it matters, and renamed. Raises OSError."""
    name = os.path.basename(path)
    with Folder(os.path.dirname(path)) as here:
        new = f"{here}/{beside or f'{name}.{_getpid()}.new'}"
        try:
            _unlink(new)
        except FileNotFoundError:
            pass
        fd = _open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        try:
            left = memoryview(data)
            while left:
                left = left[_write(fd, left):]
            if sync:
                _fsync(fd)
        finally:
            _close(fd)
        _replace(new, f"{here}/{name}")


def lies(path: str) -> bool:
    """Whether a regular file of Stoker's is there."""
    try:
        _close(open_file(path, os.O_RDONLY))
    except OSError:
        return False
    return True


def folders(path: str) -> list[str]:
    """The names of the real folders in one of Stoker's; none where that is no folder."""
    try:
        with Folder(path) as here, _scandir(here) as entries:
            return [entry.name for entry in entries if entry.is_dir(follow_symlinks=False)]
    except OSError:
        return []


# ---- deleting

def remove(path: str) -> None:
    """Away with a file, a link, or a folder and all that is in it, as far as it can be done."""
    try:
        parent = open_folder(os.path.dirname(path))
    except OSError:
        return
    try:
        remove_at(parent, os.path.basename(path))
    except OSError:
        pass
    finally:
        _close(parent)


def remove_at(parent: int, name: str) -> None:
    """`remove` of a name in an open folder. Raises OSError."""
    try:
        if stat.S_ISDIR(_stat(name, dir_fd=parent, follow_symlinks=False).st_mode):
            _empty(parent, name)
            _rmdir(name, dir_fd=parent)
        else:
            _unlink(name, dir_fd=parent)
    except FileNotFoundError:
        pass


def _empty(parent: int, name: str) -> None:
    """Delete what is in a folder. What its folders hold is moved up before they go:
    depth costs neither memory nor descriptors."""
    fd, number = _open_own(parent, name), 0
    try:
        names = _delete_files(fd)
        while names:
            for each in names:
                number = _dissolve(fd, each, number)
            names = _delete_files(fd)
    finally:
        _close(fd)


def _dissolve(parent: int, name: str, number: int) -> int:
    """Delete a folder, but move the folders in it up to its parent, under the numbers after `number`.
    Gives the last number."""
    fd = _open_own(parent, name)
    try:
        for each in _delete_files(fd):
            _close(_open_own(fd, each))
            number = _move_up(fd, each, parent, number)
    finally:
        _close(fd)
    _rmdir(name, dir_fd=parent)
    return number


def _delete_files(fd: int) -> list[str]:
    """Delete everything in an open folder but folders, whose names are given."""
    with _scandir(fd) as entries:
        listed = [(entry.name, entry.is_dir(follow_symlinks=False)) for entry in entries]
    for name, is_folder in listed:
        if not is_folder:
            _unlink(name, dir_fd=fd)
    return [name for name, is_folder in listed if is_folder]


def _move_up(source: int, name: str, target: int, number: int) -> int:
    while True:
        number += 1
        try:
            _rename(name, f".{number}", src_dir_fd=source, dst_dir_fd=target)
            return number
        except OSError as e:
            if e.errno not in (errno.EEXIST, errno.ENOTEMPTY, errno.ENOTDIR):
                raise


def _open_own(parent: int, name: str) -> int:
    """A folder in an open one, made readable and writable for us. Never a link."""
    handle = _open(name, os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=parent)
    try:
        if _fstat(handle).st_mode & 0o700 != 0o700:
            _chmod(f"/proc/self/fd/{handle}", 0o700)
        return _open(".", FOLDER, dir_fd=handle)
    finally:
        _close(handle)
