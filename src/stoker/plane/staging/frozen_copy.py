"""Freezes a working folder: a copy that later edits cannot touch.
Blocks are shared where the file system can, else real copies.

Never hard links: a script that writes through one would destroy the user's original.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import hashlib
import os
import pwd
import shutil
import stat
import threading
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from stoker.base.errors import Denied, InvalidSpec, StateError, TargetError
from stoker.base.units import format_size
from stoker.hosts import tree
from stoker.plane.staging.listing import IGNORE_FILE, Listing, belongings, sizes

MAX_FILES = 200_000
_FICLONE = 0x40049409
_SMALL = 256 * 1024  # below it one read and one write are quickest
_THREADS = 3
_OPEN = os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW
_Copied = tuple[int, int, str]  # size, mtime_ns, sha256
_CREATE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC


@dataclass(frozen=True)
class FrozenInfo:
    """Content of a frozen copy. files also counts links; bytes: of the content. skipped: sentences about
    paths that are not in the copy or lead out of it.
    listed: all entries: folders as [path], links as [path, target], files as [path, size, mtime_ns].
    hashes: path -> sha256 of the content in the copy, for files that were read. place: the copy."""

    files: int
    bytes: int
    skipped: list[str] = field(default_factory=list)
    listed: list[list] = field(default_factory=list)
    hashes: dict[str, str] = field(default_factory=dict)
    place: Path = Path()


@dataclass
class _Plan:
    files: list[tuple[str, os.stat_result]] = field(default_factory=list)
    links: list[tuple[str, os.stat_result]] = field(default_factory=list)
    folders: set[str] = field(default_factory=set)
    bytes: int = 0
    skipped: list[str] = field(default_factory=list)
    left_out: dict[str, str] = field(default_factory=dict)


def plan(folder: Path, limit_bytes: int, without: tuple[str, ...] = ()) -> _Plan:
    """What `freeze` would copy: `.files`, `.links` as (path, lstat), `.folders`, `.bytes`; `.left_out`:
    path -> why. Raises the same errors."""
    folder = Path(os.path.abspath(folder))
    _check_folder(folder)
    return _plan(folder, belongings(folder, without=without), limit_bytes)


def freeze(folder: Path, target: Path, limit_bytes: int, without: tuple[str, ...] = ()) -> FrozenInfo:
    """Copy the files that belong to `folder` to `target`, completely or not at all. stage_settle reports when
    the copy is on disk.
    These files belong to a folder: what git would track, or else everything but junk; minus what
    .stokerignore lists. Modes, times and links are kept; a relative link that leads out of the folder
    becomes absolute. Raises InvalidSpec for $HOME, "/" and folders above `limit_bytes`, Denied for
    unreadable files, StateError if `target` exists, TargetError without space."""
    folder, target = Path(os.path.abspath(folder)), Path(os.path.abspath(target))
    _check_folder(folder)
    if os.path.lexists(target) and not (target.is_dir() and not os.listdir(target)):
        raise StateError(f"{target} exists already.", hint="Remove old runs: stoker gc")
    plan = _plan(folder, belongings(folder, target.parent, without), limit_bytes)
    # another name each time: see tree.spread
    temp = target.with_name(f"{target.name}.part-{os.urandom(6).hex()}")
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        _check_space(plan, target.parent)
        with tree.spread(target.parent):
            temp.mkdir(mode=0o755)
        listed, hashes = _copy(folder, temp, plan)
        os.rename(temp, target)
    except OSError as e:
        shutil.rmtree(temp, ignore_errors=True)
        raise _explain(e, plan, target) from e
    except BaseException:
        shutil.rmtree(temp, ignore_errors=True)
        raise
    return FrozenInfo(
        len(listed) - len(plan.folders), plan.bytes, plan.skipped, listed, hashes, target
    )


def into_copy(argv: Sequence[str], folder: Path, work: Path) -> list[str]:
    """`argv`, with absolute paths of files in `folder` replaced by their paths in the copy `work`, if they
    exist there.
    Only files are replaced: the absolute path of a data folder means the original folder."""
    top = os.path.abspath(folder) + os.sep
    moved = []
    for word in argv:
        inside = os.path.join(work, os.path.normpath(word).removeprefix(top)) if word.startswith(top) else ""
        moved.append(inside if inside and os.path.isfile(inside) else word)
    return moved


# --- what to copy
# --------------------------------------------------------------------------------------------------------

def _check_folder(folder: Path) -> None:
    if not folder.is_dir():
        raise InvalidSpec(
            f"The folder {folder} does not exist.", hint="Change to the folder of your script first."
        )
    real = os.path.realpath(folder)
    homes = {os.path.realpath(Path.home())}
    with contextlib.suppress(KeyError):
        homes.add(os.path.realpath(pwd.getpwuid(os.getuid()).pw_dir))
    if real == "/" or any(h == real or h.startswith(real + os.sep) for h in homes):
        what = (
            "the root of the file system"
            if real == "/"
            else "your home folder"
            if real in homes
            else "a folder that contains your home"
        )
        raise InvalidSpec(f"{folder} is {what}. Stoker does not copy such a folder.",
                          hint="Move the script to its own folder (mkdir project), or run without --copy.")


def _plan(folder: Path, listing: Listing, limit_bytes: int) -> _Plan:
    plan = _Plan()
    for base in listing.folders:
        _add_folder(plan, base)
    weight: dict[str, int] = {}
    for path, info in sizes(folder, listing.files):
        if stat.S_ISLNK(info.st_mode):
            plan.links.append((path, info))
        elif not stat.S_ISREG(info.st_mode):
            plan.skipped.append(f"{path} is not a regular file")
            continue
        else:
            size = (
                min(info.st_size, info.st_blocks * 512)
                if info.st_blocks and info.st_size > _SMALL
                else info.st_size
            )
            plan.files.append((path, info))
            plan.bytes += size
            top = path.split(os.sep)[0]
            weight[top] = weight.get(top, 0) + size
        _add_folder(plan, os.path.dirname(path))
    if plan.bytes > limit_bytes:
        raise _too_big(folder, plan.bytes, weight, limit_bytes)
    if len(plan.files) + len(plan.links) > MAX_FILES:
        raise _too_many(folder, plan)
    plan.left_out = dict(sorted(listing.left_out.items()))
    plan.skipped += [
        f"{path} is not in the copy ({why})"
        for path, why in sorted(listing.left_out.items())
        if why != "data"
    ]
    return plan


def _add_folder(plan: _Plan, base: str) -> None:
    while base and base not in plan.folders:
        plan.folders.add(base)
        base = os.path.dirname(base)


def _too_big(folder: Path, total: int, weight: dict[str, int], limit: int) -> InvalidSpec:
    biggest = sorted(weight.items(), key=lambda item: -item[1])[:3]
    named = ", ".join(
        f"{name}{'/' if (folder / name).is_dir() else ''} ({format_size(size)})" for name, size in biggest
    )
    return InvalidSpec(
        f"{folder} is too large to copy: the size is {format_size(total)}, and the limit is "
        f"{format_size(limit)}. The largest parts: {named}.",
        hint=f"Exclude what the run does not need (echo {biggest[0][0]} >> {IGNORE_FILE}), mount data with "
        "--mount NAME=/abs, or raise copy_limit in config.toml.",
    )


def _too_many(folder: Path, plan: _Plan) -> InvalidSpec:
    count: dict[str, int] = {}
    for path, _ in plan.files:
        top = path.split(os.sep)[0]
        count[top] = count.get(top, 0) + 1
    named = ", ".join(
        f"{name} ({n} files)" for name, n in sorted(count.items(), key=lambda item: -item[1])[:3]
    )
    return InvalidSpec(
        f"{folder} has too many files to copy: {len(plan.files)} files, and the limit is {MAX_FILES}. Most "
        f"of the files are in {named}.",
        hint=f"In {IGNORE_FILE}, list the folders that the run does not need.",
    )


def _check_space(plan: _Plan, where: Path) -> None:
    free = os.statvfs(where)
    if free.f_files and free.f_favail < len(plan.files) + len(plan.links) + len(plan.folders) + 16:
        raise OSError(errno.ENOSPC, "inodes", os.fspath(where))


def _explain(e: OSError, plan: _Plan, target: Path) -> Exception:
    if e.errno in (errno.ENOSPC, errno.EDQUOT):
        try:
            free = os.statvfs(target.parent)
            left = f"only {format_size(free.f_bavail * free.f_frsize)} and {free.f_favail} inodes are free"
        except OSError:
            left = "the disk is full"
        needs = f"{format_size(plan.bytes)} and {len(plan.files)} inodes (one for each file)"
        return TargetError(f"Not enough disk space in {target.parent}: the copy needs {needs}, but {left}.",
                           retry=False, hint="Remove old runs (stoker gc), or run without --copy.")
    name = e.filename if isinstance(e.filename, str) else os.fspath(target)
    if e.errno in (errno.EACCES, errno.EPERM):
        return Denied(f"{name} cannot be read or copied ({e.strerror}).",
                      hint=f"Make the file readable (chmod u+r), or add its name to {IGNORE_FILE}.")
    return TargetError(f"{name} cannot be copied ({e.strerror}).", retry=False,
                       hint=f"Check the disk, or add the name of the file to {IGNORE_FILE}.")


# --- copying
# ------------------------------------------------------------------------------------------------------------

def _copy(folder: Path, temp: Path, plan: _Plan) -> tuple[list[list], dict[str, str]]:
    """What was made, as FrozenInfo lists it, and the hashes of what was read."""
    for base in sorted(plan.folders):  # parents come before their children
        os.mkdir(os.path.join(temp, base))
    listed: list[list] = [[base] for base in sorted(plan.folders)]
    made = _copy_files(folder, temp, plan.files)
    listed += [[path, size, mtime_ns] for path, (size, mtime_ns, _) in made]
    copied = {path for path, _ in plan.files} | plan.folders
    for path, info in plan.links:
        listed += _copy_link(folder, temp, (path, info), copied, plan.skipped)
    for base in sorted(plan.folders, reverse=True):
        _keep_folder(os.path.join(folder, base), os.path.join(temp, base))
    _keep_folder(os.fspath(folder), os.fspath(temp))
    return listed, {path: sha256 for path, (_, _, sha256) in made if sha256}


def _keep_folder(source: str, copy: str) -> None:
    """Mode and times of a folder; its owner may always write in the copy, so that it can be removed."""
    try:
        info = os.stat(source)
    except FileNotFoundError:
        return
    os.chmod(copy, stat.S_IMODE(info.st_mode) & 0o777 | 0o700)
    os.utime(copy, ns=(info.st_atime_ns, info.st_mtime_ns))


def _copy_files(
    folder: Path, temp: Path, files: list[tuple[str, os.stat_result]]
) -> list[tuple[str, _Copied]]:
    """Copy all; several threads, as the work is in the kernel. The first failure ends it and is raised."""
    way = _Way()
    heavy = sum(info.st_size for _, info in files)
    threads = min(_THREADS, os.cpu_count() or 1) if heavy > 8_000_000 else 1
    shares = [files[n::threads] for n in range(threads)]
    made: list[tuple[str, _Copied]] = []
    failures: list[OSError] = []

    def work(n: int) -> None:
        try:
            made.extend(_copy_share(folder, temp, shares[n], way, failures))
        except OSError as e:
            failures.append(e)

    helpers = [threading.Thread(target=work, args=(n,), name=f"freeze-{n}") for n in range(1, threads)]
    for helper in helpers:
        helper.start()
    try:
        work(0)
    finally:
        for helper in helpers:
            helper.join()
    if failures:
        raise failures[0]
    return made


@dataclass
class _Way:
    """How blocks travel; what the file system refuses once is not tried again."""

    clone: bool = True
    kernel: bool = True


def _copy_share(
    folder: Path, temp: Path, files: Iterable[tuple[str, os.stat_result]], way: _Way, failures: list
) -> list[tuple[str, _Copied]]:
    copied = []
    source, copy = os.fspath(folder) + os.sep, os.fspath(temp) + os.sep
    for path, info in files:
        if failures:
            break
        made = copy_file(source + path, copy + path, info, way)
        if made is not None:
            copied.append((path, made))
    return copied


def copy_file(source: str, copy: str, info: os.stat_result, way: _Way | None = None) -> _Copied | None:
    """Copy one file, with the mode and times in `info`, to an unused name; returns its size, mtime_ns and
    sha256 ("" if the content was not read here), or None if the source is gone."""
    try:
        fd = os.open(source, _OPEN)
    except FileNotFoundError:
        return None  # deleted since it was listed
    try:
        out = os.open(copy, _CREATE, 0o600)
        try:
            try:
                sha256 = _copy_content(fd, out, info, way or _Way())
            except OSError as e:
                raise OSError(e.errno, e.strerror, source) from e
            os.utime(out, ns=(info.st_atime_ns, info.st_mtime_ns))
            os.fchmod(out, stat.S_IMODE(info.st_mode) & 0o777)
            made = os.fstat(out)
            return made.st_size, made.st_mtime_ns, sha256
        finally:
            os.close(out)
    finally:
        os.close(fd)


def _copy_content(fd: int, out: int, info: os.stat_result, way: _Way) -> str:
    if way.clone:
        try:
            fcntl.ioctl(out, _FICLONE, fd)
            return ""
        except OSError as e:
            if e.errno in (errno.ENOSPC, errno.EDQUOT, errno.EIO):
                raise
            way.clone = False
    if info.st_size <= _SMALL:
        return _copy_small(fd, out, info.st_size + 4096)
    if info.st_blocks * 512 < info.st_size:
        _copy_sparse(fd, out, info.st_size, way)
    else:
        _copy_range(fd, out, 0, None, way)
    return ""


def _copy_small(fd: int, out: int, room: int) -> str:
    """Copy by reading, to the end of the file, wherever that is by now; returns the hash of what was
    written."""
    digest = hashlib.sha256()
    data = os.read(fd, room)
    while data:
        digest.update(data)
        while data:
            data = data[os.write(out, data):]
        data = os.read(fd, room)
    return digest.hexdigest()


def _copy_sparse(fd: int, out: int, size: int, way: _Way) -> None:
    at = 0
    while at < size:
        try:
            start = os.lseek(fd, at, os.SEEK_DATA)
        except OSError as e:
            if e.errno == errno.ENXIO:
                break
            raise
        at = os.lseek(fd, start, os.SEEK_HOLE)
        _copy_range(fd, out, start, at, way)
    os.ftruncate(out, size)


def _copy_range(fd: int, out: int, start: int, end: int | None, way: _Way) -> None:
    """Bytes from `start` to `end` (None: to the end of the file, wherever that is by then)."""
    at = start
    while end is None or at < end:
        want = min(1 << 26, (end - at) if end is not None else 1 << 26)
        if way.kernel:
            try:
                n = os.copy_file_range(fd, out, want, at, at)
            except OSError as e:
                if e.errno in (errno.ENOSPC, errno.EDQUOT, errno.EIO):
                    raise
                way.kernel = False
                continue
            if n == 0 and at == start:  # some virtual file systems answer 0 for files that are not empty
                n = _write_at(out, os.pread(fd, min(want, 1 << 20), at), at)
        else:
            n = _write_at(out, os.pread(fd, min(want, 1 << 20), at), at)
        if n == 0:
            return
        at += n


def _write_at(out: int, data: bytes, at: int) -> int:
    done = 0
    while done < len(data):
        done += os.pwrite(out, data[done:], at + done)
    return done


def _copy_link(
    folder: Path, temp: Path, link: tuple[str, os.stat_result], copied: set[str], skipped: list[str]
) -> list[list]:
    """A link stays a link. One to a copied file leads to the copy;
    one that leads out leads to the same place as before."""
    path, info = link
    try:
        leads = os.readlink(folder / path)
    except FileNotFoundError:
        return []
    full = os.path.normpath(os.path.join(folder, os.path.dirname(path), leads))
    inside = (
        full.removeprefix(os.fspath(folder) + os.sep) if full.startswith(os.fspath(folder) + os.sep) else ""
    )
    target = leads
    if os.path.isabs(leads) and inside in copied:
        target = os.path.relpath(inside, os.path.dirname(path) or ".")
    elif not inside and full != os.fspath(folder):
        target = full if not os.path.isabs(leads) else leads
        skipped.append(
            f"{path} is a link to {full}, outside of the folder: if the run writes files there, these files "
            "are not in the copy"
        )
    elif inside and inside not in copied and os.path.exists(folder / path):
        target = full
        skipped.append(
            f"{path} is a link to {inside}, which is not in the copy: in the copy, the link "
            "points to the original"
        )
    copy = temp / path
    os.symlink(target, copy)
    os.utime(copy, ns=(info.st_atime_ns, info.st_mtime_ns), follow_symlinks=False)
    return [[path, target]]
