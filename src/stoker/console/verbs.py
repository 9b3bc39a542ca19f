"""Verbs that only the command line has, carried out by the command line itself:
`stoker sweep`, `stoker doctor`, `stoker tune --show`."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
from collections.abc import Mapping, Sequence
from typing import Any

from stoker.base.config import Home
from stoker.base.errors import InvalidSpec, StokerError, from_json

PATIENCE_S = 600.0  # a sweep copies its folder once for each run


def typed(home: Home, words: Sequence[str], folder: str | None = None) -> Any:
    """The output of `stoker WORDS --json` in this folder. No shell reads the words. Raises StokerError for
    the error that the command reports."""
    env = {**os.environ, "STOKER_HOME": os.fspath(home.path)}
    try:
        done = subprocess.run(
            [sys.executable, "-P", "-m", "stoker.cli", *words],
            cwd=folder,
            env=env,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=PATIENCE_S,
            check=False,
        )
    except subprocess.TimeoutExpired as e:
        raise StokerError(f"stoker {words[0]} did not end within {PATIENCE_S:g} s.", hint="stoker ps") from e
    except (OSError, ValueError) as e:
        raise InvalidSpec(
            f"stoker {words[0]} could not be started in {folder}: {e}.", hint="Check the folder."
        ) from e
    told = _last_json(done.stdout) if done.stdout.strip() else None
    if told is None:
        said = _last_json(done.stderr.strip().split(b"\n")[-1])
        raise (
            from_json(said)
            if isinstance(said, dict) and "error" in said
            else StokerError(
                f"stoker {words[0]} failed (exit code {done.returncode}).",
                hint=f"Try the command in a terminal: stoker {words[0]}",
            )
        )
    return told


def _last_json(text: bytes) -> dict | list | None:
    try:
        return json.loads(text)
    except ValueError:
        return None


def sweep(home: Home, form: Mapping[str, str]) -> dict:
    """Start a sweep: `folder`, `command`, `params` (one NAME=VALUES per line), and optionally `name`,
    `at_once`, `random`, `gpus`."""
    try:
        command = shlex.split(form.get("command", ""))
    except ValueError as e:
        raise InvalidSpec(f"The command is not valid: {e}.", hint="train.py --epochs 5") from e
    folder = form.get("folder", "").strip()
    if not os.path.isabs(folder) or not os.path.isdir(folder):
        raise InvalidSpec(
            f"There is no folder '{folder}'.", hint="Give the whole path of the folder that the script is in."
        )
    words = [f"--param={line.strip()}" for line in form.get("params", "").splitlines() if line.strip()]
    words += [
        f"--{name.replace('_', '-')}={form[name].strip()}"
        for name in ("name", "at_once", "random", "gpus")
        if form.get(name, "").strip()
    ]
    return typed(home, ["sweep", "--json", *words, "--", *command], folder)


def reports(home: Home) -> dict:
    """`{"doctor": ..., "tune": [...]}`: the report of `stoker doctor` about this machine now, and earlier
    results of `stoker tune`; None for a part that is not available."""
    found: dict = {}
    for name, words in (("doctor", ["doctor", "--json"]), ("tune", ["tune", "--show", "--json"])):
        try:
            found[name] = typed(home, words)
        except StokerError:
            found[name] = None
    return found
