"""The near end of the agent's `follow`: many growing logs of one machine on one stream, since an sshd allows
only a few at once."""

from __future__ import annotations

import itertools
import json
import struct
import threading
import time
from collections import deque
from collections.abc import Callable

from stoker.base.errors import TargetError
from stoker.hosts.base import Stream

WINDOW = 1 << 20  # bytes of a log that may be on their way or unread here
HEAD = struct.Struct(">cII")
FRAME_MAX = 1 << 20
END_S = 5.0
_ERROR = 1  # exit code of a log that could not be read


class Channels:
    """One connection per machine for all its logs: opened for the first log, closed after the last."""

    def __init__(self, open_: Callable[[], Stream]) -> None:
        self._open = open_
        self._lock = threading.Lock()
        self._channel: _Channel | None = None
        self._failure = (0.0, TargetError())

    def follow(self, run_id: str, attempt: int, which: str, offset: int) -> FollowedLog:
        """Stream a log from an offset until its attempt has ended. Raises TargetError if the machine
        cannot be reached."""
        asked = time.monotonic()
        order = {"run": run_id, "attempt": attempt, "which": which, "offset": offset}
        with self._lock:
            log = self._channel.add(order) if self._channel is not None else None
            while log is None:
                self._channel = self._begin(asked)
                log = self._channel.add(order)
            return log

    def _begin(self, asked: float) -> _Channel:
        """A new channel; what failed since it was asked for fails for all who waited meanwhile."""
        failed_at, failure = self._failure
        if failed_at > asked:
            raise TargetError(failure.message, hint=failure.hint, retry=failure.retry)
        try:
            return _Channel(self._open())
        except TargetError as e:
            self._failure = (time.monotonic(), e)
            raise

    def close(self) -> None:
        """Close the open connections."""
        with self._lock:
            channel, self._channel = self._channel, None
        if channel is not None:
            channel.close()


class _Channel:
    """The stream, and a thread that deals out what comes."""

    def __init__(self, stream: Stream) -> None:
        self._stream = stream
        self._ended = False  # the last log is gone, or the stream
        self._lock = threading.Lock()
        self._logs: dict[int, FollowedLog] = {}
        self._keys = itertools.count(1)
        self._thread = threading.Thread(target=self._run, name=f"logs-{stream.pid}", daemon=True)
        self._thread.start()

    def add(self, order: dict) -> FollowedLog | None:
        """One more log; None when the channel has ended."""
        key = next(self._keys)
        log = FollowedLog(self, key, self._stream.pid)
        with self._lock:
            if self._ended:
                return None
            self._logs[key] = log
        self.tell({"key": key, **order, "credit": WINDOW})
        return log

    def tell(self, order: dict) -> None:
        """Give an order; when the stream is broken the reading end finds out."""
        data = memoryview(json.dumps(order).encode("ascii") + b"\n")
        with self._lock:
            try:
                while data:
                    data = data[self._stream.stdin.write(data):]
            except (OSError, ValueError):
                pass

    def drop(self, key: int) -> None:
        """Nobody reads this log any more; after the last one the stream is closed."""
        with self._lock:
            known = self._logs.pop(key, None) is not None
            last = known and not self._logs
            self._ended = self._ended or last
        if last:
            self.close()
        elif known:
            self.tell({"key": key, "drop": True})

    def close(self) -> None:
        """End the stream; logs that are still read are cut."""
        with self._lock:
            self._ended = True
        self._stream.close()
        if self._thread is not threading.current_thread():
            self._thread.join(END_S)

    def _run(self) -> None:
        try:
            while (head := self._read(HEAD.size)) is not None:
                kind, key, size = HEAD.unpack(head)
                if size > FRAME_MAX or (body := self._read(size)) is None:
                    break
                with self._lock:
                    log = self._logs.get(key)
                if log is not None:
                    log.came(kind, body)
        finally:
            with self._lock:
                self._ended = True
                left = list(self._logs.values())
            for log in left:
                log.was_cut()

    def _read(self, size: int) -> bytes | None:
        """Exactly so many bytes; None at the end of the stream."""
        found = bytearray()
        while len(found) < size:
            try:
                data = self._stream.stdout.read(size - len(found))
            except (OSError, ValueError):  # closed under our hands
                return None
            if not data:
                return None
            found += data
        return bytes(found)


class FollowedLog:
    """One log of a channel, with the interface of Stream: `.stdout.read`, `wait`, `stderr_tail`, `close`."""

    def __init__(self, channel: _Channel, key: int, pid: int) -> None:
        self.pid = pid
        self.stdout = self
        self._channel, self._key = channel, key
        self._news = threading.Condition()
        self._pieces: deque[bytes] = deque()
        self._code: int | None = None
        self._said = ""
        self._read_bytes = 0  # that the far end has not been told of
        self._cut = self._closed = False

    def read(self, size: int) -> bytes:
        """The next bytes, at most `size`; waits for them. Empty at the end."""
        with self._news:
            self._news.wait_for(lambda: self._pieces or self._over)
            if not self._pieces:
                return b""
            data = self._pieces.popleft()
            if len(data) > size:
                self._pieces.appendleft(data[size:])
                data = data[:size]
        self._read_bytes += len(data)
        if self._read_bytes >= WINDOW // 4:
            self._channel.tell({"key": self._key, "credit": self._read_bytes})
            self._read_bytes = 0
        return data

    def wait(self, timeout_s: float | None = None) -> int | None:
        """Return 0 after the end of the log, or None if it has not ended after `timeout_s`. Raises
        TargetError(retry=True) if the connection was cut."""
        with self._news:
            if not self._news.wait_for(lambda: self._over, timeout_s):
                return None
            if self._cut and not self._closed:
                raise TargetError(
                    "The connection to the machine was cut.",
                    hint="Try again; runs on that machine are not affected.",
                )
            return self._code or 0

    def stderr_tail(self) -> str:
        """Why the log could not be read."""
        return self._said

    def close(self) -> None:
        """Stop reading. A `read` that blocks in another thread returns. Can be repeated."""
        with self._news:
            self._closed = True
            self._news.notify_all()
        self._channel.drop(self._key)

    @property
    def _over(self) -> bool:
        return self._code is not None or self._cut or self._closed

    def came(self, kind: bytes, body: bytes) -> None:
        """Called by the channel with a frame for this log."""
        with self._news:
            if kind == b"d":
                self._pieces.append(body)
            else:
                told = json.loads(body)
                self._said = str(told.get("detail") or told.get("error") or "")
                self._code = _ERROR if told else 0
            self._news.notify_all()

    def was_cut(self) -> None:
        """Called if the stream ended before this log."""
        with self._news:
            self._cut = self._code is None
            self._news.notify_all()

    def __enter__(self) -> FollowedLog:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()
