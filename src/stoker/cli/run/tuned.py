"""What `stoker run` takes over from `stoker tune`:
the settings that are kept for a script, put into the spec of its run."""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from stoker.base.config import home
from stoker.base.errors import StokerError
from stoker.base.units import format_duration
from stoker.cli import output


def apply(o: Mapping[str, Any], spec: dict, env: dict[str, str]) -> list[str]:
    """Add the stored settings of this script to the spec; returns lines that say so, or none."""
    where = home()
    if (
        o["no_settings"]
        or not spec["hooks"]
        or o["rehearse"] is not None
        or o["target"] != "local"
        or not where.settings.is_dir()
    ):
        return []
    from stoker.tune import keep

    script = _script(spec, env)
    entry = keep.get(where, script) if script else None
    if script is None or entry is None:
        return []
    settings, left = keep.fitting(entry, script)
    if settings.get("compile") and spec.get("resume") == "auto":
        rest = {name: value for name, value in settings.items() if name != "compile"}
        settings = rest if keep.words(rest) else {}
        left = [
            *left,
            "torch.compile is not used. `stoker tune` found that torch.compile is faster, but compiled code "
            "cannot resume exactly (to use torch.compile: --resume off)",
        ]
    told = [output.shown(line) for line in left]
    if settings:
        spec["settings"] = settings
        measured = "" if left else keep.gain(entry)
        how = f"measured {measured}" if measured else "found"
        mine = keep.arguments(spec["command"], script)
        other = " with other arguments of the script" if entry.get("arguments", mine) != mine else ""
        ago = f"{format_duration(time.time() - entry['at']).split()[0]} ago"
        told.insert(0, output.shown(f"using the settings of stoker tune: {', '.join(keep.words(settings))} "
                                    f"({how}{other} {ago}; to disable: --no-settings)"))
    return told


def _script(spec: Mapping[str, Any], env: dict[str, str]) -> Path | None:
    """The script, where Python runs it by itself. Under a launcher of ranks other settings would be right."""
    from stoker.doctor import command

    try:
        reading = command.read(spec["command"], Path(spec["folder"]), env)
    except StokerError:
        return None  # it cannot be started, and is told so
    launched = reading.interpreter != reading.argv[0] or any(
        word.startswith("torch.distributed") for word in reading.argv
    )
    return None if launched else reading.script
