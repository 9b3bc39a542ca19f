"""Walk, image and restore with real torch: the scenarios of image_lives.py, all in one child process."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("torch", reason="torch is not installed")
HERE = Path(__file__).parent
pytestmark = pytest.mark.timeout(600)
NAMES = re.findall(r"@scenario\ndef (\w+)", (HERE / "image_lives.py").read_text())


def test_every_scenario(tmp_path):
    env = {k: v for k, v in os.environ.items() if not k.startswith("STOKER")}
    env["PYTHONHASHSEED"] = "1"
    command = [sys.executable, str(HERE / "image_lives.py"), str(tmp_path)]
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=500, check=False)
    lines = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    assert [line["name"] for line in lines] == NAMES, done.stderr[-2000:]
    assert {line["name"]: line["error"] for line in lines if line["error"]} == {}
