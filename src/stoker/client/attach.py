"""The client's end of an attachment: frames to and from a run,
over a WebSocket on the server's unix socket."""

from __future__ import annotations

import json
import select
import socket
import threading
import time
from collections.abc import Iterator

from websockets.client import ClientProtocol
from websockets.frames import Frame, Opcode
from websockets.protocol import State
from websockets.uri import parse_uri

from stoker.base.errors import ServerError, from_json

HELLO_S = 60.0  # for the server's first answer
PIECE = 1 << 16
MESSAGE_MAX = 32 << 20


class Attached:
    """The live streams of a run. One thread may `send` while another calls `recv`; any thread may call
    `close`.
    `attempt`, `out` and `err` follow the received data. After a broken connection, or after a restart of
    the run, a new `Client.attach` with these values continues without a gap."""

    def __init__(
        self, link: socket.socket, path: str, *, attempt: int | None = None, out: int = 0, err: int = 0
    ) -> None:
        self.attempt, self.out, self.err = attempt, out, err
        self.ended = False  # True once the exit frame has come
        self._link = link
        self._protocol = ClientProtocol(parse_uri("ws://stoker" + path), max_size=MESSAGE_MAX)
        self._thinking = threading.Lock()  # around the protocol: never held while waiting
        self._writing = threading.Lock()  # around the socket: held while the run takes no input
        # around the other end of it, so that its number is not given away under a reader
        self._reading = threading.Lock()
        self._waiting: list[tuple[str, bytes | dict]] = []
        self._closed = False
        self._readable = select.poll()
        self._readable.register(link, select.POLLIN)
        try:
            self._shake_hands()
        except BaseException:
            link.close()
            raise

    def send(self, kind: str, payload: bytes = b"") -> None:
        """Send one frame: "i" input, "e" end of input, "w" window size, "s" signal, "k" stop. Blocks while
        the run does not read input."""
        with self._writing:
            with self._thinking:
                if self._protocol.state is not State.OPEN:
                    raise ServerError("The connection to the run is closed.", hint="To return: stoker attach")
                self._protocol.send_binary(kind.encode("ascii") + payload)
            try:
                self._flush()
            except OSError as e:
                raise ServerError(
                    "The connection to the run is closed.", hint="To return: stoker attach"
                ) from e

    def recv(self, timeout_s: float | None = None) -> tuple[str, bytes | dict] | None:
        """Return the next frame, or None after `timeout_s`. Raises an error that the server reports.
        ("m", JSON) metadata, first · ("o" | "r", bytes) of out.log / err.log · ("x", JSON) the exit, last
        · ("state", run) at the start and at each change until the attempt exists · ("closed", b"") when
        the connection has ended, and at each later call."""
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        while not self._waiting:
            left = None if deadline is None else max(0.0, deadline - time.monotonic())
            with self._reading:
                if self._closed:
                    return "closed", b""
                if not self._readable.poll(None if left is None else left * 1000):
                    return None
                self._read()
        kind, payload = self._waiting.pop(0)
        if kind == "error" and isinstance(payload, dict):
            raise from_json(payload)
        return kind, payload

    def __iter__(self) -> Iterator[tuple[str, bytes | dict]]:
        """The frames until the connection ends. Raises as `recv` does."""
        while True:
            frame = self.recv()
            if frame == ("closed", b""):
                return
            if frame is not None:
                yield frame

    def close(self) -> None:
        """Disconnect; the run continues. Frames that were sent before still reach the run."""
        with self._thinking:
            if self._protocol.state is State.OPEN:
                self._protocol.send_close(1000)
        self._flush_if_free()
        self._closed = True
        try:
            self._link.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass
        with self._reading:  # a reader was woken by that
            self._link.close()

    def __enter__(self) -> Attached:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def _shake_hands(self) -> None:
        """Open the connection and wait for the first message, which tells the state of the run or why it
        cannot be attached."""
        self._link.settimeout(HELLO_S)
        self._protocol.send_request(self._protocol.connect())
        self._flush()
        while not self._waiting and not self._closed and self._protocol.handshake_exc is None:
            self._read()
        if not self._waiting:
            raise ServerError("The Stoker server refused the connection, or ended before it answered.")
        kind, payload = self._waiting[0]
        if kind == "error" and isinstance(payload, dict):
            raise from_json(payload)
        self._link.settimeout(None)

    def _read(self) -> None:
        """Take what has arrived and sort it."""
        try:
            data = self._link.recv(PIECE)
        except TimeoutError as e:
            raise ServerError("The Stoker server did not answer.") from e
        except OSError:
            data = b""
        with self._thinking:
            if data:
                self._protocol.receive_data(data)
            else:
                self._protocol.receive_eof()
                self._closed = True
            events = self._protocol.events_received()
        for event in events:
            if isinstance(event, Frame):
                self._sort(event)
        self._flush_if_free()  # an answer to a ping or a close

    def _flush_if_free(self) -> None:
        """Send what waits, unless somebody is writing: he will send it along."""
        if not self._writing.acquire(blocking=False):
            return
        try:
            self._flush()
        except OSError:
            pass
        finally:
            self._writing.release()

    def _sort(self, frame: Frame) -> None:
        if frame.opcode is Opcode.CLOSE:
            self._closed = True
        elif frame.opcode is Opcode.TEXT:
            for kind, body in json.loads(bytes(frame.data)).items():
                self._waiting.append((kind, body))
        elif frame.opcode is Opcode.BINARY:
            self._take(chr(frame.data[0]), bytes(frame.data[1:]))

    def _take(self, kind: str, payload: bytes) -> None:
        if kind == "o":
            self.out += len(payload)
        elif kind == "r":
            self.err += len(payload)
        elif kind == "m":
            meta = json.loads(payload)
            self.attempt, self.out, self.err = (
                meta["attempt"],
                meta.get("out", self.out),
                meta.get("err", self.err),
            )
        elif kind == "x":
            self.ended = True
        self._waiting.append((kind, payload))

    def _flush(self) -> None:
        with self._thinking:
            pieces = self._protocol.data_to_send()
        for piece in pieces:
            if piece:
                self._link.sendall(piece)
