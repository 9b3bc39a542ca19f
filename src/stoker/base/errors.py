"""The errors of Stoker. Each knows its exit code and HTTP status;
the class docstring is its default message."""

from __future__ import annotations

from collections.abc import Sequence

# `stoker run` failed before the run could give an exit code of its own (docker does the same)
EXIT_OWN_FAILURE = 125


class StokerError(Exception):
    """Stoker itself failed."""

    code = "error"
    exit_code = 1
    http_status = 500
    default_hint = (
        "Run `stoker doctor`. The log of the server is server/log in the state folder (default: ~/.stoker)."
    )

    def __init__(
        self, message: str | None = None, *, hint: str | None = None, fields: Sequence[str] = ()
    ) -> None:
        self.message = message or (type(self).__doc__ or "").strip().splitlines()[0]
        self.hint = hint or self.default_hint
        self.fields = tuple(fields)  # of the request, that are wrong
        super().__init__(self.message)

    def to_json(self) -> dict:
        """The error as the body of an HTTP answer, and as `--json` prints it on stderr."""
        named = {"fields": list(self.fields)} if self.fields else {}
        return {"error": self.code, "message": self.message, "hint": self.hint, **named}


class InvalidSpec(StokerError):
    """The request is not valid."""

    code = "invalid_spec"
    exit_code = 2
    http_status = 400
    default_hint = "See `stoker run --help`."


class UnknownField(InvalidSpec):
    """The request has a field that this version does not know."""

    code = "unknown_field"


class NotFound(StokerError):
    """The run, machine or file does not exist."""

    code = "not_found"
    exit_code = 3
    http_status = 404
    default_hint = "List all runs: stoker ps --all"


class Denied(StokerError):
    """The operation is not allowed."""

    code = "denied"
    exit_code = 4
    http_status = 403
    default_hint = "Check the owner of the state folder: $STOKER_HOME, or ~/.stoker"


class TargetError(StokerError):
    """The machine could not carry out the request. The field `retry` is true if a retry may help."""

    code = "target_error"
    exit_code = 5
    http_status = 502
    default_hint = "Check the machine: stoker doctor, or stoker machine check NAME"

    def __init__(
        self,
        message: str | None = None,
        *,
        hint: str | None = None,
        fields: Sequence[str] = (),
        retry: bool = True,
    ) -> None:
        super().__init__(message or "The machine could not carry out the request.", hint=hint, fields=fields)
        self.retry = retry

    def to_json(self) -> dict:
        return {**super().to_json(), "retry": self.retry}


class StateError(StokerError):
    """The state of the run does not allow the command."""

    code = "state_error"
    exit_code = 6
    http_status = 409
    default_hint = "See the state: stoker show ID"


class ServerError(StokerError):
    """The Stoker server did not answer."""

    code = "server_error"
    exit_code = 1
    http_status = 500


ALL_ERRORS: tuple[type[StokerError], ...] = (
    StokerError,
    InvalidSpec,
    UnknownField,
    NotFound,
    Denied,
    TargetError,
    StateError,
    ServerError,
)
_BY_CODE = {cls.code: cls for cls in ALL_ERRORS}


def from_json(body: dict) -> StokerError:
    """Return the error that an HTTP answer contains; an unknown code becomes a plain StokerError."""
    cls = _BY_CODE.get(body.get("error", ""), StokerError)
    kwargs = {"retry": bool(body.get("retry", True))} if cls is TargetError else {}
    return cls(
        body.get("message"), hint=body.get("hint"), fields=[*map(str, body.get("fields") or ())], **kwargs
    )
