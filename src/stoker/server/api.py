"""The routes. Each reads its arguments, calls one verb of the Service and gives its answer;
nothing is decided here.

One method of Service, one route; the client has the same methods, and one contract suite tests both.
- Bytes that are not UTF-8 in the environment, argv and paths are Python's surrogate escapes in ASCII JSON;
  `stdin` is base64.
- `GET /v1/server` has at least `version pid started_at home`. `POST /v1/server/stop` with `{"pid": N}` ends
  only that server.
- `GET /v1/events`: server-sent events, of Service.events. Logs and `pull` are sent in pieces as they come.
- `/v1/runs/{ref}/attach` is a WebSocket (relay.py) with `attempt`, `out`, `err` and `input` in its query.
"""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable
from functools import partial

import anyio
from anyio.to_thread import run_sync
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route, WebSocketRoute
from starlette.websockets import WebSocket

from stoker.base.errors import InvalidSpec, StateError
from stoker.server.answers import Answer
from stoker.server.asked import Asked
from stoker.server.bodies import body_of
from stoker.server.relay import Relay
from stoker.server.streams import ByteStream, EventStream

WAITERS = 4096  # `wait` calls at once; each holds a thread, beside the forty that answer the quick verbs
VERSION = "/v1"
POLICY_VIOLATION = 1008  # the code of a WebSocket that is refused

_waiting = anyio.CapacityLimiter(WAITERS)

Verb = Callable[[Asked], Response]


def info(asked: Asked) -> Answer:
    return Answer(asked.plane.info())


def shutdown(asked: Asked) -> Answer:
    """End this server; with a pid, only if this server has that pid."""
    pid = asked.field("pid", int)
    if pid not in (None, os.getpid()):
        raise StateError(f"The server {pid} is not running; the running server is {os.getpid()}.")
    asked.app_state.end("a client stopped the server")
    return Answer({"pid": os.getpid()})


def submit(asked: Asked) -> Answer:
    """Submit a run; with `dry_run`, return what it would send."""
    spec, limits = asked.field("spec", dict, default={}), asked.field("limits", dict, default={})
    env, stdin = asked.environment(), asked.stdin()
    on_name_taken = asked.field("on_name_taken", str, default="refuse")
    dry_run = asked.field("dry_run", bool, default=False)
    return Answer(asked.plane.submit(spec, limits, env, stdin, on_name_taken=on_name_taken, dry_run=dry_run))


def runs(asked: Asked) -> Answer:
    """The list of runs."""
    folder = asked.word("folder") if asked.words("folder") else None
    return Answer(
        asked.plane.runs(
            all=asked.flag("all"),
            folder=folder,
            limit=asked.whole("limit", 200),
            active=asked.flag("active"),
        )
    )


def candidates(asked: Asked) -> Answer:
    return Answer(asked.plane.candidates(asked.word("folder"), asked.words("command")))


def run(asked: Asked) -> Answer:
    return Answer(asked.plane.run(asked.named("ref"), active=asked.flag("active")))


def show(asked: Asked) -> Answer:
    return Answer(asked.plane.show(asked.named("ref")))


def start(asked: Asked) -> Answer:
    return Answer(asked.plane.start(asked.named("ref"), edited=asked.field("edited", bool, default=False)))


def stop(asked: Asked) -> Answer:
    """End a run."""
    grace_s, force = asked.field("grace_s", int, float, list), asked.field("force", bool, default=False)
    return Answer(asked.plane.stop(asked.named("ref"), grace_s=grace_s, force=force))


def keep(asked: Asked) -> Answer:
    return Answer(
        asked.plane.keep(
            asked.named("ref"), seconds=asked.field("seconds", int, float), pin=asked.field("pin", bool)
        )
    )


def label(asked: Asked) -> Answer:
    """Add and remove tags, set the note."""
    add, remove = asked.strings("add"), asked.strings("remove")
    return Answer(asked.plane.label(asked.named("ref"), add, remove, asked.field("note", str)))


def rm(asked: Asked) -> Answer:
    return Answer(asked.plane.rm(asked.named("ref"), force=asked.flag("force")))


async def wait(request: Request) -> Answer:
    """Wait for a run. Blocks its thread for a long time, so it does not use the threads of the quick
    verbs."""
    asked = Asked(request)
    timeout_s = min(max(asked.number("timeout_s", 30.0), 0.0), 60.0)
    waiting = partial(asked.plane.wait, asked.named("ref"), timeout_s, asked.flag("outputs"))
    return Answer(await run_sync(waiting, limiter=_waiting, abandon_on_cancel=True))


def logs(asked: Asked) -> ByteStream:
    """Bytes of a log."""
    pieces = asked.plane.logs(
        asked.named("ref"),
        attempt=asked.whole("attempt"),
        stream=asked.word("stream", "out"),
        offset=asked.whole("offset", 0),
        tail=asked.whole("tail"),
        since=asked.number("since"),
        follow=asked.flag("follow"),
    )
    return ByteStream(pieces)


def pull(asked: Asked) -> ByteStream:
    return ByteStream(asked.plane.pull(asked.named("ref"), asked.strings("patterns")))


