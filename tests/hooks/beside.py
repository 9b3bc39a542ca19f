"""A script under plain python and with the hooks: what it prints, line for line."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

from stoker.base.vendor import lay_out

_ADDRESS = re.compile(r"0x[0-9a-f]{6,}")


def both(folder: Path, name: str, **more: str) -> tuple[tuple[str, str], tuple[str, str], dict]:
    """(stdout, stderr) of `folder/name` without and with the hooks, addresses left out, and what state.json says then."""
    told = []
    for hooked in (False, True):
        work = folder / "work"
        work.mkdir()
        env = {**{k: v for k, v in os.environ.items() if not k.startswith(("STOKER", "PYTHON"))}, "PYTHONHASHSEED": "0", **more}
        if hooked:
            (folder / "records").mkdir()
            env |= {"PYTHONPATH": str(lay_out(folder / "hooks")), "STOKER_HOOKS": str(folder / "records"), "STOKER_RESUME": "auto",
                    "STOKER_RESUME_DIR": str(folder / "resume"), "STOKER_ATTEMPT": "1"}
        ran = subprocess.run([sys.executable, str(folder / name)], cwd=work, env=env, capture_output=True, text=True, timeout=200, check=False,
                             stdin=subprocess.DEVNULL)
        told.append(tuple(_ADDRESS.sub("0x", each) for each in (ran.stdout, ran.stderr)))
        work.rename(folder / f"work{hooked}")
    state = folder / "resume/state.json"
    return *told, json.loads(state.read_text()) if state.exists() else {}
