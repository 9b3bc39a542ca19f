"""Runs pytest. If a few tests fail beside others, they run once more, alone; what passes then is named, and is to be mended.

`python tests/again.py -n 4 -m "not inside"`: the arguments are pytest's. docs/decisions/018-a-second-run-alone.md says why.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

MAX_AGAIN = 5  # more failures than this are no accident of a busy machine
TESTS_FAILED = 1  # pytest's exit code: the tests ran, and some failed


def failed_in(cache: Path) -> list[str]:
    """The ids of the tests that failed in the last run with this cache."""
    try:
        return sorted(json.loads((cache / "v/cache/lastfailed").read_text("utf-8")))
    except FileNotFoundError:
        return []


def main(args: list[str]) -> int:
    """The exit code of pytest: of its first run, or of the second where that decides."""
    pytest = [sys.executable, "-m", "pytest", "-q"]
    with tempfile.TemporaryDirectory(prefix="again-") as folder:
        cache = ["-o", f"cache_dir={folder}"]
        code = subprocess.run([*pytest, *cache, *args], check=False).returncode
        failed = failed_in(Path(folder))
        if code != TESTS_FAILED or not 1 <= len(failed) <= MAX_AGAIN:
            return code
        print(f"\n{len(failed)} failed; each runs once more, alone:", *failed, sep="\n  ", flush=True)
        code = subprocess.run([*pytest, *cache, *failed], check=False).returncode
    if code == 0:
        _name(failed)
    return code


def _name(passed: list[str]) -> None:
    """Says which tests pass alone only, here and, on GitHub, on the page of the job."""
    text = "".join(f"FLAKY {test}: failed beside others, passed alone\n" for test in passed)
    print(f"\n{text}", end="", flush=True)
    if page := os.environ.get("GITHUB_STEP_SUMMARY"):
        with open(page, "a", encoding="utf-8") as out:
            out.write(text)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
