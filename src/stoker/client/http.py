"""HTTP/1.1 as the server speaks it: one request a connection, and its answer, whole or piece by piece.

`http.client` brings the parser for e-mail with it, which takes as long to import as the rest of a command.
"""

from __future__ import annotations

import socket

LINE_MAX = 1 << 16
HEADERS_MAX = 100


class Broken(Exception):
    """What came is not an HTTP answer, or not all of it."""


def ask(link: socket.socket, method: str, path: str, body: bytes | None) -> None:
    """Send one request. `body`: JSON. Raises OSError."""
    head = f"{method} {path} HTTP/1.1\r\nHost: stoker\r\nConnection: close\r\n"
    if body is not None:
        head += f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n"
    link.sendall(f"{head}\r\n".encode("ascii") + (body or b""))


class Answer:
    """The answer that comes over `link`. Every method raises OSError or Broken; ValueError after `close`."""

    def __init__(self, link: socket.socket) -> None:
        self._file = link.makefile("rb")
        try:
            self.status = self._status()
            self._read_headers()
        except BaseException:
            self._file.close()
            raise

    def _status(self) -> int:
        version, _, rest = self._line().partition(b" ")
        if not version.startswith(b"HTTP/1.") or not rest[:3].isdigit():
            raise Broken("no HTTP answer")
        return int(rest[:3])

    def _read_headers(self) -> None:
        self._left = -1  # bytes to come: of the body, or of this chunk; -1: until the end of the connection
        self._chunked = False
        for _ in range(HEADERS_MAX):
            line = self._line()
            if not line:
                break
            name, _, value = line.partition(b":")
            if name.lower() == b"content-length":
                self._left = _number(value.strip(), 10)
            elif name.lower() == b"transfer-encoding" and value.strip().lower() == b"chunked":
                self._chunked = True
        else:
            raise Broken("too many headers")
        if self._chunked:
            self._left = 0
            self._first = True

    def read(self) -> bytes:
        """All of the body."""
        pieces = []
        while piece := self.read1(LINE_MAX):
            pieces.append(piece)
        self.close()
        return b"".join(pieces)

    def read1(self, size: int) -> bytes:
        """What has come of the body, up to `size` bytes; waits for at least one. Empty at its end."""
        if self._chunked and not self._left:
            self._next_chunk()
        if not self._left:
            return b""
        piece = self._file.read1(size if self._left < 0 else min(size, self._left))
        if self._left > 0:
            if not piece:
                raise Broken("the answer ends early")
            self._left -= len(piece)
        return piece

    def _next_chunk(self) -> None:
        """Read the length of the next chunk; the last one has none, and ends the body."""
        if not self._first and self._line():
            raise Broken("a chunk does not end where it should")
        self._first = False
        self._left = _number(self._line().partition(b";")[0].strip(), 16)
        if not self._left:
            self._chunked = False  # what follows is of no use: the connection is closed

    def _line(self) -> bytes:
        line = self._file.readline(LINE_MAX)
        if not line.endswith(b"\n"):
            raise Broken("the answer ends early")
        return line.rstrip(b"\r\n")

    def close(self) -> None:
        """Let go of the connection."""
        self._file.close()


def _number(digits: bytes, base: int) -> int:
    try:
        found = int(digits, base)
    except ValueError:
        found = -1
    if found < 0:
        raise Broken("a length that is no number")
    return found
