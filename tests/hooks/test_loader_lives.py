"""Loaders come back at the batch where they were, bit for bit, or the reason is told why there is no image.

The scripts of loader_scripts.py are played in processes of their own by loader_lives.py: each with real workers, a straight life, a
recorded one, and lives that go on from images taken in between."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")
HERE = Path(__file__).resolve().parent
SOURCE = HERE.parents[1] / "src"
sys.path.insert(0, str(HERE))
import loader_scripts  # noqa: E402

FULL = bool(os.environ.get("RESUME_FULL"))
GRID = [name for name in vars(loader_scripts) if name.startswith("grid_")]
SCRIPTS = [name for name in vars(loader_scripts) if name.startswith("script_")]
GROUPS = {f"grid {n}": GRID[n::5] for n in range(5)} | {f"scripts {n}": SCRIPTS[n::6] for n in range(6)}


@pytest.mark.timeout(900)  # hundreds of worker processes
@pytest.mark.parametrize("group", GROUPS)
def test_streams_go_on_bit_for_bit(group: str) -> None:
    env = {**os.environ, "PYTHONPATH": f"{SOURCE}{os.pathsep}{HERE}", "OMP_NUM_THREADS": "1", "PYTHONHASHSEED": "1"}
    ran = subprocess.run([sys.executable, str(HERE / "loader_lives.py"), "loader_scripts", "0" if FULL else "1", *GROUPS[group]], env=env,
                         capture_output=True, text=True, timeout=900, check=False)
    assert ran.returncode == 0, ran.stderr[-3000:]
    found = [json.loads(line) for line in ran.stdout.splitlines()]
    assert [each["script"] for each in found] == GROUPS[group]
    for each in found:
        expected = getattr(loader_scripts, each["script"]).expected
        assert each["recording changes nothing"], each
        assert not each["wrong"] and not each["diverged"], each
        assert each["exact"] == each["lives"], each
        if expected == "exact":
            assert not each["obstacles"] and each["lives"], each
        else:
            assert any(expected in why for why in each["obstacles"]), each
