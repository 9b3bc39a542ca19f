"""What is told of another machine before anything is sent there: --dry-run, its Pythons, doctor and top --on; against a real sshd."""

from __future__ import annotations

import json
import shutil
import sys
import venv
from collections.abc import Iterator
from pathlib import Path

import pytest
from benchmarks.ground import Ground

from real.sshd import Sshd

pytestmark = pytest.mark.real("sshd")


@pytest.fixture
def far(ground: Ground, sshd: Sshd) -> Path:
    """A machine `far`, as `machine add` would write it; its root."""
    settings = "".join(f"{option.replace('=', ' ', 1)}\n" for option in sshd.options)
    (ground.root / "ssh").write_text(f"Host box\nHostName 127.0.0.1\n{settings}")
    ground.home.mkdir()
    (ground.home / "config.toml").write_text(f'[targets.far]\nhost = "-F {ground.root}/ssh box"\nroot = "{ground.root}/far"\n')
    return ground.root / "far"


def test_a_dry_run_tells_what_goes_what_stays_and_what_is_there(ground: Ground, far: Path):
    ground.script("x.py", "print('there')")
    ground.script("big.txt", "b" * 5000)
    ground.script("secret.key", "k")
    ground.script(".stokerignore", "*.key\n")
    told = ground.stoker("run", "--on", "far", "--dry-run", "--json", "x.py").json()
    assert (told["files"], told["send"]["files"], told["there"]["files"]) == (3, 3, 0) and told["bytes"] == told["send"]["bytes"] > 5000
    assert told["largest"][0] == {"path": "big.txt", "bytes": 5000} and told["left_out"] == {"secret.key": "listed in .stokerignore"}
    assert ground.runs() == [] and not (far / "cache").exists()
    ground.stoker("run", "--on", "far", "x.py").ok()
    ground.script("x.py", "print('changed')")
    told = ground.stoker("run", "--on", "far", "--dry-run", "--json", "x.py").json()
    assert told["send"] == {"files": 1, "bytes": len("print('changed')")} and told["there"]["files"] == 2
    shown = ground.stoker("run", "--on", "far", "--dry-run", "x.py").ok()
    assert "secret.key (listed in .stokerignore)" in shown.out and "to send        1 file" in shown.out and "nothing was sent" in shown.err
    assert len(ground.runs()) == 1
    missing = ground.stoker("run", "--on", "far", "nothing.py")
    assert missing.code == 125 and "There is no file nothing.py" in missing.err and len(ground.runs()) == 1
    assert ground.stoker("run", "--dry-run", "--json", "x.py").json()["in_place"]


def test_the_python_of_a_machine_is_chosen_once_or_for_a_run(ground: Ground, far: Path):
    chosen = ground.script("bin/python9", f'#!/bin/sh\nexport CHOSEN=yes\nexec {sys.executable} "$@"\n', 0o755, folder=ground.root)
    ground.script("x.py", "import os; print(os.environ.get('CHOSEN'))")
    assert ground.stoker("run", "--on", "far", "x.py").ok().out == "None\n"
    assert ground.stoker("run", "--on", "far", "--python", str(chosen), "x.py").ok().out == "yes\n"
    relative = ground.stoker("run", "--on", "far", "--python", ".venv", "x.py")
    assert relative.code == 125 and "stoker machine check far" in relative.err
    with open(ground.home / "config.toml", "a") as f:
        f.write(f'python = "{chosen}"\n')
    for command in (["x.py"], ["python", "x.py"], ["--", "python3", "x.py"]):
        assert ground.stoker("run", "--on", "far", *command).ok().out == "yes\n"
    facts = ground.stoker("machine", "check", "far", "--json").json()
    assert facts["chosen_python"] == str(chosen) and {each["found"] for each in facts["pythons"]} & {"login shell", "PATH"}
    assert all(each["version"].startswith("3.") and each["python"].startswith("/") for each in facts["pythons"])
    shown = [line.split() for line in ground.stoker("machine", "check", "far").ok().out.splitlines()]
    others = [words[3] for words in shown if words[:2] == ["other", "python"]]
    assert others == [each["python"] for each in facts["pythons"] if each["python"] != facts["python"]["executable"]]


@pytest.fixture
def of_home(sshd: Sshd) -> Iterator[Path]:
    """Environments in the home of the machine: `env` and `odd`."""
    for name in ("env", "odd"):
        venv.create(sshd.home / name, with_pip=False, symlinks=True)
    yield sshd.home
    for name in ("env", "odd"):
        shutil.rmtree(sshd.home / name)


