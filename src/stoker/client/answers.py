"""What goes to the server as a path and a query, and what comes back:
JSON, pieces of a log, lines, events, errors."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from http.client import HTTPException, HTTPResponse
from threading import Lock
from urllib.parse import quote

from stoker.base.errors import NotFound, ServerError, StokerError, from_json

PIECE = 1 << 16


class Pieces:
    """The bytes of a streamed answer. Another thread may call `close` while `next` blocks."""

    def __init__(self, opened: tuple[HTTPResponse, socket.socket]) -> None:
        self._answer, self._link = opened
        self._reading = Lock()
        self._closed = False

    def __iter__(self) -> Pieces:
        return self

    def __next__(self) -> bytes:
        try:
            with self._reading:
                piece = b"" if self._closed else self._answer.read1(PIECE)
        except (OSError, ValueError, HTTPException) as e:
            if not self._closed:
                self.close()
                raise ServerError(
                    "The Stoker server ended while it was answering.",
                    hint="Repeat the command; nothing is lost.",
                ) from e
            piece = b""
        if not piece:
            self.close()
            raise StopIteration
        return piece

    def close(self) -> None:
        """End the iteration and the request."""
        self._closed = True
        try:
            self._link.shutdown(socket.SHUT_RDWR)  # wakes the reader; close alone would not
        except OSError:
            pass
        with self._reading:
            self._answer.close()
            self._link.close()


class Lines:
    """The lines of a streamed answer as dicts, closed like Pieces. A line with an error raises this error."""

    separator = b"\n"

    def __init__(self, opened: tuple[HTTPResponse, socket.socket]) -> None:
        self._pieces = Pieces(opened)
        self._rest = b""

    def __iter__(self) -> Iterator[dict]:
        return self

    def __next__(self) -> dict:
        while True:
            line, end, rest = self._rest.partition(self.separator)
            if not end:
                self._rest += next(self._pieces)
            else:
                self._rest = rest
                if (told := self._read(line)) is not None:
                    return told

    def _read(self, line: bytes) -> dict | None:
        told = json_of(line)
        if "error" in told:
            raise from_json(told)
        return told

    def close(self) -> None:
        self._pieces.close()


class Events(Lines):
    """The server-sent events of an answer as dicts."""

    separator = b"\n\n"

    def _read(self, line: bytes) -> dict | None:
        return json_of(line.removeprefix(b"data: ")) if line.startswith(b"data: ") else None


class NotThere(Exception):
    """No server listens, so nothing was sent."""


class Cut(Exception):
    """The server ended between the request and the end of its answer."""


def path_of(ref: str, verb: str = "") -> str:
    """URL path of a run, or of one of its verbs. Raises NotFound for an empty name."""
    if not ref:
        raise NotFound("The name of the run is empty.")
    return "/v1/runs/" + quoted(ref) + (f"/{verb}" if verb else "")


def query_of(words: dict) -> str:
    """Query string: None is left out, a list is repeated, and surrogate escapes become the original bytes."""
    pairs = [
        (name, value)
        for name, values in words.items()
        for value in (values if isinstance(values, list | tuple) else [values])
    ]
    told = [
        (name, str(value).lower() if isinstance(value, bool) else str(value))
        for name, value in pairs
        if value is not None
    ]
    return "?" + "&".join(f"{name}={quoted(value)}" for name, value in told) if told else ""


def quoted(text: str) -> str:
    """`text` quoted for a path or a query, in UTF-8; surrogate escapes become the original bytes."""
    try:
        return quote(text, safe="", errors="surrogateescape")
    except UnicodeEncodeError:
        return quote(text, safe="", errors="replace")  # no file and no run has such a name


def json_of(raw: bytes):
    """Decode the JSON of an answer. Raises ServerError for an answer that is not JSON."""
    try:
        return json.loads(raw)
    except ValueError as e:
        raise ServerError("The program at the Stoker server's socket is not a Stoker server.") from e


def error_of(status: int, raw: bytes) -> StokerError:
    """Return the error that an answer contains."""
    body = json_of(raw)
    if not isinstance(body, dict) or "error" not in body:
        return ServerError(f"The Stoker server answered with status {status} and no reason.")
    return from_json(body)
