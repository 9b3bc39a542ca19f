"""open(): what is written is real and watched while recording, a stand-in as a ghost;
what the script reads of its own writing says the same in each life.
"""

from __future__ import annotations

import io
import os
from _thread import get_ident
from _weakref import ref

from ... import wrote
from ...looks import has, isinstance
from ..core import early_log, pathways, phases, words
from . import streams
from .known_files import inputs, written

_getframe = early_log.frame
_real_open, _real_os_open = io.open, os.open
_MISSING = object()
# bytes: a file of its own that the script reads back is kept in the log up to here;
# larger ones must not change
OWN_MAX = 1 << 20
WORTH_KNOWING, KNOWN_MAX = 1 << 12, 16 << 20  # bytes of such a file, and of all that are known by heart
INPUTS_MAX = 4096
of_libraries: set = set()  # files that a library writes for a program of its own, other ones in each life
read_back: dict = {}  # large ones of those that it read again: path -> (size, mtime_ns)
# path -> (file with its content, size,
# mtime_ns) of what is to be put back at the image that this life goes to
at_image: dict = {}
_known: dict = {}  # path -> what a file of its own held when the script read it last, the latest at the end
handles = None  # imported with the first file
# inside a loader whose data a life that comes back reads again from the beginning: files too
read_again = False
# (call, weak reference, [how often it went to a place]): files opened for reading where a ghost does not come
_within: list = []


class _Call:
    """A call of open() and what it would act on."""

    __slots__ = ("args", "file", "kwargs", "mode", "path")

    def __init__(self, file: object, mode: str, args: tuple, kwargs: dict) -> None:
        self.file, self.mode, self.args, self.kwargs = file, mode, args, kwargs
        self.path = pathways.content(file)

    def real(self) -> object:
        return _real_open(self.file, self.mode, *self.args, **self.kwargs)

    def layers(self) -> tuple:
        """buffering, encoding, errors, newline."""
        names = ("buffering", "encoding", "errors", "newline")
        return tuple(
            self.args[i] if i < len(self.args) else self.kwargs.get(name, None if i else -1)
            for i, name in enumerate(names)
        )


def open_(_of: object, file: object = _MISSING, mode: str = "r", *args: object, **kwargs: object) -> object:
    """In the place of open() and io.open()."""
    if file is _MISSING:
        return _real_open(*args, **kwargs)
    if isinstance(mode, str) and mode != "r" and not set("wax+").isdisjoint(mode):
        wrote.note(file)
    if not (phases.phase or early_log.early or phases.again):
        return _real_open(file, mode, *args, **kwargs)
    if (
        (isinstance(file, int) or kwargs.get("opener"))
        and isinstance(mode, str)
        and not set("wax+").isdisjoint(mode)
    ):
        return _of_number(file, mode, args, kwargs)  # an opener opens by os.open(), as those of tempfile do
    caller = _getframe(1)
    if not _names_a_file(file) or not isinstance(mode, str):
        return _real_open(file, mode, *args, **kwargs)
    if not early_log.asked(caller, early_log.LIBRARY):
        if not set("wax+").isdisjoint(mode) and early_log.by_itself(caller):
            of_libraries.add(pathways.content(file))
        return _real_open(file, mode, *args, **kwargs)
    call = _Call(file, mode, args, kwargs)
    if set("wax+").isdisjoint(mode):
        if call.path.startswith(pathways.NOT_FILES) and not early_log.asked(caller):
            return call.real()  # torch looks at the process itself
        return _to_read(call)
    if pathways.ours(call.path):
        return _of_number(file, mode, args, kwargs)
    if get_ident() != phases.main or phases.depth or phases.again:
        return _aside(call)
    return _to_write(call)


def _names_a_file(file: object) -> bool:
    """Not a descriptor; anything else is for the real open() to complain about."""
    kind = type(file)
    return issubclass(kind, (str, bytes)) or has(kind, "__fspath__")


def _of_number(file: object, mode: str, args: tuple, kwargs: dict) -> object:
    """A descriptor, or something below /dev or /proc:
    where it leads to what the script prints on, nobody could hold that back."""
    f = _real_open(file, mode, *args, **kwargs)
    if streams.leads_to(f.fileno()):
        streams.another_door()
    return f


early_log.through.update((open_.__code__, _of_number.__code__))


