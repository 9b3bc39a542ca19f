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
pytestmark = pytest.mark.timeout(600)  # the first test waits for the child that runs them all
NAMES = re.findall(r"@scenario\ndef (\w+)", (HERE / "image_lives.py").read_text())


@pytest.fixture(scope="module")
def told(tmp_path_factory):
    env = {k: v for k, v in os.environ.items() if not k.startswith("STOKER")}
    env["PYTHONHASHSEED"] = "1"
    command = [sys.executable, str(HERE / "image_lives.py"), str(tmp_path_factory.mktemp("lives"))]
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=500, check=False)
    lines = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    return {line["name"]: line["error"] for line in lines}, done.stderr[-2000:]


@pytest.mark.parametrize("name", NAMES)
def test_scenario(told, name):
    errors, stderr = told
    assert name in errors, stderr
    assert not errors[name], errors[name]
