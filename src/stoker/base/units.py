"""Durations, sizes and times as people write them, and as they are shown.
Values inside are seconds and bytes."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta

from stoker.base.errors import InvalidSpec

_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86400, "w": 604800}
_BYTES = {
    "b": 1,
    "kb": 10**3,
    "mb": 10**6,
    "gb": 10**9,
    "tb": 10**12,
    "kib": 2**10,
    "mib": 2**20,
    "gib": 2**30,
    "tib": 2**40,
    "k": 10**3,
    "m": 10**6,
    "g": 10**9,
    "t": 10**12,
}
_DURATION = re.compile(r"(?:(\d+(?:\.\d+)?)([smhdw]))+", re.ASCII)
_DURATION_PART = re.compile(r"(\d+(?:\.\d+)?)([smhdw])", re.ASCII)
_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*([a-z]+)", re.ASCII)
_CLOCK = re.compile(r"(?:(\d+)-)?(\d+):([0-5]\d):([0-5]\d)", re.ASCII)  # as Slurm writes it
MAX_DURATION_S = 10 * 365 * 86400.0


def parse_duration(text: str) -> float:
    """Convert "90s", "2h", "1h30m", "2d", "1:30:00" or "2-12:00:00" to seconds. Raises InvalidSpec for
    other text, and for zero."""
    value = text.strip().lower()
    clock = _CLOCK.fullmatch(value)
    if clock:
        days, hours, minutes, seconds = (int(part or 0) for part in clock.groups())
        value = f"{days}d{hours}h{minutes}m{seconds}s"
    if re.fullmatch(r"\d+(\.\d+)?", value, re.ASCII):
        raise InvalidSpec(
            f"'{text}' has no unit.", hint=f"{value}s means seconds, {value}m means minutes, {value}h "
                                           "means hours."
        )
    if not _DURATION.fullmatch(value):
        raise InvalidSpec(
            f"'{text}' is not a duration.", hint="Write it as 90s, 15m, 2h, 1h30m, 3d or 1:30:00."
        )
    total = sum(float(n) * _SECONDS[unit] for n, unit in _DURATION_PART.findall(value))
    if not 0 < total <= MAX_DURATION_S:
        raise InvalidSpec(
            f"'{text}' is not between one second and ten years.", hint="Write it as 90s, 15m, 2h or 3d."
        )
    return total


def since_midnight(now: float, days: int = 0) -> float:
    """Seconds from the local midnight `days` days before today to `now` (Unix time); at least 1."""
    midnight = datetime.fromtimestamp(now).replace(hour=0, minute=0, second=0, microsecond=0)
    return max(1.0, now - (midnight - timedelta(days=days)).timestamp())


def parse_size(text: str) -> int:
    """Convert "24GB" or "512MiB" to bytes. Raises InvalidSpec for other text."""
    found = _SIZE.fullmatch(text.strip().lower())
    if not found or found[2] not in _BYTES:
        raise InvalidSpec(f"'{text}' is not a size.", hint="Write it as 500MB, 24GB or 16GiB.")
    return int(float(found[1]) * _BYTES[found[2]])


def format_duration(seconds: float) -> str:
    """The two largest units that are not zero: "41s", "2m 5s", "3h 2m", "4d 1h"."""
    left = round(max(0.0, seconds))
    parts: list[str] = []
    for unit, size in (("d", 86400), ("h", 3600), ("m", 60), ("s", 1)):
        n, left = divmod(left, size)
        if n or (unit == "s" and not parts):
            parts.append(f"{n}{unit}")
    return " ".join(parts[:2])


def format_size(count: float) -> str:
    """Bytes in decimal units with two significant digits: "812 B", "4.0 kB", "1.2 GB"."""
    if abs(count) < 1000:
        return f"{int(count)} B"
    for unit in ("kB", "MB", "GB", "TB"):
        count /= 1000
        if abs(count) < 999.5 or unit == "TB":
            break
    return f"{count:.1f} {unit}" if abs(count) < 99.5 else f"{count:.0f} {unit}"


def iso(timestamp: float) -> str:
    """Convert a Unix timestamp in seconds to ISO 8601 in UTC with milliseconds."""
    return datetime.fromtimestamp(timestamp, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def clock_time(timestamp: float, now: float) -> str:
    """Local time of day: "14:02", with the date if it is not today."""
    there = datetime.fromtimestamp(timestamp)
    return there.strftime("%H:%M" if there.date() == datetime.fromtimestamp(now).date() else "%d %b %H:%M")


def from_iso(text: str) -> float:
    """Convert the text of `iso` to a Unix timestamp in seconds."""
    return datetime.fromisoformat(text.replace("Z", "+00:00")).timestamp()
