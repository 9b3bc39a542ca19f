"""Looks at the machine: disk, memory, limits, clock, the login manager. Reads files; changes nothing."""

from __future__ import annotations

import contextlib
import getpass
import glob
import os
import re
import resource
import shutil
import time
from collections.abc import Iterator
from pathlib import Path

from stoker.base.config import NETWORK_FILESYSTEMS, filesystem_type, home
from stoker.base.units import format_size
from stoker.doctor import python
from stoker.doctor.finding import Finding

_FREE_FAIL, _FREE_WARN = 200_000_000, 3_000_000_000
_SHM_WARN = 1_000_000_000
_FILES_WARN = 4096
_MEMORY_WARN = 2_000_000_000


def look(folder: Path, env: dict[str, str], deep: bool = True) -> list[Finding]:
    """All findings about the machine but GPU and Python. `deep` also asks the login manager."""
    return [
        *disks(folder, env),
        *shared_memory(),
        *open_files(),
        *cgroup(),
        *clock(folder),
        *(login_manager(env) if deep else ()),
    ]


# --- disk, memory, limits
# ------------------------------------------------------------------------------------------------

def disks(folder: Path, env: dict[str, str]) -> Iterator[Finding]:
    """Free bytes and inodes, and network file systems, where the run,
    its folder and its temporary files lie."""
    state = home().path
    places = (
        ("your folder", folder),
        ("the state folder", state),
        ("the temporary folder", Path(env.get("TMPDIR") or "/tmp")),
    )
    seen: set[int] = set()
    for name, path in places:
        there = next((p for p in (path, *path.absolute().parents) if p.exists()), None)
        if there is None:
            continue
        device = there.stat().st_dev
        if device not in seen:
            seen.add(device)
            yield from _disk(name, there)
    kind = filesystem_type(state)
    if kind in NETWORK_FILESYSTEMS:
        yield Finding(
            "fail",
            "network disk",
            f"The state folder {state} is on a network file system ({kind}), where locks are not safe.",
            f"export STOKER_HOME=/var/tmp/stoker-{os.getuid()}   (any folder on this machine's own disk)",
        )
    for name, path in (
        ("Your folder", folder),
        ("Your home folder", Path(env.get("HOME") or "~").expanduser()),
    ):
        kind = filesystem_type(path)
        if kind in NETWORK_FILESYSTEMS:
            yield Finding(
                "note",
                "network disk",
                f"{name} {path} is on a network file system ({kind}); many small files are slow there.",
                "Put data sets on this machine's own disk, or pack them into a few large files.",
            )


def _disk(name: str, path: Path) -> Iterator[Finding]:
    info = os.statvfs(path)
    free, total = info.f_bavail * info.f_frsize, info.f_blocks * info.f_frsize
    level = "fail" if free < _FREE_FAIL else "warn" if free < _FREE_WARN else "ok"
    yield Finding(
        level,
        "disk",
        f"{format_size(free)} of {format_size(total)} are free on the disk of {name} ({path}).",
        "" if level == "ok" else "Remove old checkpoints. To remove old runs: stoker gc",
    )
    if info.f_files and (
        info.f_favail < 1000 or (info.f_favail < 50_000 and info.f_favail < info.f_files * 0.05)
    ):
        yield Finding(
            "fail" if info.f_favail < 1000 else "warn",
            "inodes",
            f"Only {info.f_favail} more files fit on the disk of {name} ({path}).",
            (
                "Remove folders with many small files, such as old environments and unpacked data sets. "
                "Each file needs an inode, and a disk can have no free inodes although it has free space."
            ),
        )


