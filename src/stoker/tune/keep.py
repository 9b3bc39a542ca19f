"""What the tuner found for a script on this machine, kept in $STOKER_HOME/settings/ for `stoker run`:
one file a script."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from stoker.base.config import Home
from stoker.tune.card import machine_key, write_private

VERSION = 1
FILE_MAX = 1 << 20
GUARDED = ("precision",)  # knobs of class C: they lapse when the script changes
_KNOB_WORDS = {
    "threads": "{} threads",
    "precision": "{}",
    "channels_last": "channels last",
    "fused": "fused optimizer",
    "compile": "torch.compile",
}
_LOADER_WORDS = {
    "workers": "{} workers",
    "prefetch": "{} batches prefetched",
    "persistent": "persistent workers",
    "pin": "pinned memory",
}
_FEEDS = {"batched": "whole batches at once", "cache": "samples cached in memory"}


def code_hash(script: Path) -> str:
    """Of the script's own file, as the hooks take it: the first 16 digits of its SHA-256;
    "" where it cannot be read."""
    try:
        return hashlib.sha256(script.read_bytes()).hexdigest()[:16]
    except OSError:
        return ""


def put(where: Home, script: Path, settings: Mapping, **about: object) -> Path:
    """Keep these settings for the script, in place of older ones. about:
    what else the entry says ("gain", "actions", ...)."""
    place = _place(where, script)
    where.settings.mkdir(mode=0o700, parents=True, exist_ok=True)
    write_private(
        place,
        {
            "version": VERSION,
            "script": os.path.realpath(script),
            "machine": machine_key(),
            "at": time.time(),
            "code": code_hash(script),
            "settings": dict(settings),
            **about,
        },
    )
    return place


def get(where: Home, script: Path) -> dict | None:
    """The entry of a script on this machine; None where there is none that can be read."""
    if not where.settings.is_dir():  # most of the time: then nothing is asked of the machine
        return None
    return _entry(_place(where, script))


def forget(where: Home, script: Path) -> bool:
    """Forget what was found for a script; False when there was nothing."""
    try:
        _place(where, script).unlink()
    except FileNotFoundError:
        return False
    return True


def entries(where: Home) -> Iterator[dict]:
    """All that is kept for this machine, the newest first."""
    found = []
    with contextlib.suppress(OSError):
        found = [
            entry
            for path in where.settings.glob("*.json")
            if (entry := _entry(path)) and entry.get("machine") == machine_key()
        ]
    yield from sorted(found, key=lambda entry: -entry["at"])


def arguments(command: Sequence[str], script: Path) -> list[str]:
    """The words of a command behind its script."""
    at = next(
        (n for n, word in enumerate(command) if os.path.basename(word) == script.name), len(command) - 1
    )
    return list(command[at + 1:])


def fitting(entry: Mapping, script: Path) -> tuple[dict, list[str]]:
    """(settings to run with, why some are left):
    class C is left where the script's file has changed since."""
    settings, left = dict(entry["settings"]), []
    if entry.get("code") != code_hash(script):
        for knob in GUARDED:
            if settings.pop(knob, None) is not None:
                left.append(
                    f"{words({knob: entry['settings'][knob]})[0]} is not applied: "
                    "the script changed after the setting "
                    "was found safe"
                )
    return (settings if words(settings) else {}), left


def words(settings: Mapping) -> list[str]:
    """Settings as a person reads them, in order: "4 workers", "samples cached in memory", "bf16"."""
    found: list[str] = []
    for loader in (settings.get("loaders") or {}).values():
        for knob, value in loader.items():
            if knob == "feed":
                found.append(_FEEDS.get(value, str(value)))
            elif knob in _LOADER_WORDS and value is not None and value is not False:
                found.append(
                    "1 worker" if knob == "workers" and value == 1 else _LOADER_WORDS[knob].format(value)
                )
            elif knob in ("persistent", "pin") and value is False:
                found.append(
                    {"persistent": "workers restarted in each epoch", "pin": "memory not pinned"}[knob]
                )
    for knob, word in _KNOB_WORDS.items():
        value = settings.get(knob)
        if value is not None and value is not False:
            found.append("1 thread" if knob == "threads" and value == 1 else word.format(value))
    return list(dict.fromkeys(found))


def gain(entry: Mapping) -> str:
    """"1.8x as fast [1.7 to 1.9]", as measured when it was kept; "" where nothing was."""
    measured = entry.get("gain") or {}
    if not measured.get("value"):
        return ""
    fast, low, high = 1 / measured["value"], 1 / measured["high"], 1 / measured["low"]
    return f"{fast:.2f}x as fast [{low:.2f} to {high:.2f}]"


def _place(where: Home, script: Path) -> Path:
    key = hashlib.sha256(
        f"{os.path.realpath(script)}\0{machine_key()}".encode("utf-8", "surrogateescape")
    ).hexdigest()[:24]
    return where.settings / f"{key}.json"


def _entry(path: Path) -> dict | None:
    """What is in a file that anybody may have damaged."""
    try:
        if path.stat().st_size > FILE_MAX or path.stat().st_uid != os.getuid():
            return None
        body = json.loads(path.read_bytes())
    except (OSError, ValueError):
        return None
    good = (
        isinstance(body, dict) and body.get("version") == VERSION and isinstance(body.get("settings"), dict)
    )
    good = good and isinstance(body.get("at"), int | float) and isinstance(body.get("script"), str)
    return (
        body
        if good and all(isinstance(one, dict) for one in (body["settings"].get("loaders") or {}).values())
        else None
    )
