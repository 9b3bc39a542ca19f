"""`python -m stoker.server [--detach | --wait]`: the server of $STOKER_HOME.
A second one for the same folder leaves at once.

It says one JSON line on stdout: {"ready": PID}, {"held":
true} (another one serves), or the error that kept it from starting.

If another server holds the lock, it exits with 0; with `--wait`, it waits for the lock.
"""

from __future__ import annotations

import gc
import json
import os
import sys
import traceback

from stoker.base import config, daemon
from stoker.base.errors import ServerError, StokerError
from stoker.server import process

NO_DATABASE = "the database was deleted"
USAGE = """usage: python -m stoker.server [--detach | --wait]

Serve the runs of $STOKER_HOME (default ~/.stoker) on a unix socket in that folder.
The other stoker commands start the server when they need it.
  --detach   run in the background; return when the server answers, or with the error
  --wait     wait until no other server uses the folder (for service managers)"""


def main(argv: list[str]) -> int:
    """Serve one state folder; returns the exit code."""
    if "-h" in argv or "--help" in argv:
        print(USAGE)
        return 0
    unknown = [word for word in argv if word not in ("--detach", "--wait")]
    if unknown:
        print(USAGE, file=sys.stderr)
        return 2
    _open_standard_streams()
    where = config.home()
    clean = daemon.server_environment(os.environ, where)
    if clean != dict(os.environ):  # the environment that others see in /proc is the one we were executed with
        command = daemon.server_command(*argv)
        os.execve(command[0], command, clean)
    try:
        config.make_home(where)
    except StokerError as e:
        return _refused(e, _Report(1))
    report = _Report(os.dup(1))
    if "--detach" in argv:
        process.detach()
    lock = process.Lock.take(where.lock, wait="--wait" in argv)
    if lock is None:
        report.say({"held": True})
        return 0
    process.settle(where)
    process.open_log(where)
    try:
        _serve(where, lock, report)
    except StokerError as e:
        code = _refused(e, report)
    except Exception as e:  # the last place where it can be said
        traceback.print_exc()
        code = _refused(ServerError(f"The server failed: {type(e).__name__}: {e}.",
                                    hint=f"See {where.server_log}."), report)
    else:
        code = 0
    process.leave(code)
    return code


def _serve(where: config.Home, lock: process.Lock, report: _Report) -> None:
    gc.disable()  # what imports make stays: looking through it again and again is a sixth of the start
    from stoker.plane.service import Service  # after the lock: the loser of a race pays nothing
    from stoker.server.app import create_app

    service = Service(where)
    try:
        door = process.Door(where.socket)
        life = process.Life(
            lambda: (
                lock.holds() and door.stands() and service.keeps_its_database(lambda: life.end(NO_DATABASE))
            )
        )
        try:
            process.serve(create_app(service, life.end), door, life, lambda: _ready(report))
        finally:
            door.close()
        again = not service.keeps_its_database(lambda: None) and lock.holds()
    finally:
        service.close()
    if again:
        begin_again(where)


def _ready(report: _Report) -> None:
    """The server answers: say so, and collect garbage again, but not in what the imports made."""
    report.say({"ready": os.getpid()})
    gc.freeze()
    gc.enable()


def begin_again(where: config.Home) -> None:
    """Replace this process by a new server, which recovers the runs. Never returns."""
    command = daemon.server_command()
    os.execve(command[0], command, daemon.server_environment(os.environ, where))


def _open_standard_streams() -> None:
    """Some starters close them; then a lock or a database would get number 1 and be written over."""
    while (fd := os.open(os.devnull, os.O_RDWR)) <= 2:
        pass
    os.close(fd)


class _Report:
    """The pipe to whoever started us: takes one line, then it is closed,
    so that they need not wait for our end."""

    def __init__(self, fd: int) -> None:
        self._fd: int | None = fd

    def say(self, body: dict) -> None:
        fd, self._fd = self._fd, None
        if fd is None:
            return
        try:
            os.write(fd, (json.dumps(body) + "\n").encode())
        except OSError:
            pass  # they did not wait
        os.close(fd)


def _refused(error: StokerError, report: _Report) -> int:
    report.say(error.to_json())
    print(f"stoker server: {error.message} {error.hint}", file=sys.stderr)
    return error.exit_code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
