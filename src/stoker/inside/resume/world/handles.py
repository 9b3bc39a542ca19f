"""Files that the script has open. While recording they are the real ones, watched at their lowest layer;
in the ghost phase they are made of the same Python classes over a descriptor of /dev/null that only counts,
and that becomes the real file at the resume.
"""

from __future__ import annotations

import _io
import os
import stat
from _thread import get_ident
from _weakref import ref

from ...looks import isinstance
from ..core import early_log, pathways, phases, words
from . import journal
from .known_files import inputs, written

FileIO = _io.FileIO
_HOOKED = ("write", "truncate", "seek", "tell", "read", "readinto", "readall")
_MARKED = frozenset("utf-16 utf16 utf-32 utf32 utf-8-sig utf-7 hz".split())
_real_open_fd, _dup2, _ftruncate = os.open, os.dup2, os.ftruncate
_ordinal = 0
_files: list = []  # Handle of every file that the script opened and that may still be open
_strays: list = []  # weak references to stand-ins of other threads


class Handle:
    """One file that the script opened in its main thread, by the order of opening."""

    __slots__ = ("flags", "number", "path", "place", "raw", "text", "top", "writes")

    def __init__(self, number: int, path: str, mode: str, f: object, place: object) -> None:
        self.number, self.path, self.place = number, path, place
        self.writes = bool(set("wax+") & set(mode))
        self.text = "b" not in mode
        self.flags = (os.O_RDWR if "+" in mode else os.O_WRONLY if self.writes else os.O_RDONLY) | (
            os.O_APPEND if "a" in mode else 0
        )
        self.top, self.raw = ref(f), ref(raw_of(f))

    def live(self) -> object:
        """The object that the script holds, or the layer below it if it holds only that;
        None when it is closed or gone."""
        top, raw = self.top(), self.raw()
        if raw is None or raw.closed:
            return None
        return raw if top is None else top


class Place:
    """Where a stand-in is in the file it stands for, and how large that would be."""

    __slots__ = ("append", "at", "size")

    def __init__(self, size: int, append: bool) -> None:
        self.size, self.append = size, append
        self.at = size if append else 0


def raw_of(f: object) -> object:
    """The lowest layer, which is a FileIO."""
    f = getattr(f, "buffer", f)
    return getattr(f, "raw", f)


def track(path: str, mode: str, f: object, place: object = None) -> None:
    """Remember a file by its ordinal, which is the same in each life."""
    global _ordinal
    _ordinal += 1
    _files.append(Handle(_ordinal, path, mode, f, place))
    if len(_files) % 64 == 0:
        _files[:] = [each for each in _files if each.live() is not None]


def opened() -> list[Handle]:
    """Those that are open now."""
    _files[:] = [each for each in _files if each.live() is not None]
    return list(_files)


# ---- while recording

def watch(f: object, path: str, size: int = 0) -> None:
    """From here on the journal and the log hear of each write to this file before it happens. `size`:
    that it had at the image."""
    raw = raw_of(f)
    if type(raw) is not FileIO:
        return
    there, fd = ref(raw), raw.fileno()
    edge = [journal.epoch, size]  # of this interval: how large the file was when the image was taken
    real_write, real_truncate = FileIO.write, FileIO.truncate

    def write(data: object) -> int:
        _before_write(path, fd, edge)
        return real_write(there(), data)

    def truncate(size: int | None = None) -> int:
        if journal.epoch:
            _before_change(path, fd, edge, FileIO.tell(there()) if size is None else size)
        return real_truncate(there()) if size is None else real_truncate(there(), size)

    raw.write, raw.truncate = write, truncate
    if "+" in str(raw.mode):
        _watch_reads(raw, there, path)


def _before_write(path: str, fd: int, edge: list) -> None:
    if not (phases.phase or journal.epoch):
        return
    try:
        if phases.phase and not phases.depth and get_ident() == phases.main:
            phases.log.flush()
        if journal.epoch:
            _before_change(path, fd, edge, None)
    except Exception as e:
        from ..core import outcome

        outcome.broke(e)


def let_go() -> None:
    """The script is at its end: its files are plain ones again,
    for Python closes them when little of us is left."""
    for each in opened():
        raw = each.raw()
        if each.writes and each.place is None and raw is not None:
            for name in _HOOKED:
                raw.__dict__.pop(name, None)


