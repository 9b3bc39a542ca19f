"""The files of a run, opened for reading: only those that Stoker lists for it, never through a link."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

from stoker.base.errors import Denied, NotFound, TargetError
from stoker.client import Client

PIECE = 1 << 18
IMAGES = {".png": "image/png", ".jpg": "image/jpeg", ".jpeg": "image/jpeg", ".gif": "image/gif", ".webp": "image/webp", ".bmp": "image/bmp",
          ".svg": "image/svg+xml"}
IMAGE_MAX = 32 << 20
TEXT_MAX = 64 << 10


@dataclass(frozen=True)
class File:
    """One file of a run, as `show` lists it. `pieces` gives its bytes, from this machine or another one."""

    client: Client
    run: dict
    path: str
    size: int

    @property
    def image(self) -> str | None:
        """The media type, if a browser can show it as a picture."""
        kind = IMAGES.get(os.path.splitext(self.path)[1].lower())
        return kind if self.size <= IMAGE_MAX else None

    @cached_property
    def text(self) -> str | None:
        """Its beginning, if that is text."""
        data = bytearray()
        for piece in self.pieces():
            data += piece
            if len(data) > TEXT_MAX:
                break
        return None if b"\0" in data else data[:TEXT_MAX].decode("utf-8", "replace")

    def pieces(self) -> Iterator[bytes]:
        """Its bytes. Raises NotFound, Denied, TargetError before the first piece."""
        return self._here() if self.run["target"] == "local" else self._there()

    def _here(self) -> Iterator[bytes]:
        fd = _open_below(self.run["workdir"], self.path)

        def read() -> Iterator[bytes]:
            with open(fd, "rb") as f:
                while piece := f.read(PIECE):
                    yield piece
        return read()

    def _there(self) -> Iterator[bytes]:
        from stoker.client_pull import frames

        coming = frames(self.client.send(self.run["id"], [(self.path, 0)]))
        kind, body = next(coming, (b"", b""))
        if kind != b"h":
            raise TargetError(f"{self.path} could not be read: {_why(body)}.")

        def read() -> Iterator[bytes]:
            for kind, body in coming:
                if kind == b"e":
                    return
                yield body
        return read()


def find(client: Client, run: dict, path: str) -> File:
    """The listed file of this path. Raises NotFound for any other path."""
    for each in run["files"] or ():
        if each["path"] == path:
            return File(client, run, path, each["bytes"] or 0)
    raise NotFound(f"{run['name']} made or changed no file '{path}'.", hint=f"Its files: stoker show {run['name']}")


def _why(body: bytes) -> str:
    try:
        return str(json.loads(body)["error"])
    except (ValueError, LookupError, TypeError):
        return "the machine sent nothing"


def _open_below(folder: str, path: str) -> int:
    """A plain file below a folder, with no link on the way. Raises NotFound, Denied."""
    parts = path.split("/")
    if "\0" in path or {"", ".", ".."} & set(parts):
        raise Denied(f"{path} is not a path in the folder of the run.")
    try:
        with contextlib.ExitStack() as opened:
            at = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            opened.callback(os.close, at)
            for name in parts[:-1]:
                at = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=at)
                opened.callback(os.close, at)
            fd = os.open(parts[-1], os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=at)
    except OSError as e:
        if e.errno in (errno.ELOOP, errno.ENOTDIR):
            raise Denied(f"{path} is a link, or leads through one.") from e
        raise NotFound(f"{path} cannot be read: {e.strerror}.") from e
    if not stat.S_ISREG(os.fstat(fd).st_mode):
        os.close(fd)
        raise Denied(f"{path} is not a plain file.")
    return fd
