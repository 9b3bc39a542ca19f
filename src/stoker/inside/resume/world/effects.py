"""Changes of the file system by name: made and undoable while recording and in the tail,
not made again by a ghost."""

from __future__ import annotations

import os
import sys
from _thread import get_ident

from ... import wrote
from ...looks import isinstance
from ..core import early_log, pathways, phases
from . import journal
from .opening import files_open, written

_getframe = early_log.frame
EFFECTS = (
    "remove",
    "unlink",
    "rename",
    "replace",
    "mkdir",
    "rmdir",
    "link",
    "symlink",
    "chmod",
    "lchown",
    "chown",
    "utime",
    "truncate",
    "mkfifo",
    "mknod",
    "setxattr",
    "removexattr",
)
SHUTIL = ("copyfile", "copy", "copy2", "copytree", "move", "rmtree", "make_archive", "unpack_archive")

on_saved: list = []  # called with what `torch.save` wrote into, where that is no path
heard = None  # in a loader worker: who is told of files that are written there past Python
# tensors of the script became bytes in memory:
# as a ghost those of stand-ins, and what takes them up holds something else
pickled = False


def install_early() -> None:
    """os.remove and its like, before anybody can take them by name."""
    of_os = early_log.Of("os")
    for name, around in (*dict.fromkeys(EFFECTS, _effect).items(), ("system", _system)):
        if hasattr(os, name):
            early_log.replace(os, name, around(name, getattr(os, name)), of_os)


def install() -> None:
    """What belongs to modules that come later, or came by now."""
    from ...entry import imports

    imports.after("shutil", _patch_shutil)
    imports.after("safetensors", _patch_safetensors)
    torch = sys.modules["torch"]
    torch.save = torch.serialization.save = _save(torch.save)
    torch.jit.save = _save(torch.jit.save)


def _effect(name: str, old: object) -> object:
    """A change of the file system as an event with its outcome."""
    writes = wrote.BY_NAME.get(name)

    def effect(_of: object, *args: object, **kwargs: object) -> object:
        if writes is not None and len(args) > writes:
            wrote.note(args[writes])
        if not (phases.phase or early_log.early or phases.again) or not early_log.asked(
            _getframe(1), early_log.LIBRARY
        ):
            return old(*args, **kwargs)
        if get_ident() != phases.main or phases.again:
            return None if early_log.ghosting() else old(*args, **kwargs)
        here = early_log.mode(name)
        if not here:
            return old(*args, **kwargs)
        paths = tuple(_path(each) for each in args[:2])
        written.update(pathways.entry(each) for each in paths if each)
        if here == early_log.GHOST:
            return early_log.how_ended(name, paths)
        if phases.phase:
            phases.log.flush()
        return early_log.done(name, paths, lambda: old(*args, **kwargs))

    return effect


def _system(name: str, old: object) -> object:
    """A command of the script's in set-up: run once, as its outcome says in each later life.
    In training it makes a run not resumable."""
    def system(_of: object, *args: object, **kwargs: object) -> int:
        command = kwargs.get("command", *args) if len(args) + len(kwargs) == 1 else None
        if (
            not isinstance(command, (str, bytes, os.PathLike))
            or not (phases.phase or early_log.early)
            or not early_log.asked(_getframe(1))
        ):
            return old(*args, **kwargs)
        here, told = early_log.mode(name), os.fsdecode(command)
        if not here:
            return old(command)
        return (
            early_log.how_ended(name, told)
            if here >= early_log.GHOST
            else early_log.done(name, told, lambda: old(command))
        )

    return system


def _path(each: object) -> object:
    if isinstance(each, (str, bytes)):
        return each
    return os.fspath(each) if hasattr(each, "__fspath__") else None


def _patch_shutil(module: object) -> None:
    of = early_log.Of("shutil")
    module.rmtree = _by_descriptors(module, module.rmtree)
    for name in SHUTIL:
        early_log.replace(module, name, _effect("shutil." + name, getattr(module, name)), of)


def _by_descriptors(module: object, old: object) -> object:
    """shutil.rmtree goes by descriptors where it finds the system's own functions in `os`.
    With ours there it would go by names, which is not safe from links."""
    import functools

    @functools.wraps(old)
    def rmtree(*args: object, **kwargs: object) -> None:
        before, module._use_fd_functions = module._use_fd_functions, True
        try:
            old(*args, **kwargs)
        finally:
            module._use_fd_functions = before

    rmtree.avoids_symlink_attacks = True
    return rmtree


def _patch_safetensors(native: object) -> None:
    if not hasattr(native, "serialize_file"):
        return
    old = native.serialize_file

    def serialize_file(
        _of: object, tensors: object, filename: object, *args: object, **kwargs: object
    ) -> object:
        wrote.note(filename)
        if not phases.here():
            return _aside(lambda: old(tensors, filename, *args, **kwargs), filename)
        return _saved(lambda: old(tensors, filename, *args, **kwargs), filename)

    early_log.replace(native, "serialize_file", serialize_file, early_log.Of("safetensors"))


def written_by_name(old: object) -> object:
    """A function of a C library that writes the file that its first text argument names."""

    def write(_of: object, *args: object, **kwargs: object) -> object:
        path = next((each for each in args if isinstance(each, (str, os.PathLike))), None)
        wrote.note(path)
        if path is None or not phases.here():
            return _aside(lambda: old(*args, **kwargs), path)
        return _saved(lambda: old(*args, **kwargs), path)

    return write


# ---- torch.save

def _save(old: object) -> object:
    import functools

    @functools.wraps(old)
    def save(*args: object, **kwargs: object) -> object:
        f = args[1] if len(args) > 1 else kwargs.get("f")
        wrote.note(f)
        if not phases.here():
            return _aside(lambda: old(*args, **kwargs), f)
        return _saved(lambda: old(*args, **kwargs), f)

    return save


def _aside(call: object, f: object) -> object:
    """By another thread, inside a shield, or when recording has stopped:
    no event, but what was there is kept."""
    if heard is not None and isinstance(f, (str, os.PathLike)):
        heard(os.fspath(f))
    if isinstance(f, (str, os.PathLike)) and (phases.phase or journal.epoch or phases.again):
        if early_log.ghosting():
            return call() if get_ident() == phases.main and not phases.again else None
        written.add(pathways.content(f))
        journal.touch(pathways.content(f), journal.TRUNCATE)
    return call()


def _saved(call: object, f: object) -> object:
    """A writer that opens its file by itself, in C++: as a ghost not called at all;
    into memory always called."""
    global pickled
    path = pathways.content(f) if isinstance(f, (str, bytes, os.PathLike)) else None
    if path is None and not any(each.live() is f for each in files_open().opened()):
        pickled = True
        phases.depth = 1
        try:
            done = call()
            for tell in on_saved:
                tell(f)
        finally:
            phases.depth = 0
        return done
    if path is not None:
        written.add(path)
    if early_log.mode("save") == early_log.GHOST:
        return early_log.how_ended("save", path)
    phases.log.flush()
    if path is not None:
        journal.touch(path, journal.TRUNCATE)
    return early_log.done("save", path, call)
