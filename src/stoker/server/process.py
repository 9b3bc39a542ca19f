"""The server as a process: one of them a state folder, detached, behind a private socket, gone when its
folder is gone.

- The lock is a file with `{"server": {"pid", "start"}}`, held until the process ends.
- The socket is Home.socket, mode 0600.
- The server has its own session, and its cwd is the state folder. It ends if folder, lock or socket was
  deleted or replaced.
- SIGTERM and `shutdown` end the server; every run continues.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import json
import logging
import logging.handlers
import os
import resource
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from stoker import __version__
from stoker.base.config import Home

if TYPE_CHECKING:
    from starlette.applications import Starlette

LOG_MAX_BYTES = 4_000_000  # then it becomes log.1, then log.2, then it is forgotten
LOG_KEPT = 2
# enough for any number of clients; more would be handed on to the runs,
# and some programs close them one by one
OPEN_FILES = 65_536
LOOK_S = 2.0  # how often the server asks whether its folder and its door are still there
DRAIN_S = 1  # what open answers get when the server ends
END_S = 6.0  # then the process is gone, whatever a thread still waits for
BACKLOG = 1024

log = logging.getLogger(__name__)


def detach() -> None:
    """Become a daemon: the caller's process exits here with code 0, and its grandchild continues in its
    own session."""
    if os.fork():
        os._exit(0)
    os.setsid()
    if os.fork():  # not the leader of the session, so no terminal can ever become ours
        os._exit(0)


def settle(where: Home) -> None:
    """Reset inherited state: current folder, ignored or blocked signals, a low limit of open files."""
    os.chdir(where.path)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    for name in (
        "SIGHUP",
        "SIGQUIT",
        "SIGTSTP",
        "SIGTTIN",
        "SIGTTOU",
        "SIGUSR1",
        "SIGUSR2",
        "SIGALRM",
        "SIGCHLD",
    ):
        signal.signal(getattr(signal, name), signal.SIG_DFL)
    signal.signal(signal.SIGHUP, lambda *_: None)  # a handler, not SIG_IGN: runs would inherit that
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = OPEN_FILES if hard == resource.RLIM_INFINITY else min(hard, OPEN_FILES)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


class Lock:
    """The lock of the server of a state folder, held until `release` or the end of the process."""

    def __init__(self, path: Path, fd: int) -> None:
        self._path, self._fd = path, fd

    @classmethod
    def take(cls, path: Path, *, wait: bool = False) -> Lock | None:
        """Return the lock, or None if another process holds it (`wait`: wait for it instead)."""
        while True:
            fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
            except BlockingIOError:
                os.close(fd)
                return None
            lock = cls(path, fd)
            if lock.holds():
                os.ftruncate(fd, 0)
                # for hints, and for the agent of a run around us
                os.pwrite(fd, json.dumps({"server": _myself()}).encode() + b"\n", 0)
                return lock
            os.close(fd)  # the file was replaced between open and flock

    def holds(self) -> bool:
        """False if the lock file was deleted or replaced: then another process may also be the server."""
        return _same(self._path, os.fstat(self._fd))

    def release(self) -> None:
        os.close(self._fd)


class Door:
    """The listening unix socket, mode 0600. Replaces a stale socket in one step."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        beside = path.with_name(path.name + "~")  # only the holder of the lock comes here
        beside.unlink(missing_ok=True)
        os.fchmod(self.socket.fileno(), 0o600)  # no umask: it would count for folders of other threads
        self.socket.bind(os.fspath(beside))
        beside.chmod(0o600)
        self.socket.listen(BACKLOG)
        self._seen = beside.stat()
        os.replace(beside, path)

    def stands(self) -> bool:
        """True while clients that connect to the path reach this process."""
        return _same(self.path, self._seen)

    def close(self) -> None:
        if self.stands():
            self.path.unlink(missing_ok=True)
        self.socket.close()


def _myself() -> dict:
    """What tells this process from a later one with its number, as the agent writes it."""
    fields = Path("/proc/self/stat").read_text(errors="replace").rpartition(")")[2].split()
    return {"pid": os.getpid(), "start": int(fields[19])}


