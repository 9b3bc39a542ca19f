"""The second run, alone, of tests that failed beside others."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from tree import REPO

FIRST_TIME = "import pathlib\n\ndef test_it():\n    seen = pathlib.Path({mark!r})\n    first = not seen.exists()\n    seen.touch()\n    assert not first\n"


@pytest.mark.parametrize(("source", "code", "said"), [
    ("def test_it():\n    pass\n", 0, ""),
    (FIRST_TIME, 0, "FLAKY"),
    ("def test_it():\n    assert False\n", 1, "once more, alone"),
    ("import pytest\n\n@pytest.mark.parametrize('n', range(6))\ndef test_it(n):\n    assert False\n", 1, "6 failed"),
], ids=["passes", "fails once", "fails twice", "too many"])
def test_what_failed_runs_once_more_and_is_named(tmp_path, source, code, said):
    (tmp_path / "test_one.py").write_text(source.format(mark=str(tmp_path / "mark")) if "{mark" in source else source)
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    done = subprocess.run([sys.executable, REPO / "tests/again.py", "-p", "no:randomly", "test_one.py"], cwd=tmp_path, check=False,
                          capture_output=True, text=True)
    assert done.returncode == code, done.stdout + done.stderr
    assert said in done.stdout
    assert ("FLAKY" in done.stdout) == (said == "FLAKY")
    assert ("once more" in done.stdout) == (said in {"FLAKY", "once more, alone"})


WAITS = """
import pathlib, signal, time
import pytest

@pytest.fixture
def server():
    yield
    pathlib.Path("ended").touch()

def test_waits(server):
    pathlib.Path("begun").touch()
    time.sleep(60)
"""


@pytest.mark.parametrize("workers", ["0", "1"])
def test_what_tests_started_ends_where_a_time_limit_ends_them(tmp_path: Path, workers: str):
    (tmp_path / "test_waits.py").write_text(WAITS)
    env = {**os.environ, "PYTHONPATH": str(REPO / "tests")}
    command = [sys.executable, "-m", "pytest", "-q", "-p", "conftest", "-n", workers, "-p", "no:cacheprovider", "test_waits.py"]
    process = subprocess.Popen(command, cwd=tmp_path, env=env, stdout=subprocess.PIPE, text=True, start_new_session=True)
    while not (tmp_path / "begun").exists():
        assert process.poll() is None, process.stdout.read()
        time.sleep(0.05)
    os.killpg(process.pid, signal.SIGTERM)
    said = process.communicate(timeout=60)[0]
    assert (tmp_path / "ended").exists(), said
    assert process.returncode == pytest.ExitCode.INTERRUPTED, said
