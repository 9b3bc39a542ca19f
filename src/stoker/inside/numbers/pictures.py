"""Pictures that a script hands to a library, kept as files beside the numbers,
with a line that names step and file.

All of a process together are at most KEPT_MAX bytes: the oldest make room.
The bytes are those that the library wrote; nothing is drawn.
"""

from __future__ import annotations

import os
import stat

from . import lines

FOLDER = "pictures"
ONE_MAX = 20 << 20  # bytes
KEPT_MAX = 100 << 20
ENDINGS = (".png", ".jpg", ".jpeg", ".gif", ".webp", ".svg")
_NAME_MAX = 60
# the real ones: exact resume puts others there
_open, _close, _read, _write, _fstat, _unlink, _mkdir, _scandir = (
    getattr(each, "__wrapped__", each)
    for each in (os.open, os.close, os.read, os.write, os.fstat, os.unlink, os.mkdir, os.scandir)
)
_kept: list = []  # [path, bytes], oldest first
_begun = False
_count = 0


def matplotlib(module: object) -> None:
    """module: matplotlib.figure. What `savefig` wrote into a file is kept as it was at that moment."""
    lines.after(module.Figure, "savefig", "matplotlib", _saved)


def _saved(_result, _self, fname, *_args, **_kwargs) -> None:
    path = (
        fname
        if type(fname) is str
        else os.fspath(fname)
        if type(fname).__module__.startswith("pathlib")
        else None
    )
    if type(path) is str:
        name, ending = os.path.splitext(os.path.basename(path))
        of_file("matplotlib", name, None, path if ending else f"{path}.png")


def of_file(source: str, name: str, step: object, path: str) -> None:
    """Keep a copy of a file that a library has just written."""
    ending = os.path.splitext(path)[1].lower()
    if ending not in ENDINGS:
        return
    if lines.silent():
        lines.count_on(source, name, step)
        return
    fd = _open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        info = _fstat(fd)
        data = _whole(fd, info.st_size) if stat.S_ISREG(info.st_mode) and info.st_size <= ONE_MAX else None
    finally:
        _close(fd)
    if data is not None:
        keep(source, name, step, data, ending)


def _whole(fd: int, size: int) -> bytes:
    parts = []
    while size > 0 and (part := _read(fd, size)):
        parts.append(part)
        size -= len(part)
    return b"".join(parts)


def keep(source: str, name: str, step: object, data: bytes, ending: str = ".png") -> None:
    """Keep a picture, as a library encoded it."""
    global _count
    if lines.silent() or len(data) > ONE_MAX:
        lines.count_on(source, name, step)
        return
    folder = os.path.join(os.environ["STOKER_HOOKS"], FOLDER)
    _begin(folder)
    _count += 1
    letters = "".join(each if each.isascii() and each.isalnum() else "-" for each in name)[:_NAME_MAX]
    own = f"{lines.process()}-{_count:06d}-{letters}{ending}"
    path = os.path.join(folder, own)
    fd = _open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        rest = memoryview(data)
        while rest:
            rest = rest[_write(fd, rest):]
    finally:
        _close(fd)
    _kept.append([path, len(data)])
    while sum(size for _, size in _kept) > KEPT_MAX:
        oldest, _ = _kept.pop(0)
        try:
            _unlink(oldest)
        except OSError:
            pass
    lines.picture(source, name, step, f"{FOLDER}/{own}", len(data))


def _begin(folder: str) -> None:
    """Once: what an earlier life of this process kept counts too."""
    global _begun, _count
    if _begun:
        return
    _begun = True
    try:
        _mkdir(folder, 0o700)
    except FileExistsError:
        with _scandir(folder) as entries:
            found = sorted(entry.name for entry in entries if entry.name.startswith(f"{lines.process()}-"))
        for name in found:
            _kept.append([os.path.join(folder, name), os.lstat(os.path.join(folder, name)).st_size])
            number = name.split("-")[1]
            _count = max(_count, int(number)) if number.isdigit() else _count