def _same(path: Path, seen: os.stat_result) -> bool:
    try:
        now = path.lstat()
    except OSError:
        return False
    return (now.st_dev, now.st_ino) == (seen.st_dev, seen.st_ino)


class _Log(logging.handlers.RotatingFileHandler):
    """A log that rotates by size and takes the process's own stdout and stderr along."""

    def _open(self):
        stream = open(self.baseFilename, "a", encoding="utf-8", errors="backslashreplace",  # noqa: SIM115
                      opener=lambda path, flags: os.open(path, flags, 0o600))
        for fd in (1, 2):
            os.dup2(stream.fileno(), fd)
        return stream


def open_log(where: Home) -> None:
    """Redirect all output of this process to the server's log: one line per message, times in UTC."""
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    os.close(null)
    handler = _Log(where.server_log, maxBytes=LOG_MAX_BYTES, backupCount=LOG_KEPT)
    style = logging.Formatter(
        "{asctime}.{msecs:03.0f}Z {levelname} {name}: {message}", "%Y-%m-%dT%H:%M:%S", style="{"
    )
    style.converter = time.gmtime
    handler.setFormatter(style)
    logging.basicConfig(level=logging.INFO, handlers=[handler], force=True)
    for chatty in ("uvicorn.error", "uvicorn.access", "alembic"):
        logging.getLogger(chatty).setLevel(logging.WARNING)
    logging.captureWarnings(True)
    logging.raiseExceptions = False  # a full disk must not stop the server


class Life:
    """Decides when the server ends: after a signal, after the verb `shutdown`, or if its folder or socket
    is gone. Any thread may call `end`."""

    def __init__(self, still_ours: Callable[[], bool]) -> None:
        self._still_ours = still_ours
        self._loop: asyncio.AbstractEventLoop | None = None
        self._over: asyncio.Event | None = None
        self.why = ""

    def end(self, why: str) -> None:
        """Request the end; returns at once."""
        self.why = self.why or why
        if self._loop and self._over:
            self._loop.call_soon_threadsafe(self._over.set)

    async def last(self) -> None:
        """Block until the server must end."""
        self._loop, self._over = asyncio.get_running_loop(), asyncio.Event()
        for sign in (signal.SIGTERM, signal.SIGINT):
            self._loop.add_signal_handler(sign, self.end, sign.name)
        if self.why:
            self._over.set()
        while not self._over.is_set():
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._over.wait(), LOOK_S)
            if not self._still_ours():
                self.end("the state folder or socket is gone or belongs to another server")
                self._over.set()
        log.info("the server ends: %s; runs continue", self.why)
        last_resort = threading.Timer(END_S, os._exit, (0,))
        last_resort.daemon = True
        last_resort.start()


def serve(app: Starlette, door: Door, life: Life, ready: Callable[[], None]) -> None:
    """Answer requests on `door` until `life` ends. Calls `ready` as soon as the server answers."""
    import uvicorn

    from stoker.server.patience import Patient

    class Server(uvicorn.Server):
        """uvicorn without its ten wake-ups a second and without its signal handlers, which would kill us by
        the signal again."""

        async def startup(self, sockets: list[socket.socket] | None = None) -> None:
            await super().startup(sockets=sockets)
            log.info("version %s serves at %s", __version__, door.path)
            ready()

        async def main_loop(self) -> None:
            await self.on_tick(0)
            await life.last()

        @contextlib.contextmanager
        def capture_signals(self) -> Iterator[None]:
            yield

    config = uvicorn.Config(
        app,
        loop="asyncio",
        http=Patient,
        ws="websockets-sansio",
        lifespan="off",
        log_config=None,
        access_log=False,
        server_header=False,
        date_header=False,
        proxy_headers=False,
        timeout_graceful_shutdown=DRAIN_S,
        ws_ping_interval=None,
        ws_max_size=4 << 20,
        ws_per_message_deflate=False,
        h11_max_incomplete_event_size=8 << 20,
    )
    asyncio.run(Server(config).serve(sockets=[door.socket]))


def leave(code: int) -> None:
    """End this process now, without waiting for threads that wait for a machine. Such threads hold no
    unsaved data."""
    logging.shutdown()
    os._exit(code)
