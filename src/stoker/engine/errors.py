"""The errors of the engine: Stoker's errors, with the hint as a note,
so that Python's traceback shows what to type."""

from __future__ import annotations

from stoker.base import errors


class InvalidSpec(errors.InvalidSpec):
    """The engine cannot carry out the request as written."""

    def __init__(self, message: str | None = None, *, hint: str | None = None) -> None:
        super().__init__(message, hint=hint)
        if hint:
            self.add_note(f"stoker: {hint}")


class StateError(errors.StateError):
    """The current state of the training does not allow this."""

    def __init__(self, message: str | None = None, *, hint: str | None = None) -> None:
        super().__init__(message, hint=hint)
        if hint:
            self.add_note(f"stoker: {hint}")
