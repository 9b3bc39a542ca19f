"""The pages of the console and their JSON twins: a route asks the source, a template shows the answer.
Who may come in, door.py decides."""

from __future__ import annotations

import hashlib
import json
import mimetypes
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from urllib.parse import parse_qs, quote

import jinja2
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import BaseRoute, Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from stoker import __version__
from stoker.base.errors import Denied, NotFound, StokerError
from stoker.base.state import State
from stoker.client import Client
from stoker.console import words
from stoker.console.door import COOKIE_S, HEADERS, Door, refusal
from stoker.console.source import Source

HERE = Path(__file__).parent
LANGUAGE = "stoker-language"  # the cookie
RENDERED, RENDERED_S = 64, 10.0  # parts of pages that are kept, and for how long
OPEN = ("/enter", "/door", "/static/")  # paths that need no cookie


class Locked(Denied):
    """This page opens only with a link from your terminal."""

    http_status = 401
    default_hint = "To get a link: stoker ui"


class Answer(Response):
    r"""JSON. Surrogate escapes, which represent bytes that are not UTF-8, are written as \udcXX."""

    media_type = "application/json"

    def render(self, content: object) -> bytes:
        return json.dumps(content).encode("ascii")


class Pages:
    """Renders templates with an answer."""

    def __init__(self) -> None:
        self._environment = jinja2.Environment(
            loader=jinja2.FileSystemLoader(HERE / "templates"),
            autoescape=True,
            undefined=jinja2.ChainableUndefined,
            trim_blocks=True,
            lstrip_blocks=True,
            extensions=["jinja2.ext.i18n"],
        )
        self._rendered = Rendered()
        self._environment.filters.update({**words.FILTERS, "quoted": quoted, "address": address})
        self._environment.install_gettext_callables(  # type: ignore[attr-defined]  # the extension adds it
            lambda text: text, lambda one, many, n: one if n == 1 else many
        )
        self._environment.globals.update(
            version=__version__,
            languages=words.LANGUAGES,
            asset=asset,
            states=[state.value for state in State],
        )

    def page(self, request: Request, name: str, data: Mapping, status: int = 200) -> Response:
        """The complete page."""
        text = self._environment.get_template(name).render(self._about(request, data))
        return _html(text, status)

    def live(self, request: Request, name: str, data: Mapping) -> Response:
        """The changing part of a page; 204 if the page already shows it."""
        about = self._about(request, data)
        text, version = self._rendered.get(
            (name, about["language"], about["path"], about["query"]), data, lambda: self._live(name, about)
        )
        if request.headers.get("x-seen") == version:
            return Response(status_code=204)
        return _html(text, 200, {"x-version": version})

    def _live(self, name: str, about: dict) -> str:
        template = self._environment.get_template(name)
        return "".join(template.blocks["live"](template.new_context(about)))

    def _about(self, request: Request, data: Mapping) -> dict:
        spoken = words.language(request.cookies.get(LANGUAGE), request.headers.get("accept-language", ""))
        return {**data, "_": spoken.gettext, "gettext": spoken.gettext, "ngettext": spoken.ngettext,
                "say": spoken.sentence,
                "language": spoken.name, "path": request.url.path, "query": request.url.query}


