"""`stoker server enable`: a systemd unit of the user,
so that the server is there after logout and restart."""

from __future__ import annotations

import contextlib
import getpass
import os
import subprocess
from pathlib import Path

from stoker.base import config
from stoker.base.daemon import server_command
from stoker.base.errors import StateError, StokerError
from stoker.cli.options import plane

NAME = "stoker.service"
COMMAND_S = 30.0


def unit_path() -> Path:
    """Path of this user's systemd unit."""
    base = os.environ.get("XDG_CONFIG_HOME") or os.path.expanduser("~/.config")
    return Path(base) / "systemd" / "user" / NAME


def unit_text(where: config.Home) -> str:
    """Text of the unit. `--wait`: it waits while a server that a command started is running. KillMode: the
    end of the server must not end runs."""
    return "\n".join((
        "[Unit]", "Description=Stoker server", "", "[Service]", "Type=exec",
        f"Environment={quote(f'STOKER_HOME={where.path}')}",
        f"ExecStart={' '.join(quote(word) for word in server_command('--wait'))}",
        "Restart=on-failure", "RestartSec=5", "KillMode=process",
        "", "[Install]", "WantedBy=default.target", ""))


def quote(word: str) -> str:
    """Quote a word, so that systemd reads it unchanged."""
    return '"' + word.replace("\\", "\\\\").replace('"', '\\"').replace("%", "%%").replace("$", "$$") + '"'


def enable() -> str:
    """Write, enable and start the unit; returns the message for the user. Raises StateError without
    systemd for users."""
    where = config.make_home(config.home())
    _systemctl("show-environment")
    path = unit_path()
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(unit_text(where), "utf-8", "surrogateescape")
    _systemctl("daemon-reload")
    _systemctl("enable", NAME)
    with contextlib.suppress(StokerError):
        plane(start=False).shutdown()  # the one that a command started makes room; runs go on
    _systemctl("restart", NAME)
    return f"The server will start at boot ({path}). {_linger()}"


def disable() -> str:
    """Disable and delete the unit."""
    path = unit_path()
    if not path.exists():
        return "The server was not enabled."
    with contextlib.suppress(StokerError):
        _systemctl("disable", "--now", NAME)
    path.unlink(missing_ok=True)
    with contextlib.suppress(StokerError):
        _systemctl("daemon-reload")
    return "The server no longer starts at boot. A command that needs the server starts the server."


def _linger() -> str:
    """Without lingering a user's systemd ends at logout."""
    try:
        done = subprocess.run(
            ["loginctl", "enable-linger", getpass.getuser()],
            capture_output=True,
            timeout=COMMAND_S,
            check=False,
        )
        if done.returncode == 0:
            return "The server keeps running after logout."
    except (OSError, subprocess.TimeoutExpired):
        pass
    return (
        "The server ends at logout. To keep the server running, an administrator can type: sudo loginctl "
        f"enable-linger {getpass.getuser()}"
    )


def _systemctl(*words: str) -> None:
    hint = (
        "Runs continue without the server. The next command starts the server. To start the server at "
        "boot with cron: @reboot stoker server start"
    )
    try:
        done = subprocess.run(
            ["systemctl", "--user", *words], capture_output=True, timeout=COMMAND_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as e:
        raise StateError(
            "This machine has no systemd for users, so the server cannot be enabled.", hint=hint
        ) from e
    if done.returncode != 0:
        said = done.stderr.decode("utf-8", "replace").strip().splitlines()
        raise StateError(
            f"systemctl --user {words[0]} failed: {said[-1] if said else f'exit code {done.returncode}'}",
            hint=hint,
        )
