"""The machine around a run: control groups, memory, CPUs, file systems, the user."""

from __future__ import annotations

import os

from .reading import first_number, key_value, read_bytes, read_or_empty
from .words import ONE_KERNEL
from .writing import write_number

TYPE_CHECKING = False
if TYPE_CHECKING:
    from .attempts import Attempt


def mounts() -> list[tuple[str, str]]:
    """(mount point, file system type), in the order of mounting."""
    found = []
    try:
        for line in read_bytes("/proc/self/mountinfo").decode("utf-8", "surrogateescape").splitlines():
            left, _, right = line.partition(" - ")
            found.append((left.split()[4].replace("\\040", " "), right.split()[0]))
    except (OSError, IndexError):
        pass
    return found


def mount_of(path: str) -> tuple[str, str]:
    """Mount point and type of the file system that holds this path."""
    best, kind = "", ""
    for mount, its_kind in mounts():
        if (path == mount or path.startswith(mount.rstrip("/") + "/")) and len(mount) >= len(best):
            best, kind = mount, its_kind
    return best, kind


def is_of_this_kernel(path: str) -> bool:
    """Is it on a kind of file system that no other running machine can write to?"""
    return mount_of(path)[1] in ONE_KERNEL


def is_local(path: str) -> bool:
    """False for file systems that may hang for ever when their server is gone:
    we never ask those for their size."""
    kind = mount_of(path)[1]
    remote = kind.startswith(("nfs", "fuse", "smb", "cifs")) or kind in (
        "9p",
        "afs",
        "beegfs",
        "ceph",
        "gpfs",
        "lustre",
        "panfs",
    )
    return bool(kind) and not remote


def memory_limit() -> dict:
    """What bounds the run's memory: `kind` "cgroup" with its `limit_bytes`, or `machine_bytes`."""
    limits = [first_number(f, "memory.max") for f in cgroup_folders("")]
    limits += [first_number(f, "memory.limit_in_bytes") for f in cgroup_folders("memory")]
    total = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    limit = min((n for n in limits if n is not None), default=None)
    if limit is not None and limit < total:
        return {"kind": "cgroup", "limit_bytes": limit}
    return {"machine_bytes": total}


def cgroup_folders(controller: str) -> list[str]:
    """Folders of our cgroup, innermost first, for a v1 controller or, with "", for v2.
    In a container the outer names do not exist in here: then the top of the mount is ours."""
    try:
        rows = read_bytes("/proc/self/cgroup").decode("utf-8", "surrogateescape").splitlines()
    except OSError:
        return []
    for row in rows:
        parts = row.split(":", 2)
        if len(parts) < 3 or controller not in parts[1].split(","):
            continue
        if controller:
            top = "/sys/fs/cgroup/" + controller
        else:
            top = (
                "/sys/fs/cgroup"
                if os.path.exists("/sys/fs/cgroup/cgroup.controllers")
                else "/sys/fs/cgroup/unified"
            )
        found, path = [], parts[2].rstrip("/")
        while path:
            if os.path.isdir(top + path):
                found.append(top + path)
            path = path.rpartition("/")[0]
        return found + [top]
    return []


def memory_group(att: Attempt, limit: int) -> str:
    """A memory cgroup for this attempt within our own, or "" where none may be made:
    then the agent watches."""
    if limit <= 0:
        return ""
    unified = [f for f in cgroup_folders("")[:1] if b"memory" in read_or_empty(f + "/cgroup.subtree_control")]
    for folder, names in [(f, ("memory.max", "memory.swap.max")) for f in unified] + [
        (f, ("memory.limit_in_bytes", "memory.memsw.limit_in_bytes")) for f in cgroup_folders("memory")[:1]
    ]:
        group = os.path.join(folder, "stoker-%s-%d" % (att.id, att.n))
        try:
            os.makedirs(group, exist_ok=True)
            write_number(os.path.join(group, names[0]), limit)
        except OSError:
            leave_group(group)
            continue
        try:
            write_number(os.path.join(group, names[1]), limit if names[1].endswith("in_bytes") else 0)
        except OSError:
            pass  # a kernel that does not count swap
        return group
    return ""


