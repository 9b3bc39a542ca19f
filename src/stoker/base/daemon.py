"""How the server is started: its command line and its environment.
The client and the server's own entry both need them."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping

from stoker.base.config import DAEMON_MARK, Home

TYPE_CHECKING = False  # typing and subprocess would be imported for nothing
if TYPE_CHECKING:
    import subprocess

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
    packages.

    It has no STOKER_RUN*, and STOKER_DAEMON=<path of the server's lock>.
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


_ahead: dict[str, subprocess.Popen[bytes]] = {}  # state folder -> the server that `begin_ahead` started


def begin_ahead(where: Home) -> bool:
    """Start a server if none listens, and return at once: it starts while the caller prepares its request.
    `begun` waits for no second one. True if a server was started."""
    import contextlib
    import socket

    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as link:
        link.setblocking(False)
        try:
            link.connect(os.fspath(where.socket))
        except (FileNotFoundError, ConnectionRefusedError):
            pass
        except OSError:
            return False  # whatever it is: the request will meet it, and say so
        else:
            return False
    with contextlib.suppress(OSError):
        _ahead[str(where.path)] = _begin(where)
    return str(where.path) in _ahead


def begun(where: Home) -> subprocess.Popen[bytes]:
    """The server that `begin_ahead` started, or a new one. Its stdout says in one line when it serves, or
    why it cannot."""
    return _ahead.pop(str(where.path), None) or _begin(where)


def _begin(where: Home) -> subprocess.Popen[bytes]:
    import subprocess

    return subprocess.Popen(
        server_command("--detach"),
        env=server_environment(os.environ, where),
        cwd="/",
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        start_new_session=True,
    )
