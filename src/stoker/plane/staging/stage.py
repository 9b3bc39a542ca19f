"""Makes a command ready to run: which program it means, a frozen copy of its folder, a record of its code.
Starts nothing."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from stoker.base.errors import InvalidSpec
from stoker.doctor import command as commands
from stoker.doctor import python, source
from stoker.plane.staging.code_record import changed_files, record_code
from stoker.plane.staging.editable import Editables, editable_env, editables
from stoker.plane.staging.frozen_copy import FrozenInfo, freeze, into_copy, plan
from stoker.plane.staging.settling import Settling, assure, write_list

__all__ = [
    "Editables",
    "FrozenInfo",
    "Resolved",
    "Settling",
    "assure",
    "changed_files",
    "editable_env",
    "editables",
    "freeze",
    "into_copy",
    "plan",
    "record_code",
    "resolve",
    "write_list",
]

TORCH_TIMEOUT_S = 5.0  # no answer by then is no reason to refuse


@dataclass(frozen=True)
class Resolved:
    """argv: the command to execute, its first word absolute (a ./program of the folder stays as typed, so
    that a copy runs its own).
    script: its Python file, if any. interpreter: the Python that runs it, None if only the program itself
    knows."""

    argv: list[str]
    script: Path | None
    interpreter: str | None
    warnings: list[str] = field(default_factory=list)


def resolve(command: Sequence[str], folder: Path, env: dict[str, str]) -> Resolved:
    """Resolve `command`, typed in `folder` with the user's environment `env`.
    Raises InvalidSpec (or Denied for an unreadable file) with what to type instead, also if the script
    imports torch at its start and its Python has no torch. Starts at most one short process of the user's
    interpreter."""
    folder = Path(folder)
    reading = commands.read(command, folder, env)
    read = source.load(reading.script) if reading.script else None
    torch_line = _torch_line(read)
    script_name = reading.script.name if reading.script else ""
    compiles = reading.script if read and read.problem else None
    reading, answer = commands.settle(
        reading,
        folder,
        env,
        modules=["torch"] if torch_line else [],
        compiles=compiles,
        timeout_s=TORCH_TIMEOUT_S,
    )
    warnings = list(reading.warnings)
    if isinstance(answer, python.Silence):
        warnings.append(f"{reading.interpreter} did not list its installed packages ({answer.why}), "
            "so Stoker could not check the script before the start.")
    if isinstance(answer, python.Answer) and torch_line and "torch" in answer.missing:
        if not (read and (read.installs or read.changes_path)):
            raise _no_torch(reading, script_name, torch_line, folder, env)
        warnings.append(
            f"{reading.interpreter} has no torch now, but line {torch_line} of {script_name} "
            "imports torch."
        )
    if isinstance(answer, python.Answer) and compiles and answer.syntax:
        version = ".".join(map(str, answer.version[:2]))
        warnings.append(
            f"{script_name}, line {answer.syntax[0]}: syntax error in Python {version} "
            f"({answer.syntax[1]})."
        )
    return Resolved(list(reading.argv), reading.script, reading.interpreter, warnings)


def _torch_line(read: source.Source | None) -> int:
    """The line where the script imports torch unconditionally as it starts; 0 for none."""
    if read is None:
        return 0
    return next((i.line for i in read.imports if i.top == "torch" and i.kind == "always"), 0)


def _no_torch(
    reading: commands.Reading, name: str, line: int, folder: Path, env: dict[str, str]
) -> InvalidSpec:
    message = f"{name} imports torch (line {line}), but {reading.interpreter} has no torch."
    for each in (".venv", "venv", "env"):
        beside = folder / each / "bin" / "python"
        if not beside.exists() or str(beside) == reading.interpreter:
            continue
        answer = python.ask(str(beside), folder, env, modules=["torch"], timeout_s=TORCH_TIMEOUT_S)
        if isinstance(answer, python.Answer) and "torch" not in answer.missing:
            return InvalidSpec(
                message,
                hint=(
                    f"The environment {each} in this folder has torch: source {each}/bin/activate, then "
                    "try again."
                ),
            )
    return InvalidSpec(
        message, hint=f"Activate an environment with torch, or: {reading.interpreter} -m pip install torch"
    )
