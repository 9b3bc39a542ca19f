"""Settings: what the tuner found to be faster, put into an unmodified script from outside.

`install()` is all that the outside calls. sites.py: which loader is meant; loaders.py: its workers;
feeds.py: what feeds it, whole batches (batched.py) or a cache (cache.py, its size: memory.py), after
proof.py; roots.py: which module the script calls, and its optimizers; knobs.py: what can be turned in the
computation; told.py: what was applied, what not and why.

The settings, in a file (STOKER_SETTINGS, from the spec) or in order.json: `{"version": 1, "loaders": {ID:
{"workers", "prefetch", "persistent", "pin", "feed": "batched" or "cache", "signature"}}, "threads",
"precision": "bf16" or "tf32", "channels_last", "fused", "compile", "cache_bytes", "shapes"
(knobs.shapes()), "code"}`. What is left out stays as the script has it. ID: see sites.py.
- A setting of a loader is applied only if `signature` (loaders.signature) fits, one of the computation if
  `shapes` fits.
- `precision` also needs `code`, the first 16 hex digits of the SHA-256 of the script's file.
- A loader that the script makes again is changed only if all loaders of that line have the same settings
  and signature.
- Installed before the clock and before exact resume.
"""

from __future__ import annotations

import os


def install(_process: object) -> None:
    """torch has just been imported. Within the tuner all is watched, also without settings, so that knobs can
    be turned later."""
    room, file = os.environ.get("STOKER_TUNE"), os.environ.get("STOKER_SETTINGS")
    if not room and not file:
        return
    import atexit
    import json

    from . import feeds, knobs, loaders, roots, told
    with open(file or os.path.join(room, "order.json"), encoding="utf-8") as f:
        said = json.load(f)
    settings = (said if file else said.get("settings")) or {}
    if not isinstance(settings, dict):
        raise ValueError("the settings are not a JSON object")
    if not file and said.get("mode") == "trial":
        feeds.pool = int(said.get("pool") or 0)
    settings = _of_this_code(settings)
    roots.install(modules=bool(room) or any(settings.get(each.name) for each in knobs.ALL))
    loaders.install(settings.get("loaders") or {}, settings.get("cache_bytes"))
    knobs.want(settings)
    roots.at_step.append(told.write)
    atexit.register(_at_exit)


def _at_exit() -> None:
    from . import loaders, told
    loaders.missed()
    told.write()


def _of_this_code(settings: dict) -> dict:
    """Without what other code was measured with: only changes of the numbers care."""
    import hashlib
    import sys

    from . import told
    if not settings.get("code") or "precision" not in settings:
        return settings
    try:
        with open(sys.modules["__main__"].__file__, "rb") as f:
            same = hashlib.sha256(f.read()).hexdigest()[:16] == settings["code"]
    except (AttributeError, OSError, KeyError):
        same = False
    if same:
        return settings
    told.left("precision", "the script changed after the accuracy check")
    return {name: value for name, value in settings.items() if name != "precision"}
