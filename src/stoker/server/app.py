"""Builds the HTTP application around a Service and turns errors into answers. Routes are in api.py."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from starlette.responses import Response

from stoker import __version__
from stoker.base.errors import InvalidSpec, NotFound, ServerError, StokerError
from stoker.plane.service import Service

log = logging.getLogger(__name__)


class Answer(Response):
    """JSON in ASCII: surrogate escapes, which stand for odd bytes, survive as \\udcXX."""

    media_type = "application/json"

    def render(self, content: object) -> bytes:
        return json.dumps(content, separators=(",", ":")).encode("ascii")


def create_app(service: Service, end: Callable[[str], None]) -> FastAPI:
    """The application. `end(why)` is called when a client asks the server to stop."""
    from stoker.server.api import router

    app = FastAPI(title="Stoker", version=__version__, openapi_url=None, docs_url=None, redoc_url=None)
    app.state.service = service
    app.state.end = end
    app.include_router(router)
    app.add_exception_handler(StokerError, _told)
    app.add_exception_handler(RequestValidationError, _misread)
    app.add_exception_handler(HTTPException, _no_route)
    app.add_exception_handler(ClientDisconnect, _nobody_there)
    app.add_exception_handler(Exception, _unknown)  # starlette raises it again, so uvicorn logs the traceback
    return app


def error_answer(error: StokerError, status: int | None = None) -> Answer:
    """The answer that tells of `error`; `base.errors.from_json` reads it back."""
    return Answer(error.to_json(), status_code=status or error.http_status)


def unknown_error(error: Exception) -> ServerError:
    """What a user is told about an error that nobody foresaw."""
    return ServerError(f"Internal error of the server ({type(error).__name__}); see its log.")


async def _told(request: Request, error: StokerError) -> Answer:
    return error_answer(error)


async def _misread(request: Request, error: RequestValidationError) -> Answer:
    first = error.errors()[0]
    where = ".".join(str(part) for part in first.get("loc", ()))
    return error_answer(InvalidSpec(f"The request's {where} is not valid: {first.get('msg', 'not readable')}."))


async def _no_route(request: Request, error: HTTPException) -> Answer:
    message = f"{request.method} {request.url.path} is unknown to this server."
    hint = "If the client is newer than the server: stoker server stop   (the next command starts a new server)"
    return error_answer(NotFound(message, hint=hint), status=error.status_code)


async def _nobody_there(request: Request, error: ClientDisconnect) -> Response:
    return Response(status_code=400)


async def _unknown(request: Request, error: Exception) -> Answer:
    return error_answer(unknown_error(error))
