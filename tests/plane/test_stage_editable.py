"""Editable installs, made by the real pip and setuptools, import the frozen copy."""

import os
import subprocess
import sys
import venv

import pytest

from stoker.plane.staging import stage

setuptools = pytest.importorskip("setuptools")
pytest.importorskip("pip")

PROJECT = """[build-system]
requires = ["setuptools"]
build-backend = "setuptools.build_meta"
[project]
name = "{name}"
version = "1"
[tool.setuptools]
{layout}
"""


@pytest.fixture(scope="module")
def environment(tmp_path_factory):
    """A virtual environment with nothing but setuptools, linked from ours."""
    where = tmp_path_factory.mktemp("env") / "v"
    venv.create(where, with_pip=False, symlinks=True)
    ours = os.path.dirname(os.path.dirname(setuptools.__file__))
    library = next((where / "lib").glob("python*/site-packages"))
    for name in os.listdir(ours):
        if name in ("setuptools", "_distutils_hack", "pkg_resources") or name.startswith("setuptools-"):
            (library / name).symlink_to(os.path.join(ours, name))
    return where


@pytest.fixture(autouse=True)
def state(tmp_path, monkeypatch):
    monkeypatch.setenv("STOKER_HOME", str(tmp_path / "state"))


def _install(environment, folder, name, layout, package):
    (folder / package).mkdir(parents=True)
    (folder / package / "__init__.py").write_text("place = __file__\n")
    (folder / "pyproject.toml").write_text(PROJECT.format(name=name, layout=layout))
    done = subprocess.run([sys.executable, "-m", "pip", "--python", str(environment / "bin/python"), "install", "-q", "--no-build-isolation",
                           "--no-index", "--no-deps", "--no-cache-dir", "-e", str(folder)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def _imported_from(environment, module, env):
    argv = [str(environment / "bin/python"), "-c", f"import {module}; print({module}.place)"]
    return subprocess.run(argv, cwd="/", env=env, capture_output=True, text=True, check=True).stdout.strip()


@pytest.mark.slow
@pytest.mark.parametrize("case", [
    ("srclayout", 'package-dir = {"" = "src"}', "src/srclayout", True),  # a path in a .pth file
    ("flatlayout", 'packages = ["flatlayout"]', "flatlayout", True),  # a finder
    ("renamed", 'packages = ["renamed"]\npackage-dir = {renamed = "lib"}', "lib", False),  # a finder, with a name that no path gives
], ids=lambda case: case[0])
def test_editable_installs(environment, tmp_path, case):
    name, layout, package, redirected = case
    folder, work = tmp_path / "project", tmp_path / "work"
    _install(environment, folder, name, layout, package)
    stage.freeze(folder, work, 10**9)
    env = {"PATH": "/usr/bin:/bin"}
    assert _imported_from(environment, name, env) == str(folder / package / "__init__.py")
    found = stage.editables(folder, work, str(environment / "bin/python"), env)
    top = work if redirected else folder
    assert _imported_from(environment, name, env | found.env) == str(top / package / "__init__.py")
    assert bool(found.warnings) is not redirected
    assert stage.editable_env(folder, work, str(environment / "bin/python"), env) == found.env


def test_pythonpath_into_the_folder_moves_and_the_rest_stays(environment, tmp_path):
    folder, work = tmp_path / "project", tmp_path / "work"
    (folder / "src").mkdir(parents=True)
    (folder / "src/mine.py").write_text("place = __file__\n")
    stage.freeze(folder, work, 10**9)
    env = {"PATH": "/usr/bin:/bin", "PYTHONPATH": f"{folder}/src:/opt/other:rel"}
    changes = stage.editable_env(folder, work, str(environment / "bin/python"), env)
    assert changes == {"PYTHONPATH": f"{work}/src:/opt/other:rel"}


def test_an_environment_inside_the_folder_is_not_an_editable_install(tmp_path):
    folder, work = tmp_path / "project", tmp_path / "work"
    folder.mkdir()
    (folder / "train.py").write_text("")
    venv.create(folder / ".venv", with_pip=False, symlinks=True)
    stage.freeze(folder, work, 10**9)
    found = stage.editables(folder, work, str(folder / ".venv/bin/python"), {"PATH": "/usr/bin"})
    assert (found.env, found.warnings) == ({}, [])


def test_a_folder_that_would_hide_pythons_own_modules_is_not_put_in_front(environment, tmp_path):
    folder, work = tmp_path / "project", tmp_path / "work"
    folder.mkdir()
    (folder / "random.py").write_text("place = __file__\n")
    library = next((environment / "lib").glob("python*/site-packages"))
    (library / "hiding.pth").write_text(f"{folder}\n")
    stage.freeze(folder, work, 10**9)
    try:
        found = stage.editables(folder, work, str(environment / "bin/python"), {"PATH": "/usr/bin"})
    finally:
        (library / "hiding.pth").unlink()
    assert found.env == {} and "random" in found.warnings[0]


def test_an_interpreter_that_does_not_answer(tmp_path):
    (tmp_path / "work").mkdir()
    found = stage.editables(tmp_path, tmp_path / "work", "/bin/false", {"PATH": "/usr/bin"})
    assert found.env == {} and "/bin/false" in found.warnings[0]
