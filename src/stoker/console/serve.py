"""Runs the console: finds its port, or the console of this state folder that runs already, and answers until
a signal comes."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import hashlib
import json
import logging
import os
import secrets
import signal
import socket
import time
from collections.abc import Callable, Iterator
from http.client import HTTPConnection, HTTPException
from pathlib import Path

from stoker.base.config import Home, make_home
from stoker.base.errors import InvalidSpec, StateError
from stoker.client import Client
from stoker.console.door import Door, Kept

HOST = "127.0.0.1"
FIRST_PORT, PORTS = 20_000, 10_000  # below those that the kernel gives to outgoing connections
TRIES = 20
ENDS = (signal.SIGINT, signal.SIGTERM)
LOOK_S = 2.0


class Console:
    """The console of one state folder: of this process, or of another process that already runs (`own` is
    False)."""

    def __init__(self, home: Home, port: int | None) -> None:
        make_home(home)
        kept = Kept(home)
        wanted = port or kept.port or _usual(home.path)
        self._socket: socket.socket | None = None
        for number in [wanted] if port else range(wanted, wanted + TRIES):
            door = Door(kept.secret, number)
            self._socket = _listen(number)
            if self._socket is not None or _is_ours(door, number):
                break
        else:
            raise StateError(
                f"Port {wanted} of {HOST} is used by another program.",
                hint="stoker ui --port 8123   (any free port)",
            )
        kept.keep(number)
        self.port, self.door = number, door
        self.own = self._socket is not None

    def link(self) -> str:
        """A link that opens the console once, within one minute."""
        return f"http://{HOST}:{self.port}/enter?code={self.door.code(time.time())}"

    def serve(self, client: Client, ready: Callable[[], None]) -> None:
        """Serve until SIGINT or SIGTERM. Calls `ready` as soon as pages are served."""
        import uvicorn

        from stoker.console.app import create_app
        from stoker.console.routes import ROUTES

        class Server(uvicorn.Server):
            """uvicorn without its ten wake-ups a second; a signal is an end, not a death."""

            async def startup(self, sockets: list[socket.socket] | None = None) -> None:
                await super().startup(sockets=sockets)
                ready()

            async def main_loop(self) -> None:
                over = asyncio.Event()
                for sign in ENDS:
                    asyncio.get_running_loop().add_signal_handler(sign, over.set)
                await self.on_tick(0)
                await over.wait()
                # that live logs are cut is no error
                logging.getLogger("uvicorn.error").setLevel(logging.CRITICAL)

            @contextlib.contextmanager
            def capture_signals(self) -> Iterator[None]:
                yield

        config = uvicorn.Config(
            create_app(client, self.door, ROUTES),
            loop="asyncio",
            http="h11",
            ws="none",
            lifespan="off",
            log_config=None,
            access_log=False,
            server_header=False,
            date_header=False,
            proxy_headers=False,
            timeout_graceful_shutdown=0,
        )
        assert self._socket is not None  # who does not own the console does not serve it
        asyncio.run(Server(config).serve(sockets=[self._socket]))


def _usual(folder: Path) -> int:
    """The port of a state folder that has none yet: always the same."""
    return FIRST_PORT + int.from_bytes(hashlib.sha256(os.fsencode(folder)).digest()[:4], "big") % PORTS


def _listen(port: int) -> socket.socket | None:
    """A socket at this port of this machine only; None where the port is taken. Raises InvalidSpec."""
    found = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        found.bind((HOST, port))
        found.listen(128)
    except OSError as e:
        found.close()
        if e.errno == errno.EADDRINUSE:
            return None
        raise InvalidSpec(
            f"Port {port} cannot be opened: {e.strerror}.", hint="Choose a port between 1024 and 65535."
        ) from e
    return found


def _is_ours(door: Door, port: int) -> bool:
    """Whether the console of this state folder answers there."""
    question = secrets.token_urlsafe(16)
    link = HTTPConnection(HOST, port, timeout=LOOK_S)
    try:
        link.request("GET", f"/door?question={question}")
        return json.loads(link.getresponse().read(4096)).get("answer") == door.answer(question)
    except (OSError, HTTPException, ValueError, AttributeError):
        return False
    finally:
        link.close()


def leave() -> None:
    """End this process at once. Threads that wait for the server hold no unsaved data."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    os._exit(0)