def _before_change(path: str, fd: int, edge: list, to: int | None) -> None:
    """Appending needs nothing more than the size, which the image or the journal knows;
    a change of what was there needs a copy."""
    try:
        if edge[0] != journal.epoch:
            edge[:] = journal.epoch, journal.size_of(path)
        if edge[1] and (os.lseek(fd, 0, os.SEEK_CUR) if to is None else to) < edge[1]:
            import fcntl

            if to is not None or not fcntl.fcntl(fd, fcntl.F_GETFL) & os.O_APPEND:
                journal.change(fd)
    except OSError:
        pass


def _watch_reads(raw: object, there: object, path: str) -> None:
    def refused(name: str) -> object:
        real = getattr(FileIO, name)

        def read(*args: object) -> object:
            if early_log.here() and phases.phase:
                from ..core import outcome

                outcome.refuse(words.READS_OPEN.format(path=path))
            return real(there(), *args)

        return read

    for name in ("read", "readinto", "readall"):
        setattr(raw, name, refused(name))


# ---- as a ghost

def stand_in(path: object, mode: str, size: int, layers: tuple) -> tuple:
    """(file object like the one open() gives, its Place): what is written to it goes nowhere. `size`:
    of the file when it was opened; `layers`: buffering, encoding, errors, newline."""
    buffering, encoding, errors, newline = layers
    fd = _nowhere(path, mode)
    raw = FileIO(fd, mode.replace("b", "").replace("t", "").replace("x", "w").replace("U", ""), closefd=True)
    raw.name = path
    place = Place(0 if set("wx") & set(mode) else size, "a" in mode)
    _count(raw, place, path)
    if buffering == 0:
        return raw, place
    layer = _io.BufferedRandom if "+" in mode else _io.BufferedWriter
    buffered = layer(raw, buffering) if buffering > 1 else layer(raw)
    if "b" in mode:
        return buffered, place
    text = _io.TextIOWrapper(buffered, encoding, errors, newline, buffering == 1)
    text.mode = mode
    return text, place


def _nowhere(path: object, mode: str) -> int:
    """A descriptor for what is written nowhere.
    A new file that may be read, too, may be mapped into memory (`numpy.memmap`):
    it is one on the same disk that has no name."""
    if set("wx") & set(mode) and "+" in mode:
        before, phases.depth = phases.depth, 1  # it is us who open it
        try:
            return _real_open_fd(
                os.path.dirname(os.path.abspath(path)), os.O_TMPFILE | os.O_RDWR | os.O_CLOEXEC, 0o600
            )
        except OSError:  # of a file system that has no such
            pass
        finally:
            phases.depth = before
    return _real_open_fd("/dev/null", os.O_RDWR | os.O_CLOEXEC)


def _count(raw: object, place: Place, path: str) -> None:
    there = raw.fileno() if stat.S_ISREG(os.fstat(raw.fileno()).st_mode) else None

    def write(data: object) -> int:
        if place.append:
            place.at = place.size
        n = memoryview(data).nbytes if there is None else os.pwrite(there, data, place.at)
        place.at += n
        place.size = max(place.size, place.at)
        return n

    def seek(to: int, whence: int = 0) -> int:
        place.at = to if whence == 0 else to + (place.at if whence == 1 else place.size)
        return place.at

    def tell() -> int:
        return place.at

    def truncate(size: int | None = None) -> int:
        place.size = place.at if size is None else size
        if there is not None:
            _ftruncate(there, place.size)
        return place.size

    def read(*args: object) -> object:
        early_log.astray(words.READS_OPEN.format(path=path))
        return b""

    raw.write, raw.seek, raw.tell, raw.truncate = write, seek, tell, truncate
    raw.read = raw.readinto = raw.readall = read


def stray(f: object) -> None:
    """A stand-in that another thread made: it must be closed when the ghost phase ends."""
    _strays.append(ref(raw_of(f)))


# ---- at an image

def save() -> list:
    """What is open, flushed: [(ordinal, path, writes, offset, size, mtime_ns)]."""
    found = []
    for each in opened():
        f, raw = each.live(), each.raw()
        if each.writes:
            f.flush()
            there = os.fstat(raw.fileno())
            if there.st_nlink == 0 or not _same(each.path, there):
                raise journal.Impossible(words.FILE_GONE.format(path=each.path))
            found.append(
                (
                    each.number,
                    each.path,
                    True,
                    os.lseek(raw.fileno(), 0, os.SEEK_CUR),
                    there.st_size,
                    there.st_mtime_ns,
                )
            )
        else:
            found.append((each.number, each.path, False, _where(f), *_marks(each)))
    return found