def _aside(call: _Call) -> object:
    """By another thread, or inside a shield: no event;
    as a ghost, another thread writes nowhere, nor does what runs again."""
    if early_log.ghosting() and (get_ident() != phases.main or phases.again):
        f, _ = files_open().stand_in(call.file, call.mode, 0, call.layers())
        handles.stray(f)
        return f
    if not early_log.ghosting():
        written.add(call.path)
    return call.real()


def _to_write(call: _Call) -> object:
    here = early_log.mode("open")
    if not here:
        return call.real()
    path = call.path
    written.add(path)
    if here == early_log.GHOST:
        size = early_log.how_ended("open", path)
        f, place = files_open().stand_in(call.file, call.mode, size, call.layers())
        handles.track(path, call.mode, f, place)
        return f
    if phases.phase:
        phases.log.flush()
    phases.depth = 1
    try:
        f = call.real()
    except Exception as e:
        phases.depth = 0
        early_log.put("open", (path, early_log.failed(e)))
        raise
    finally:
        phases.depth = 0
    early_log.put("open", (path, 0 if set("wx") & set(call.mode) else os.fstat(f.fileno()).st_size))
    files_open().track(path, call.mode, f)
    handles.watch(f, path)
    return f


def _to_read(call: _Call) -> object:
    """A file that the script wrote, or one that the kernel makes up, must say what it said in the first life;
    an input is only opened."""
    if phases.depth and not (read_again or phases.again) and phases.phase and get_ident() == phases.main:
        return _note_within(call)
    made_up = call.path.startswith(pathways.NOT_FILES)
    if (call.path.startswith("/dev/") and not call.path.startswith("/dev/shm/")) or (
        not made_up and pathways.ours(call.path)
    ):
        return call.real()
    # asked last: before torch is there, a life that asks for what was not recorded has left its way
    here = early_log.mode("read")
    if not here:
        return call.real()
    if here == early_log.GHOST or (here == early_log.TAIL and made_up):
        f = _read_again(call, early_log.take("read"))
    else:
        f = _read_first(call, made_up)
    files_open().track(call.path, call.mode, f)
    return f


def _read_first(call: _Call, made_up: bool) -> object:
    path = call.path
    phases.depth = 1
    try:
        f = call.real()
        told = _told(path, made_up)
        if type(told) is tuple and told[1] is None:
            _note_read_back(path)
        elif told is None:
            _note_input(path, f)
    except Exception as e:
        phases.depth = 0
        early_log.put("read", (path, early_log.failed(e)))
        raise
    finally:
        phases.depth = 0
    early_log.put("read", told)
    return f


def _note_input(path: str, f: object) -> None:
    if phases.phase <= phases.SETUP and len(inputs) < INPUTS_MAX and path not in inputs:
        now = os.fstat(f.fileno())
        inputs[path] = (now.st_size, now.st_mtime_ns)


def _note_within(call: _Call) -> object:
    """Opened by a forward or a data set that a ghost does not call:
    where it stands in the file no life could learn."""
    f = call.real()
    _keep_within(call, f, 0)
    return f


def _keep_within(call: _Call, f: object, begin: int) -> None:
    seek, sought = type(f).seek, [begin]
    there = ref(f)

    def noted(*args: object) -> int:
        sought[0] += 1
        return seek(there(), *args)

    f.seek = noted
    _within[:] = [each for each in _within if _live(each) is not None]
    _within.append((call, there, sought))


def opened_within(thing: object) -> _Call | None:
    """How a file was opened that a forward or a data set has opened to read, and that the script does not
    write meanwhile."""
    found = next((call for call, there, _ in _within if there() is thing), None)
    writers = (
        [each for each in handles.opened() if each.writes]
        if handles is not None and found is not None
        else []
    )
    return None if any(each.path == found.path for each in writers) else found


def open_within(how: tuple, place: int) -> object:
    """The same, by another life; (file, mode, buffering, encoding, errors, newline)."""
    call = _Call(how[0], how[1], tuple(how[2:]), {})
    f = call.real()
    _keep_within(call, f, 1)
    f.seek(place)
    return f


def _live(each: tuple) -> object:
    f = each[1]()
    return None if f is None or f.closed else f


def read_on() -> str:
    """The path of one of those that are still open, and read without being told where:
    the next life would begin at its start. Else ""."""
    for each in _within:
        call, _, (sought,) = each
        f = _live(each)
        try:
            if f is not None and not sought and getattr(f, "buffer", f).tell():
                return call.path
        except (OSError, ValueError):
            return call.path
    return ""


