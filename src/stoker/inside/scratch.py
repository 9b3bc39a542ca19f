"""Files that a script writes where it may not go to a scratch folder, and are read from there again:
nothing of the user's is changed.

A rehearsal writes in a copy of the folder; a trial of the tuner writes nothing anywhere.
"""

from __future__ import annotations

import builtins
import io
import os
import threading

from . import paths
from .copied import led
from .entry.methods import Of, replace

_WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
_always: tuple = ()
_free: tuple = ()
_work = "\0"
_kept: tuple = ()  # nothing is written there, wherever it lies
_root = ""
_gone: set = set()  # what the script has removed, and is still there
_ways: dict = {}  # folder -> where it really is; forgotten with each folder and link that is made
_dirty = False  # whether anything was written to the scratch folder
_since = 0.0
_SYSTEM = ("/dev/", "/proc/", "/sys/")
WAYS_MAX = 4096
_busy = threading.local()  # while we look for the way of a path ourselves
_open, _os_open, _mkdir = builtins.open, os.open, os.mkdir
_stat, _lstat, _access, _listdir, _scandir = os.stat, os.lstat, os.access, os.listdir, os.scandir


def _silent(what: str, path: str) -> None:
    pass


_note = _silent
# look(path) is called before what the user has at a path is read, or gone on with in the scratch folder
look = None


def install(
    root: str,
    *,
    always: tuple = (),
    work: str = "",
    kept: tuple = (),
    since: float = 0.0,
    note: object = None,
) -> None:
    """From here on this process writes nothing of the user's. root: the scratch folder; always:
    folders of our own; work: a folder that the script may change; kept:
    folders that it may not, even below /tmp; since:
    what was there before this time is kept everywhere; note(what, path):
    called where something goes elsewhere."""
    global _always, _free, _kept, _note, _root, _since, _work
    _root, _note, _since = os.path.realpath(root), note or _silent, since
    home = os.path.expanduser("~")
    cache = os.environ.get("XDG_CACHE_HOME") or os.path.join(home, ".cache")
    _always = _folders(always)
    _work = os.path.realpath(work) + "/" if work else "\0"
    _free = _folders((cache, os.environ.get("TMPDIR") or "/tmp", "/tmp", "/var/tmp", "/dev", "/proc", "/sys"))
    _kept = tuple(each for each in _folders(kept) if each not in (*_free, "/"))
    of_os = Of("os")
    replace(builtins, "open", open_, Of("builtins"))
    io.open = builtins.open
    replace(os, "open", os_open, of_os)
    for name in ("mkdir", "rmdir", "unlink", "remove", "truncate", "chmod", "utime"):
        replace(os, name, _one(getattr(os, name), name), of_os)
    for name in ("rename", "replace", "link", "symlink"):
        replace(os, name, _two(getattr(os, name), name), of_os)
    for name in ("stat", "lstat", "access"):
        replace(os, name, _asks(getattr(os, name)), of_os)
    replace(os, "listdir", listdir, of_os)
    replace(os, "scandir", scandir, of_os)


def hold_all(but: tuple = ()) -> None:
    """From here on this process writes and removes nothing below /tmp either; but:
    beginnings of paths where it may."""
    global _free
    _free = (*_SYSTEM, *but)


def hide(path: str) -> None:
    """An absolute path where the script finds nothing, whatever the user has there."""
    _gone.add(path)


def _folders(paths: tuple) -> tuple:
    return tuple(os.path.realpath(each).rstrip("/") + "/" for each in paths if each)


def elsewhere(path: object) -> str:
    """The scratch path that stands for `path`; "" where the script may write."""
    name = paths.text(path)
    if not name:
        return ""
    whole = os.path.abspath(name)
    folder, base = os.path.split(whole)
    real = _real(folder)
    here = os.path.join(real, base, "")
    free = here.startswith(_free) and not here.startswith(_kept) and not (_since and _was_there(whole))
    if free or here.startswith((*_always, _work)) or "__pycache__" in whole:
        return ""
    return _root + os.path.join(real, base)


def _was_there(path: str) -> bool:
    """Whether a file is older than this trial: then it is the user's, wherever it lies."""
    if path.startswith(_SYSTEM):
        return False
    try:
        return _lstat(path).st_ctime < _since
    except (OSError, ValueError):
        return False


def _real(path: str) -> str:
    known = _ways.get(path)
    if known is not None:
        return known
    _busy.on = True
    try:
        found = os.path.realpath(path)
    finally:
        _busy.on = False
    if len(_ways) >= WAYS_MAX:
        _ways.clear()
    _ways[path] = found
    return found


def _clean() -> bool:
    """Whether nothing was written yet, by this process or another: then all is read where it is."""
    global _dirty
    if not _dirty:
        try:
            with _scandir(_root) as entries:
                _dirty = next(entries, None) is not None
        except OSError:
            return True
    return not _dirty and not _gone


