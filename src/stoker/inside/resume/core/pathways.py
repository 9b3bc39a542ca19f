"""Paths as the journal and the file hooks name them, and the few calls of the operating system that are
needed as they were."""

from __future__ import annotations

import os

from . import phases

real_read, real_write = os.read, os.write
_realpath, _stat = os.path.realpath, os.stat
_parents: dict = {}  # folder as written, absolute -> the same without symbolic links
_ours: dict = {}
NOT_FILES = ("/dev/", "/proc/", "/sys/")


def entry(path: object, dir_fd: int | None = None) -> str:
    """The name itself, absolute, its folder without symbolic links: what rename and remove act on."""
    path = os.fsdecode(path)
    if dir_fd is not None and dir_fd >= 0 and not path.startswith("/"):
        path = os.path.join(os.readlink(f"/proc/self/fd/{dir_fd}"), path)
    folder, name = os.path.split(os.path.abspath(path))
    known = _parents.get(folder)
    if known is None:
        known = _realpath(folder)
        if len(_parents) > 5000:
            _parents.clear()
        if not folder.startswith(NOT_FILES):  # a descriptor's number is soon another folder's
            _parents[folder] = known
    return os.path.join(known, name)


def content(path: object) -> str:
    """What opening the path would act on: symbolic links are followed."""
    told = os.path.abspath(os.fsdecode(path))
    if told.startswith(NOT_FILES):  # /proc/self is another folder in each life
        return told
    found = entry(path)
    return _realpath(found) if os.path.islink(found) else found


def ours(path: str) -> bool:
    """Whether the path is none of the user's files: Stoker's own, a device, a view of the kernel."""
    if path.startswith(NOT_FILES):
        return True
    return bool(phases.folder) and path.startswith(_our_folders(phases.folder))


def _our_folders(folder: str) -> tuple:
    if folder not in _ours:
        hooks = os.environ.get("STOKER_HOOKS") or folder
        _ours[folder] = tuple(each + "/" for place in (folder, hooks) for each in (place, _realpath(place)))
    return _ours[folder]


def forget_folders() -> None:
    """A folder may have been renamed."""
    _parents.clear()
