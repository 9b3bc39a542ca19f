"""The files that a run made or changed, on its machine: which there are, and their bytes.
Where they go is in outputs.py."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator, Sequence

from stoker.base.errors import NotFound, StateError, TargetError
from stoker.hosts.base import Stream
from stoker.plane import present
from stoker.plane.record import Run
from stoker.plane.run_folder import RunFolder
from stoker.plane.staging import outputs
from stoker.plane.targets import Target

PIECE = 1 << 18
END_S = 20.0  # for the exit code of a stream whose bytes have ended


def files(run: Run, target: Target) -> tuple[list[dict], str]:
    """Files of its copy that a run created or changed, each `{"path", "size", "mtime_ns", "kind", "sent"}`,
    and why the list is incomplete, if it is.
    `sent`: size, time and perhaps checksum of the file that was sent to this path, as recorded here.
    Raises StateError for a run that has not begun, NotFound if its folder is gone, TargetError."""
    if not present.begun(run):
        raise StateError(
            f"{run.name} has not started, so it has no files yet.",
            hint=f"stoker show {present.typed_ref(run.name)}",
        )
    folder = RunFolder.ask(target.backend, run.id, [("made", run.created_at, None)])
    if folder.seen is not None and folder.seen.phase == "absent":
        raise NotFound(
            f"The folder of {run.name} is missing on {run.target}.",
            hint=f"stoker show {present.typed_ref(run.name)}",
        )
    told, cut = folder.made(run.created_at, None)
    found = list({each["path"]: each for each in told if outputs.is_sound(each)}.values())
    sent = target.sent(run.id) if any(each["kind"] == "changed" for each in found) else {}
    return [{**each, "sent": sent.get(each["path"])} for each in found], cut


class Sending:
    """The bytes of a stream as they arrive. Another thread may call `close` while `next` blocks."""

    def __init__(self, target: Target, run: Run, wanted: Sequence[tuple[str, int]]) -> None:
        self._target, self._run, self._wanted = target, run, wanted
        self._lock = threading.Lock()
        self._stream: Stream | None = None
        self._closed = False

    def __iter__(self) -> Iterator[bytes]:
        return self

    def __next__(self) -> bytes:
        if self._stream is None and not self._closed:
            self._begin()
        data = b""
        with contextlib.suppress(OSError, ValueError):  # closed under our hands
            stream = self._stream
            data = b"" if self._closed or stream is None else stream.stdout.read(PIECE)
        if data:
            return data
        if not self._closed:
            self._check()
        raise StopIteration

    def _begin(self) -> None:
        stream = self._target.backend.send(self._run.id, self._wanted)
        with self._lock:
            self._stream = stream
            closed = self._closed
        if closed:
            stream.close()

    def _check(self) -> None:
        """Raises TargetError unless the stream ended as it should."""
        stream = self._stream
        if stream is None:
            return
        code = stream.wait(END_S)
        if code != 0:
            said = stream.stderr_tail().strip().splitlines()
            raise TargetError(
                f"The files of {self._run.name} could not be read completely: "
                f"{said[-1] if said else f'exit code {code}'}."
            )

    def close(self) -> None:
        """End the iteration."""
        with self._lock:
            self._closed = True
            stream = self._stream
        if stream is not None:
            stream.close()
