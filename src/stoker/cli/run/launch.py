"""How `stoker run` starts the script of a run for `--ranks`, `--compat`, and `--python` with `--on`."""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import click

import stoker
from stoker.base.config import interpreter_in
from stoker.base.errors import InvalidSpec
from stoker.cli import output

LIBRARIES = ("lightning", "colossalai")
TORCHRUN = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node")
MOST = 256


def with_ranks(command: tuple[str, ...], o: Mapping[str, Any], env: dict[str, str]) -> tuple[str, ...]:
    """The command as torchrun starts it, in N processes on one machine. Raises InvalidSpec if it is not a
    Python script."""
    count = o["ranks"]
    if count is None:
        return command
    if o["rehearse"] is not None:
        raise InvalidSpec(
            "--ranks and --rehearse cannot be combined.", hint=f"stoker run --rehearse {count} train.py"
        )
    first, *rest = command
    if first.endswith(".py"):
        python, script = "python", list(command)
    elif (
        os.path.basename(first).startswith("python") and rest and (rest[0].endswith(".py") or rest[0] == "-m")
    ):
        python, script = first, rest
    else:
        raise InvalidSpec(f"--ranks {count} needs a command that starts a Python script or module.",
                          hint=f"stoker run --ranks {count} train.py")
    if o["target"] == "local":
        env.setdefault("OMP_NUM_THREADS", str(max(1, len(os.sched_getaffinity(0)) // count)))
    return (python, *TORCHRUN, str(count), *script)


def lend_names(o: Mapping[str, Any], env: dict[str, str]) -> None:
    """Put the import names of --compat before all others. Raises InvalidSpec for another machine, which
    does not have them."""
    if o["compat"] is None:
        return
    if o["target"] != "local":
        raise InvalidSpec(
            "--compat works only for runs on this machine.",
            hint=f"Import stoker.compat.{o['compat']} in the script instead.",
        )
    names = Path(stoker.__file__).parent / "compat" / "own_names" / o["compat"]
    env["PYTHONPATH"] = os.pathsep.join([os.fspath(names), *filter(None, [env.get("PYTHONPATH")])])


def far_python(o: Mapping[str, Any]) -> str:
    """The path of --python on another machine: of an interpreter, or of an environment's folder. Starts with
    "/" or "~/". Raises InvalidSpec."""
    python, here = o["python"], os.path.expanduser("~/")
    if here != "/" and python.startswith(here):  # this machine's shell has replaced the ~
        python = f"~/{python.removeprefix(here)}"
    if not python.startswith(("/", "~/")):
        raise InvalidSpec(
            f"With --on, --python takes a path on {output.shown(o['target'])} that begins with / or ~/.",
            hint=f"List the Pythons of the machine: stoker machine check {output.shown(o['target'])}",
        )
    return interpreter_in(python)


def near_python(asked: str, command: Sequence[str], env: Mapping[str, str]) -> Path:
    """The interpreter for --python on this machine: a path, the folder of an environment, a name on PATH, or
    a version. Raises InvalidSpec, naming the versions of this machine."""
    from stoker.doctor import versions

    place = Path(os.path.abspath(os.path.expanduser(asked)))
    if (place / "bin" / "python").exists():
        return place / "bin" / "python"
    if place.is_file() and os.access(place, os.X_OK):
        return place
    found = versions.here(env)
    for name in (asked, f"python{asked}") if "/" not in asked else ():
        chosen = found.get(name) or shutil.which(name, path=env.get("PATH"))
        if chosen:
            return Path(chosen)
    hint = _pythons(asked, command, found, env)
    raise InvalidSpec(f"There is no Python '{output.shown(asked)}'.", hint=hint)


def _pythons(asked: str, command: Sequence[str], found: Mapping[str, Path], env: Mapping[str, str]) -> str:
    """Which versions --python accepts here, and how to get the one that was asked for."""
    from stoker.doctor import versions

    context = click.get_current_context(silent=True)
    typed = f"{context.command_path if context else 'stoker run'} --python"
    told = (
        f"Python versions here: {', '.join(found)}. "
        f"Use one: {typed} {list(found)[-1]} {output.command_line(command)}"
        if found
        else "--python takes a version, the path of a Python, or the folder of an environment."
    )
    install = versions.how_to_get(asked, env)
    return f"{told}   or install the requested version: {install}" if install else told
