"""The how-to of upgrade, rollback and removal, with real wheels and real pip: what it says is so, also while a run goes on."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import sysconfig
import venv
import zipfile
from pathlib import Path

import pytest
from benchmarks.ground import until

import stoker

PACKAGE = Path(stoker.__file__).parent
REPO = PACKAGE.parents[1]
SCRIPT = "import os, time\nprint('begun', flush=True)\nwhile not os.path.exists('end'): time.sleep(0.05)\nprint('ended', flush=True)\n"
pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]


def wheel(folder: Path, version: str) -> Path:
    """This source under another version number, as a wheel."""
    info, text = f"stoker-{version}.dist-info", (PACKAGE / "__init__.py").read_text()
    files = {f"stoker/{path.relative_to(PACKAGE)}": path.read_bytes() for path in PACKAGE.rglob("*.py")}
    files["stoker/__init__.py"] = text.replace(stoker.__version__, version).encode()
    files[f"{info}/METADATA"] = f"Metadata-Version: 2.1\nName: stoker\nVersion: {version}\n".encode()
    files[f"{info}/WHEEL"] = b"Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
    files[f"{info}/entry_points.txt"] = b"[console_scripts]\nstoker = stoker.cli.__main__:main\n"
    files[f"{info}/RECORD"] = "".join(f"{name},,\n" for name in [*files, f"{info}/RECORD"]).encode()
    made = folder / f"stoker-{version}-py3-none-any.whl"
    with zipfile.ZipFile(made, "w") as out:
        for name, data in files.items():
            out.writestr(name, data)
    return made


class Place:
    """A fresh environment with everything that Stoker needs but Stoker itself; a state folder and a working folder."""

    def __init__(self, folder: Path) -> None:
        self.venv, self.home, self.work = folder / "v", folder / "h", folder / "w"
        self.work.mkdir()
        venv.create(self.venv, symlinks=True)
        self.packages = Path(sysconfig.get_path("purelib", vars={"base": str(self.venv)}))
        others = folder / "others"
        others.mkdir()
        for entry in os.scandir(sysconfig.get_path("purelib")):
            if "stoker" not in entry.name:
                (others / entry.name).symlink_to(entry.path)
        (self.packages / "others.pth").write_text(f"{others}\n")
        self.env = {**os.environ, "PATH": f"{self.venv}/bin:{os.environ['PATH']}", "STOKER_HOME": str(self.home), "HOME": str(folder)}
        self.env.pop("VIRTUAL_ENV", None)

    def pip(self, *words: str) -> None:
        argv = [sys.executable, "-m", "pip", "--python", self.venv / "bin" / "python", *words]
        subprocess.run(argv, env=self.env, check=True, capture_output=True, timeout=120)

    def install(self, made: Path) -> None:
        self.pip("install", "--upgrade", "--no-deps", "--no-index", "--no-compile", str(made))

    def stoker(self, *words: str, code: int = 0) -> str:
        """What it prints on both streams."""
        done = subprocess.run([self.venv / "bin" / "stoker", *words], cwd=self.work, env=self.env, stdin=subprocess.DEVNULL, text=True,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=120, check=False)
        assert done.returncode == code, done.stdout
        return done.stdout

    def shell(self, *argv: str) -> str:
        return subprocess.run(argv, cwd=self.work, env=self.env, capture_output=True, text=True, timeout=60, check=True).stdout


def completions() -> dict[str, str]:
    """Shell -> the line that the how-to tells to append."""
    page = next(REPO.glob("docs/**/upgrade.md")).read_text()
    return {shell: line.split("  #")[0] for shell, line in re.findall(r"^(?=.*_STOKER_COMPLETE=(\w+)_source)(.*)$", page, re.M)}


def test_upgrade_rollback_and_removal(short_tmp: Path):
    place, (major, minor) = Place(short_tmp), stoker.__version__.split(".")[:2]
    newer = f"{major}.{int(minor) + 1}.0"
    old, new = wheel(short_tmp, stoker.__version__), wheel(short_tmp, newer)
    try:
        place.install(old)
        (place.work / "job.py").write_text(SCRIPT)
        place.stoker("run", "-d", "job.py")
        until(lambda: "running" in place.stoker("show", "job") and "begun" in place.stoker("logs", "job"), 60, "the run")

        place.install(new)
        told = place.stoker("ps")
        assert newer in told and "runs continue" in told and "running" in told
        assert "begun" in place.stoker("logs", "job") and "running" in place.stoker("show", "job")

        place.install(old)
        assert "running" in place.stoker("ps") and "begun" in place.stoker("logs", "job") and "running" in place.stoker("show", "job")
        refused = place.stoker("stop", "job", code=1)
        assert newer in refused and stoker.__version__ in refused and "stoker server stop" in refused
        place.stoker("server", "stop")
        assert "running" in place.stoker("ps")
        (place.work / "end").touch()
        place.stoker("wait", "job")
        assert place.stoker("logs", "job") == "begun\nended\n"

        place.stoker("server", "stop")
        place.pip("uninstall", "-y", "stoker")
        assert not (place.venv / "bin" / "stoker").exists() and not list(place.packages.glob("stoker*"))
        assert list((place.home / "runs").glob("*/attempts/1/out.log")), "the logs stay until the folder is removed"
        shutil.rmtree(place.home)
    finally:
        (place.work / "end").touch()
        if (place.venv / "bin" / "stoker").exists():
            place.stoker("server", "stop")


@pytest.mark.parametrize(("shell", "asks"), [
    ("bash", "COMP_WORDS=(stoker lo); COMP_CWORD=1; $(complete -p stoker | sed 's/.*-F \\([^ ]*\\).*/\\1/') stoker lo; echo ${COMPREPLY[@]}"),
    ("zsh", "COMP_WORDS='stoker lo' COMP_CWORD=1 _STOKER_COMPLETE=zsh_complete stoker; print $_comps[stoker]"),
    ("fish", "complete -C 'stoker lo'"),
], ids=["bash", "zsh", "fish"])
def test_shell_completion(short_tmp: Path, shell: str, asks: str):
    if shutil.which(shell) is None:
        if os.environ.get("STOKER_REQUIRE_REAL"):
            pytest.fail(f"{shell} is not installed")
        pytest.skip(f"{shell} is not installed")
    place = Place(short_tmp)
    place.install(wheel(short_tmp, stoker.__version__))
    begin = {"zsh": "autoload -U compinit; compinit -D; "}.get(shell, "")
    options = {"bash": ["--norc", "--noprofile"], "zsh": ["-f"], "fish": ["--no-config"]}[shell]
    told = place.shell(shell, *options, "-c", f"{begin}{completions()[shell]}\n{asks}")
    assert "logs" in told, told
    assert shell != "zsh" or "_stoker" in told, "zsh does not know what completes stoker"
