"""What came over the wire: specs and limits as JSON objects, checked field by field. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from stoker.base.errors import InvalidSpec
from stoker.base.spec import Limits, Spec
from stoker.base.units import MAX_DURATION_S
from stoker.plane import names


def read_spec(body: dict) -> Spec:
    """Decode the spec of a request. Raises InvalidSpec for a field of the wrong type."""
    spec = Spec.from_request(body)
    names.check_given(spec.name)
    return spec


def read_limits(body: dict) -> Limits:
    """Decode the limits of a request. Raises InvalidSpec."""
    time_s = body.get("time_s")
    if time_s is not None and (not _is_seconds(time_s) or time_s <= 0):
        raise InvalidSpec(f"The time limit {time_s!r} is not a number of seconds above 0.", hint="--time 2h")
    return Limits(time_s=None if time_s is None else float(time_s))


def read_grace(grace_s: float | Sequence[float] | None) -> tuple[float, float] | None:
    """Seconds after SIGINT and after SIGTERM; None to use those of the spec. Raises InvalidSpec."""
    if grace_s is None:
        return None
    both = (grace_s, grace_s) if isinstance(grace_s, int | float) else tuple(grace_s)
    if len(both) != 2 or not all(isinstance(g, int | float) and 0 <= g < 1e6 for g in both):
        raise InvalidSpec(
            (
                "The grace period must be one or two numbers, in seconds: "
                "the time after SIGINT and the time after SIGTERM."
            ),
            hint="stoker stop --grace 30s ID",
        )
    return (float(both[0]), float(both[1]))


def _is_seconds(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value <= MAX_DURATION_S
