"""What the server answers with: JSON, and errors as JSON."""

from __future__ import annotations

import json

from starlette.responses import Response

from stoker.base.errors import ServerError, StokerError


class Answer(Response):
    r"""JSON in ASCII. Surrogate escapes, which represent bytes that are not UTF-8, are written as \udcXX."""

    media_type = "application/json"

    def render(self, content: object) -> bytes:
        return json.dumps(content, separators=(",", ":")).encode("ascii")


def error_answer(error: StokerError, status: int | None = None) -> Answer:
    """The HTTP answer for `error`; `base.errors.from_json` decodes it."""
    return Answer(error.to_json(), status_code=status or error.http_status)


def unknown_error(error: Exception) -> ServerError:
    """The error that a user sees after an unexpected exception."""
    return ServerError(f"Internal error of the server ({type(error).__name__}); see the log of the server.")
