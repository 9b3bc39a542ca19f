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
    """Command that starts the server. -P keeps modules of the current folder from being imported. UTF-8
    mode makes file names independent of the locale of the first shell."""
    return [sys.executable, "-P", "-X", "utf8", "-m", "stoker.server", *options]


def server_environment(environ: Mapping[str, str], where: Home) -> dict[str, str]:
    """Variables of `environ` that the server needs, plus the mark of a daemon. It contains no secrets of the
    shell that started the server.
    Runs get the environment of their own client. PYTHONPATH keeps only the folders of Stoker's own
    packages."""
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
