"""Functions stay simple: ruff refuses a complexity over 12. The files that it leaves out are listed in pyproject.toml, and may only get fewer."""

from __future__ import annotations

import tomllib

from tree import REPO

LEFT_OUT = 19  # files under src/ with a function that is too complex; lower it when one of them is split


def test_the_list_of_complex_files_only_shrinks():
    lint = tomllib.loads((REPO / "pyproject.toml").read_text("utf-8"))["tool"]["ruff"]["lint"]
    assert "C901" in lint["select"] and lint["mccabe"]["max-complexity"] <= 12
    out = [name for name, rules in lint["per-file-ignores"].items() if name.startswith("src/") and "C901" in rules]
    assert len(out) == LEFT_OUT, f"{len(out)} files are left out"
    assert all((REPO / name).is_file() for name in out), "a file that is left out is gone: take its line out"
