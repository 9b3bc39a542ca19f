"""The server's end of a connection: uvicorn's, and a clock for a client that connects and does not ask."""

from __future__ import annotations

import asyncio

from uvicorn.protocols.http.h11_impl import H11Protocol

HEAD_S = 10.0  # from the connection, or from the first byte of a further request, until its head is there


class Patient(H11Protocol):
    """Disconnects a client that does not complete the headers of a request within HEAD_S."""

    _clock: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as uvicorn has it
        super().connection_made(transport)
        self._mind()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        self._mind()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop()
        super().connection_lost(exc)

    def _mind(self) -> None:
        waits = (self.cycle is None or self.cycle.response_complete) and self.transport.get_protocol() is self
        if not waits:
            self._stop()
        elif self._clock is None:
            self._clock = self.loop.call_later(HEAD_S, self.transport.close)

    def _stop(self) -> None:
        if self._clock is not None:
            self._clock.cancel()
            self._clock = None
