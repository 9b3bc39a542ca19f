"""What several e2e tests need: how a refusal looks, small file systems, cgroups, and what to do when a real part is missing."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from benchmarks.ground import Done, kill, until


def missing(part: str) -> None:
    """A part that can be installed is not: a skip with the reason; where everything must be there, a failure."""
    if os.environ.get("STOKER_REQUIRE_REAL"):
        pytest.fail(f"{part} is not installed")
    pytest.skip(f"{part} is not installed")


def refused(done: Done, code: int, *words: str) -> None:
    """One error sentence with these words, one hint, this exit code."""
    lines = [line for line in done.err.splitlines() if line.strip()]
    assert done.code == code, (done.code, done.err)
    errors = [line for line in lines if line.startswith("error: ")]
    hints = [line for line in lines if line.startswith("hint: ")]
    assert len(errors) == 1 and len(hints) == 1, done.err
    assert "Traceback" not in done.err
    for word in words:
        assert word.lower() in done.err.lower(), (word, done.err)


root_only = pytest.mark.skipif(os.getuid() != 0, reason="needs root: mounts and owners")


@contextmanager
def tmpfs(where: Path, options: str) -> Iterator[None]:
    """A small file system at `where`, or a skip with the reason."""
    where.mkdir(parents=True, exist_ok=True)
    made = subprocess.run(["mount", "-t", "tmpfs", "-o", options, "stoker-test", str(where)], capture_output=True, text=True, check=False)
    if made.returncode:
        pytest.skip(f"cannot mount a tmpfs: {made.stderr.strip()}")
    try:
        yield
    finally:
        subprocess.run(["umount", "-l", str(where)], check=False)


@contextmanager
def memory_cgroup(limit_bytes: int) -> Iterator[Path]:
    """A cgroup with a memory limit (version 1 or 2), or a skip with the reason."""
    for base, file in ((Path("/sys/fs/cgroup/memory"), "memory.limit_in_bytes"), (Path("/sys/fs/cgroup"), "memory.max")):
        group = base / f"stoker-test-{os.getpid()}"
        try:
            group.mkdir()
            (group / file).write_text(str(limit_bytes))
            break
        except OSError:
            if group.exists():
                group.rmdir()
    else:
        pytest.skip("no memory cgroup can be made here")
    try:
        yield group
    finally:
        for pid in (group / "cgroup.procs").read_text().split():
            kill(int(pid))
        until(lambda: not (group / "cgroup.procs").read_text().split(), 10, "the end of the cgroup's processes")
        group.rmdir()