def enter_group(group: str) -> None:
    """In the process that becomes the run. Where that fails, the agent watches alone."""
    try:
        if group:
            write_number(os.path.join(group, "cgroup.procs"), os.getpid())
    except OSError:
        pass


def leave_group(group: object) -> None:
    """Remove an empty cgroup of a run."""
    try:
        if group:
            os.rmdir(str(group))
    except OSError:
        pass


def kills_in(group: object) -> int:
    """How many processes the kernel has killed for lack of memory in this cgroup of a run's own."""
    found = (
        [key_value("%s/%s" % (group, name), "oom_kill") for name in ("memory.events", "memory.oom_control")]
        if group
        else []
    )
    return max([n for n in found if n is not None], default=0)


def oom_counters() -> dict:
    """How many processes the kernel has killed for lack of memory: in our cgroup, and on the machine."""
    in_group = None
    for path in [f + "/memory.events" for f in cgroup_folders("")[:1]] + [
        f + "/memory.oom_control" for f in cgroup_folders("memory")[:1]
    ]:
        count = key_value(path, "oom_kill")
        in_group = count if in_group is None else in_group
    return {"cgroup_oom_kill": in_group, "vmstat_oom_kill": key_value("/proc/vmstat", "oom_kill")}


def torch_version() -> str:
    """Of the torch that is installed beside this Python; "" without one. Nothing is imported."""
    import sysconfig
    for place in {sysconfig.get_path(name) for name in ("purelib", "platlib")}:
        try:
            names = sorted(os.listdir(place or ""))
        except OSError:
            continue
        for name in names:
            if name.startswith("torch-") and name.endswith(".dist-info"):
                return name[len("torch-"):-len(".dist-info")]
    return ""


def space(path: str) -> tuple:
    """(bytes, bytes free to us, inodes, inodes free) of the file system there;
    None for what it does not say."""
    try:
        s = os.statvfs(path)
    except OSError:
        return (None, None, None, None)
    return (
        s.f_blocks * s.f_frsize,
        s.f_bavail * s.f_frsize,
        s.f_files or None,
        s.f_favail if s.f_files else None,
    )


def memory_bytes() -> tuple[int | None, int | None]:
    """(total, available), cut down to what our cgroup allows."""
    facts = {}
    try:
        for line in read_bytes("/proc/meminfo").decode().splitlines():
            name, _, rest = line.partition(":")
            facts[name] = int(rest.split()[0]) * 1024
    except (OSError, ValueError, IndexError):
        pass
    total, free = facts.get("MemTotal"), facts.get("MemAvailable")
    files = [(f, "memory.max", "memory.current") for f in cgroup_folders("")]
    files += [(f, "memory.limit_in_bytes", "memory.usage_in_bytes") for f in cgroup_folders("memory")]
    for folder, limit_name, used_name in files:
        limit, used = first_number(folder, limit_name), first_number(folder, used_name)
        if limit is not None and total is not None and limit < total:
            total = limit
            free = min(free or 0, max(0, limit - (used or 0)))
    return total, free


def cpu_quota() -> float | None:
    """CPUs that the cgroup allows; None = no quota."""
    best = None
    for folder in cgroup_folders(""):
        try:
            quota, period = read_bytes(folder + "/cpu.max").split()
            if quota != b"max":
                best = min(best or 1e9, int(quota) / int(period))
        except (OSError, ValueError):
            pass
    for folder in cgroup_folders("cpu"):
        allowed, every = first_number(folder, "cpu.cfs_quota_us"), first_number(folder, "cpu.cfs_period_us")
        if allowed and every and allowed > 0:
            best = min(best or 1e9, allowed / every)
    return round(best, 2) if best else None


def user_name() -> str:
    try:
        import pwd
        return pwd.getpwuid(os.getuid()).pw_name
    except (ImportError, KeyError):
        return str(os.getuid())
