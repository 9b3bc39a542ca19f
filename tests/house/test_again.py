"""The second run, alone, of tests that failed beside others."""

from __future__ import annotations

import subprocess
import sys

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
