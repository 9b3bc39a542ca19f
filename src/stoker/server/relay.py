"""The attach relay: one WebSocket of a client, one stream of a back end, frames both ways,
nobody faster than the other side.

Binary messages are the frames of agent/door.py (kind byte, payload).
Text messages come from the server only:
`{"state": run}` first and at each change until the attempt exists, `{"error":
...}` before it gives up, `{}` to find out whether the client lives.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
from typing import Any, BinaryIO, NoReturn, Protocol

import anyio
from anyio.to_thread import run_sync
from starlette.websockets import WebSocket, WebSocketDisconnect, WebSocketState

from stoker.base.errors import InvalidSpec, StateError, StokerError, TargetError
from stoker.base.state import State
from stoker.plane.service import Service
from stoker.server.answers import unknown_error
from stoker.server.streams import STREAMS

FRAME_MAX = 16 << 20
READ_AHEAD = 1 << 18  # bytes that wait in the server when the client is slow
FIRST_LOOK_S, LONGEST_LOOK_S = 0.02, 0.5  # how soon a new attempt is noticed; grows while nothing happens
BEAT_S = 4.0  # a client that died while its input was held back is noticed after two of these
GOODBYE_S = 0.3  # for what a leaving client sent last to reach the run
TO_AGENT = b"iewsk"
EXIT = b"x"

log = logging.getLogger(__name__)


class Stream(Protocol):
    """What the service attaches to: the agent's end."""

    @property
    def stdin(self) -> BinaryIO:
        """What it is told, as frames."""

    @property
    def stdout(self) -> BinaryIO:
        """What it tells, as frames."""

    def close(self) -> None:
        """End it."""


class Relay:
    """One attachment. `run` returns when either side has disconnected and the stream to the agent is
    closed."""

    def __init__(self, socket: WebSocket, plane: Service, ref: str, **where: Any) -> None:
        self._socket, self._plane, self._ref = socket, plane, ref
        self._where = where  # attempt, out, err, input
        self._stream: Stream | None = None  # the back end's

    async def run(self) -> None:
        await self._socket.accept()
        inbox = _Inbox(self._socket)
        try:
            await _first(self._serve(inbox), self._beat())
            await self._close(1000)
        except WebSocketDisconnect:
            pass
        except StokerError as e:
            await self._fail(e)
        except Exception as e:
            log.exception("attach of %s failed", self._ref)
            await self._fail(unknown_error(e))
        finally:
            inbox.close()
            if self._stream:
                with anyio.CancelScope(shield=True):
                    await _call(self._stream.close)

    async def _serve(self, inbox: _Inbox) -> None:
        stream = await self._await_attempt(inbox)
        if stream is None:
            return
        loop = asyncio.get_running_loop()
        reader = asyncio.StreamReader(READ_AHEAD)
        source, _ = await loop.connect_read_pipe(
            lambda: asyncio.StreamReaderProtocol(reader), stream.stdout
        )
        try:
            sink, flow = await loop.connect_write_pipe(
                lambda: asyncio.StreamReaderProtocol(asyncio.StreamReader()), stream.stdin
            )
            try:
                await _first(
                    self._to_client(reader), _to_agent(asyncio.StreamWriter(sink, flow, None, loop), inbox)
                )
            except WebSocketDisconnect:
                sink.close()
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(GOODBYE_S):
                        while await reader.read(READ_AHEAD):
                            pass
                raise
            finally:
                sink.abort() if sink.get_write_buffer_size() else sink.close()
        finally:
            source.close()

    async def _await_attempt(self, inbox: _Inbox) -> Stream | None:
        """The stream, open; None when the run became final without that attempt.
        The client hears of each change."""
        told, pause = None, FIRST_LOOK_S
        while True:
            seen = await _call(self._plane.run, self._ref)
            if seen != told:
                await self._socket.send_text(json.dumps({"state": seen}))
                told, pause = seen, FIRST_LOOK_S
            if stream := await _call(self._open):
                return stream
            if State(seen["state"]).final:
                return None
            await inbox.left(pause)
            pause = min(pause * 1.2, LONGEST_LOOK_S)

    def _open(self) -> Stream | None:
        try:
            # kept even if nobody waits for this call any more
            self._stream = self._plane.attach(self._ref, **self._where)
        except StateError:
            return None
        return self._stream

    async def _to_client(self, reader: asyncio.StreamReader) -> None:
        kind = b""
        while True:
            try:
                head = await reader.readexactly(5)
                kind, size = head[:1], int.from_bytes(head[1:], "big")
                if size > FRAME_MAX:
                    raise TargetError(f"The agent sent an invalid frame of {size} bytes.", retry=False)
                await self._socket.send_bytes(kind + await reader.readexactly(size))
            except asyncio.IncompleteReadError:
                break
        if kind != EXIT:
            raise TargetError(
                "The connection to the run was lost. The run continues.", hint="stoker attach " + self._ref
            )

    async def _beat(self) -> None:
        while True:
            await asyncio.sleep(BEAT_S)
            await self._socket.send_text("{}")

    async def _fail(self, error: StokerError) -> None:
        with contextlib.suppress(WebSocketDisconnect, RuntimeError):
            await self._socket.send_text(json.dumps({"error": error.to_json()}))
        await self._close(1011)

    async def _close(self, code: int) -> None:
        if self._socket.application_state is WebSocketState.CONNECTED:
            with contextlib.suppress(WebSocketDisconnect, RuntimeError):
                await self._socket.close(code)


