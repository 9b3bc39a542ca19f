"""This machine, as a host like any other: processes, copies, and nothing the others could not do too."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from stoker.base.errors import NotFound, StokerError, TargetError
from stoker.hosts import tree
from stoker.hosts.base import (
    SCARCE,
    Finished,
    Host,
    Stream,
    converse,
    end_group,
    scarce,
    shell_code,
    spawn,
    timed_out,
    too_much,
)
from stoker.hosts.relay import relay


class LocalHost(Host):
    """The machine of this process."""

    name = "local"

    def run(self, argv: Sequence[str], *, stdin: bytes = b"", timeout_s: float = 60) -> Finished:
        try:
            process = spawn(argv, cwd=self.home())
        except OSError as e:
            return _not_started(argv, e)
        with process:
            try:
                out, err = converse(process, stdin, timeout_s, f"'{os.path.basename(argv[0])}'")
            except subprocess.TimeoutExpired:
                end_group(process)
                raise timed_out(argv, self.name, timeout_s) from None
            except BaseException:
                end_group(process)
                raise
        return Finished(shell_code(process.returncode), out, err)

    def open(self, argv: Sequence[str]) -> Stream:
        try:
            return Stream(spawn(argv, cwd=self.home()), self.name)
        except OSError as e:
            if e.errno in SCARCE:
                raise scarce(e) from e
            raise TargetError(f"'{argv[0]}' cannot be started: {e.strerror}.", retry=False) from e

    def put(self, source: Path, target: str) -> None:
        self._copy(source, os.path.join(self.home(), target))

    def get(self, source: str, target: Path, limit: int | None = None) -> None:
        path = os.path.join(self.home(), source)
        if limit is not None and os.path.isfile(path) and os.path.getsize(path) > limit:
            raise too_much(path, limit)
        self._copy(path, target)

    def give(self, source: Path, target: str) -> None:
        """Move by rename if source and target are on one file system."""
        with _explained():
            if tree.move(source, os.path.join(self.home(), target)):
                return
        self.put(source, target)

    def _copy(self, source: Path | str, target: Path | str) -> None:
        with _explained():
            tree.copy(source, target)

    @contextmanager
    def forward(self, port_or_socket: str) -> Iterator[Path]:
        if port_or_socket.isdigit():
            with relay(int(port_or_socket)) as path:
                yield path
        else:
            yield Path(os.path.join(self.home(), port_or_socket))

    def python(self) -> str:
        """The base interpreter of Stoker's virtual environment, which remains if the environment is
        replaced."""
        return getattr(sys, "_base_executable", None) or sys.executable

    def home(self) -> str:
        folder = os.path.expanduser("~")
        return folder if os.path.isdir(folder) else "/"

    def close(self) -> None:
        """Does nothing: no connection is open."""


def _not_started(argv: Sequence[str], error: OSError) -> Finished:
    """What a shell would say of a program that cannot be started."""
    if error.errno in SCARCE:
        raise scarce(error) from error
    if isinstance(error, (FileNotFoundError, NotADirectoryError)):
        return Finished(127, b"", os.fsencode(f"{argv[0]}: not found\n"))
    return Finished(126, b"", os.fsencode(f"{argv[0]}: {error.strerror}\n"))


@contextmanager
def _explained() -> Iterator[None]:
    """The errors of `tree` in Stoker's words."""
    try:
        yield
    except (OSError, tree.Exists, tree.Torn) as e:
        raise explain_tree_error(e) from e


def explain_tree_error(error: OSError | tree.Exists | tree.Torn) -> StokerError:
    """The error for a failed transfer, in one sentence."""
    if isinstance(error, FileNotFoundError):
        return NotFound(f"There is no file or folder {error.filename!s}.", hint="Check the path.")
    if isinstance(error, tree.Exists):
        return TargetError(
            f"{error}; Stoker did not replace it.",
            hint="Remove that file or folder, or choose another name.",
            retry=False,
        )
    if isinstance(error, tree.Torn):
        return TargetError(
            f"The copy was interrupted: {error}.", hint="The partial copy was removed; try again.", retry=True
        )
    where = f" ({os.fsdecode(error.filename)})" if error.filename else ""
    return TargetError(f"The copy failed: {error.strerror or error}{where}.", retry=False,
                       hint="Check the free space and the owner of the folder.")
