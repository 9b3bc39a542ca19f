"""The grade of a resume: bit-exact, sample-exact or state-only, with the reasons.
Never higher than was checked."""

from __future__ import annotations

import os
import platform

import torch

BIT, SAMPLE, STATE = "bit-exact", "sample-exact", "state-only"
ORDER = (BIT, SAMPLE, STATE)
# fact: (grade if it changed, how it is called)
FACTS = {
    "world": (SAMPLE, "the number of ranks"),
    "torch": (SAMPLE, "the version of torch"),
    "device": (SAMPLE, "the processor"),
    "threads": (SAMPLE, "the number of threads"),
    "python": (SAMPLE, "the version of Python"),
    "seed": (STATE, "the seed"),
    "window": (STATE, "the number of micro-batches per step"),
    "precision": (STATE, "the precision"),
    "clip": (STATE, "clip"),
}


def facts(device: torch.device) -> dict[str, object]:
    """Facts about this machine and the installed versions."""
    name = torch.cuda.get_device_name(device) if device.type == "cuda" else _cpu()
    return {
        "torch": torch.__version__,
        "python": platform.python_version(),
        "device": name,
        "threads": torch.get_num_threads(),
    }


def _cpu() -> str:
    try:
        with open("/proc/cpuinfo") as f:
            return next(
                (line.split(":", 1)[1].strip() for line in f if line.startswith("model name")),
                platform.machine(),
            )
    except OSError:
        return platform.machine()


def of_kernels(device: torch.device) -> list[tuple[str, str]]:
    """(grade, reason) if a GPU may sum in a different order each time,
    so that two uninterrupted runs differ."""
    firm = (
        torch.are_deterministic_algorithms_enabled()
        and not torch.is_deterministic_algorithms_warn_only_enabled()
    )
    if device.type == "cpu" or firm:
        return []
    return [
        (
            SAMPLE,
            (
                "the kernels of the GPU may round differently each time; for bit-exact resumes: "
                "torch.use_deterministic_algorithms(True)"
            ),
        )
    ]


def compare(then: dict[str, object], now: dict[str, object]) -> list[tuple[str, str]]:
    """(grade, reason) for each fact that changed."""
    found = []
    for fact, (grade, called) in FACTS.items():
        if fact in then and then[fact] != now.get(fact):
            found.append((grade, f"{called} changed ({then[fact]} → {now.get(fact)})"))
    return found


def worst(found: list[tuple[str, str]]) -> tuple[str, list[str]]:
    """(the lowest grade, its reasons)."""
    lowest = max((grade for grade, _ in found), key=ORDER.index, default=BIT)
    return lowest, [reason for grade, reason in found if grade == lowest and lowest != BIT]


def cores() -> int:
    """CPU cores available to this process: the smaller of affinity and cgroup quota, at least 1."""
    found = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    try:
        with open("/sys/fs/cgroup/cpu.max") as f:
            quota, period = f.read().split()
        if quota != "max":
            found = min(found, max(1, int(quota) // int(period)))
    except (OSError, ValueError):
        pass
    return found