def test_environments_in_the_home_of_a_machine_are_found_and_chosen(ground: Ground, far: Path, of_home: Path):
    ground.script("x.py", "import sys; print(sys.prefix)")
    for python in ("~/env", "~/env/", "~/env/bin/python", f"{ground.user}/env", str(of_home / "env")):
        assert ground.stoker("run", "--on", "far", "--new", "--python", python, "x.py").ok().out == f"{of_home}/env\n", python
    missing = ground.stoker("run", "--on", "far", "--new", "--python", "~/none", "x.py")
    assert missing.code == 125 and f"{of_home}/none/bin/python: no such file" in missing.err, missing.err
    facts = ground.stoker("machine", "check", "far", "--json").json()
    assert {str(of_home / name / "bin" / "python") for name in ("env", "odd")} <= {each["python"] for each in facts["pythons"]}


def test_doctor_names_what_is_missing_there(ground: Ground, far: Path):
    ground.script("own.py", "import nowhere_b")
    ground.script("x.py", "import os, own\nimport nowhere_a\ntry:\n    import nowhere_c\nexcept ImportError:\n    pass\n")
    found = ground.stoker("doctor", "--on", "far", "--json", "x.py")
    assert found.code == 1
    seen = {(each["level"], each["message"].split()[0], each["file"], each["line"]) for each in json.loads(found.out) if each["topic"] == "import"}
    assert seen == {("fail", "nowhere_a", "x.py", 2), ("fail", "nowhere_b", "own.py", 1), ("note", "nowhere_c", "x.py", 4)}
    ground.script("good.py", "import json\n")
    assert ground.stoker("doctor", "--on", "far", "good.py").code == 0
    assert "no file none.py" in ground.stoker("doctor", "--on", "far", "none.py").out
    wrong = ground.stoker("doctor", "--on", "far", "--", "/nowhere/python", "good.py")
    assert wrong.code == 1 and "/nowhere/python" in wrong.out
    told = ground.stoker("top", "--on", "far", "--json").json()
    assert told["machine"]["cpus"] >= 1 and told["runs"] == [] and not list(far.glob("runs/*"))


def has(environment: Path, name: str) -> None:
    """Install an empty package into an environment."""
    site = next(environment.glob("lib/python*/site-packages"))
    (site / name).mkdir()
    (site / name / "__init__.py").write_text("")
    (site / f"{name}-2.9.0.dist-info").mkdir()
    (site / f"{name}-2.9.0.dist-info" / "METADATA").write_text(f"Name: {name}\nVersion: 2.9.0\n")


def test_doctor_names_the_python_there_that_has_what_is_missing(ground: Ground, far: Path, of_home: Path):
    has(of_home / "odd", "nowhere_a")
    ground.script("x.py", "import sys\nimport nowhere_a\nprint(sys.prefix)")
    failed = ground.stoker("run", "--on", "far", "x.py")
    assert failed.code == 1 and "Next: stoker doctor --on far -- x.py" in failed.err
    found = ground.stoker("doctor", "--on", "far", "--", "x.py")
    assert found.code == 1 and "Use --python ~/odd: this Python has nowhere_a." in found.out, found.out
    assert ground.stoker("run", "--on", "far", "--new", "--python", "~/odd", "x.py").ok().out == f"{of_home}/odd\n"
    for python in ("~/odd/bin/python", str(of_home / "odd" / "bin" / "python")):
        assert ground.stoker("doctor", "--on", "far", "--", python, "x.py").code == 0
    ground.script("y.py", "import nowhere_b")
    lacking = json.loads(ground.stoker("doctor", "--on", "far", "--json", "y.py").out)
    hint = next(each["hint"] for each in lacking if each["topic"] == "import")
    assert "-m venv env" not in hint, hint  # ~/env exists


def test_the_python_of_a_machine_is_changed_as_the_hints_say(ground: Ground, far: Path, of_home: Path):
    has(of_home / "env", "torch")
    ground.script("x.py", "import sys; print(sys.prefix)")
    config = ground.home / "config.toml"
    place = f"write into {config}, below the line [targets.far]:\n"
    facts = ground.stoker("machine", "check", "far", "--json").json()
    if not facts["torch"]:
        shown = ground.stoker("machine", "check", "far").ok()
        assert f'{place}  python = "{of_home}/env/bin/python"\n' in shown.err, shown.err
    asked = ["machine", "add", "far", "--root", str(far), "--python", "~/env", "--", "-F", f"{ground.root}/ssh", "box"]
    refused = ground.stoker(*asked)
    assert refused.code == 6 and f'without removing it, {place}  python = "~/env"\n' in refused.err, refused.err
    config.write_text(config.read_text().replace("[targets.far]\n", '[targets.far]\n  python = "~/env"\n'))
    assert ground.stoker("run", "--on", "far", "x.py").ok().out == f"{of_home}/env\n"
    assert ground.stoker("doctor", "--on", "far", "x.py").code == 0
    again = ground.stoker(*asked)
    assert again.code == 6 and "write into" not in again.err
    other = ground.stoker(*[each.replace("~/env", "~/odd") for each in asked])
    assert 'below the line [targets.far], in place of the old python:\n  python = "~/odd"\n' in other.err, other.err
