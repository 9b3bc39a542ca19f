"""What came over the wire: specs and limits as JSON objects, checked field by field. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from stoker.base.errors import InvalidSpec
from stoker.base.spec import Limits, Spec
from stoker.base.units import MAX_DURATION_S
from stoker.plane import names

_KINDS: dict[str, tuple[type, ...]] = {
    "name": (str,), "kind": (str,), "target": (str,), "folder": (str,), "stdin": (str,), "home": (str, type(None)), "copy": (bool,),
    "tty": (bool,),
    "split_stderr": (bool,), "unbuffered": (bool,),
    "hooks": (bool,), "resume": (str,), "gpus": (int,), "memory_bytes": (int,), "slots": (int,), "priority": (int,), "restarts": (int,),
    "backoff_s": (int, float), "warn_s": (int, float), "stop_signal": (str,), "warn_signal": (str,),
    "stall_s": (int, float), "stall_do": (str,), "mounts": (dict,), "settings": (dict,),
    "command": (list, tuple), "after": (list, tuple), "gpu_ids": (list, tuple), "grace_s": (list, tuple),
}
_SECONDS = ("backoff_s", "warn_s", "stall_s")
_GIVEN_BY_US = ("id", "argv", "retry_reasons", "created_at")


def read_spec(body: dict) -> Spec:
    """The spec that was sent, every field of the right kind. Raises InvalidSpec."""
    body = {k: v for k, v in body.items() if k not in _GIVEN_BY_US}
    for name, kinds in _KINDS.items():
        value = body.get(name)
        if name in body and (not isinstance(value, kinds) or (isinstance(value, bool) and bool not in kinds)):
            raise InvalidSpec(f"The spec's '{name}' has the wrong type: {value!r}.")
    for name in ("command", "after", "gpu_ids"):
        if not all(isinstance(word, str) for word in body.get(name, ())):
            raise InvalidSpec(f"The spec's '{name}' must be a list of strings.")
    if not all(isinstance(k, str) and isinstance(v, str) for k, v in body.get("mounts", {}).items()):
        raise InvalidSpec("The spec's 'mounts' must map names to paths.")
    grace = body.get("grace_s", (0, 0))
    if len(grace) != 2 or not all(_is_seconds(g) for g in grace) or not all(_is_seconds(body.get(n, 0)) for n in _SECONDS):
        raise InvalidSpec("grace_s takes two numbers of seconds; backoff_s, warn_s and stall_s take one. None may be negative.")
    if body.get("kind", "job") != "job":
        raise InvalidSpec(f"This version supports only jobs, not '{body['kind']}'.")
    if body.get("gpu_ids") and len(body["gpu_ids"]) != body.get("gpus", 0):
        raise InvalidSpec("gpus must equal the number of gpu_ids.", hint="--gpus id:0,1")
    if not 0 <= body.get("memory_bytes", 0) < 1 << 60:
        raise InvalidSpec("The memory limit must be a number of bytes of at least 0.", hint="--memory 8GB")
    if abs(body.get("priority", 0)) > 1_000_000:
        raise InvalidSpec("The priority must be between -1000000 and 1000000.")
    spec = Spec.from_json(body).check()
    names.check_given(spec.name)
    return spec


def read_limits(body: dict) -> Limits:
    """The limits that were sent. Raises InvalidSpec."""
    time_s = body.get("time_s")
    if time_s is not None and (not _is_seconds(time_s) or time_s <= 0):
        raise InvalidSpec(f"The time limit {time_s!r} is not a number of seconds above 0.", hint="--time 2h")
    return Limits(time_s=None if time_s is None else float(time_s))


def read_grace(grace_s: float | Sequence[float] | None) -> tuple[float, float] | None:
    """Seconds after SIGINT and after SIGTERM; None for the ones in the spec. Raises InvalidSpec."""
    if grace_s is None:
        return None
    both = (grace_s, grace_s) if isinstance(grace_s, int | float) else tuple(grace_s)
    if len(both) != 2 or not all(isinstance(g, int | float) and 0 <= g < 1e6 for g in both):
        raise InvalidSpec("The grace takes one or two numbers of seconds: after SIGINT, and after SIGTERM.",
                          hint="stoker stop --grace 30s ID")
    return (float(both[0]), float(both[1]))


def _is_seconds(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value <= MAX_DURATION_S