async def _to_agent(writer: asyncio.StreamWriter, inbox: _Inbox) -> None:
    """Hand on what the client sends, until it leaves (WebSocketDisconnect)."""
    while True:
        frame = await inbox.get()
        if not frame or frame[0] not in TO_AGENT:
            raise InvalidSpec("The client sent a frame of unknown type.")
        # the run takes no more input; its output may still come
        with contextlib.suppress(ConnectionError, RuntimeError):
            writer.write(frame[:1] + (len(frame) - 1).to_bytes(4, "big") + frame[1:])
            await writer.drain()


class _Inbox:
    """What the client sends, at most one message ahead of what is handed on,
    so that a slow run slows its client."""

    def __init__(self, socket: WebSocket) -> None:
        self._messages: asyncio.Queue[bytes] = asyncio.Queue(1)
        self._reader = asyncio.ensure_future(self._read(socket))

    async def _read(self, socket: WebSocket) -> NoReturn:
        while True:
            message = await socket.receive()
            if message["type"] == "websocket.disconnect":
                raise WebSocketDisconnect(message.get("code", 1005))
            await self._messages.put(message.get("bytes") or b"")

    async def get(self) -> bytes:
        """The next message. Raises WebSocketDisconnect when the client has gone and all was taken."""
        coming = asyncio.ensure_future(self._messages.get())
        try:
            await asyncio.sleep(0)
            await asyncio.wait({coming, self._reader}, return_when=asyncio.FIRST_COMPLETED)
            return coming.result() if coming.done() else self._reader.result()
        finally:
            coming.cancel()

    async def left(self, timeout_s: float) -> None:
        """Wait that long; raise WebSocketDisconnect as soon as the client has gone."""
        await asyncio.wait({self._reader}, timeout=timeout_s)
        if self._reader.done():
            self._reader.result()

    def close(self) -> None:
        self._reader.cancel()
        if self._reader.done() and not self._reader.cancelled():
            self._reader.exception()  # so that asyncio does not report it as forgotten


async def _first(*work) -> None:
    """Run all, end the rest when the first has ended, and raise what the first raised."""
    tasks = [asyncio.ensure_future(w) for w in work]
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    for task in done:
        task.result()


async def _call(verb, *args):
    return await run_sync(verb, *args, limiter=STREAMS)
