"""Builds the HTTP application around a Service and turns errors into answers. Routes are in api.py."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response

from stoker.base.errors import NotFound, ServerError, StokerError
from stoker.plane.service import Service

log = logging.getLogger(__name__)


class Answer(Response):
    """JSON in ASCII: surrogate escapes, which stand for odd bytes, survive as \\udcXX."""

    media_type = "application/json"

    def render(self, content: object) -> bytes:
        return json.dumps(content, separators=(",", ":")).encode("ascii")


def create_app(service: Service, end: Callable[[str], None]) -> Starlette:
    """The application. `end(why)` is called when a client asks the server to stop."""
    from stoker.server.api import ROUTES

    told = {StokerError: _told, HTTPException: _no_route, ClientDisconnect: _nobody_there,
            Exception: _unknown}  # Starlette raises the last one again, so uvicorn logs the traceback
    app = Starlette(routes=ROUTES, exception_handlers=told)
    app.state.service = service
    app.state.end = end
    return app


def error_answer(error: StokerError, status: int | None = None) -> Answer:
    """The answer that tells of `error`; `base.errors.from_json` reads it back."""
    return Answer(error.to_json(), status_code=status or error.http_status)


def unknown_error(error: Exception) -> ServerError:
    """What a user is told about an error that nobody foresaw."""
    return ServerError(f"Internal error of the server ({type(error).__name__}); see its log.")


async def _told(request: Request, error: StokerError) -> Answer:
    return error_answer(error)


async def _no_route(request: Request, error: HTTPException) -> Answer:
    message = f"{request.method} {request.url.path} is unknown to this server."
    hint = "If the client is newer than the server: stoker server stop   (the next command starts a new server)"
    return error_answer(NotFound(message, hint=hint), status=error.status_code)


async def _nobody_there(request: Request, error: ClientDisconnect) -> Response:
    return Response(status_code=400)


async def _unknown(request: Request, error: Exception) -> Answer:
    return error_answer(unknown_error(error))
