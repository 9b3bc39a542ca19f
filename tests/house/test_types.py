"""mypy reads all of src but what works inside of scripts. The files that are not clean yet are listed in pyproject.toml, and may only get fewer."""

from __future__ import annotations

import tomllib

from tree import PACKAGE, REPO

LEFT_OUT = 7  # files whose errors mypy keeps to itself; lower it when one of them is clean


def test_the_list_of_unclean_files_only_shrinks():
    mypy = tomllib.loads((REPO / "pyproject.toml").read_text("utf-8"))["tool"]["mypy"]
    assert mypy["files"] == ["src/stoker"]
    assert mypy["exclude"] == ["^src/stoker/inside/"]
    out = [name for rules in mypy["overrides"] if rules.get("ignore_errors") for name in rules["module"]]
    assert len(out) == LEFT_OUT, f"{len(out)} files are left out"
    gone = [name for name in out if not (PACKAGE.parent / f"{name.replace('.', '/')}.py").is_file()]
    assert not gone, f"files that are left out are gone, or are no single files: {gone}"


def test_types_are_checked_before_every_commit():
    lint = (REPO / "Makefile").read_text("utf-8").partition("\nlint:")[2].partition("\n\n")[0]
    assert lint.endswith("-m mypy")
