"""What is typed all day must not load what it does not need; what runs on other people's machines must load there."""

from __future__ import annotations

import ast
import json
import subprocess
import sys
from pathlib import Path

import pytest
from tree import AGENT, PACKAGE

HEAVY = {"sqlalchemy", "alembic", "fastapi", "starlette", "uvicorn", "pydantic", "torch", "numpy", "rich", "httpx", "websockets", "asyncio"}

PROBE = """
import json, sys
from stoker.cli.main import main
code = main({words!r})
print(json.dumps({{"code": code, "modules": sorted(sys.modules)}}), file=sys.stderr)
"""


def loaded(*words: str) -> dict:
    """What `stoker WORDS` printed, and the modules it had loaded when it was done."""
    done = subprocess.run([sys.executable, "-c", PROBE.format(words=list(words))], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    return {**json.loads(done.stderr.splitlines()[-1]), "text": done.stdout}


@pytest.mark.parametrize("words", [("--help",), ("run", "--help"), ("ps", "--help"), ("--version",)], ids=" ".join)
def test_help_loads_nothing_heavy(words):
    seen = loaded(*words)
    assert seen["code"] == 0
    assert seen["text"].strip()
    heavy = HEAVY & {m.split(".")[0] for m in seen["modules"]}
    assert not heavy, f"`stoker {' '.join(words)}` loads {sorted(heavy)}"
    rooms = {m for m in seen["modules"] if m.startswith(("stoker.plane", "stoker.server", "stoker.backends", "stoker.hosts"))}
    assert not rooms


@pytest.mark.parametrize("module", ["stoker.client", "stoker.doctor", "stoker.base.state", "stoker.cli.main"])
def test_clients_do_not_load_the_server(module):
    code = f"import sys, {module}; print(*sorted({{m.split('.')[0] for m in sys.modules}}))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    heavy = {"sqlalchemy", "alembic", "fastapi", "uvicorn", "torch", "numpy"} & set(done.stdout.split())
    assert not heavy


def test_what_runs_on_other_machines_is_python_3_8():
    for path in [*AGENT.glob("*.py"), PACKAGE / "hosts" / "tree.py", PACKAGE / "hosts" / "parcel.py"]:
        ast.parse(path.read_text("utf-8"), str(path), feature_version=(3, 8))


def test_the_agent_uses_nothing_newer_than_python_3_8():
    done = subprocess.run([str(Path(sys.executable).with_name("vermin")), "-q", "-t=3.8-", "--no-tips", "--violations", str(AGENT)],
                          capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stdout


@pytest.mark.parametrize("path", sorted((PACKAGE / "inside").rglob("*.py")), ids=lambda path: path.relative_to(PACKAGE).as_posix())
def test_the_hooks_are_python_3_9(path):
    ast.parse(path.read_text("utf-8"), str(path), feature_version=(3, 9))


def test_the_hooks_use_nothing_newer_than_python_3_9():
    """They run in the Python of the user's script, and what is newer there stands behind a question."""
    done = subprocess.run([str(Path(sys.executable).with_name("vermin")), "-q", "-t=3.9-", "--no-tips", "--violations", str(PACKAGE / "inside")],
                          capture_output=True, text=True, timeout=100, check=False)
    assert done.returncode == 0, done.stdout


def test_the_agent_starts_without_site_packages(tmp_path):
    done = subprocess.run([sys.executable, "-I", "-S", str(AGENT / "__main__.py"), "probe", str(tmp_path)], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout.splitlines()[0])["cpus"]
