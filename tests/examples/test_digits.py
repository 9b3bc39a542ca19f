"""The example that a newcomer runs first: it learns, under plain python and under Stoker, and leaves what it says it leaves."""

from __future__ import annotations

import csv
import gzip
import hashlib
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest
from benchmarks.ground import REPO, Ground

DIGITS = REPO / "examples" / "digits"
SCORE = re.compile(r"final test accuracy ([\d.]+) %")
EPOCH = re.compile(r"^epoch +\d+/\d+  loss [\d.]+  test accuracy [\d.]+ %  [\d.]+ s$", re.M)

needs_torch = pytest.mark.skipif(find_spec("torch") is None and not os.environ.get("STOKER_REQUIRE_REAL"), reason="torch is not installed here (make setup installs it)")


@pytest.fixture
def ground() -> Iterator[Ground]:
    """A state folder of its own, with a copy of the example to stand in."""
    ground = Ground()
    shutil.copytree(DIGITS, ground.work / "digits", ignore=shutil.ignore_patterns("__pycache__", "*.pt"))
    try:
        yield ground
    finally:
        left = ground.close()
    assert not left, "processes were left behind: " + "; ".join(left)


def test_the_data_are_the_digits_that_source_md_names():
    packed = (DIGITS / "digits.csv.gz").read_bytes()
    assert hashlib.sha256(packed).hexdigest() in (DIGITS / "SOURCE.md").read_text("utf-8")
    rows = list(csv.reader(gzip.decompress(packed).decode().splitlines()))
    assert len(rows) == 1797
    assert {len(r) for r in rows} == {65}
    assert {int(r[-1]) for r in rows} == set(range(10))
    assert all(0 <= int(pixel) <= 16 for r in rows for pixel in r[:-1])


def test_it_does_not_know_stoker():
    assert "stoker" not in re.sub(r'""".*?"""', "", (DIGITS / "train.py").read_text("utf-8"), flags=re.S).lower()


@pytest.mark.slow
@pytest.mark.timeout(600)
@needs_torch
def test_it_learns_under_plain_python(tmp_path: Path):
    done = subprocess.run([sys.executable, str(DIGITS / "train.py")], cwd=tmp_path, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    assert len(EPOCH.findall(done.stdout)) == 15
    assert float(SCORE.search(done.stdout)[1]) >= 97
    assert [p.name for p in tmp_path.iterdir()] == ["digits.pt"]


@pytest.mark.slow
@pytest.mark.timeout(600)
@needs_torch
@pytest.mark.parametrize("mode", [(), ("--copy",)], ids=["in place", "copy"])
def test_it_learns_the_same_under_stoker(ground: Ground, mode):
    here = ground.work / "digits"
    words = ("train.py", "--epochs", "3", "--seed", "7")
    plain = subprocess.run([sys.executable, *words, "--out", str(ground.root / "plain.pt")], cwd=here, capture_output=True, text=True, timeout=300, check=True).stdout
    done = ground.stoker("run", *mode, *words, "--out", "mine.pt", cwd=here, timeout_s=300).ok()
    assert numbers(done.out) == numbers(plain)
    run = ground.runs()[0]
    folder = Path(run["workdir"])
    assert (folder / "mine.pt").stat().st_size > 100_000
    assert (folder == here) == (mode == ())
    shown = ground.stoker("show", run["id"]).ok().out
    assert "mine.pt" in shown
    assert "Finished successfully." in shown


def numbers(text: str) -> list[str]:
    """Losses and accuracies, without the seconds."""
    return re.findall(r"loss ([\d.]+)  test accuracy ([\d.]+)", text)
