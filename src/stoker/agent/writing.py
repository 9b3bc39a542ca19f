"""Files of run folders, written whole or not at all, and deleted without following a link."""

from __future__ import annotations

import errno
import json
import os
import stat
import sys
import time

from .words import EXIT_SPARE, FULL

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

# no link is written through, no pipe waited for
WRITE = os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK


def write_all(fd: int, data: bytes) -> None:
    """Write all of it, however often the kernel takes only a part. Raises OSError."""
    view = memoryview(data)
    while view:
        view = view[os.write(fd, view):]


def write_whole(path: str, data: bytes, sync: bool = False, spare: str | None = None) -> None:
    """Write beside, rename: readers see the old content or the new.
    On a full disk the blocks of `spare`, or of the old file, are used instead.
    Raises OSError when even that fails."""
    temp = "%s.tmp-%d" % (path, os.getpid())
    try:
        fd = os.open(temp, WRITE | os.O_TRUNC, 0o644)
        try:
            write_all(fd, data)
            if sync:
                os.fsync(fd)
        finally:
            os.close(fd)
        put_in_place(temp, path)
        return
    except OSError as e:
        unlink(temp)
        if e.errno not in FULL:
            raise
        full = e
    if spare and os.path.exists(spare):
        fill(spare, data, len(data))
        put_in_place(spare, path)
        return
    try:
        size = os.stat(path).st_size
    except OSError:
        size = -1
    if len(data) > size:
        raise full
    # padded with spaces, so that a reader never sees an old end
    fill(path, data + b" " * (size - len(data)), size)


def put_in_place(temp: str, path: str) -> None:
    """Rename, also where somebody made a folder of that name."""
    try:
        os.replace(temp, path)
    except IsADirectoryError:
        remove(os.path.dirname(path), os.path.basename(path))
        os.replace(temp, path)


def fill(path: str, data: bytes, size: int) -> None:
    """Overwrite in place: needs no new block."""
    fd = os.open(path, WRITE & ~os.O_CREAT)
    try:
        write_all(fd, data)
        os.ftruncate(fd, size)
        os.fsync(fd)
    finally:
        os.close(fd)


def write_json(path: str, body: dict, sync: bool = False, spare: str | None = None, pad: int = 0) -> None:
    """Write a JSON file whole or not at all. Raises OSError."""
    data = (json.dumps(body, ensure_ascii=True) + "\n").encode()
    write_whole(path, data.ljust(pad), sync, spare)


def write_once(path: str, body: dict, sync: bool = True) -> bool:
    """Write the file unless it exists; False when somebody was faster. Several may try at once."""
    temp = "%s.once-%d" % (path, os.getpid())
    if os.path.lexists(path):
        return False
    write_json(temp, body, sync, spare=os.path.join(os.path.dirname(path), EXIT_SPARE))
    try:
        os.link(temp, path)
    except FileExistsError:
        return False
    except OSError:  # no hard links here: the last one wins, with the same content but for the times
        os.replace(temp, path)
    finally:
        unlink(temp)
    return True


def append_line(path: str, body: dict) -> None:
    """One JSON line. What cannot be written (full disk) is left out: nothing may depend on it."""
    try:
        fd = os.open(path, WRITE | os.O_APPEND, 0o644)
        try:
            os.write(fd, (json.dumps(body, ensure_ascii=True) + "\n").encode())
        finally:
            os.close(fd)
    except OSError:
        pass


def reserve(path: str, size: int) -> None:
    """Keep blocks back in a file of their own, so that the last words fit on a full disk."""
    fd = os.open(path, WRITE, 0o644)
    try:
        os.posix_fallocate(fd, 0, size)
    except OSError as e:
        if e.errno in FULL:
            raise
        write_all(fd, b" " * size)
    finally:
        os.close(fd)


def unlink(path: str) -> None:
    try:
        os.unlink(path)
    except OSError:
        pass


FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


def open_folder(top: str, *names: str) -> int:
    """A descriptor of the folder top/NAME/NAME/...; only `top` may be a link. Raises OSError."""
    fd = os.open(top, FOLDER & ~os.O_NOFOLLOW)
    for name in names:
        try:
            inner = os.open(name, FOLDER, dir_fd=fd)
        finally:
            os.close(fd)
        fd = inner
    return fd


