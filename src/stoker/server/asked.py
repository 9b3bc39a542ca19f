"""What a request asks: the service, the names in its path, its query and its body, each read as the kind that
a route wants."""

from __future__ import annotations

import base64
import binascii
import math
import os
from typing import Any, overload
from urllib.parse import parse_qs

from starlette.datastructures import State
from starlette.requests import HTTPConnection

from stoker.base.errors import InvalidSpec
from stoker.plane.service import Service

FLAGS = {"true": True, "1": True, "false": False, "0": False}


class Asked:
    """One request, or one WebSocket. All methods that read it raise InvalidSpec with the name of the wrong
    field."""

    def __init__(self, connection: HTTPConnection, body: dict | None = None) -> None:
        self._connection = connection
        self._body = body or {}
        # odd bytes become surrogate escapes; Starlette's own reading would lose them
        text = connection.scope["query_string"].decode("latin-1")
        self._query = parse_qs(text, keep_blank_values=True, errors="surrogateescape")

    @property
    def plane(self) -> Service:
        """The service that answers requests."""
        return self._connection.app.state.service

    @property
    def app_state(self) -> State:
        """The state of the application: `service` and `end`."""
        return self._connection.app.state

    def named(self, name: str) -> str:
        """A part of the URL path."""
        return self._connection.path_params[name]

    def words(self, name: str) -> list[str]:
        """All values of a query parameter."""
        return self._query.get(name, [])

    def word(self, name: str, default: str = "") -> str:
        """The first value of a query parameter."""
        return self._query.get(name, [default])[0]

    def flag(self, name: str, default: bool = False) -> bool:
        """A query parameter `true` or `false`."""
        if name not in self._query:
            return default
        text = self.word(name).lower()
        if text not in FLAGS:
            raise _wrong(name)
        return FLAGS[text]

    @overload
    def whole(self, name: str, default: int) -> int:
        ...

    @overload
    def whole(self, name: str) -> int | None:
        ...

    def whole(self, name: str, default: int | None = None) -> int | None:
        """A query parameter with a whole number."""
        try:
            return int(self.word(name)) if name in self._query else default
        except ValueError as e:
            raise _wrong(name) from e

    @overload
    def number(self, name: str, default: float) -> float:
        ...

    @overload
    def number(self, name: str) -> float | None:
        ...

    def number(self, name: str, default: float | None = None) -> float | None:
        """A query parameter with a finite number."""
        try:
            found = float(self.word(name)) if name in self._query else default
        except ValueError as e:
            raise _wrong(name) from e
        if found is not None and not math.isfinite(found):
            raise _wrong(name)
        return found

    def field(self, name: str, *kinds: type, default: Any = None) -> Any:
        """A field of the body with one of these types."""
        value = self._body.get(name, default)
        if value is not default and (
            not isinstance(value, kinds) or (isinstance(value, bool) and bool not in kinds)
        ):
            raise _wrong(name)
        return value

    def strings(self, name: str) -> list[str]:
        """A field of the body with a list of strings."""
        words = self.field(name, list, default=[])
        if not all(isinstance(word, str) for word in words):
            raise InvalidSpec(f"The field '{name}' of the request must be a list of strings.")
        return words

    def environment(self) -> dict[str, str]:
        """The field `env` of the body: valid environment variables."""
        env = self.field("env", dict, default={})
        for name, value in env.items():
            if not isinstance(value, str) or not _fits(name + value) or not name or "=" in name:
                raise InvalidSpec(
                    f"The environment variable {name!r} is not valid (an empty name, '=' in the name, a NUL "
                    "byte, or a value that is not text)."
                )
        return env

    def stdin(self) -> bytes | None:
        """The field `stdin` of the body, decoded from base64."""
        text = self.field("stdin", str)
        try:
            return None if text is None else base64.b64decode(text, validate=True)
        except (binascii.Error, ValueError) as e:
            raise InvalidSpec("The field 'stdin' of the request is not base64.") from e


def _wrong(name: str) -> InvalidSpec:
    return InvalidSpec(f"The field '{name}' of the request has the wrong type.")


def _fits(text: str) -> bool:
    try:
        return b"\0" not in os.fsencode(text)
    except UnicodeEncodeError:
        return False