def shared_memory(path: str = "/dev/shm") -> Iterator[Finding]:
    """/dev/shm, through which DataLoader workers hand batches over."""
    try:
        info = os.statvfs(path)
    except OSError:
        yield Finding(
            "warn",
            "shared memory",
            f"There is no {path}: DataLoader workers will fail.",
            "Use num_workers=0.",
        )
        return
    total, free = info.f_blocks * info.f_frsize, info.f_bavail * info.f_frsize
    if total < _SHM_WARN or free < _SHM_WARN // 4:
        yield Finding(
            "warn",
            "shared memory",
            f"{path} has only {format_size(total)}, {format_size(free)} free: DataLoader workers may "
            'fail with "Bus error".',
            "Start the container with --shm-size=8g, or use fewer workers.",
        )
    else:
        yield Finding("ok", "shared memory", f"{path} has {format_size(total)}.")


def open_files() -> Iterator[Finding]:
    """`ulimit -n`."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != resource.RLIM_INFINITY and soft < _FILES_WARN:
        top = 65536 if hard == resource.RLIM_INFINITY else hard
        yield Finding(
            "note",
            "open files",
            f'A process can open at most {soft:,} files (ulimit -n). Many workers may cause "Too many open '
            'files".',
            f"ulimit -n {top}" if top > soft else "An administrator can raise the limit in limits.conf.",
        )
    else:
        count = "any number of" if soft == resource.RLIM_INFINITY else f"{soft:,}"
        yield Finding("ok", "open files", f"A process can open {count} files.")


def cgroup(root: Path = Path("/")) -> Iterator[Finding]:
    """CPUs and memory that are really ours, against what a program counts."""
    counted, mine = os.cpu_count() or 1, len(os.sched_getaffinity(0))
    quota = cpu_quota(root)
    if quota is not None and quota < mine - 0.01:
        yield Finding(
            "warn",
            "cpus",
            f"{quota:.3g} CPUs are available to you, but programs see {counted}: one worker per visible "
            "CPU is too many.",
            f"Use num_workers={max(1, int(quota))} and OMP_NUM_THREADS={max(1, int(quota))}.",
        )
    elif mine < counted:
        yield Finding(
            "note",
            "cpus",
            f"{mine} of {counted} CPUs are available to you; os.cpu_count() returns {counted}.",
            "Use len(os.sched_getaffinity(0)) for the number of workers.",
        )
    else:
        yield Finding("ok", "cpus", f"{mine} CPUs.")
    total = _meminfo(root)
    limit = memory_limit(root)
    ours = min(x for x in (total, limit) if x) if total or limit else 0
    if ours:
        limited = bool(limit and (not total or limit < total))
        why = (
            f"; the machine has {format_size(total)}, but this container is limited"
            if limited and total
            else ""
        )
        text = f"{format_size(ours)} of memory{why}."
        low = (
            "If a run needs more memory, the kernel kills the run; smaller batches and fewer workers use "
            "less memory."
            if ours < _MEMORY_WARN
            else ""
        )
        yield Finding("warn" if low else "note" if limited else "ok", "memory", text, low)


def cpu_quota(root: Path = Path("/")) -> float | None:
    """CPUs a cgroup allows, over all levels above us; None for no limit."""
    found = []
    for text in _cgroup_files(root, "cpu", "cpu.max"):
        quota, _, period = text.partition(" ")
        if quota.isdigit() and period.strip().isdigit():
            found.append(int(quota) / int(period))
    periods = _cgroup_files(root, "cpu", "cpu.cfs_period_us")
    for quota, period in zip(_cgroup_files(root, "cpu", "cpu.cfs_quota_us"), periods, strict=False):
        if quota.strip().isdigit() and int(quota) > 0:
            found.append(int(quota) / int(period))
    return min(found, default=None)


def memory_limit(root: Path = Path("/")) -> int | None:
    """Bytes a cgroup allows; None for no limit."""
    texts = [
        *_cgroup_files(root, "memory", "memory.max"),
        *_cgroup_files(root, "memory", "memory.limit_in_bytes"),
    ]
    return min((int(t) for t in texts if t.strip().isdigit() and int(t) < 1 << 60), default=None)


def _cgroup_files(root: Path, controller: str, name: str) -> list[str]:
    """The content of a control file in our cgroup and those above it;
    in a container they are often at the mount itself."""
    texts = []
    lines = (_read(root / "proc/self/cgroup") or "0::/").splitlines()
    for line in lines:
        _, controllers, path = [*line.split(":", 2), "", ""][:3]
        if controllers and controller not in controllers.split(","):
            continue
        top = root / "sys/fs/cgroup" / (controller if controllers else "")
        parts = [p for p in path.split("/") if p not in ("", "..")]
        for n in range(len(parts), -1, -1):
            text = _read(top.joinpath(*parts[:n], name))
            if text:
                texts.append(text)
    return texts


def _meminfo(root: Path) -> int:
    found = re.search(r"MemTotal:\s+(\d+) kB", _read(root / "proc/meminfo") or "")
    return int(found[1]) * 1024 if found else 0


def clock(folder: Path, now: float | None = None) -> Iterator[Finding]:
    """A clock that stands wrong, told by files from the future."""
    now = time.time() if now is None else now
    newest, name = 0.0, ""
    with contextlib.suppress(OSError), os.scandir(folder) as entries:
        for entry, _ in zip(entries, range(2000), strict=False):
            with contextlib.suppress(OSError):
                at = entry.stat(follow_symlinks=False).st_mtime
                newest, name = max((newest, name), (at, entry.name))
    if newest > now + 120:
        yield Finding(
            "warn",
            "clock",
            (
                f"The timestamp of {name} is {int(newest - now)} s in the future: "
                "this machine's clock is or was wrong."
            ),
            "To check the network time: timedatectl",
        )


# --- the login manager
# ---------------------------------------------------------------------------------------------------

def login_manager(env: dict[str, str], root: Path = Path("/")) -> Iterator[Finding]:
    """systemd-logind's KillUserProcesses, which ends everything of a user at logout, ours too."""
    if not (root / "run/systemd/system").is_dir():
        return
    settings = logind_settings(root)
    user = env.get("USER") or getpass.getuser()
    kills = settings.get("KillUserProcesses", "no").lower() in ("yes", "true", "1", "on")
    only, excluded = (
        settings.get("KillOnlyUsers", "").split(),
        settings.get("KillExcludeUsers", "root").split(),
    )
    if not kills or user in excluded or (only and user not in only):
        yield Finding("ok", "logout", "Runs continue after you log out.")
        return
    if _lingers(user, env, root):
        yield Finding(
            "ok", "logout", f"This machine ends processes at logout, except those of {user} (linger is on)."
        )
        return
    yield Finding(
        "warn",
        "logout",
        "This machine ends all your processes when you log out (KillUserProcesses=yes), including runs.",
        "loginctl enable-linger   or, if you are not allowed to do this:   systemd-run --user --scope "
        "stoker server start",
    )


