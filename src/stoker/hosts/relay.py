"""A unix socket in front of a TCP port of this machine's loopback, for as long as someone wants it."""

from __future__ import annotations

import asyncio
import os
import shutil
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path


@contextmanager
def relay(port: int) -> Iterator[Path]:
    """Path of a private socket; each connection to it is forwarded to 127.0.0.1:port. All connections end
    with the context."""
    folder = tempfile.mkdtemp(prefix="stoker-", dir="/tmp")
    path = os.path.join(folder, "s")
    loop = asyncio.new_event_loop()
    ready = threading.Event()
    done = asyncio.Event()
    thread = threading.Thread(
        target=loop.run_until_complete,
        args=(_serve(path, port, ready, done),),
        name=f"relay-{port}",
        daemon=True,
    )
    thread.start()
    try:
        ready.wait(10)
        yield Path(path)
    finally:
        loop.call_soon_threadsafe(done.set)
        thread.join()
        loop.close()
        shutil.rmtree(folder, ignore_errors=True)


async def _serve(path: str, port: int, ready: threading.Event, done: asyncio.Event) -> None:
    talks: set[asyncio.Task] = set()

    async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None  # a server starts each of these as a task
        talks.add(task)
        try:
            await _join(reader, writer, port)
        finally:
            talks.discard(task)

    server = await asyncio.start_unix_server(accept, path)
    ready.set()
    await done.wait()
    server.close()
    for talk in list(talks):
        talk.cancel()
    await asyncio.gather(*talks, return_exceptions=True)


async def _join(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, port: int) -> None:
    try:
        far_reader, far_writer = await asyncio.open_connection("127.0.0.1", port)
    except OSError:
        writer.close()
        return
    try:
        await asyncio.gather(_pump(reader, far_writer), _pump(far_reader, writer))
    finally:
        for each in (writer, far_writer):
            each.close()


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with suppress(ConnectionError):
        while data := await reader.read(65536):
            writer.write(data)
            await writer.drain()
        writer.write_eof()