def _told(path: str, made_up: bool) -> object:
    """None for an input; (path, bytes) of what must be the same when it is read again, (path, True) where
    that is what it held the last time; (path, None, size) if it is too much."""
    if not made_up and path not in written:
        return None
    with _real_open(path, "rb") as f:
        data = f.read(OWN_MAX + 1)
        if len(data) <= OWN_MAX:
            return (path, _as_known(path, data) or data)
        if made_up:
            from ..core import outcome

            outcome.refuse(words.READ_MUCH.format(path=path))
        return (path, None, os.fstat(f.fileno()).st_size)


def _as_known(path: str, data: bytes) -> bool:
    """Whether it held that when it was read last.
    A loop that maps a file of its own anew for each batch does not fill the log.
    Each life goes by the same reads, and so knows and forgets the same."""
    if len(data) < WORTH_KNOWING:
        return False
    same = _known.pop(path, None) == data
    _known[path] = data
    while sum(map(len, _known.values())) > KNOWN_MAX:
        del _known[next(iter(_known))]
    return same


def _note_read_back(path: str) -> None:
    now = os.lstat(path)
    read_back[path] = (now.st_size, now.st_mtime_ns)


def _read_again(call: _Call, told: object) -> object:
    if told is None:
        f = call.real()
        _note_input(call.path, f)
        return f
    path = call.path
    if told[0] == "!":
        early_log.raise_again(told)
    if told[0] != path:
        early_log.astray(words.OTHER_QUESTION.format(name="open", now=path, then=told[0]))
    if early_log.is_failure(told[1]):
        early_log.raise_again(told[1])
    if told[1] is not None:
        data = _known[path] if told[1] is True else told[1]
        _as_known(path, data)
        return _made_of(call, data)
    phases.depth = 1
    try:
        now = os.lstat(path) if path not in at_image else None
        source, size, mtime = at_image[path] if now is None else (path, now.st_size, now.st_mtime_ns)
        read_back[path] = (size, mtime)
        if size != told[2]:
            early_log.astray(words.READ_CHANGED.format(path=path))
    finally:
        phases.depth = 0
    f = _real_open(source, call.mode, *call.args, **call.kwargs)
    files_open().raw_of(f).name = call.file
    return f


def _made_of(call: _Call, data: bytes) -> object:
    """A file with this content, to be read."""
    fd = os.memfd_create("read", os.MFD_CLOEXEC)
    pathways.real_write(fd, data)
    os.lseek(fd, 0, os.SEEK_SET)
    raw = io.FileIO(fd, "r", closefd=True)
    raw.name = call.file
    buffering, encoding, errors, newline = call.layers()
    if buffering == 0:
        return raw
    buffered = io.BufferedReader(raw)
    if "b" in call.mode:
        return buffered
    text = io.TextIOWrapper(buffered, encoding, errors, newline)
    text.mode = call.mode
    return text


def files_open() -> object:
    """handles.py, which is of no use before the first file."""
    global handles
    if handles is None:
        from . import handles as module

        handles = module
    return handles


def os_open(
    _of: object, path: object = _MISSING, flags: int = _MISSING, *args: object, **kwargs: object
) -> int:
    """In the place of os.open()."""
    if flags is _MISSING or len(args) > 2:
        return _real_os_open(*(each for each in (path, flags) if each is not _MISSING), *args, **kwargs)
    if isinstance(flags, int) and flags & (os.O_WRONLY | os.O_RDWR) and not kwargs.get("dir_fd"):
        wrote.note(path)
    none_of_ours = not (phases.phase or early_log.early or phases.again) or not flags & (
        os.O_WRONLY | os.O_RDWR
    )
    if none_of_ours or not early_log.asked(_getframe(1), early_log.LIBRARY):
        return _real_os_open(path, flags, *args, **kwargs)
    target = pathways.content(path)
    if pathways.ours(target):
        return _real_os_open(path, flags, *args, **kwargs)
    if get_ident() != phases.main or phases.again:
        return (
            _real_os_open("/dev/null", os.O_RDWR | os.O_CLOEXEC)
            if early_log.ghosting()
            else _real_os_open(path, flags, *args, **kwargs)
        )
    here = early_log.mode("os.open")
    if not here:
        return _real_os_open(path, flags, *args, **kwargs)
    written.add(target)
    if here == early_log.GHOST:
        early_log.how_ended("os.open", None)
        return _real_os_open("/dev/null", os.O_RDWR | os.O_CLOEXEC)
    if phases.phase:
        phases.log.flush()
    return early_log.done("os.open", None, lambda: _real_os_open(path, flags, *args, **kwargs), told=False)
