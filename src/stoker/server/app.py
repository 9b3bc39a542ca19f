"""Builds the HTTP application around a Service and turns errors into answers. Routes are in api.py."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from typing import Any

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response

from stoker.base.errors import NotFound, StokerError
from stoker.plane.service import Service
from stoker.server.answers import Answer, error_answer, unknown_error
from stoker.server.api import ROUTES

log = logging.getLogger(__name__)


def create_app(service: Service, end: Callable[[str], None]) -> Starlette:
    """Create the application. `end(why)` is called when a client asks the server to stop."""
    told: dict[Any, Callable[..., Awaitable[Response]]] = {
        StokerError: _told,
        HTTPException: _no_route,
        ClientDisconnect: _nobody_there,
        Exception: _unknown,  # Starlette raises this one again, so uvicorn logs the traceback
    }
    app = Starlette(routes=ROUTES, exception_handlers=told)
    app.state.service = service
    app.state.end = end
    return app


async def _told(request: Request, error: StokerError) -> Answer:
    return error_answer(error)


async def _no_route(request: Request, error: HTTPException) -> Answer:
    message = f"{request.method} {request.url.path} is unknown to this server."
    hint = (
        "If the client is newer than the server: stoker server stop   (the next command starts a new server)"
    )
    return error_answer(NotFound(message, hint=hint), status=error.status_code)


async def _nobody_there(request: Request, error: ClientDisconnect) -> Response:
    return Response(status_code=400)


async def _unknown(request: Request, error: Exception) -> Answer:
    return error_answer(unknown_error(error))
