"""As much HTTP/1.1 as our own server speaks, in a tenth of the import time of http.client, which every command would pay."""

from __future__ import annotations

import socket

LINE_MAX = 1 << 16
PIECE = 1 << 16
_PLAIN = frozenset(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~")


class Broken(Exception):
    """The answer ended too early, or is not HTTP."""


def request(method: str, target: str, body: bytes | None) -> bytes:
    """The bytes of a request; its connection carries no second one."""
    head = f"{method} {target} HTTP/1.1\r\nHost: stoker\r\nConnection: close\r\n"
    if body is not None:
        head += f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n"
    return head.encode("ascii") + b"\r\n" + (body or b"")


class Answer:
    """An answer that is read from a connection: `status`, then the body in pieces or whole. Raises Broken and OSError."""

    def __init__(self, link: socket.socket) -> None:
        self._file = link.makefile("rb", PIECE)
        try:
            version, status = self._line().split(b" ")[:2]
            if not version.startswith(b"HTTP/1."):
                raise ValueError
            self.status = int(status)
            headers = self._headers()
            self._chunked = headers.get(b"transfer-encoding", b"").lower() == b"chunked"
            self._left = int(headers.get(b"content-length", b"0"))  # of the body, or of the chunk
        except ValueError as e:
            raise Broken("not HTTP") from e
        self._over = not self._chunked and not self._left

    def read1(self) -> bytes:
        """The next piece as soon as there is one; b"" at the end."""
        if self._chunked and not self._left and not self._over:
            self._next_chunk()
        if self._over:
            return b""
        piece = self._file.read1(min(self._left, PIECE))
        if not piece:
            raise Broken("it ended too early")
        self._left -= len(piece)
        if not self._left:
            if self._chunked:
                self._line()
            else:
                self._over = True
        return piece

    def read(self) -> bytes:
        """All that is left."""
        return b"".join(iter(self.read1, b""))

    def close(self) -> None:
        self._file.close()

    def _next_chunk(self) -> None:
        try:
            self._left = int(self._line().partition(b";")[0], 16)
        except ValueError as e:
            raise Broken("not a chunk") from e
        if not self._left:
            self._over = True

    def _headers(self) -> dict[bytes, bytes]:
        found = {}
        while line := self._line():
            name, _, value = line.partition(b":")
            found[name.strip().lower()] = value.strip()
        return found

    def _line(self) -> bytes:
        line = self._file.readline(LINE_MAX)
        if not line.endswith(b"\n"):
            raise Broken("it ended too early")
        return line.rstrip(b"\r\n")


def quoted(text: str) -> str:
    """`text` for a path or a query: UTF-8, odd bytes (surrogate escapes) as the bytes they are."""
    try:
        raw = text.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:
        raw = text.encode("utf-8", "replace")  # no file and no run has such a name
    return "".join(chr(b) if b in _PLAIN else f"%{b:02X}" for b in raw)
