"""The routes. Each reads its arguments, calls one verb of the Service and gives its answer; nothing is decided here."""

from __future__ import annotations

import base64
import binascii
import os
from functools import partial
from typing import Annotated
from urllib.parse import parse_qs

import anyio
from anyio.to_thread import run_sync
from fastapi import APIRouter, Depends, Request, WebSocket

from stoker.base.errors import InvalidSpec, StateError
from stoker.plane.service import Service
from stoker.server.app import Answer
from stoker.server.bodies import body_of
from stoker.server.relay import Relay
from stoker.server.streams import ByteStream, EventStream

WAITERS = 4096  # `wait` calls at once; each holds a thread, beside the forty that answer the quick verbs

router = APIRouter(prefix="/v1")
_waiting = anyio.CapacityLimiter(WAITERS)


def _service(request: Request) -> Service:
    return request.app.state.service


def _words(request: Request) -> dict[str, list[str]]:
    """The query by name, odd bytes as surrogate escapes (FastAPI's own reading would lose them)."""
    return parse_qs(request.scope["query_string"].decode("latin-1"), keep_blank_values=True, errors="surrogateescape")


Plane = Annotated[Service, Depends(_service)]
Body = Annotated[dict, Depends(body_of)]
Words = Annotated[dict, Depends(_words)]


def _field(body: dict, name: str, *kinds: type, default: object = None) -> object:
    value = body.get(name, default)
    if value is not default and (not isinstance(value, kinds) or (isinstance(value, bool) and bool not in kinds)):
        raise InvalidSpec(f"The request's '{name}' has the wrong type.")
    return value


def _environment(body: dict) -> dict[str, str]:
    env = _field(body, "env", dict, default={})
    for name, value in env.items():
        if not isinstance(value, str) or not _fits(name + value) or not name or "=" in name:
            raise InvalidSpec(f"The environment variable {name!r} is not valid.")
    return env


def _fits(text: str) -> bool:
    try:
        return b"\0" not in os.fsencode(text)
    except UnicodeEncodeError:
        return False


def _stdin(body: dict) -> bytes | None:
    text = _field(body, "stdin", str)
    try:
        return None if text is None else base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError) as e:
        raise InvalidSpec("The request's 'stdin' is not base64.") from e


@router.get("/server")
def info(plane: Plane) -> Answer:
    return Answer(plane.info())


@router.post("/server/stop")
def shutdown(request: Request, body: Body) -> Answer:
    pid = _field(body, "pid", int)
    if pid not in (None, os.getpid()):
        raise StateError(f"The server {pid} is not running; the running server is {os.getpid()}.")
    request.app.state.end("a client stopped the server")
    return Answer({"pid": os.getpid()})


@router.post("/runs")
def submit(plane: Plane, body: Body) -> Answer:
    spec, limits = _field(body, "spec", dict, default={}), _field(body, "limits", dict, default={})
    env, stdin = _environment(body), _stdin(body)
    return Answer(plane.submit(spec, limits, env, stdin, on_name_taken=_field(body, "on_name_taken", str, default="refuse"),
                               dry_run=_field(body, "dry_run", bool, default=False)))


@router.get("/runs")
def runs(plane: Plane, words: Words, all: bool = False, limit: int = 200) -> Answer:
    return Answer(plane.runs(all=all, folder=words.get("folder", [None])[0], limit=limit))


@router.get("/candidates")
def candidates(plane: Plane, words: Words) -> Answer:
    return Answer(plane.candidates(words.get("folder", [""])[0], words.get("command", [])))


@router.get("/runs/{ref}")
def run(plane: Plane, ref: str, active: bool = False) -> Answer:
    return Answer(plane.run(ref, active=active))


@router.get("/runs/{ref}/show")
def show(plane: Plane, ref: str) -> Answer:
    return Answer(plane.show(ref))


@router.post("/runs/{ref}/start")
def start(plane: Plane, ref: str, body: Body) -> Answer:
    return Answer(plane.start(ref, edited=_field(body, "edited", bool, default=False)))


@router.post("/runs/{ref}/stop")
def stop(plane: Plane, ref: str, body: Body) -> Answer:
    return Answer(plane.stop(ref, grace_s=_field(body, "grace_s", int, float, list), force=_field(body, "force", bool, default=False)))


@router.post("/runs/{ref}/keep")
def keep(plane: Plane, ref: str, body: Body) -> Answer:
    return Answer(plane.keep(ref, seconds=_field(body, "seconds", int, float), pin=_field(body, "pin", bool)))


