"""What the server answers with: JSON, and errors as JSON."""

from __future__ import annotations

import json

from starlette.responses import Response

from stoker.base.errors import ServerError, StokerError


class Answer(Response):
    """JSON in ASCII: surrogate escapes, which stand for odd bytes, survive as \\udcXX."""

    media_type = "application/json"

    def render(self, content: object) -> bytes:
        return json.dumps(content, separators=(",", ":")).encode("ascii")


def error_answer(error: StokerError, status: int | None = None) -> Answer:
    """The answer that tells of `error`; `base.errors.from_json` reads it back."""
    return Answer(error.to_json(), status_code=status or error.http_status)


def unknown_error(error: Exception) -> ServerError:
    """What a user is told about an error that nobody foresaw."""
    return ServerError(f"Internal error of the server ({type(error).__name__}); see its log.")