def logind_settings(root: Path = Path("/")) -> dict[str, str]:
    """The settings of logind.conf and its drop-ins, the later ones winning as systemd has it."""
    found = (
        glob.glob(str(root / base / "systemd/logind.conf.d/*.conf")) for base in ("usr/lib", "run", "etc")
    )
    files = {os.path.basename(p): p for paths in found for p in paths}
    settings: dict[str, str] = {}
    main = next(
        (p for base in ("etc", "run", "usr/lib") if (p := root / base / "systemd/logind.conf").exists()), None
    )
    for path in ([os.fspath(main)] if main else []) + [files[n] for n in sorted(files)]:
        for line in (_read(Path(path)) or "").splitlines():
            key, equals, value = line.strip().partition("=")
            if equals and not key.startswith(("#", ";")):
                settings[key.strip()] = value.strip()
    return settings


def _lingers(user: str, env: dict[str, str], root: Path) -> bool:
    if (root / "var/lib/systemd/linger" / user).exists():
        return True
    program = shutil.which("loginctl", path=env.get("PATH"))
    if not program:
        return False
    done = python.quiet([program, "show-user", user, "--property=Linger"], Path("/"), env, 3.0)
    return not isinstance(done, python.Silence) and done[1].strip() == b"Linger=yes"


def _read(path: Path) -> str | None:
    try:
        return path.read_text("utf-8", "replace")
    except OSError:
        return None