def _marks(each: Handle) -> tuple:
    """(size, mtime_ns) of a file that was opened in training and may be read on;
    (0, 0) for what is judged elsewhere: inputs of set-up by their content,
    the script's own files by the journal."""
    if each.path.startswith(pathways.NOT_FILES) or each.path in inputs or each.path in written:
        return 0, 0
    there = os.fstat(each.raw().fileno())
    return there.st_size, there.st_mtime_ns


def _same(path: str, there: os.stat_result) -> bool:
    try:
        now = os.stat(path)
    except OSError:
        return False
    return (now.st_dev, now.st_ino) == (there.st_dev, there.st_ino)


def _where(f: object) -> object:
    """The position in a file that is read: as tell() says it, or, where a text file does not tell, that of
    the layers below."""
    try:
        return f.tell()
    except (OSError, ValueError):
        below = getattr(f, "buffer", None)
        return None if below is None else ("below", below.tell())


# ---- at the resume

def load(saved: list) -> None:
    """Stand-ins become the files they stand for. Impossible: what is open now is not what was open then."""
    now = {each.number: each for each in opened()}
    then = {each[0]: each for each in saved}
    for number in then.keys() - now.keys():
        raise journal.Impossible(words.FILE_NOT_OPEN.format(path=then[number][1]))
    for number in now.keys() - then.keys():
        raise journal.Impossible(words.FILE_OPEN.format(path=now[number].path))
    for stray_ref in _strays:
        raw = stray_ref()
        if raw is not None and not raw.closed:
            raise journal.Impossible(words.FILE_OPEN.format(path=raw.name))
    for number, each in now.items():
        _, path, writes, offset, size, mtime = then[number]
        if path != each.path or writes != each.writes:
            raise journal.Impossible(words.FILE_OTHER.format(now=each.path, then=path))
        if writes:
            _become_real(each, offset, size)
        else:
            if mtime and _marks(each) not in ((size, mtime), (0, 0)):
                raise journal.Impossible(words.SAME_INPUT.format(path=path))
            _go_to(each, offset)


def _become_real(each: Handle, offset: int, size: int) -> None:
    f, raw = each.live(), each.raw()
    if each.place is None:
        raise journal.Impossible(words.FILE_OPEN.format(path=each.path))
    f.flush()
    if each.text and each.place.at != offset and not each.place.append and _remembers(f, each.flags):
        raise journal.Impossible(words.FILE_PLACE.format(path=each.path, then=offset, now=each.place.at))
    fd = _real_open_fd(each.path, each.flags | os.O_CLOEXEC)
    try:
        if os.fstat(fd).st_size != size:
            raise journal.Impossible(
                words.FILE_SIZE.format(path=each.path, then=size, now=os.fstat(fd).st_size)
            )
        os.lseek(fd, offset, os.SEEK_SET)
        _dup2(fd, raw.fileno(), False)
    finally:
        os.close(fd)
    for name in _HOOKED:
        raw.__dict__.pop(name, None)
    below = getattr(f, "buffer", f)
    if below is not raw:
        below.seek(offset)
    each.place = None
    watch(f, each.path, size)


def _remembers(f: object, flags: int) -> bool:
    """Whether a text file knows by what was written to it how to go on:
    a mark at the beginning, a place to read at.
    Forwards and data sets, which a ghost does not call, may have written more than it has."""
    word = f.encoding.lower().replace("_", "-")
    return bool(flags & os.O_RDWR) or word in _MARKED or word.startswith("iso-2022")


def _go_to(each: Handle, where: object) -> None:
    f = each.live()
    here = _where(f)
    if here == where:
        return
    if where is None or isinstance(where, tuple):
        raise journal.Impossible(words.FILE_PLACE.format(path=each.path, then=where, now=here))
    f.seek(where)


def writes_to(fd: int) -> bool:
    """Whether this is the descriptor of a file object that the script writes with."""
    return any(each.writes and each.raw().fileno() == fd for each in opened())


def known_descriptors() -> set:
    """Numbers of the descriptors that belong to files we know."""
    return {each.raw().fileno() for each in opened()}