def _make_room(path: str, there: str, keep: bool) -> None:
    """The scratch file `there` in a folder of its own;
    with what the user's file holds if it is to be changed rather than made."""
    folder = os.path.dirname(there)
    if not paths.existed(folder) and paths.existed(os.path.dirname(os.path.abspath(path))):
        _raw_makedirs(folder)
    if keep and not paths.existed(there) and paths.existed(path) and not os.path.isdir(path):
        with _open(path, "rb") as source, _open(there, "wb") as target:
            while True:
                part = source.read(1 << 20)
                if not part:
                    break
                target.write(part)


def _raw_makedirs(folder: str) -> None:
    if folder and not paths.existed(folder):
        _raw_makedirs(os.path.dirname(folder))
        try:
            _mkdir(folder)
        except FileExistsError:
            pass


def for_reading(path: object) -> object:
    """`path`, or the scratch file that was written in its place."""
    path = led(path)
    found = _now_at(path)
    if found is path and look is not None and elsewhere(path):
        look(_whole(path))
    return found


def _now_at(path: object) -> object:
    if _clean():
        return path
    there = elsewhere(path)
    if there and paths.existed(there):
        return there
    if there and _gone and _whole(path) in _gone:
        raise FileNotFoundError(2, "No such file or directory", path)
    return path


def for_writing(path: object, keep: bool = False) -> object:
    """`path`, or the scratch file that is written in its place; `keep`:
    it begins with what the user's file holds."""
    path = led(path)
    there = elsewhere(path)
    if not there:
        return path
    whole = _whole(path)
    _note("outside", whole)
    if keep and look is not None and whole not in _gone and not paths.existed(there):
        look(whole)
    _make_room(whole, there, keep and whole not in _gone)
    _gone.discard(whole)
    return there


def open_(_of: object, file: object, mode: str = "r", *args: object, **kwargs: object) -> object:
    """builtins.open."""
    if not isinstance(file, int):
        if isinstance(mode, str) and set(mode) & set("wax+"):
            file = for_writing(file, keep="w" not in mode)
        else:
            file = for_reading(file)
    return _open(file, mode, *args, **kwargs)


def os_open(_of: object, path: object, flags: int, mode: int = 0o777, *, dir_fd: object = None) -> int:
    """os.open."""
    if dir_fd is None:
        path = for_writing(path, keep=not flags & os.O_TRUNC) if flags & _WRITES else for_reading(path)
        return _os_open(path, flags, mode)
    return _os_open(path, flags, mode, dir_fd=dir_fd)


def listdir(_of: object, path: object = ".") -> list:
    """os.listdir: what is there, and what was written in its place."""
    path = led(path)
    there = _second(path)
    if there is None:
        return _listdir(path)
    own = (
        [each for each in _listdir(path) if _inside(path, each) not in _gone]
        if paths.existed(_whole(path)) or not there
        else []
    )
    new = _listdir(os.fsencode(there) if isinstance(path, bytes) else there) if there else []
    return own + [each for each in new if each not in own]


def scandir(_of: object, path: object = ".") -> object:
    """os.scandir, as `listdir`."""
    path = led(path)
    there = _second(path)
    return _scandir(path) if there is None else _Both(path, there)


class _Both:
    """The entries of two folders as if they were of one."""

    def __init__(self, path: object, there: str) -> None:
        there = os.fsencode(there) if isinstance(path, bytes) else there
        new = {each.name: each for each in _scandir(there)} if there else {}
        own = _scandir(path) if paths.existed(_whole(path)) or not there else ()
        self._entries = iter(
            [
                *(each for each in own if each.name not in new and _inside(path, each.name) not in _gone),
                *new.values(),
            ]
        )

    def __iter__(self) -> object:
        return self

    def __next__(self) -> object:
        return next(self._entries)

    def __enter__(self) -> object:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """As that of os.scandir."""
        self._entries = iter(())


def _inside(path: object, name: object) -> str:
    return os.path.join(_whole(path), os.fsdecode(name))


def _whole(path: object) -> str:
    return os.path.abspath(os.fsdecode(os.fspath(path)))


def _second(path: object) -> str | None:
    """The scratch folder in the place of `path`; "" where nothing was written, and something removed;
    None where all is as it is."""
    if path is None or isinstance(path, int) or getattr(_busy, "on", False) or _clean():
        return None
    there = elsewhere(path)
    if there and paths.existed(there):
        return there
    return "" if _gone else None


def _one(real: object, name: str) -> object:
    def call(_of: object, path: object, *args: object, **kwargs: object) -> object:
        if kwargs.get("dir_fd") is not None or isinstance(path, int):
            return real(path, *args, **kwargs)
        path = led(path)
        there = elsewhere(path)
        if not there:
            return real(path, *args, **kwargs)
        whole = _whole(path)
        _ways.clear()
        if look is not None and whole not in _gone and not paths.existed(there):
            look(whole)
        if name == "mkdir" and paths.existed(whole) and whole not in _gone:
            raise FileExistsError(17, "File exists", path)
        if name in ("unlink", "remove", "rmdir") and not paths.existed(there):
            if not paths.existed(whole) or whole in _gone:
                raise FileNotFoundError(2, "No such file or directory", path)
            _gone.add(whole)
            _note("outside", f"{whole} (not removed)")
            return None
        if name in ("chmod", "utime") and os.path.isdir(whole) and not paths.existed(there):
            return None
        result = real(for_writing(path, keep=name in ("chmod", "utime", "truncate")), *args, **kwargs)
        if name in ("unlink", "remove", "rmdir") and paths.existed(whole):
            _gone.add(whole)  # what the user has there does not come to light again
        return result

    return call