class Rendered:
    """Caches the changing parts of pages, so that an unchanged part is rendered once for all pages."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._held: dict[tuple, tuple[threading.Lock, list]] = {}

    def get(self, key: tuple, data: Mapping, make: Callable[[], str]) -> tuple[str, str]:
        """(text, version); the text of an active run is at most RENDERED_S old."""
        with self._lock:
            known = self._held.pop(key, None)
            lock, held = known or (threading.Lock(), [])
            self._held[key] = lock, held
            while len(self._held) > RENDERED:
                del self._held[next(iter(self._held))]
        with lock:
            if not held or held[0] != data or time.monotonic() > held[1]:
                text = make()
                version = hashlib.sha256(text.encode("utf-8", "replace")).hexdigest()[:16]
                held[:] = [data, time.monotonic() + RENDERED_S, text, version]
            return held[2], held[3]


def _html(text: str, status: int, headers: Mapping[str, str] | None = None) -> Response:
    return Response(
        text.encode("utf-8", "replace"),
        status,
        {"cache-control": "no-store", **(headers or {})},
        "text/html; charset=utf-8",
    )


def quoted(text: str) -> str:
    """Text for a URL; surrogate escapes become the original bytes."""
    return quote(text, safe="", errors="surrogateescape")


def address(wanted: Mapping[str, str], page: int) -> str:
    """The query of another page of the same list."""
    return "&".join(
        f"{name}={quoted(value)}" for name, value in {**wanted, "page": str(page)}.items() if value
    )


def asked(request: Request) -> dict[str, list[str]]:
    """The query, with surrogate escapes for bytes that are not UTF-8."""
    return parse_qs(request.scope["query_string"].decode("latin-1"), errors="surrogateescape")


def one(request: Request, name: str, default: str = "") -> str:
    """The first value of a query parameter."""
    return asked(request).get(name, [default])[0]


def wants_json(request: Request) -> bool:
    """True if the request asks for JSON."""
    return (
        request.url.path.endswith(".json")
        or one(request, "format") == "json"
        or request.headers.get("accept") == "application/json"
    )


def shown(name: str, ask: Callable[[Source, Request], dict]) -> Callable[[Request], Response]:
    """The handler of a page: the answer of `ask` in the template `name`, as its changing part only, or as
    JSON."""
    def handle(request: Request) -> Response:
        data = ask(request.app.state.source, request)
        if wants_json(request):
            return Answer(data)
        pages = request.app.state.pages
        return pages.live(request, name, data) if one(request, "live") else pages.page(request, name, data)
    return handle


def asset(name: str) -> str:
    """URL of a file in static/; it changes with the content of the file."""
    return f"/static/{name}?{_asset(name)[1]}"


_assets: dict[str, tuple[bytes, str]] = {}


def _asset(name: str) -> tuple[bytes, str]:
    if name not in _assets:
        content = (HERE / "static" / name).read_bytes()
        _assets[name] = content, hashlib.sha256(content).hexdigest()[:12]
    return _assets[name]


def static(request: Request) -> Response:
    """A file of static/."""
    name = request.path_params["name"]
    if name not in {each.name for each in (HERE / "static").iterdir()}:
        raise NotFound(f"There is no file {name}.")
    kind = mimetypes.guess_type(name)[0] or "text/plain"
    return Response(_asset(name)[0], 200, {"cache-control": "max-age=31536000, immutable"}, kind)


def enter(request: Request) -> Response:
    """Accept the code of a link, and set a cookie."""
    door: Door = request.app.state.door
    cookie = door.enter(one(request, "code"), time.time())
    if cookie is None:
        raise Locked("This link was used already, or is older than a minute.")
    answer = RedirectResponse("/runs", 303, {"cache-control": "no-store"})
    answer.set_cookie(door.cookie, cookie, max_age=COOKIE_S, httponly=True, samesite="strict", path="/")
    return answer


def proof(request: Request) -> Response:
    """Answer another `stoker ui` of the same state folder that asks whether this is its console."""
    return Answer({"answer": request.app.state.door.answer(one(request, "question"))})


def choose_language(request: Request) -> Response:
    """Store the chosen language."""
    name = one(request, "to")
    answer = RedirectResponse("/runs", 303)
    if name in words.LANGUAGES:
        answer.set_cookie(LANGUAGE, name, max_age=COOKIE_S * 12, httponly=True, samesite="strict", path="/")
    return answer


class Guard:
    """Passes only requests that the door allows, and adds headers that protect the pages from other
    websites."""

    def __init__(self, app: ASGIApp, door: Door) -> None:
        self._app, self._door = app, door

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return

        async def guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                there = {name for name, _ in message["headers"]}
                message["headers"] = [
                    *message["headers"],
                    *(
                        (name.encode(), value.encode())
                        for name, value in HEADERS.items()
                        if name.encode() not in there
                    ),
                ]
            await send(message)
        request = Request(scope)
        headers = {
            name.decode("latin-1").lower(): value.decode("latin-1") for name, value in scope["headers"]
        }
        why = refusal(scope["method"], headers)
        path = scope["path"]
        if why is not None:
            await Response(f"{why}\n", 403, media_type="text/plain")(scope, receive, guarded)
        elif not path.startswith(OPEN) and not self._door.knows(
            request.cookies.get(self._door.cookie, ""), time.time()
        ):
            scope["app"] = self._app
            await failed(request, Locked())(scope, receive, guarded)
        else:
            await self._app(scope, receive, guarded)


def failed(request: Request, error: Exception) -> Response:
    """The answer for an error, as a page or as JSON."""
    if isinstance(error, HTTPException):
        error = NotFound(f"There is no page for {request.method} {request.url.path}.", hint="All runs: /runs")
    if not isinstance(error, StokerError):
        error = StokerError(f"Internal error of the console ({type(error).__name__}).")
    told = {**error.to_json(), "away": error.code == "server_error"}
    if wants_json(request) or "hx-request" in request.headers:
        return Answer(told, status_code=error.http_status)
    return request.app.state.pages.page(request, "error.html", {"error": told}, error.http_status)


def create_app(client: Client, door: Door, routes: Sequence[BaseRoute]) -> ASGIApp:
    """The console of the server behind `client`. `routes`: the pages of routes.py."""
    own = [
        Route("/", lambda request: RedirectResponse("/runs")),
        Route("/enter", enter),
        Route("/door", proof),
        Route("/language", choose_language),
        Route("/static/{name}", static),
    ]
    app = Starlette(
        routes=[*own, *routes],
        exception_handlers={StokerError: failed, HTTPException: failed, Exception: failed},
    )
    app.state.source, app.state.door, app.state.pages = Source(client), door, Pages()
    return Guard(app, door)
