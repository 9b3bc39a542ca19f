"""The verb `follow`: many growing logs on one stream. A reader that is slow holds up only its own log.

Orders come as lines of JSON on stdin: {"key", "run", "attempt", "which", "offset"} adds a log, {"key",
"credit"} allows so many more bytes of it, {"key", "drop": true} ends it.
Frames go to stdout (struct >cII: kind, key, size):
d bytes of a log, e its end, a JSON object that is empty or says the error. It ends with stdin.
"""

from __future__ import annotations

import json
import os
import select
import struct

from .attempts import existing_attempt
from .following import Changes, Following, Log
from .words import ERR, OUT, Problem, arguments, valid_id
from .writing import write_all

PIECE = 65536
ORDER_MAX = 65536  # bytes of one order
QUIET_MS = 500  # between two looks at logs that nothing was told of
BLIND_MS = 30  # where the kernel does not tell of changes


class Followed:
    """One log on the stream."""

    def __init__(self, runs: str, order: dict) -> None:
        if not valid_id(str(order.get("run"))) or order.get("which") not in ("out", "err"):
            raise Problem("usage", "the request does not name a log")
        att = existing_attempt(os.path.join(runs, str(order["run"])), str(order.get("attempt")))
        self.log = Log(att.path(OUT if order["which"] == "out" else ERR), int(order.get("offset") or 0))
        self.credit = int(order.get("credit") or 0)
        self.changes = Changes(att.folder)
        self.following = Following(att)

    def take(self) -> tuple[bytes, bool]:
        """What is new, as far as the credit allows; whether the log has ended."""
        if self.credit <= 0:
            return b"", False
        over = self.following.over()
        data = self.log.read(min(PIECE, self.credit))
        self.credit -= len(data)
        return data, over and not data

    def close(self) -> None:
        """Give its descriptors back."""
        for fd in (self.log.fd, self.changes.fd):
            if fd >= 0:
                os.close(fd)


class Channel:
    """All logs of the stream, by their keys."""

    def __init__(self, runs: str) -> None:
        self.runs = runs
        self.logs: dict[int, Followed] = {}
        self.rest = b""  # of orders

    def live(self) -> None:
        """Until stdin has ended. Raises BrokenPipeError when nobody reads any more."""
        open_ = True
        while open_:
            more = False
            for key in list(self.logs):
                more = self._send_some(key) or more
            open_ = self._wait(0 if more else self._pause_ms())

    def _send_some(self, key: int) -> bool:
        """A piece of one log; True when there may be more of it at once."""
        followed = self.logs[key]
        try:
            data, ended = followed.take()
        except OSError as e:
            self._end(key, {"error": "system", "detail": str(e)})
            return False
        if data:
            frame(b"d", key, data)
        if ended:
            self._end(key, {})
        return bool(data)

    def _end(self, key: int, told: dict) -> None:
        followed = self.logs.pop(key, None)
        if followed is not None:
            followed.close()
        frame(b"e", key, json.dumps(told).encode())

    def _pause_ms(self) -> int:
        return BLIND_MS if any(each.changes.fd < 0 for each in self.logs.values()) else QUIET_MS

    def _wait(self, pause_ms: int) -> bool:
        """Until a log changes or an order comes; False when stdin has ended."""
        poller = select.poll()
        poller.register(0, select.POLLIN)
        poller.register(1, 0)
        for each in self.logs.values():
            if each.changes.fd >= 0 and each.credit > 0:
                poller.register(each.changes.fd, select.POLLIN)
        ready = [fd for fd, _ in poller.poll(pause_ms)]
        for each in self.logs.values():
            if each.changes.fd in ready:
                each.changes.clear()
        return 1 not in ready and (0 not in ready or self._read_orders())

    def _read_orders(self) -> bool:
        data = os.read(0, PIECE)
        if not data:
            return False
        *lines, self.rest = (self.rest + data).split(b"\n")
        if len(self.rest) > ORDER_MAX:
            raise Problem("usage", "a request is too long")
        for line in lines:
            self._obey(line)
        return True

    def _obey(self, line: bytes) -> None:
        try:
            order = json.loads(line.decode())
            key = int(order["key"])
        except (ValueError, KeyError, TypeError):
            raise Problem("usage", verb_follow.__doc__ or "") from None
        followed = self.logs.get(key)
        if "run" in order and followed is None:
            try:
                self.logs[key] = Followed(self.runs, order)
            except Problem as e:
                self._end(key, {"error": e.error, "detail": e.detail})
            except (ValueError, TypeError):
                self._end(key, {"error": "usage", "detail": "the request does not name a log"})
        elif followed is not None and order.get("drop"):
            self.logs.pop(key).close()
        elif followed is not None:
            followed.credit += int(order.get("credit") or 0)


def frame(kind: bytes, key: int, payload: bytes) -> None:
    """One frame to stdout."""
    write_all(1, struct.pack(">cII", kind, key, len(payload)) + payload)


def verb_follow(args: list[str]) -> None:
    """follow ROOT, with orders as lines of JSON on stdin: many growing logs as frames on stdout"""
    (root,), _ = arguments(args, 1, {})
    Channel(os.path.join(root, "runs")).live()
