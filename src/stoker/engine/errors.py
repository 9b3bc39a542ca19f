"""The errors of a training: those of Stoker, with the hint as a note, so that Python's own traceback shows
what to type."""

from __future__ import annotations

from stoker.base import errors


class InvalidSpec(errors.InvalidSpec):
    """What was asked of the engine cannot be done as written."""

    def __init__(self, message: str | None = None, *, hint: str | None = None) -> None:
        super().__init__(message, hint=hint)
        if hint:
            self.add_note(f"stoker: {hint}")


class StateError(errors.StateError):
    """The training is in a state in which this cannot be done."""

    def __init__(self, message: str | None = None, *, hint: str | None = None) -> None:
        super().__init__(message, hint=hint)
        if hint:
            self.add_note(f"stoker: {hint}")