@router.post("/runs/{ref}/label")
def label(plane: Plane, ref: str, body: Body) -> Answer:
    add, remove = _words_of(body, "add"), _words_of(body, "remove")
    return Answer(plane.label(ref, add, remove, _field(body, "note", str)))


def _words_of(body: dict, name: str) -> list[str]:
    words = _field(body, name, list, default=[])
    if not all(isinstance(word, str) for word in words):
        raise InvalidSpec(f"The request's '{name}' must be a list of strings.")
    return words


@router.delete("/runs/{ref}")
def rm(plane: Plane, ref: str, force: bool = False) -> Answer:
    return Answer(plane.rm(ref, force=force))


@router.get("/runs/{ref}/wait")
async def wait(plane: Plane, ref: str, timeout_s: float = 30.0, outputs: bool = False) -> Answer:
    waiting = partial(plane.wait, ref, min(max(timeout_s, 0.0), 60.0), outputs)
    return Answer(await run_sync(waiting, limiter=_waiting, abandon_on_cancel=True))


@router.get("/runs/{ref}/logs")
def logs(plane: Plane, ref: str, *, attempt: int | None = None, stream: str = "out", offset: int = 0, tail: int | None = None,
         since: float | None = None, follow: bool = False) -> ByteStream:
    return ByteStream(plane.logs(ref, attempt=attempt, stream=stream, offset=offset, tail=tail, since=since, follow=follow))


@router.post("/runs/{ref}/pull")
def pull(plane: Plane, ref: str, body: Body) -> ByteStream:
    return ByteStream(plane.pull(ref, _words_of(body, "patterns")))


@router.get("/runs/{ref}/numbers")
def numbers(plane: Plane, ref: str, words: Words, points: int | None = None) -> Answer:
    return Answer(plane.numbers(ref, names=words.get("name", []), points=points))


@router.get("/runs/{ref}/recorded")
def recorded(plane: Plane, ref: str, kind: str = "") -> Answer:
    return Answer(plane.recorded(ref, kind))


@router.get("/compare")
def compare(plane: Plane, words: Words, code: bool = False) -> Answer:
    return Answer(plane.compare(words.get("ref", []), code=code))


@router.post("/sweeps/{name}/halve")
def halve(plane: Plane, name: str, body: Body) -> Answer:
    metric, after = _field(body, "metric", str, default=""), _field(body, "after", int, default=1)
    return Answer(plane.sweeps.halve(name, metric, after, _words_of(body, "runs")))


@router.websocket("/runs/{ref}/attach")
async def attach(socket: WebSocket, ref: str, *, attempt: int | None = None, out: int = 0, err: int = 0, input: bool = True) -> None:
    await Relay(socket, socket.app.state.service, ref, attempt=attempt, out=out, err=err, input=input).run()


@router.get("/events")
def events(plane: Plane) -> EventStream:
    return EventStream(plane.events())


@router.post("/gc")
def gc(plane: Plane, body: Body) -> Answer:
    return Answer(plane.gc(_field(body, "dry_run", bool, default=True), older_s=_field(body, "older_s", int, float)))


@router.get("/top")
def top(plane: Plane, target: str = "") -> Answer:
    return Answer(plane.top(target))


@router.post("/data")
def data(plane: Plane, body: Body) -> Answer:
    return Answer(plane.data(_field(body, "target", str, default="local"), _words_of(body, "remove")))


@router.get("/machines")
def machines(plane: Plane) -> Answer:
    return Answer(plane.machines.all())


@router.post("/machines/{name}/off")
def machine_off(plane: Plane, name: str) -> Answer:
    return Answer(plane.machines.off(name))


@router.post("/machines/{name}/withdraw")
def machine_withdraw(plane: Plane, name: str) -> Answer:
    plane.machines.withdraw(name)
    return Answer({})


@router.get("/machines/{name}/found")
def machine_found(plane: Plane, name: str) -> Answer:
    return Answer(plane.machines.found(name))


@router.post("/machines/{name}/adopt")
def machine_adopt(plane: Plane, name: str) -> Answer:
    return Answer(plane.machines.adopt(name))


@router.get("/capacity")
def capacity(plane: Plane, words: Words, target: str = "local", look: bool = False, python: str = "") -> Answer:
    return Answer(plane.capacity(target, look, words.get("module"), python))
