"""One examination from beginning to end: the machine, the user's Python, the script.
Order of findings is order of reading."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path

from stoker.base.errors import StokerError
from stoker.doctor import command as commands
from stoker.doctor import gpu, lints, machine, python, script, source
from stoker.doctor.finding import Finding
from stoker.doctor.reader import Surroundings


def run(command: Sequence[str] | None, folder: Path, env: dict[str, str], deep: bool) -> list[Finding]:
    """See `doctor.examine`."""
    found: list[Finding] = []
    reading, wrong = _read(command, folder, env)
    found += wrong
    read = source.family(reading.script, reading.import_path) if reading and reading.script else []
    wanted = {"torch"} | {i.top for s in read for i in s.imports} | set(script.implied(read))
    answer: commands.Asked = None
    if deep and reading:
        try:
            compiles = reading.script if read and read[0].problem else None
            reading, answer = commands.settle(
                reading, folder, env, modules=sorted(wanted), compiles=compiles, distributions=["torch"]
            )
        except StokerError as e:
            found.append(Finding("fail", "python", e.message, e.hint))
    seen = gpu.gpus(env) if deep else gpu.Gpus(other=True)
    found += _python(reading, answer, folder, env)
    if deep:
        found += [
            *gpu.gpu_findings(seen),
            *gpu.torch_findings(answer.torch if isinstance(answer, python.Answer) else None, seen),
        ]
    found += machine.look(folder, env, deep)
    if reading and read:
        asked = answer if isinstance(answer, python.Answer) else None
        around = Surroundings(folder, env, tuple(command or ()), asked, seen.none)
        found += [*script.look(read, around), *lints.look(read, around)]
    found += script.submodules(folder)
    return found


def _read(
    command: Sequence[str] | None, folder: Path, env: dict[str, str]
) -> tuple[commands.Reading | None, list[Finding]]:
    """The reading of the command; of `python` where none is given.
    A command that cannot start is a finding."""
    try:
        return commands.read(command or ["python"], folder, env), []
    except StokerError as e:
        return None, [Finding("fail", "command" if command else "python", e.message, e.hint)]


def _python(
    reading: commands.Reading | None, answer: commands.Asked, folder: Path, env: dict[str, str]
) -> Iterator[Finding]:
    if reading is None:
        return
    yield from (Finding("warn", "python", text) for text in reading.warnings)
    if isinstance(answer, python.Silence):
        yield Finding(
            "warn",
            "python",
            f"{reading.interpreter} did not answer: {answer.why}.",
            f"Run: {reading.interpreter} --version",
        )
    if isinstance(answer, python.Answer):
        yield Finding(
            "ok", "python", f"Python {'.'.join(map(str, answer.version))} at {reading.interpreter}."
        )
        beside = next((folder / n for n in (".venv", "venv") if (folder / n / "pyvenv.cfg").exists()), None)
        if (
            beside
            and os.path.realpath(beside) != os.path.realpath(answer.prefix)
            and not env.get("VIRTUAL_ENV")
        ):
            text = (
                f"The environment {beside.name} in this folder is not active, so Stoker does not use this "
                "environment."
            )
            yield Finding("note", "python", text, f"source {beside.name}/bin/activate")
