"""Which Python a script runs with, and variables from a file or a pipe."""

from __future__ import annotations

import subprocess
import sys
import venv

import pytest
from benchmarks.ground import STOKER, Ground


@pytest.fixture
def own(ground: Ground) -> str:
    """The Python of a `.venv` in the working folder."""
    venv.create(ground.work / ".venv", with_pip=False, symlinks=True)
    ground.script("where.py", "import sys\nprint(sys.prefix)\n")
    return str(ground.work / ".venv")


def test_a_script_runs_with_the_environment_of_its_folder(ground: Ground, own: str):
    done = ground.stoker("run", "where.py").ok()
    assert (done.out, done.err) == (f"{own}\n", "stoker: using python of .venv (to change: --python)\n")
    (ground.work / "below").mkdir()
    below = ground.stoker("run", "--new", "../where.py", cwd=ground.work / "below").ok()
    assert below.out == f"{own}\n" and "python of ../.venv" in below.err


def test_an_active_environment_wins_and_python_chooses(ground: Ground, own: str):
    active = {"VIRTUAL_ENV": sys.prefix}
    done = ground.stoker("run", "where.py", env=active).ok()
    assert (done.out, done.err) == (f"{sys.prefix}\n", "")
    chosen = ground.stoker("run", "--python", ".venv", "where.py", env=active).ok()
    assert (chosen.out, chosen.err) == (f"{own}\n", "")
    assert ground.stoker("run", "--python", sys.executable, "where.py").ok().out == f"{sys.prefix}\n"
    unknown = ground.stoker("run", "--python", "no-such", "where.py")
    assert unknown.code == 125 and "There is no Python 'no-such'" in unknown.err


def test_variables_come_from_a_pipe_as_dotenv_reads_them(ground: Ground):
    command = f"{STOKER} run --env-file <(printf 'A=b # said\\nexport C=\"d e\"\\n') -- sh -c 'echo \"$A|$C\"'"
    done = subprocess.run(["bash", "-c", command], cwd=ground.work, env=ground.env, capture_output=True, text=True, timeout=60, check=False)
    assert done.stdout == "b|d e\n", done.stderr


def test_a_python_of_a_machine_that_nobody_added_is_refused(ground: Ground):
    ground.script("x.py", "print(1)\n")
    done = ground.stoker("run", "--on", "box", "--python", "/there/python", "x.py")
    assert done.code == 125 and "There is no machine 'box'." in done.err, done.err
    assert "stoker machine add box" in done.err


@pytest.fixture
def pythons(ground: Ground) -> dict[str, str]:
    """PATH with a Python by version, a shim of pyenv that leads nowhere, and uv; and the Pythons of pyenv and uv in the home folder."""
    version = "{}.{}".format(*sys.version_info)
    for name in (f"bin/python{version}", ".pyenv/versions/3.90.2/bin/python3", ".pyenv/versions/mine/bin/python3",
                 ".local/share/uv/python/cpython-3.9.18-linux-x86_64-gnu/bin/python3"):
        place = ground.user / name
        place.parent.mkdir(parents=True, exist_ok=True)
        place.symlink_to(sys._base_executable)
    ground.script("bin/uv", "#!/bin/sh\n", 0o755, folder=ground.user)
    ground.script("shims/python3.91", "#!/bin/sh\nexit 127\n", 0o755, folder=ground.user)
    return {"PATH": f"{ground.user}/shims:{ground.user}/bin:/bin"}


def test_the_versions_that_exist_here_are_named(ground: Ground, pythons: dict[str, str]):
    ground.script("which.py", "print(1)\n")
    version = "{}.{}".format(*sys.version_info)
    refused = ground.stoker("run", "--python", "3.77", "which.py", env=pythons)
    assert refused.code == 125 and "There is no Python '3.77'." in refused.err
    hint = refused.err.splitlines()[-1]
    listed = hint.removeprefix("hint: Python versions here: ").partition(". ")[0].split(", ")
    assert {"3.9", version, "3.90"} <= set(listed) and "3.91" not in listed and listed[-1] == "3.90", hint
    assert hint.endswith("Use one: stoker run --python 3.90 which.py   or install the requested version: uv python install 3.77")
    for each in ("3.9", "3.90", version):
        assert ground.stoker("run", "--new", "--python", each, "which.py", env=pythons).ok().out == "1\n"
    (ground.user / "bin" / "uv").rename(ground.user / "bin" / "pyenv")
    assert "pyenv install 3.77" in ground.stoker("run", "--python", "3.77.1", "which.py", env=pythons).err
    unknown = ground.stoker("run", "--python", "no-such", "which.py", env=pythons)
    assert unknown.err.endswith("Use one: stoker run --python 3.90 which.py\n")
