"""Looks at a machine and at a script before they disappoint. Reads only:
it runs nothing of the user's and changes nothing."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from stoker.doctor.finding import LEVELS, Finding, worst

__all__ = ["LEVELS", "Finding", "examine", "worst"]


def examine(
    command: Sequence[str] | None, folder: Path, env: dict[str, str], deep: bool = True
) -> list[Finding]:
    """What was found about this machine and, when a command is given, about what it will run;
    the worst first within a topic.

    folder, env: the user's. deep: also start the user's interpreter and look at the GPU and the login
        manager (a second); without it only files are read (some milliseconds). Raises nothing for a bad
        command:
    that is a finding of level "fail".
    """
    from stoker.doctor.examination import run

    return run(command, Path(folder), env, deep)
