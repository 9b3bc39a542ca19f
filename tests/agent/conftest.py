"""Fixtures for tests of the agent: `new_run` makes a run folder and cleans up whatever the run left."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from agentkit import Running


@pytest.fixture
def new_run(tmp_path: Path) -> Iterator[Callable[..., Running]]:
    """new_run(argv, id=..., python=..., env=..., time_s=..., **spec) -> Running, not started yet."""
    made: list[Running] = []

    def make(argv: list[str], *, id: str | None = None, python: str = sys.executable, env: dict[str, str] | None = None,
             time_s: float | None = None, root: Path | None = None, stdin_bytes: bytes | None = None, **spec: object) -> Running:
        root = root or tmp_path / "root"
        run_id = id or f"run-{len(made)}"
        folder = root / "runs" / run_id
        folder.mkdir(parents=True)
        body = {"id": run_id, "command": argv, "argv": argv, "folder": str(tmp_path), "copy": False, "home": None, "tty": False, "stdin": "none",
                "split_stderr": False, "restarts": 0, "retry_reasons": [], "backoff_s": 0.2, "grace_s": [2, 2], "unbuffered": False, **spec}
        (folder / "limits.json").write_text(json.dumps({"seq": 1, "time_s": time_s}))
        given = {"PATH": os.environ["PATH"], "HOME": str(tmp_path), **(env or {})}
        (folder / "env").write_bytes(b"".join(os.fsencode(f"{k}={v}") + b"\0" for k, v in given.items()))
        if stdin_bytes is not None:
            (folder / "stdin").write_bytes(stdin_bytes)
        (folder / "spec.json").write_text(json.dumps(body))
        run = Running(root, run_id, python, {k: v for k, v in os.environ.items() if not k.startswith("STOKER_")})
        made.append(run)
        return run

    yield make
    for run in made:
        run.clean()
