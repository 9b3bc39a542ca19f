"""One watch stream a machine: a thread that reads observations and connects again, with growing pauses, when
the stream breaks."""

from __future__ import annotations

import contextlib
import json
import logging
import select
import threading
import time
from collections.abc import Callable, Iterator

from stoker.backends.base import Observation
from stoker.base.errors import StokerError
from stoker.hosts.base import ANSWER_MAX, Stream
from stoker.plane.targets import Targets

log = logging.getLogger(__name__)

LINE_MAX = 1 << 20
PAUSE_FIRST_S, PAUSE_MAX_S = 1.0, 60.0
# a stream that stood so long was a good one; a machine that ends it sooner is polled,
# and not asked again and again
STEADY_S = 30.0
NONSENSE = (ValueError, KeyError, TypeError, RecursionError)  # of reading what is not an observation


def first_lines(stream: Stream, quiet_s: float = 2.0) -> Iterator[Observation]:
    """The first lines of a new stream: all active runs there, until no line came for `quiet_s`."""
    rest, first, left = b"", 30.0, ANSWER_MAX  # the connection may take its time
    while (
        left > 0 and select.select([stream.stdout], [], [], first)[0] and (data := stream.stdout.read(65536))
    ):
        first = quiet_s
        left -= len(data)
        *lines, rest = (rest + data).split(b"\n")
        for line in lines:
            with contextlib.suppress(*NONSENSE):
                yield Observation.from_json(json.loads(line))


class Watch:
    """Calls `told(target, observation)` for each line, in its own thread."""

    def __init__(self, name: str, targets: Targets, told: Callable[[str, Observation], None]) -> None:
        self.idle_since: float | None = None  # kept by the reconciler: since when nobody needs it
        self.connected = False
        self._name, self._targets, self._tell = name, targets, told
        self._closed = threading.Event()
        self._hurry = threading.Event()
        self._lock = threading.Lock()
        self._stream: Stream | None = None
        self._thread = threading.Thread(target=self._run, name=f"watch-{name}", daemon=True)

    def start(self) -> None:
        """Begin to read."""
        self._thread.start()

    def hurry(self) -> None:
        """The machine answers again: try again without a pause."""
        self._hurry.set()

    def close(self) -> None:
        """Stop reading; when this returns, the process of the stream has ended."""
        self._closed.set()
        self._hurry.set()
        with self._lock:
            stream = self._stream
        if stream is not None:
            stream.close()
        if self._thread is not threading.current_thread():
            self._thread.join(5)

    def _run(self) -> None:
        pause = PAUSE_FIRST_S
        while not self._closed.is_set():
            began = time.monotonic()
            try:
                stream = self._targets.get(self._name).backend.watch()
            except (StokerError, OSError, RuntimeError) as e:
                # unreachable, or no process or thread to be had
                log.warning("watch of %s: %s", self._name, e)
            else:
                with self._lock:
                    self._stream = stream
                heard = self._closed.is_set() or self._listen(stream)
                self.connected = False
                stream.close()
                if heard and time.monotonic() - began >= STEADY_S:
                    pause = PAUSE_FIRST_S
            if self._hurry.wait(pause):
                self._hurry.clear()
            pause = min(PAUSE_MAX_S, pause * 2)

    def _listen(self, stream: Stream) -> bool:
        """Read to the end of the stream; whether anything came."""
        heard, rest = False, b""
        while not self._closed.is_set():
            try:
                data = stream.stdout.read(65536)
            except (OSError, ValueError):  # closed under our hands
                return heard
            if not data:
                if not self._closed.is_set():
                    log.warning("watch of %s ended: %s", self._name, stream.stderr_tail().strip()[-500:])
                return heard
            heard = self.connected = True
            *lines, rest = (rest + data).split(b"\n")
            if len(rest) > LINE_MAX or not all([self._line(line) for line in lines]):
                log.warning("watch of %s is paused: the program on that machine is not an agent", self._name)
                return False
        return heard

    def _line(self, line: bytes) -> bool:
        """Hand on what it says; False for what is not an observation."""
        try:
            seen = Observation.from_json(json.loads(line))
        except NONSENSE:
            log.warning("watch of %s received data that is not valid: %.200r", self._name, line)
            return False
        try:
            self._tell(self._name, seen)
        except Exception:
            log.exception("watch of %s", self._name)
        return True
