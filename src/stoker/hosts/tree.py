"""Files and folders, whole or absent: copied here,
or packed into a tar stream and unpacked on another machine.

Both ends of a transfer run this one file; the far end gets its text,
so it is standard library only and runs on Python 3.8.
Paths are bytes inside, because a name need not be text.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import shutil
import stat
import struct
import sys
import tarfile

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

FICLONE = 0x40049409  # linux/fs.h: share all blocks of another file
GETFLAGS, SETFLAGS, TOPDIR = 0x80086601, 0x40086602, 0x00020000  # linux/fs.h
CHUNK = 1 << 20
ROOT, END = "r", "end"  # the member that is the source itself; the member that says nothing is missing
EXIT_NO_SOURCE, EXIT_EXISTS, EXIT_OS, EXIT_TORN = 3, 4, 5, 6


class Exists(Exception):
    """The target exists, and must not be replaced."""


class Torn(Exception):
    """The stream ended early, or is not a stream of Stoker."""


def copy(source: str | bytes | os.PathLike, target: str | bytes | os.PathLike) -> None:
    """Copy a file or folder on this machine. Raises FileNotFoundError, Exists, OSError."""
    source, target = os.fsencode(source), os.fsencode(target)
    if not os.path.exists(source):
        raise FileNotFoundError(errno.ENOENT, "no such file or folder", os.fsdecode(source))
    with beside(target, os.path.isdir(source)) as temp:
        later: list[tuple[bytes, os.stat_result]] = []
        for path, rel, seen in walk(source):
            link = os.readlink(path) if stat.S_ISLNK(seen.st_mode) else b""
            _make(_join(temp, rel), seen, lambda to, path=path: copy_file(path, to), link, later)
        _finish(later)


def pack(source: str | bytes | os.PathLike, out: object) -> None:
    """Write a file or folder as a tar stream to the raw binary file `out`.
    Raises FileNotFoundError, OSError."""
    source = os.fsencode(source)
    if not os.path.exists(source):
        raise FileNotFoundError(errno.ENOENT, "no such file or folder", os.fsdecode(source))
    whole: Any = Whole(out)  # nothing but write is called
    with tarfile.open(mode="w|", fileobj=whole, bufsize=CHUNK, format=tarfile.PAX_FORMAT, encoding="utf-8",
                      errors="surrogateescape") as tar:
        for path, rel, seen in walk(source):
            name = ROOT + ("/" + _text(rel) if rel else "")
            _add(tar, path, name, seen)
            tar.members = []  # type: ignore[attr-defined]  # it would remember them all
        tar.addfile(tarfile.TarInfo(END))


def unpack(stream: Any, target: str | bytes | os.PathLike) -> None:
    """Create the files of a stream of `pack`. Writes nothing outside of `target`. Raises Exists, Torn,
    OSError."""
    target = os.fsencode(target)
    try:
        with tarfile.open(
            mode="r|", fileobj=stream, encoding="utf-8", errors="surrogateescape", bufsize=CHUNK
        ) as tar:
            first = tar.next()
            if first is None or first.name != ROOT or not (first.isdir() or first.isreg()):
                raise Torn("the path is not below the allowed folder")
            with beside(target, first.isdir()) as temp:
                _unpack_members(tar, first, temp)
    except (tarfile.TarError, EOFError, ValueError, OverflowError) as e:
        raise Torn(str(e)) from e


def move(source: str | bytes | os.PathLike, target: str | bytes | os.PathLike) -> bool:
    """Rename a file or folder if both paths are on one file system; returns False if they are not. Raises
    Exists, OSError."""
    source, target = os.fsencode(source), os.fsencode(target)
    os.makedirs(os.path.dirname(target) or b".", exist_ok=True)
    _refuse(target, os.path.isdir(source))
    try:
        os.rename(source, target)
    except OSError as e:
        if e.errno == errno.EXDEV:
            return False
        raise
    return True


def walk(source):
    """Iterate over (path, path below source, lstat), parents first; b"" is the source itself, which is
    followed if it is a link."""
    seen = os.stat(source)
    yield source, b"", seen
    if not stat.S_ISDIR(seen.st_mode):
        return
    folders = [b""]
    while folders:
        folder = folders.pop()
        with os.scandir(_join(source, folder)) as entries:
            names = sorted(e.name for e in entries)
        for name in names:
            rel = _join(folder, name) if folder else name
            try:
                seen = os.lstat(_join(source, rel))
            except FileNotFoundError:
                continue  # a living folder: it went away while we looked
            yield _join(source, rel), rel, seen
            if stat.S_ISDIR(seen.st_mode):
                folders.append(rel)


def _make(path, seen, fill, link, later):
    """Make one entry at `path`; folders get their mode and time in `_finish`,
    when nothing more is written into them."""
    mode = seen.st_mode
    if stat.S_ISDIR(mode):
        if later:  # the first is the folder that `beside` made
            os.mkdir(path, 0o700)
        later.append((path, seen))
    elif stat.S_ISLNK(mode):
        os.symlink(link, path)
        with contextlib.suppress(OSError, NotImplementedError):
            os.utime(path, ns=(seen.st_mtime_ns, seen.st_mtime_ns), follow_symlinks=False)
    elif stat.S_ISREG(mode):
        fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        try:
            fill(fd)
            os.fchmod(fd, stat.S_IMODE(mode) & 0o777)
        finally:
            os.close(fd)
        os.utime(path, ns=(seen.st_mtime_ns, seen.st_mtime_ns))


def _finish(later):
    for path, seen in reversed(later):
        os.chmod(path, stat.S_IMODE(seen.st_mode) & 0o777)
        os.utime(path, ns=(seen.st_mtime_ns, seen.st_mtime_ns))


def copy_file(source, to):
    """Copy the content of a file to the descriptor `to`; shares blocks if the file system can."""
    fd = os.open(source, os.O_RDONLY | os.O_CLOEXEC)
    try:
        try:
            fcntl.ioctl(to, FICLONE, fd)
            return
        except OSError:
            os.lseek(fd, _copy_in_kernel(fd, to), os.SEEK_SET)
        with open(fd, "rb", buffering=0, closefd=False) as a, open(to, "wb", buffering=0, closefd=False) as b:
            shutil.copyfileobj(a, Whole(b), CHUNK)
    finally:
        os.close(fd)


def _copy_in_kernel(fd, to):
    """Bytes that copy_file_range took; the rest is for a plain copy, which also finds the end of files that
    lie about their size."""
    done = 0
    try:
        while True:
            n = os.copy_file_range(fd, to, 1 << 30)
            if n == 0:
                return done
            done += n
    except (OSError, AttributeError):
        return done


def _add(tar, path, name, seen):
    info = tarfile.TarInfo(name)
    info.mode = stat.S_IMODE(seen.st_mode) & 0o777
    info.pax_headers = {"mtime": f"{seen.st_mtime_ns // 10**9}.{seen.st_mtime_ns % 10**9:09d}"}
    if stat.S_ISDIR(seen.st_mode):
        info.type = tarfile.DIRTYPE
        tar.addfile(info)
    elif stat.S_ISLNK(seen.st_mode):
        info.type, info.linkname = tarfile.SYMTYPE, _text(os.readlink(path))
        tar.addfile(info)
    elif stat.S_ISREG(seen.st_mode):
        with contextlib.suppress(FileNotFoundError), open(path, "rb") as f:
            info.size = os.fstat(f.fileno()).st_size
            tar.addfile(info, f)


class _Seen:
    """What `_make` wants to know of a member, in the words of os.stat."""

    def __init__(self, member):
        kind = stat.S_IFDIR if member.isdir() else stat.S_IFLNK if member.issym() else stat.S_IFREG
        self.st_mode = kind | (member.mode & 0o777)
        seconds, _, rest = member.pax_headers.get("mtime", "0").partition(".")
        self.st_mtime_ns = int(seconds) * 10**9 + int((rest + "0" * 9)[:9])


def _unpack_members(tar, first, temp):
    later, folders = [], {ROOT} if first.isdir() else set()
    member = first
    while member is not None and member.name != END:
        _check(member, first, folders)
        path, seen = _join(temp, _bytes(member.name[len(ROOT) + 1:])), _Seen(member)
        _make(
            path,
            seen,
            lambda to, member=member: _write_member(tar, member, to),
            _bytes(member.linkname),
            later,
        )
        tar.members = []
        member = tar.next()
    if member is None:
        raise Torn("the stream ended early")
    _finish(later)


def _check(member, first, folders):
    """A member lies below a folder that we made from this same stream, so no link and no ".." leads out."""
    parent, _, last = member.name.rpartition("/")
    if member is not first and (parent not in folders or last in ("", ".", "..")):
        raise Torn(f"a name points outside of the folder: {member.name!r}")
    if not (member.isdir() or member.issym() or member.isreg()):
        raise Torn(f"{member.name!r} is not a file, folder or link")
    if member.isdir():
        folders.add(member.name)


def _write_member(tar, member, to):
    left = member.size
    source = tar.extractfile(member)
    with open(to, "wb", buffering=0, closefd=False) as f:
        whole = Whole(f)
        while left:
            data = source.read(min(left, CHUNK))
            if not data:
                raise Torn("the stream ended early")
            whole.write(data)
            left -= len(data)


@contextlib.contextmanager
def beside(target, folder):
    """Context with a temporary name next to `target`, which is renamed to `target` at the end, or removed
    after an error.
    The file is locked while it is written, so that a later writer recognizes the remains of a killed
    writer."""
    target = target.rstrip(b"/") or b"/"
    parent, name = os.path.split(target)
    parent = parent or b"."
    os.makedirs(parent, exist_ok=True)
    _refuse(target, folder)
    prefix = b"." + name[:200] + b".part-"
    _sweep(parent, prefix)
    temp = os.path.join(parent, prefix + b"%d-%s" % (os.getpid(), os.urandom(6).hex().encode()))
    lock = -1
    try:
        if folder:
            with spread(parent):
                os.mkdir(temp, 0o700)
        else:
            os.close(os.open(temp, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
        lock = os.open(temp, os.O_RDONLY | os.O_CLOEXEC)
        with contextlib.suppress(OSError):
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield temp
        if not folder:
            os.fsync(lock)
        _refuse(target, folder)
        os.rename(temp, target)
    except BaseException:
        remove(temp)
        raise
    finally:
        if lock >= 0:
            os.close(lock)


@contextlib.contextmanager
def spread(parent):
    """A folder made in `parent` meanwhile gets a place of its own on the disk (chattr +T), where the file
    system knows places; which one hangs on its name.

    Without a journal ext4 looks at every inode that was freed in a place within the last minutes before it
    gives one out there:
    beside a copy that was removed just now, 2,000 files take seconds instead of a tenth.
    """
    fd, before = os.open(parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC), None
    try:
        with contextlib.suppress(OSError):
            before = fcntl.ioctl(fd, GETFLAGS, bytes(8))
            fcntl.ioctl(fd, SETFLAGS, struct.pack("=I4x", struct.unpack("=I4x", before)[0] | TOPDIR))
        yield
    finally:
        with contextlib.suppress(OSError):
            if before is not None:
                fcntl.ioctl(fd, SETFLAGS, before)
        os.close(fd)


def _refuse(target, folder):
    if not os.path.lexists(target):
        return
    if folder or (os.path.isdir(target) and not os.path.islink(target)):
        raise Exists(f"{os.fsdecode(target)} exists already")


def _sweep(parent, prefix):
    with os.scandir(parent) as entries:
        left = [e.path for e in entries if e.name.startswith(prefix)]
    for path in left:
        try:
            fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
        except OSError:
            continue
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            remove(path)
        except OSError:
            pass  # its writer lives
        finally:
            os.close(fd)


def remove(path):
    """Delete a file, or a folder with its content, even if it is read-only."""
    if not os.path.isdir(path):
        with contextlib.suppress(FileNotFoundError):
            os.unlink(path)
        return
    for folder, names, _files in os.walk(path):
        for each in [folder] + [os.path.join(folder, name) for name in names]:
            if not os.path.islink(each):
                os.chmod(each, 0o700)
    shutil.rmtree(path, ignore_errors=True)


class Whole:
    """A raw file whose write() writes all data."""

    def __init__(self, raw):
        self._raw = raw

    def write(self, data):
        """Write all of `data`; returns its length."""
        view = memoryview(data)
        while view:
            view = view[self._raw.write(view):]
        return len(data)


def _join(folder, rel):
    return folder + b"/" + rel if rel else folder


def _text(name):
    return name.decode("utf-8", "surrogateescape")


def _bytes(name):
    return name.encode("utf-8", "surrogateescape")


def main(verb, path):
    """Entry point on the remote machine: `send PATH` packs to stdout, `receive PATH` unpacks from stdin. A
    failure prints one line on stderr and sets the exit code."""
    try:
        if verb == "send":
            with open(1, "wb", buffering=0, closefd=False) as out:
                pack(path, out)
        else:
            with open(0, "rb", buffering=0, closefd=False) as stream:
                unpack(stream, path)
    except FileNotFoundError as e:
        return say(EXIT_NO_SOURCE if verb == "send" else EXIT_OS, e)
    except Exists as e:
        return say(EXIT_EXISTS, e)
    except Torn as e:
        return say(EXIT_TORN, e)
    except OSError as e:
        return say(EXIT_OS, e)
    return 0


def say(code, error):
    """Print an error in one line on stderr; returns the exit code."""
    text = str(error)
    if getattr(error, "strerror", None):
        text = error.strerror + (": " + os.fsdecode(error.filename) if error.filename else "")
    sys.stderr.write(
        text.encode("utf-8", "backslashreplace").decode("utf-8", "replace").replace("\n", "\\n") + "\n"
    )
    return code


if __name__ == "__main__":
    sys.exit(main(*sys.argv[-2:]))