def numbers(asked: Asked) -> Answer:
    return Answer(
        asked.plane.numbers(asked.named("ref"), names=asked.words("name"), points=asked.whole("points"))
    )


def recorded(asked: Asked) -> Answer:
    return Answer(asked.plane.recorded(asked.named("ref"), asked.word("kind")))


def picture(asked: Asked) -> Response:
    """A captured picture, as its file."""
    return Response(
        asked.plane.picture(asked.named("ref"), asked.word("path")), media_type="application/octet-stream"
    )


def compare(asked: Asked) -> Answer:
    return Answer(asked.plane.compare(asked.words("ref"), code=asked.flag("code")))


def halve(asked: Asked) -> Answer:
    """Let a sweep end its worse runs early."""
    metric, after = asked.field("metric", str, default=""), asked.field("after", int, default=1)
    return Answer(asked.plane.sweeps.halve(asked.named("name"), metric, after, asked.strings("runs")))


async def attach(socket: WebSocket) -> None:
    """Serve one attachment until either side disconnects. An invalid query is refused first."""
    asked = Asked(socket)
    try:
        where = {
            "attempt": asked.whole("attempt"),
            "out": asked.whole("out", 0),
            "err": asked.whole("err", 0),
            "input": asked.flag("input", True),
        }
    except InvalidSpec as e:
        await socket.close(POLICY_VIOLATION, e.message)
        return
    await Relay(socket, asked.plane, asked.named("ref"), **where).run()


def events(asked: Asked) -> EventStream:
    return EventStream(asked.plane.events())


def gc(asked: Asked) -> Answer:
    """List the disk space of ended runs; without `dry_run`, delete them."""
    dry_run, older_s = asked.field("dry_run", bool, default=True), asked.field("older_s", int, float)
    return Answer(asked.plane.gc(dry_run, older_s=older_s))


def top(asked: Asked) -> Answer:
    return Answer(asked.plane.top(asked.word("target")))


def data(asked: Asked) -> Answer:
    return Answer(asked.plane.data(asked.field("target", str, default="local"), asked.strings("remove")))


def machines(asked: Asked) -> Answer:
    return Answer(asked.plane.machines.all())


def machine_off(asked: Asked) -> Answer:
    return Answer(asked.plane.machines.off(asked.named("name")))


def machine_withdraw(asked: Asked) -> Answer:
    """Withdraw the request to switch a machine off."""
    asked.plane.machines.withdraw(asked.named("name"))
    return Answer({})


def machine_found(asked: Asked) -> Answer:
    return Answer(asked.plane.machines.found(asked.named("name")))


def machine_adopt(asked: Asked) -> Answer:
    return Answer(asked.plane.machines.adopt(asked.named("name")))


def capacity(asked: Asked) -> Answer:
    """The resources of a machine."""
    modules = asked.words("module") or None
    return Answer(
        asked.plane.capacity(asked.word("target", "local"), asked.flag("look"), modules, asked.word("python"))
    )


def _threaded(verb: Verb) -> Callable[[Request], Awaitable[Response]]:
    """The verb as an endpoint: in a thread of its own, with the body of a POST, which is held until the verb
    has answered."""
    async def endpoint(request: Request) -> Response:
        if request.method != "POST":
            return await run_in_threadpool(verb, Asked(request))
        async with body_of(request) as body:
            return await run_in_threadpool(verb, Asked(request, body))
    return endpoint


def _route(method: str, path: str, verb: Verb) -> Route:
    return Route(VERSION + path, _threaded(verb), methods=[method])


ROUTES: list[BaseRoute] = [
    _route("GET", "/server", info),
    _route("POST", "/server/stop", shutdown),
    _route("POST", "/runs", submit),
    _route("GET", "/runs", runs),
    _route("GET", "/candidates", candidates),
    _route("GET", "/runs/{ref}", run),
    _route("DELETE", "/runs/{ref}", rm),
    _route("GET", "/runs/{ref}/show", show),
    _route("POST", "/runs/{ref}/start", start),
    _route("POST", "/runs/{ref}/stop", stop),
    _route("POST", "/runs/{ref}/keep", keep),
    _route("POST", "/runs/{ref}/label", label),
    Route(VERSION + "/runs/{ref}/wait", wait, methods=["GET"]),
    _route("GET", "/runs/{ref}/logs", logs),
    _route("POST", "/runs/{ref}/pull", pull),
    _route("GET", "/runs/{ref}/numbers", numbers),
    _route("GET", "/runs/{ref}/recorded", recorded),
    _route("GET", "/runs/{ref}/picture", picture),
    WebSocketRoute(VERSION + "/runs/{ref}/attach", attach),
    _route("GET", "/compare", compare),
    _route("POST", "/sweeps/{name}/halve", halve),
    _route("GET", "/events", events),
    _route("POST", "/gc", gc),
    _route("GET", "/top", top),
    _route("POST", "/data", data),
    _route("GET", "/machines", machines),
    _route("POST", "/machines/{name}/off", machine_off),
    _route("POST", "/machines/{name}/withdraw", machine_withdraw),
    _route("GET", "/machines/{name}/found", machine_found),
    _route("POST", "/machines/{name}/adopt", machine_adopt),
    _route("GET", "/capacity", capacity),
]