def _two(real: object, name: str) -> object:
    def call(_of: object, src: object, dst: object, *args: object, **kwargs: object) -> object:
        _ways.clear()
        src = led(src) if name != "symlink" else src
        if name in ("rename", "replace"):
            moved = _whole(src) if elsewhere(src) else ""
            src = for_writing(src, keep=True)
            if moved and paths.existed(moved):
                _gone.add(moved)
        elif name == "link":
            src = for_reading(src)
        return real(src, for_writing(dst), *args, **kwargs)

    return call


def _asks(real: object) -> object:
    def call(_of: object, path: object, *args: object, **kwargs: object) -> object:
        if kwargs.get("dir_fd") is None and not isinstance(path, int) and not getattr(_busy, "on", False):
            path = led(path)
            try:
                path = _now_at(path)
            except FileNotFoundError:
                if real is _access:
                    return False
                raise
        return real(path, *args, **kwargs)

    return call


def torch_files(torch: object, loading: object = None) -> None:
    """torch writes with its own C++. `loading(kwargs, args)` gives a `with` around each torch.load."""
    save, load = torch.save, torch.load

    def saved(obj: object, f: object, *args: object, **kwargs: object) -> object:
        if isinstance(f, (str, os.PathLike)):
            f = for_writing(f)
        _note("saved", str(f))
        return save(obj, f, *args, **kwargs)

    def loaded(f: object, *args: object, **kwargs: object) -> object:
        f = for_reading(f) if isinstance(f, (str, os.PathLike)) else f
        if loading is None:
            return load(f, *args, **kwargs)
        with loading(args, kwargs):
            return load(f, *args, **kwargs)

    torch.save, torch.load = saved, loaded
    torch.serialization.save, torch.serialization.load = saved, loaded
    torch.jit.ScriptModule.save = _first(torch.jit.ScriptModule.save, for_writing, at=1)
    torch.jit.load = torch.jit._serialization.load = _first(torch.jit.load, for_reading)


def other_files(after: object) -> None:
    """What else writes with code of its own. `after(module, call)`:
    call(module) is called when the script imports it."""
    after("sqlite3", lambda module: _put(module, "connect", _opened))
    after("h5py", lambda module: setattr(module.File, "__init__", _h5(module.File.__init__)))
    after("cv2", lambda module: (_put(module, "imwrite", for_writing), _put(module, "imread", for_reading)))
    after("safetensors", _safetensors)
    after("shutil", _shutil)


def _put(module: object, name: str, way: object, at: int = 0) -> None:
    if hasattr(module, name):
        setattr(module, name, _first(getattr(module, name), way, at))


def _first(real: object, way: object, at: int = 0) -> object:
    """`real`, with the path at this place of its arguments going another way."""
    def call(*args: object, **kwargs: object) -> object:
        if len(args) > at and isinstance(args[at], (str, bytes, os.PathLike)):
            args = (*args[:at], way(args[at]), *args[at + 1:])
        return real(*args, **kwargs)

    call.__name__, call.__doc__ = name_of(real), getattr(real, "__doc__", None)
    return call


def name_of(call: object) -> str:
    """The name of a function."""
    return getattr(call, "__name__", "call")


def _opened(path: object) -> object:
    """A database: it may be read, and it may be written."""
    if os.fsdecode(os.fspath(path)).startswith((":", "file:")) or not os.fspath(path):
        return path
    return for_writing(path, keep=True)


def _h5(real: object) -> object:
    def __init__(self: object, name: object, mode: str = "r", *args: object, **kwargs: object) -> None:
        if isinstance(name, (str, bytes, os.PathLike)):
            name = for_reading(name) if mode == "r" else for_writing(name, keep=mode in ("a", "r+"))
        real(self, name, mode, *args, **kwargs)

    return __init__


def _safetensors(module: object) -> None:
    """Its own file is imported first; those for torch and numpy take these two from it."""
    for name, way, at in (("serialize_file", for_writing, 1), ("safe_open", for_reading, 0)):
        _put(module, name, way, at)


def _shutil(module: object) -> None:
    """Whole trees are removed by descriptors of folders, which nobody sees."""
    real = module.rmtree

    def rmtree(path: object, *args: object, **kwargs: object) -> None:
        there = elsewhere(path)
        if not there:
            real(path, *args, **kwargs)
            return
        if paths.existed(_whole(path)):
            _note("outside", f"{_whole(path)} (not removed)")
            _gone.update(_below(_whole(path)))
        elif not paths.existed(there):
            real(path, *args, **kwargs)
        if paths.existed(there):
            real(there, *args, **kwargs)

    module.rmtree = rmtree


def _below(folder: str) -> list:
    """A folder with all that is in it."""
    found = [folder]
    with _scandir(folder) as entries:
        for each in entries:
            found += _below(each.path) if each.is_dir(follow_symlinks=False) else [each.path]
    return found
