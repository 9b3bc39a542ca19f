"""The files and captured pictures of a run, opened for reading:
only those that Stoker lists for it, never through a link."""

from __future__ import annotations

import contextlib
import csv
import errno
import os
import stat
from collections.abc import Generator, Sequence
from dataclasses import dataclass
from functools import cached_property

from stoker.base import rundir
from stoker.base.errors import Denied, NotFound

PIECE = 1 << 18
IMAGES = {
    ".png": "image/png",
    ".jpg": "image/jpeg",
    ".jpeg": "image/jpeg",
    ".gif": "image/gif",
    ".webp": "image/webp",
    ".bmp": "image/bmp",
    ".svg": "image/svg+xml",
}
IMAGE_MAX = 32 << 20
TEXT_MAX = 64 << 10
TABLES = {".csv": ",", ".tsv": "\t"}
ROWS_MAX, COLUMNS_MAX = 500, 50
NAMES_MAX, STEPS_MAX = 200, 1000  # of captured pictures in a page


@dataclass(frozen=True)
class File:
    """One file of a run, as `show` lists it. `place`: None for a run on this machine; else "here",
    "outputs" or "there"; "run" for a file of the run folder."""

    run: dict
    path: str
    size: int
    place: str | None

    @property
    def image(self) -> str | None:
        """The media type, if a browser can show it as a picture."""
        kind = IMAGES.get(os.path.splitext(self.path)[1].lower())
        return kind if self.size <= IMAGE_MAX else None

    @cached_property
    def text(self) -> str | None:
        """The beginning of the file, if it is text."""
        data = bytearray()
        for piece in self.pieces():
            data += piece
            if len(data) > TEXT_MAX:
                break
        return None if b"\0" in data else data[:TEXT_MAX].decode("utf-8", "replace")

    @cached_property
    def table(self) -> list[list[str]] | None:
        """The first rows of a file of comma- or tab-separated values; None for any other file."""
        separator = TABLES.get(os.path.splitext(self.path)[1].lower())
        if separator is None or not self.text:
            return None
        lines = self.text.splitlines()[:ROWS_MAX + 1]
        if self.size > TEXT_MAX and len(lines) <= ROWS_MAX:
            lines = lines[:-1]  # the last one may be cut
        try:
            rows = [row[:COLUMNS_MAX] for row in csv.reader(lines, delimiter=separator) if row]
        except csv.Error:
            return None
        return rows if rows and len(rows[0]) > 1 else None

    def pieces(self) -> Generator[bytes]:
        """The bytes of the file. Raises NotFound or Denied before the first piece."""
        fd = _open_below(self._folder(), self.path)

        def read() -> Generator[bytes]:
            with open(fd, "rb") as f:
                while piece := f.read(PIECE):
                    yield piece
        return read()

    def _folder(self) -> str:
        """The folder on this machine that it lies in. Raises NotFound."""
        kept = (self.run.get("outputs") or {}).get("kept_in")
        found = {
            None: self.run["workdir"],
            "here": self.run["spec"]["folder"],
            "outputs": kept,
            "run": self.run["folder"],
        }.get(self.place)
        if not found:
            raise NotFound(f"{self.path} is still on the machine {self.run['target']}.",
                           hint=f"To copy the file to this machine: stoker pull {self.run['ref']} "
                                f"{self.path}")
        return found


def find(run: dict, path: str) -> File:
    """The listed file with this path. Raises NotFound for any other path."""
    for each in run["files"] or ():
        if each["path"] == path:
            return File(run, path, each["bytes"] or 0, each.get("place"))
    raise NotFound(
        f"{run['name']} did not make or change a file '{path}'.",
        hint=f"To list the files of the run: stoker show {run['name']}",
    )


def here(run: dict) -> bool:
    """True if the run folder is on this machine."""
    return run["target"] == "local"


def picture(run: dict, path: str) -> File:
    """The captured picture with this path in the run folder. Raises NotFound for a path outside of the
    picture folders."""
    if not rundir.PICTURE.fullmatch(path):
        raise NotFound(f"{run['name']} has no picture '{path}'.")
    return File(run, path, 0, "run")


def by_name(run: dict, pictures: Sequence[dict]) -> list[dict]:
    """`[{"name", "source", "axis", "steps": [[step, path]]}]`: the newest stored pictures of each name, in
    the order of their steps. If a run has too many pictures, the oldest are deleted."""
    found: dict[tuple[str, str], dict] = {}
    for each in pictures:
        if not here(run) or os.path.lexists(os.path.join(run["folder"], each["path"])):
            told = found.setdefault(
                (each["source"], each["name"]),
                {**{key: each[key] for key in ("name", "source", "axis")}, "steps": []},
            )
            told["steps"].append([each["step"], each["path"]])
    for told in found.values():
        told["steps"] = sorted(told["steps"], key=lambda step: step[0] or 0)[-STEPS_MAX:]
    return list(found.values())[:NAMES_MAX]


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
            raise Denied(f"{path} is a link, or is in a linked folder.") from e
        raise NotFound(f"{path} cannot be read: {e.strerror}.") from e
    if not stat.S_ISREG(os.fstat(fd).st_mode):
        os.close(fd)
        raise Denied(f"{path} is not a plain file.")
    return fd
