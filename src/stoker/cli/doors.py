"""`stoker ssh`, `open` and `push`: the user's own ssh and rsync, to a machine by the name that `stoker
machine add` gave it."""

from __future__ import annotations

import os
import shlex
import socket
import subprocess
import sys

import click

from stoker.base.config import home, load_config
from stoker.base.errors import InvalidSpec, NotFound, StateError, TargetError
from stoker.cli import output
from stoker.cli.options import PLAIN_SSH

LOOPBACK = "127.0.0.1"
KEEP_ALIVE = ("-o", "ServerAliveInterval=15", "-o", "ServerAliveCountMax=4")


@click.command("ssh", context_settings={"allow_interspersed_args": False}, options_metavar="[--]")
@click.argument("name", metavar="MACHINE")
@click.argument("command", nargs=-1, type=click.UNPROCESSED, metavar="[COMMAND]...")
def ssh(name: str, command: tuple[str, ...]) -> None:
    """Log in to a machine, or run one command there, with your own ssh.

    \b
      stoker ssh box
      stoker ssh box nvidia-smi

    As with ssh, the shell of that machine reads the command. The exit code is the exit code of ssh.
    """
    _become_ssh(*(("-o", "RemoteCommand=none") if command else ()), *_destination(name), *command)


@click.command("open")
@click.argument("name", metavar="MACHINE")
@click.option("--port", type=click.IntRange(1, 65535), required=True, metavar="PORT",
              help="Port of that machine (on its 127.0.0.1), such as 8888 for Jupyter.")
@click.option(
    "--here",
    type=click.IntRange(1, 65535),
    metavar="PORT",
    help="Port on this machine.  [default: the same port]",
)
def open_(name: str, port: int, here: int | None) -> None:
    """Make a port of another machine reachable here, as http://127.0.0.1:PORT, until you press Ctrl-C.

    Only programs on this machine can connect. The machine needs no open port,
    because the connection uses ssh.
    """
    words, here = _destination(name), here or port
    with socket.socket() as trial:
        trial.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            trial.bind((LOOPBACK, here))
        except OSError as e:
            raise StateError(
                f"Port {here} of this machine cannot be used: {e.strerror}.",
                hint=f"stoker open {output.shown(name)} --port {port} --here {here % 50000 + 10000}",
            ) from e
    output.say(f"http://{LOOPBACK}:{here} now reaches port {port} of {output.shown(name)}. To close it: "
               "Ctrl-C")
    _become_ssh(
        "-N",
        "-o",
        "ExitOnForwardFailure=yes",
        "-o",
        "RequestTTY=no",
        "-o",
        "RemoteCommand=none",
        *KEEP_ALIVE,
        "-L",
        f"{LOOPBACK}:{here}:{LOOPBACK}:{port}",
        *words,
    )


@click.command("push")
@click.argument("source")
@click.argument("place", metavar="MACHINE:PATH")
def push(source: str, place: str) -> None:
    """Copy a file or folder, such as data that many runs use, to a machine.

    \b
      stoker push data box:data
      stoker run --on box --mount data=/root/data train.py

    A PATH without a leading / is in your home folder on the machine.
    The content of a folder goes into the folder PATH.
    Files with the same size and time are not sent again.
    Does not delete files on the machine. A file appears on the machine only when it is complete.
    Needs rsync on both machines.
    """
    name, colon, path = place.partition(":")
    if not colon or not path:
        raise InvalidSpec(
            f"{output.shown(place)} does not name a machine and a path, such as box:data.",
            hint="stoker push data box:data",
        )
    *options, host = _destination(name)
    source = os.path.abspath(source)
    if not os.path.exists(source):
        raise NotFound(f"There is no file or folder {output.shown(source)}.", hint="Check the path.")
    slash = "/" if os.path.isdir(source) else ""
    ssh_there = shlex.join([*PLAIN_SSH, *options, *KEEP_ALIVE])
    progress = ["--info=progress2"] if output.is_terminal(sys.stdout) else []
    words = ["-rlpt", "-s", "--partial", *progress, "-e", ssh_there, f"{source}{slash}", f"{host}:{path}"]
    try:
        done = subprocess.run(["rsync", *words], check=False)
    except FileNotFoundError as e:
        raise InvalidSpec("This machine has no rsync.", hint="Install it: apt-get install rsync") from e
    if done.returncode:
        raise TargetError(
            f"rsync could not copy everything to {output.shown(name)} (exit code {done.returncode}).",
            hint=(
                "Repeat the command: rsync then sends only the missing files. If the machine has no "
                "rsync, type there: apt-get install rsync"
            ),
        )


def _destination(name: str) -> list[str]:
    """What one types after `ssh` for this machine. Raises NotFound, InvalidSpec."""
    machines = load_config(home()).targets
    if name not in machines:
        raise NotFound(
            f"There is no machine {output.shown(name)}.",
            hint="List the machines: stoker machine ls   Add a machine: stoker machine add",
        )
    if not machines[name].host:
        raise InvalidSpec(
            f"{output.shown(name)} is this machine, but this command works only with other machines.",
            hint="List the machines that you reach by ssh: stoker machine ls",
        )
    return shlex.split(machines[name].host)


def _become_ssh(*words: str) -> None:
    """This process becomes ssh: keys, signals and the exit code are its own."""
    try:
        os.execvp("ssh", ["ssh", *words])
    except FileNotFoundError as e:
        raise InvalidSpec("This machine has no ssh.", hint="Install the OpenSSH client.") from e
