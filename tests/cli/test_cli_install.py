"""`stoker run --on box --install`: an environment for requirements.txt is built there once, and keeps the machine's own torch."""

from __future__ import annotations

import json
import venv
import zipfile
from pathlib import Path

import pytest
from benchmarks.ground import Ground, until

from real.sshd import Sshd

pytestmark = pytest.mark.real("sshd")
SHOW = "import sys, torch, tiny\nprint(torch.__version__, tiny.__version__, sys.prefix != sys.base_prefix, sys.argv[1:], flush=True)\n"


def wheel(folder: Path, name: str, version: str, needs: str = "") -> Path:
    """A wheel of one module, made by hand."""
    path, info = folder / f"{name}-{version}-py3-none-any.whl", f"{name}-{version}.dist-info"
    needed = f"Requires-Dist: {needs}\n" if needs else ""
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr(f"{name}/__init__.py", f"__version__ = '{version}'\n")
        archive.writestr(f"{info}/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n{needed}")
        archive.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        archive.writestr(f"{info}/RECORD", "")
    return path


class Box:
    """A machine whose Python is an environment with a torch; packages come from a folder there."""

    def __init__(self, ground: Ground, sshd: Sshd) -> None:
        self.ground, self.wheels, self.image = ground, ground.root / "wheels", ground.root / "image"
        self.wheels.mkdir()
        venv.create(self.image, with_pip=False, symlinks=True, system_site_packages=True)
        site = next(self.image.glob("lib/python3*/site-packages"))
        for name, version in (("torch", "2.9"), ("torch", "1.0")):
            made = wheel(self.wheels, name, version)
            if version == "2.9":
                zipfile.ZipFile(made).extractall(site)
                made.unlink()
        wheel(self.wheels, "tiny", "2.0", "torch")
        settings = "".join(f"{option.replace('=', ' ', 1)}\n" for option in sshd.options)
        (ground.root / "ssh").write_text(f"Host box\nHostName 127.0.0.1\n{settings}")
        ground.stoker("machine", "add", "box", "--root", f"{ground.root}/far", "--", "-F", f"{ground.root}/ssh", "box").ok()
        with open(ground.home / "config.toml", "a") as f:
            f.write(f"python = {json.dumps(str(self.image / 'bin' / 'python'))}\n")
        ground.script("show.py", SHOW)

    def run(self, *words: str, wheels: str = ""):
        where = ("--env", "PIP_NO_INDEX=1", "--env", f"PIP_FIND_LINKS={wheels or self.wheels}")
        return self.ground.stoker("run", "--new", "--on", "box", "--install", *where, *words)

    def made(self) -> list[Path]:
        """The environments there that are complete, and whatever else lies beside them."""
        folder = self.ground.root / "far" / "venvs"
        return [path for path in folder.iterdir() if not path.name.endswith(".lock")] if folder.is_dir() else []


def test_requirements_are_installed_once_beside_the_torch_of_the_machine(ground: Ground, sshd: Sshd):
    box, wanted = Box(ground, sshd), ground.work / "requirements.txt"
    assert "--install needs uv.lock or requirements.txt in" in box.run("show.py").err
    wanted.write_text("# what it needs\ntiny>=1\ntorch==1.0\n")
    near = ground.stoker("run", "--install", "show.py")
    assert near.code == 125 and "stoker run --on NAME --install train.py" in near.err

    begun, uv = ground.root / "begun", sshd.home / ".local" / "bin" / "uv"  # killed while a uv installs that never ends
    uv.parent.mkdir(parents=True)
    uv.write_text(f"#!/bin/sh\ntouch {begun}\nexec sleep 600\n")
    uv.chmod(0o755)
    run = ground.detach("--on", "box", "--install", "--name", "slow", "show.py")
    until(begun.exists, 90, "the install")
    ground.stoker("stop", "--force", run["id"]).ok()
    ground.stoker("wait", run["id"])
    assert [path.joinpath("complete").exists() for path in box.made()] == [False]
    uv.unlink()

    first = box.run("show.py", "--lr", "1").ok()
    assert first.out.splitlines()[-1] == "2.9 2.0 True ['--lr', '1']"
    assert "stoker: using torch 2.9, which this machine already has (requested: torch==1.0)" in first.out and "Successfully installed tiny-2.0" in first.out
    assert box.run("show.py", wheels="/nowhere").ok().out == "2.9 2.0 True []\n" and len(box.made()) == 1

    wanted.write_text("tiny==7\n")
    failed = box.run("show.py")
    assert failed.code == 125 and "stoker: requirements.txt could not be installed (exit code 1)." in failed.out + failed.err
    assert [path.joinpath("complete").exists() for path in box.made()] == [True]
