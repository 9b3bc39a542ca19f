"""Files that a rehearsed script writes outside of its own (copied) folder go to a scratch folder, and are read from there again."""

from __future__ import annotations

import builtins
import io
import os
import threading

from . import pretend
from .tell import once

_WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
_free: tuple = ()
_work = "\0"
_kept = "\0"  # the folder that was copied: nothing is written there, wherever it lies
_root = ""
_busy = threading.local()  # while we look for the way of a path ourselves
_open, _os_open = builtins.open, os.open
_stat, _lstat, _access = os.stat, os.lstat, os.access


def install() -> None:
    """From here on this process writes nothing of the user's."""
    global _free, _kept, _root, _work
    room = os.environ["STOKER_REHEARSE_ROOM"]
    _root = os.path.join(room, "outside")
    home = os.path.expanduser("~")
    cache = os.environ.get("XDG_CACHE_HOME") or os.path.join(home, ".cache")
    _work = os.path.realpath(os.environ.get("STOKER_REHEARSE_FOLDER") or os.getcwd()) + "/"
    free = [
        os.path.realpath(p)
        for p in (
            room,
            cache,
            os.environ.get("TMPDIR") or "/tmp",
            "/tmp",
            "/var/tmp",
            "/dev",
            "/proc",
            "/sys",
            os.environ.get("STOKER_HOOKS") or room,
        )
    ]
    _free = tuple(p.rstrip("/") + "/" for p in free)
    origin = os.environ.get("STOKER_REHEARSE_FROM")
    _kept = os.path.realpath(origin) + "/" if origin else "\0"
    builtins.open = io.open = open_
    os.open = os_open
    for name in ("mkdir", "rmdir", "unlink", "remove", "truncate", "chmod", "utime"):
        setattr(os, name, _one(getattr(os, name), name))
    for name in ("rename", "replace", "link", "symlink"):
        setattr(os, name, _two(getattr(os, name), name))
    for name in ("stat", "lstat", "access", "listdir", "scandir"):
        setattr(os, name, _asks(getattr(os, name)))


def elsewhere(path: object) -> str:
    """The scratch path that stands for `path`; "" where the script may write."""
    if isinstance(path, int) or path is None:
        return ""
    try:
        name = os.fsdecode(os.fspath(path))
    except TypeError:
        return ""
    whole = os.path.abspath(name)
    folder, base = os.path.split(whole)
    real = _real(folder)
    here = os.path.join(real, base, "")
    if (here.startswith(_free) and not here.startswith(_kept)) or here.startswith(_work) or "__pycache__" in whole:
        return ""
    return _root + os.path.join(real, base)


def _real(path: str) -> str:
    _busy.on = True
    try:
        return os.path.realpath(path)
    finally:
        _busy.on = False


def _existed(path: str) -> bool:
    try:
        _lstat(path)
    except OSError:
        return False
    return True


def _make_room(path: str, there: str, keep: bool) -> None:
    """The scratch file `there` in a folder of its own; with what the user's file holds if it is to be changed rather than made."""
    folder = os.path.dirname(there)
    if not os.path.isdir(folder) and os.path.isdir(os.path.dirname(os.path.abspath(path))):
        _raw_makedirs(folder)
    if keep and not _existed(there) and _existed(path):
        with _open(path, "rb") as source, _open(there, "wb") as target:
            while True:
                part = source.read(1 << 20)
                if not part:
                    break
                target.write(part)


def _raw_makedirs(folder: str) -> None:
    if folder and not _existed(folder):
        _raw_makedirs(os.path.dirname(folder))
        try:
            _mkdir(folder)
        except FileExistsError:
            pass


_mkdir = os.mkdir


def for_reading(path: object) -> object:
    """`path`, or the scratch file that was written in its place."""
    there = elsewhere(path)
    return there if there and _existed(there) else path


def for_writing(path: object, keep: bool = False) -> object:
    """`path`, or the scratch file that is written in its place; `keep`: it begins with what the user's file holds."""
    there = elsewhere(path)
    if not there:
        return path
    once("outside", str(path), path=os.path.abspath(os.fsdecode(os.fspath(path))))
    _make_room(os.fsdecode(os.fspath(path)), there, keep)
    return there


def open_(file: object, mode: str = "r", *args: object, **kwargs: object) -> object:
    """builtins.open."""
    if not isinstance(file, int):
        if isinstance(mode, str) and set(mode) & set("wax+"):
            file = for_writing(file, keep="w" not in mode)
        else:
            file = for_reading(file)
    return _open(file, mode, *args, **kwargs)


def os_open(path: object, flags: int, mode: int = 0o777, *, dir_fd: object = None) -> int:
    """os.open."""
    if dir_fd is None:
        path = for_writing(path, keep=not flags & os.O_TRUNC) if flags & _WRITES else for_reading(path)
        return _os_open(path, flags, mode)
    return _os_open(path, flags, mode, dir_fd=dir_fd)


def _one(real: object, name: str) -> object:
    def call(path: object, *args: object, **kwargs: object) -> object:
        if kwargs.get("dir_fd") is not None:
            return real(path, *args, **kwargs)
        there = elsewhere(path)
        if there and name == "mkdir" and _existed(os.path.abspath(os.fsdecode(os.fspath(path)))):
            raise FileExistsError(17, "File exists", path)
        if there and name in ("unlink", "remove", "rmdir") and not _existed(there):
            once("outside", str(path), path=f"{path} (not removed)")
            return None
        return real(for_writing(path, keep=name in ("chmod", "utime", "truncate")), *args, **kwargs)

    return call


def _two(real: object, name: str) -> object:
    def call(src: object, dst: object, *args: object, **kwargs: object) -> object:
        if name in ("rename", "replace"):
            src = for_writing(src, keep=True) if elsewhere(src) else src
        elif name == "link":
            src = for_reading(src)
        return real(src, for_writing(dst), *args, **kwargs)

    return call


def _asks(real: object) -> object:
    def call(path: object = ".", *args: object, **kwargs: object) -> object:
        if kwargs.get("dir_fd") is None and not isinstance(path, int) and not getattr(_busy, "on", False) and _existed(_root):
            path = for_reading(path)
        return real(path, *args, **kwargs)

    return call


def torch_files(torch: object) -> None:
    """torch writes with its own C++."""
    save, load = torch.save, torch.load

    def saved(obj: object, f: object, *args: object, **kwargs: object) -> object:
        if isinstance(f, (str, os.PathLike)):
            f = for_writing(f)
        once("saved", str(f))
        return save(obj, f, *args, **kwargs)

    def loaded(f: object, *args: object, **kwargs: object) -> object:
        pretend.loading["unmapped"] = kwargs.get("map_location") is None and not args
        try:
            return load(for_reading(f) if isinstance(f, (str, os.PathLike)) else f, *args, **kwargs)
        finally:
            pretend.loading["unmapped"] = False

    torch.save, torch.load = saved, loaded
    for module in (torch.serialization,):
        module.save, module.load = saved, loaded
