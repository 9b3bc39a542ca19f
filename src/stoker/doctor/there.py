"""What would go wrong on another machine, before anything is sent there:
judged from the script here and the facts of that machine."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from stoker.base.units import format_size
from stoker.doctor import source
from stoker.doctor.finding import Finding

DISK_LOW_BYTES, INODES_LOW = 2 << 30, 10_000
SHM_LOW_BYTES = 512 << 20  # Docker's default of 64 MB lets DataLoader workers die with "bus error"
CLOCK_S = 60.0
BY_NAME = {
    "cv2": "opencv-python",
    "PIL": "pillow",
    "sklearn": "scikit-learn",
    "yaml": "pyyaml",
    "skimage": "scikit-image",
}


def examine(
    name: str, command: Sequence[str], folder: Path, facts_of: Callable[[list[str], str], dict]
) -> list[Finding]:
    """Findings about machine `name` and the command there. facts_of(modules, python) asks the machine.
    Raises what that raises."""
    python, script = _script(command)
    if script and not os.path.isabs(script) and not (folder / script).is_file():
        return [Finding("fail", "script", f"There is no file {script} in {folder}.", "Check the path.")]
    read = (
        source.family(folder / script, [os.fspath((folder / script).parent), os.fspath(folder)])
        if script
        else []
    )
    wanted: dict[str, tuple[str, source.Source, int]] = {}
    for each in read:
        for item in each.imports:
            if not _is_own(item.top, (folder / script).parent, folder) and (
                item.top not in wanted or item.kind == "always"
            ):
                wanted[item.top] = (item.kind, each, item.line)
    facts = facts_of(sorted({"torch", *wanted}), python)
    return [*_python(name, facts), *_imports(name, facts, wanted, folder), *_machine(name, facts, read)]


def _script(command: Sequence[str]) -> tuple[str, str]:
    """(the interpreter that is named, the script) of a command; "" for what it does not have."""
    words = list(command)
    if not words:
        return "", ""
    if words[0].endswith(".py"):
        return "", words[0]
    if os.path.basename(words[0]).startswith("python"):
        named = words[0] if words[0] not in ("python", "python3") else ""
        return named, next((word for word in words[1:2] if word.endswith(".py")), "")
    return "", ""


def _is_own(top: str, *folders: Path) -> bool:
    return any((folder / f"{top}.py").exists() or (folder / top).is_dir() for folder in folders)


def _python(name: str, facts: dict) -> Iterator[Finding]:
    told = facts.get("interpreter") or {}
    if told.get("error"):
        yield Finding("fail", "python", told["error"], "List the Pythons of the machine: stoker machine "
                                                       f"check {name}")
        return
    yield Finding("ok", "python", f"Python {told.get('version')} at {told.get('executable')} on {name}.")


def _imports(name: str, facts: dict, wanted: dict, folder: Path) -> Iterator[Finding]:
    told = facts.get("interpreter") or {}
    for module in told.get("lacks") or ():
        kind, read, line = wanted.get(module, ("", None, 0))
        if read is None:
            continue
        where = os.path.relpath(read.path, folder)
        level = "fail" if kind == "always" and not (read.installs or read.changes_path) else "note"
        yield Finding(
            level,
            "import",
            f"{module} is not installed for {told.get('executable')} on {name}.",
            _install(name, told, BY_NAME.get(module, module)),
            where,
            line,
        )


def _install(name: str, told: dict, package: str) -> str:
    python = told.get("executable")
    if told.get("managed"):
        return (
            "pip cannot install packages for this Python. Make an environment there: "
            f"stoker ssh {name} {python} -m venv env   then: stoker ssh {name} env/bin/pip install {package}"
            "   and use --python ~/env"
        )
    return (
        f"stoker ssh {name} {python} -m pip install {package}   "
        f"or choose another Python: stoker machine check {name}"
    )


def _machine(name: str, facts: dict, read: Sequence[source.Source]) -> Iterator[Finding]:
    text = "\n".join(each.text for each in read)
    gpus = facts.get("gpus") or ()
    if not gpus and "cuda" in text:
        yield Finding("warn", "GPU", f"The script mentions cuda, but {name} has no GPU that Stoker can see.",
                      f"Run nvidia-smi there: stoker ssh {name} nvidia-smi")
    if gpus:
        yield Finding(
            "ok",
            "GPU",
            f"{len(gpus)} GPU{'' if len(gpus) == 1 else 's'} on {name}: "
            f"{', '.join(sorted({str(gpu.get('name')) for gpu in gpus}))}.",
        )
    free = facts.get("disk_free_bytes")
    if free is not None and free < DISK_LOW_BYTES:
        yield Finding(
            "warn",
            "disk",
            f"Only {format_size(free)} of disk space are free on {name}.",
            f"Delete files there. To see the full disks: stoker ssh {name} df -h",
        )
    inodes = facts.get("inodes_free")
    if inodes is not None and inodes < INODES_LOW:
        yield Finding(
            "warn",
            "disk",
            f"Only {inodes} inodes are free on {name}; each new file needs one inode.",
            "Delete small files there.",
        )
    shm = facts.get("shm_bytes")
    if shm is not None and shm < SHM_LOW_BYTES and "DataLoader" in text:
        yield Finding(
            "warn",
            "/dev/shm",
            f"/dev/shm on {name} has {format_size(shm)}; DataLoader workers need more.",
            "Start the container with --shm-size=8g, or use num_workers=0.",
        )
    offset = facts.get("clock_offset_s")
    if offset is not None and abs(offset) > CLOCK_S:
        yield Finding(
            "note",
            "clock",
            f"The clock of {name} differs by {abs(offset):.0f} s from the clock of this machine. Stoker "
            "does not correct the times of files.",
        )