def remove(top: str, *names: str) -> None:
    """Delete top/NAME/.../NAME: a file, a link, or a folder with all that is in it,
    also with folders that cannot be read.

    No link is followed, only `top` may be one.
    Harmless when nothing is there, or somebody else removes it too. Raises OSError.
    """
    try:
        parent = open_folder(top, *names[:-1])
    except FileNotFoundError:
        return
    try:
        remove_at(parent, names[-1])
    finally:
        os.close(parent)


def remove_at(parent: int, name: str) -> None:
    """`remove` of a name in an open folder."""
    try:
        if stat.S_ISDIR(os.stat(name, dir_fd=parent, follow_symlinks=False).st_mode):
            empty_folder(parent, name)
            os.rmdir(name, dir_fd=parent)
        else:
            os.unlink(name, dir_fd=parent)
    except FileNotFoundError:
        pass


def empty_folder(parent: int, name: str) -> None:
    """Delete what is in a folder. What its folders hold is moved up before they go, so depth costs neither
    memory nor descriptors."""
    fd = open_own(parent, name)
    try:
        number = 0
        for folder in iter_folders(fd):
            try:
                number = dissolve(fd, folder, number)
            except FileNotFoundError:  # somebody else removes it too
                pass
    finally:
        os.close(fd)


def dissolve(parent: int, name: str, number: int) -> int:
    """Delete a folder, but move the folders in it up to its parent, under the numbers after `number`.
    Gives the last number."""
    fd = open_own(parent, name)
    try:
        for each in delete_files(fd):
            number = move_up(fd, each, parent, number)
    finally:
        os.close(fd)
    os.rmdir(name, dir_fd=parent)
    return number


def iter_folders(fd: int) -> Iterator[str]:
    """The folders in an open one, until there are none; everything else in it is deleted."""
    while True:
        names = delete_files(fd)
        if not names:
            return
        yield from names


def delete_files(fd: int) -> list[str]:
    """Delete everything in an open folder but folders, whose names are given."""
    folders = []
    with os.scandir(fd) as entries:
        listed = [(entry.name, entry.is_dir(follow_symlinks=False)) for entry in entries]
    for name, is_folder in listed:
        if is_folder:
            folders.append(name)
            continue
        try:
            os.unlink(name, dir_fd=fd)
        except FileNotFoundError:
            pass
    return folders


def move_up(source: int, name: str, target: int, number: int) -> int:
    """Move a folder into another under a free name, the first from .NUMBER on; the number after it."""
    os.close(open_own(source, name))
    while True:
        number += 1
        try:
            os.rename(name, ".%d" % number, src_dir_fd=source, dst_dir_fd=target)
            return number
        except OSError as e:
            if e.errno not in (errno.EEXIST, errno.ENOTEMPTY, errno.ENOTDIR):
                raise


def open_own(parent: int, name: str) -> int:
    """A folder in an open one, made readable and writable for us. Never a link. Raises OSError."""
    handle = os.open(name, os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=parent)
    try:
        if os.fstat(handle).st_mode & 0o700 != 0o700:
            # of the folder that is open, whatever its name means by now
            os.chmod("/proc/self/fd/%d" % handle, 0o700)
        return os.open(".", FOLDER, dir_fd=handle)
    finally:
        os.close(handle)


def log_exception() -> None:
    """To the caretaker log, which is our stderr; not for ever."""
    import traceback
    try:
        if os.fstat(2).st_size > 1 << 20:
            return
        sys.stderr.write("%s pid %d\n" % (time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()), os.getpid()))
        traceback.print_exc()
        sys.stderr.flush()
    except Exception:
        pass


def write_number(path: str, number: int) -> None:
    """Into a file of a cgroup. Raises OSError."""
    fd = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
    try:
        os.write(fd, b"%d" % number)
    finally:
        os.close(fd)


def say(body: dict) -> None:
    """One JSON line on stdout, at once."""
    write_all(1, (json.dumps(body, ensure_ascii=True) + "\n").encode())
