"""mypy reads all of src but what works inside of scripts, and no file keeps its errors to itself."""

from __future__ import annotations

import tomllib

from tree import REPO


def test_mypy_reads_every_file_but_those_inside_of_scripts():
    mypy = tomllib.loads((REPO / "pyproject.toml").read_text("utf-8"))["tool"]["mypy"]
    assert mypy["files"] == ["src/stoker"]
    assert mypy["exclude"] == ["^src/stoker/inside/"]
    silent = [rules["module"] for rules in mypy["overrides"] if rules.get("ignore_errors")]
    assert not silent, f"mypy keeps the errors of these files to itself: {silent}"


def test_types_are_checked_before_every_commit():
    lint = (REPO / "Makefile").read_text("utf-8").partition("\nlint:")[2].partition("\n\n")[0]
    assert lint.endswith("-m mypy")
