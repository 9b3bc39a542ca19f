"""A run with `install` builds its environment on its machine:
the program that does so travels in its run folder."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from stoker.backends import environment
from stoker.base.errors import InvalidSpec, NotFound
from stoker.base.spec import Spec
from stoker.plane.targets import Target

INSTALLER = "install.py"
VENVS = "../../../venvs"  # from the copy of a run, which is its working folder


def check(spec: Spec, target: Target) -> None:
    """Raises InvalidSpec or NotFound if there is nothing to install."""
    if not spec.install:
        return
    if target.here:
        raise InvalidSpec(
            "--install builds an environment on another machine, but this run is on this machine.",
            fields=["install"],
            hint="stoker run --on NAME --install train.py",
        )
    if not any(os.path.isfile(os.path.join(spec.folder, name)) for name in environment.LOCKS):
        raise NotFound(
            f"--install needs {' or '.join(environment.LOCKS)} in {spec.folder}, which has neither.",
            hint="pip freeze > requirements.txt",
        )


def wrapped(spec: Spec, target: Target, argv: Sequence[str]) -> list[str]:
    """A command that first builds the environment, if it is missing, and then runs `argv` in it."""
    if not spec.install:
        return list(argv)
    named = os.path.basename(argv[0]).startswith("python") and argv[0].startswith(("/", "~/"))
    python = argv[0] if named else target.config.python or "python3"
    return [python, "-I", "-S", f"../{INSTALLER}", VENVS, target.config.index_url, "--", *argv]


def lay(folder: Path, spec: Spec) -> None:
    """Write the program into the spooled run folder."""
    if spec.install:
        (folder / INSTALLER).write_text(Path(environment.__file__).read_text("utf-8"), "utf-8")
