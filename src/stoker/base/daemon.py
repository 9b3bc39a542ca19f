"""How the server is started: its command line and its environment.
The client and the server's own entry both need them."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping

from stoker.base.config import DAEMON_MARK, Home

_OURS = ("stoker", "uvicorn", "sqlalchemy")  # packages without which the server cannot be imported
_KEPT = (
    "PATH",
    "HOME",
    "USER",
    "LOGNAME",
    "SHELL",
    "LANG",
    "LANGUAGE",
    "TZ",
    "TMPDIR",
    "LD_LIBRARY_PATH",
    "LD_PRELOAD",
    "SSH_AUTH_SOCK",
    "SSH_AGENT_PID",
    "XDG_RUNTIME_DIR",
    "KRB5CCNAME",
    "STOKER_HOME",
    "STOKER_CRASH_AT",
    "STOKER_IDENTITY",
)


def server_command(*options: str) -> list[str]:
    """The argv that starts the server. -P: what lies in the folder where somebody stands is never imported.
    utf8: names mean the same bytes whatever the locale of the shell that came first."""
    return [sys.executable, "-P", "-X", "utf8", "-m", "stoker.server", *options]


def server_environment(environ: Mapping[str, str], where: Home) -> dict[str, str]:
    """What the server needs of `environ`, marked as a daemon's:
    no secret of the shell that happened to come first.

    Runs get the environment of the client that asked, so nothing is lost by this.
    Of PYTHONPATH only those folders stay in which our own packages lie.
    """
    kept = {name: value for name, value in environ.items() if name in _KEPT or name.startswith("LC_")}
    kept[DAEMON_MARK] = str(where.lock)  # its record: the lock tells pid and start time
    kept["STOKER_HOME"] = str(where.path)
    path = [
        p
        for p in environ.get("PYTHONPATH", "").split(os.pathsep)
        if p and any(os.path.isdir(os.path.join(p, name)) for name in _OURS)
    ]
    if path:
        kept["PYTHONPATH"] = os.pathsep.join(os.path.abspath(p) for p in path)
    return kept
