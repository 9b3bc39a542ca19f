"""What would go wrong on another machine, before anything is sent there:
judged from the script here and the facts of that machine."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from stoker.base.units import format_size
from stoker.doctor import source
from stoker.doctor.command import LAUNCHER_MODULES
from stoker.doctor.finding import Finding

DISK_LOW_BYTES, INODES_LOW = 2 << 30, 10_000
SHM_LOW_BYTES = 512 << 20  # Docker's default of 64 MB lets DataLoader workers die with "bus error"
CLOCK_S = 60.0
NEW = "~/env"  # the environment that a hint says to make
BY_NAME = {
    "cv2": "opencv-python",
    "PIL": "pillow",
    "sklearn": "scikit-learn",
    "yaml": "pyyaml",
    "skimage": "scikit-image",
}


def examine(
    name: str,
    command: Sequence[str],
    folder: Path,
    facts_of: Callable[[list[str], str], dict],
    pythons_of: Callable[[list[str]], list[dict]],
) -> list[Finding]:
    """Findings about machine `name` and the command there. facts_of(modules, python) asks the machine;
    pythons_of(modules) asks all its Pythons, and is called only if a module is missing. Raises what these
    raise."""
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
    told = facts.get("interpreter") or {}
    missing = {module: wanted[module] for module in told.get("lacks") or () if module in wanted}
    needed = [module for module, (kind, each, _) in missing.items() if _level(kind, each) == "fail"]
    other = _better(told, pythons_of([*missing, "pip"]), needed or list(missing)) if missing else None
    return [
        *_python(name, facts),
        *_imports(name, told, missing, folder, other),
        *_machine(name, facts, read),
    ]


def _script(command: Sequence[str]) -> tuple[str, str]:
    """(the interpreter that is named, the script) of a command; "" for what it does not have."""
    words = list(command)
    if not words:
        return "", ""
    if words[0].endswith(".py"):
        return "", words[0]
    if os.path.basename(words[0]).startswith("python"):
        named = words[0] if words[0] not in ("python", "python3") else ""
        launched = len(words) > 3 and words[1] == "-m" and words[2] in LAUNCHER_MODULES
        rest = words[3:] if launched else words[1:2]
        return named, next((word for word in rest if word.endswith(".py")), "")
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


def _level(kind: str, read: source.Source) -> str:
    """How bad it is if a module of this import is missing."""
    return "fail" if kind == "always" and not (read.installs or read.changes_path) else "note"


def _better(told: dict, pythons: Sequence[dict], needed: Sequence[str]) -> dict | None:
    """The Python that lacks fewer of the modules than the interpreter of the script; else the environment
    that the hint would otherwise make, if it exists."""
    others = [each for each in pythons if each["python"] != told.get("executable")]
    lacks = [sum(module in needed for module in each["lacks"]) for each in others]
    if lacks and min(lacks) < len(needed):
        return others[lacks.index(min(lacks))]
    return next((each for each in others if told.get("managed") and each["typed"] == NEW), None)


def _imports(
    name: str,
    told: dict,
    missing: dict[str, tuple[str, source.Source, int]],
    folder: Path,
    other: dict | None,
) -> Iterator[Finding]:
    for module, (kind, read, line) in missing.items():
        yield Finding(
            _level(kind, read),
            "import",
            f"{module} is not installed for {told.get('executable')} on {name}.",
            _hint(name, told, module, other),
            os.path.relpath(read.path, folder),
            line,
        )


def _hint(name: str, told: dict, module: str, other: dict | None) -> str:
    package = BY_NAME.get(module, module)
    if other and module not in other["lacks"]:
        return f"Use --python {other['typed']}: this Python has {module}."
    if other and not other["managed"]:
        return _install_into(name, other, package)
    python = told.get("executable")
    if told.get("managed"):
        return (
            "pip cannot install packages for this Python. Make an environment there: "
            f"stoker ssh {name} {python} -m venv env   then: stoker ssh {name} env/bin/pip install {package}"
            f"   then use --python {NEW}"
        )
    return (
        f"stoker ssh {name} {python} -m pip install {package}   "
        f"or choose another Python: stoker machine check {name}"
    )


def _install_into(name: str, other: dict, package: str) -> str:
    """How to install a package for another Python. An environment of uv has no pip."""
    pip = f"stoker ssh {name} {other['python']} -m "
    first = f"{pip}ensurepip   then: " if "pip" in other["lacks"] else ""
    return f"{first}{pip}pip install {package}   then use --python {other['typed']}"


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
            f"Delete files there. To see which disks are full: stoker ssh {name} df -h",
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
            "does not correct the timestamps of copied files.",
        )
