"""How much memory a cache may take: what is free,
of the machine and of the cgroup that this process is in."""

from __future__ import annotations

import os

KEEP = 512 << 20  # bytes that are left to others in any case
SHARE = 0.5  # of what is free, where no limit was given


def allowed(wanted: int | None) -> int:
    """Bytes, at most `wanted`."""
    free = max(0, available() - KEEP)
    return int(min(wanted, free) if wanted else SHARE * free)


def available() -> int:
    """Bytes that could still be had without harm to anybody."""
    return min([_machine(), *_groups()])


def _machine() -> int:
    try:
        with open("/proc/meminfo", encoding="ascii") as f:
            for line in f:
                if line.startswith("MemAvailable:"):
                    return int(line.split()[1]) * 1024
    except (OSError, ValueError):
        pass
    return 0


def _groups() -> list:
    """Of each cgroup above us that has a limit: what is left of it; its page cache counts as free."""
    found = []
    try:
        with open("/proc/self/cgroup", encoding="utf-8") as f:
            lines = [line.rstrip("\n").split(":", 2) for line in f]
    except OSError:
        return found
    for _, controllers, path in lines:
        if controllers == "":
            root, limit, used, cache = "/sys/fs/cgroup", "memory.max", "memory.current", "inactive_file"
        elif "memory" in controllers.split(","):
            root, limit, used, cache = (
                "/sys/fs/cgroup/memory",
                "memory.limit_in_bytes",
                "memory.usage_in_bytes",
                "total_inactive_file",
            )
        else:
            continue
        parts = [part for part in path.split("/") if part]
        for n in range(len(parts), -1, -1):
            left = _left(os.path.join(root, *parts[:n]), limit, used, cache)
            if left is not None:
                found.append(left)
    return found


def _left(folder: str, limit: str, used: str, cache: str) -> int | None:
    try:
        with open(os.path.join(folder, limit), encoding="ascii") as f:
            most = int(f.read())
        with open(os.path.join(folder, used), encoding="ascii") as f:
            now = int(f.read())
        with open(os.path.join(folder, "memory.stat"), encoding="ascii") as f:
            free = next((int(line.split()[1]) for line in f if line.startswith(cache + " ")), 0)
    except (OSError, ValueError):  # no limit ("max"), or no such group from here
        return None
    return max(0, most - now + free)
