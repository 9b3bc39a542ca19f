"""What a typed command means: real interpreters, real virtual environments, and what is said when it cannot be."""

import os
import shutil
import subprocess
import sys
import sysconfig
import venv
from pathlib import Path

import pytest

from stoker.base.errors import InvalidSpec
from stoker.plane.staging import stage


@pytest.fixture
def folder(tmp_path):
    work = tmp_path / "project"
    work.mkdir()
    return work


@pytest.fixture(scope="module")
def bare(tmp_path_factory):
    """A real virtual environment without torch."""
    return _environment(tmp_path_factory.mktemp("bare") / "v")


@pytest.fixture(scope="module")
def torchy(tmp_path_factory):
    """A real virtual environment in which a package named torch is installed."""
    where = _environment(tmp_path_factory.mktemp("torchy") / "v")
    library = Path(sysconfig.get_path("purelib", vars={"base": str(where), "platbase": str(where)}))
    (library / "torch").mkdir(parents=True)
    (library / "torch" / "__init__.py").write_text("raise SystemExit('torch must not be imported to be found')\n")
    return where


def _environment(where):
    venv.create(where, with_pip=False, symlinks=True)
    return where


def _env(*environments, **more):
    path = os.pathsep.join([*(str(e / "bin") for e in environments), "/usr/bin", "/bin"])
    return {"PATH": path, "HOME": os.environ.get("HOME", "/"), **more}


def test_script_runs_with_the_active_environment_and_keeps_its_link(folder, bare):
    (folder / "train.py").write_text("print(1)\n")
    found = stage.resolve(["train.py", "--lr", "0.1"], folder, _env(bare, VIRTUAL_ENV=str(bare)))
    assert found.argv == [str(bare / "bin/python"), "train.py", "--lr", "0.1"]
    assert found.script == folder / "train.py"
    assert found.warnings == []
    out = subprocess.run([found.argv[0], "-c", "import sys; print(sys.prefix)"], capture_output=True, text=True, check=True).stdout
    assert out.strip() == str(bare)


def test_never_our_own_python(folder, bare):
    (folder / "train.py").write_text("print(1)\n")
    assert stage.resolve(["train.py"], folder, _env(bare)).interpreter != sys.executable


def test_a_program_environment_of_pipx_is_passed_over(folder, bare, tmp_path):
    private = _environment(tmp_path / "pipx")
    (private / "pipx_metadata.json").write_text("{}")
    (folder / "train.py").write_text("print(1)\n")
    assert stage.resolve(["train.py"], folder, _env(private, bare)).interpreter == str(bare / "bin/python")


def test_python3_when_there_is_no_python(folder, tmp_path):
    only = tmp_path / "bin"
    only.mkdir()
    (only / "python3").symlink_to(sys.executable)
    (folder / "train.py").write_text("print(1)\n")
    assert stage.resolve(["train.py"], folder, {"PATH": str(only)}).argv[0] == str(only / "python3")
    found = stage.resolve(["python", "train.py"], folder, {"PATH": str(only)})
    assert found.argv[0] == str(only / "python3")
    assert "no python " in found.warnings[0]


def test_relative_interpreter_is_relative_to_the_folder(folder, bare):
    (folder / ".venv").symlink_to(bare)
    found = stage.resolve([".venv/bin/python", "-c", "print(1)"], folder, _env())
    assert found.argv == [str(folder / ".venv/bin/python"), "-c", "print(1)"]
    assert found.script is None


def test_an_environment_on_path_that_is_not_the_active_one_is_said(folder, bare, torchy):
    (folder / "train.py").write_text("print(1)\n")
    found = stage.resolve(["train.py"], folder, _env(bare, VIRTUAL_ENV=str(torchy)))
    assert found.interpreter == str(bare / "bin/python")
    assert str(torchy) in found.warnings[0]


@pytest.mark.parametrize("command, script", [
    (["python", "-u", "train.py", "--x"], "train.py"),
    (["python", "-Wignore", "-X", "dev", "-OB", "train.py"], "train.py"),
    (["python", "-m", "pkg.train", "a.py"], "pkg/train.py"),
    (["python", "-m", "pkg"], "pkg/__main__.py"),
    (["python", "-um", "pkg"], "pkg/__main__.py"),
    (["python", "pkg"], "pkg/__main__.py"),
    (["python", "-m", "cProfile", "-o", "out", "train.py"], "train.py"),
    (["python", "-c", "print(1)", "train.py"], None),
    (["python", "-"], None),
    (["python"], None),
])
def test_the_script_in_a_python_command(folder, bare, command, script):
    (folder / "pkg").mkdir()
    for name in ("train.py", "pkg/train.py", "pkg/__main__.py"):
        (folder / name).write_text("print(1)\n")
    found = stage.resolve(command, folder, _env(bare))
    assert found.argv == [str(bare / "bin/python"), *command[1:]]
    assert found.script == (folder / script if script else None)


def test_a_launcher_tells_its_interpreter_and_its_script(folder, bare):
    launcher = bare / "bin" / "torchrun"
    launcher.write_text(f"#!{bare}/bin/python3\nprint(1)\n")
    launcher.chmod(0o755)
    (folder / "train.py").write_text("import torch\n")
    with pytest.raises(InvalidSpec, match="has no torch"):
        stage.resolve(["torchrun", "--nproc_per_node", "2", "train.py"], folder, _env(bare))
    with pytest.raises(InvalidSpec, match=r"no file tarin\.py") as wrong:
        stage.resolve(["torchrun", "--nproc_per_node", "2", "tarin.py"], folder, _env(bare))
    assert "train.py" in wrong.value.hint


def test_torch_is_looked_for_before_the_start_and_not_imported(folder, bare, torchy):
    (folder / "train.py").write_text("import os\nimport torch.nn as nn\n")
    with pytest.raises(InvalidSpec) as wrong:
        stage.resolve(["train.py"], folder, _env(bare))
    assert "line 2" in wrong.value.message and str(bare / "bin/python") in wrong.value.message
    assert stage.resolve(["train.py"], folder, _env(torchy)).warnings == []
    (folder / ".venv").symlink_to(torchy)
    with pytest.raises(InvalidSpec) as wrong:
        stage.resolve(["train.py"], folder, _env(bare))
    assert "source .venv/bin/activate" in wrong.value.hint


@pytest.mark.parametrize("text", [
    "try:\n    import torch\nexcept ImportError:\n    torch = None\n",
    "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import torch\n",
    "def main():\n    import torch\n",
    "from . import torch\n",
    "import contextlib\nwith contextlib.suppress(ImportError):\n    import torch\n",
    "import torchlike_thing\n",
])
def test_guarded_torch_is_no_reason_to_refuse(folder, bare, text):
    (folder / "train.py").write_text(text)
    stage.resolve(["train.py"], folder, _env(bare))


def test_torch_beside_the_script_or_on_pythonpath_counts(folder, bare, torchy, tmp_path):
    (folder / "train.py").write_text("import torch\n")
    library = next((torchy / "lib").glob("python*/site-packages"))
    assert stage.resolve(["train.py"], folder, _env(bare, PYTHONPATH=str(library))).warnings == []
    (folder / "torch").mkdir()
    (folder / "torch" / "__init__.py").write_text("")
    assert stage.resolve(["train.py"], folder, _env(bare)).warnings == []


def test_a_script_that_installs_torch_itself_is_only_warned_about(folder, bare):
    (folder / "train.py").write_text("import os\nos.system('pip install torch')\nimport torch\n")
    assert "has no torch now" in stage.resolve(["train.py"], folder, _env(bare)).warnings[0]


def test_a_syntax_error_is_a_warning_with_its_line(folder, bare):
    (folder / "train.py").write_text("x = 1\ndef (:\n")
    found = stage.resolve(["train.py"], folder, _env(bare))
    assert "line 2" in found.warnings[0]


def test_a_chatty_environment_does_not_disturb_the_answer(folder, torchy, tmp_path):
    (tmp_path / "site").mkdir()
    (tmp_path / "site" / "sitecustomize.py").write_text("print('hello {\"missing\": [\"torch\"]}')\n")
    (folder / "train.py").write_text("import torch\n")
    assert stage.resolve(["train.py"], folder, _env(torchy, PYTHONPATH=str(tmp_path / "site"))).warnings == []


def test_a_dead_interpreter_is_a_warning_not_a_refusal(folder, tmp_path):
    broken = tmp_path / "bin"
    broken.mkdir()
    (broken / "python").write_text("#!/bin/sh\necho 'libpython not found' >&2\nexit 127\n")
    (broken / "python").chmod(0o755)
    (folder / "train.py").write_text("import torch\n")
    found = stage.resolve(["train.py"], folder, {"PATH": f"{broken}:/usr/bin:/bin"})
    assert "libpython not found" in found.warnings[0]


def _shims(tmp_path, target):
    """A shim as pyenv writes it: a script in a folder named shims that picks the interpreter by the folder it is called in."""
    shims = tmp_path / "pyenv" / "shims"
    shims.mkdir(parents=True)
    for name in ("python", "python3"):
        (shims / name).write_text(f'#!/bin/sh\n[ -f .python-version ] || {{ echo "pyenv: {name}: command not found" >&2; exit 127; }}\nexec {target} "$@"\n')
        (shims / name).chmod(0o755)
    return shims


def test_a_shim_becomes_the_interpreter_it_leads_to_in_that_folder(folder, bare, tmp_path):
    shims = _shims(tmp_path, bare / "bin/python3")
    (folder / ".python-version").write_text("x")
    (folder / "train.py").write_text("print(1)\n")
    found = stage.resolve(["train.py"], folder, {"PATH": f"{shims}:/usr/bin:/bin"})
    assert found.argv[0] == found.interpreter == str(bare / "bin/python3")
    (folder / ".python-version").unlink()
    with pytest.raises(InvalidSpec, match="finds no Python") as wrong:
        stage.resolve(["python", "train.py"], folder, {"PATH": f"{shims}:/usr/bin:/bin"})
    assert "command not found" in wrong.value.message


def test_a_link_to_a_version_chooser_is_asked_too(folder, bare, tmp_path):
    chooser = tmp_path / "mise"
    chooser.write_text(f'#!/bin/sh\nexec {bare}/bin/python3 "$@"\n')
    chooser.chmod(0o755)
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin/python").symlink_to(chooser)
    found = stage.resolve(["python", "-c", "print(1)"], folder, {"PATH": f"{tmp_path}/bin:/usr/bin:/bin"})
    assert found.argv == [str(bare / "bin/python3"), "-c", "print(1)"]


PYENV = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "shims"
if (PYENV / "python3").exists():  # no package of Debian or PyPI brings pyenv; the tests above do the same with shims of their own

    def test_the_real_pyenv(folder):
        env = {**os.environ, "PATH": f"{PYENV}:{os.environ['PATH']}"}
        (folder / "train.py").write_text("print(1)\n")
        found = stage.resolve(["python3", "train.py"], folder, env)
        asked = subprocess.run([PYENV / "python3", "-c", "import sys; print(sys.executable)"], cwd=folder, env=env, capture_output=True, text=True, check=True)
        assert found.argv[0] == asked.stdout.strip()


@pytest.mark.parametrize("command, message, hint", [
    ([], "no command", "stoker run"),
    ([""], "no command", "stoker run"),
    (["trian.py"], "no file trian.py", "train.py"),
    (["python", "trian.py"], "no file trian.py", "train.py"),
    (["deep.py"], "no file deep.py", "src/deep.py"),
    (["src"], "is a folder", "stoker run"),
    (["./src"], "is a folder", "stoker run"),
    (["src.py"], "is a folder", ""),
    (["book.ipynb"], "is a notebook", "jupyter nbconvert --to script book.ipynb"),
    (["python", "book.ipynb"], "is a notebook", "nbconvert"),
    (["./run.sh"], "not executable", "chmod +x ./run.sh"),
    (["run.sh"], "not executable", "chmod +x"),
    (["ready.sh"], "not on your PATH", "stoker run ./ready.sh"),
    (["./dos.sh"], "Windows line endings", "sed"),
    (["./gone.sh"], "/no/such/program", "first line"),
    (["no-such-program"], "no program no-such-program", "PATH"),
    (["pyhton", "train.py"], "no program pyhton", "python"),
    (["python train.py --lr 1"], "no program named", "Remove the quotes"),
    (["python train.py"], "no program named", "stoker run -- python train.py"),
    (["train.py --lr 1"], "no program named", "stoker run train.py --lr 1"),
    (["trian.py --lr 1"], "no program named", "Remove the quotes"),
    (["my train.py"], "no file 'my train.py'", "The current folder is"),
    (["python", "my train.py"], "no file 'my train.py'", "The current folder is"),
    (["two wrods.py"], "no file 'two wrods.py'", "Did you mean 'two words.py'?"),
    (["main.py"], "no file main.py", "The current folder is"),
    (["tra.py"], "no file tra.py", "train.py"),
    (["cd x && python train.py"], "no program named", "bash -c"),
    (["LR=1", "python", "train.py"], "shell assignment", "env LR=1 python train.py"),
    (["source", "x"], "command of the shell", "bash -c"),
])
def test_bad_commands_say_what_to_type(folder, bare, command, message, hint):
    for name in ("train.py", "two words.py", "book.ipynb", "run.sh", "ready.sh", "dos.sh", "gone.sh"):
        (folder / name).write_text("#!/bin/sh\n")
    (folder / "dos.sh").write_bytes(b"#!/bin/sh\r\necho\r\n")
    (folder / "gone.sh").write_text("#!/no/such/program\n")
    for name in ("ready.sh", "dos.sh", "gone.sh"):
        (folder / name).chmod(0o755)
    (folder / "src").mkdir()
    (folder / "src.py").mkdir()
    (folder / "src" / "deep.py").write_text("")
    with pytest.raises(InvalidSpec) as wrong:
        stage.resolve(command, folder, _env(bare))
    assert message in wrong.value.message
    assert hint in wrong.value.hint


def test_no_python_at_all(folder):
    (folder / "train.py").write_text("")
    with pytest.raises(InvalidSpec, match="no python "):
        stage.resolve(["train.py"], folder, {"PATH": "/nowhere"})


def test_programs_of_the_folder_stay_as_typed_and_others_become_absolute(folder, bare):
    (folder / "go.sh").write_text("#!/bin/sh\necho hi\n")
    (folder / "bare.sh").write_text("echo hi\n")
    for name in ("go.sh", "bare.sh"):
        (folder / name).chmod(0o755)
    assert stage.resolve(["./go.sh", "x"], folder, _env(bare)).argv == ["./go.sh", "x"]
    assert stage.resolve(["./bare.sh"], folder, _env(bare)).argv == ["/bin/sh", "./bare.sh"]
    assert stage.resolve(["sh", "-c", "true"], folder, _env()).argv[0] in ("/usr/bin/sh", "/bin/sh")


@pytest.mark.parametrize("name", ["two words.py", "it's.py", '"q".py', "训练.py", "🔥.py", "-rf.py"])
def test_odd_names(folder, bare, name):
    (folder / name).write_text("print('here')\n")
    found = stage.resolve([name], folder, _env(bare))
    assert subprocess.run(found.argv, cwd=folder, capture_output=True, text=True, check=True).stdout == "here\n"


def test_a_script_that_may_not_be_read(folder, bare):
    (folder / "train.py").write_text("")
    (folder / "train.py").chmod(0)
    program = ("import sys; from pathlib import Path; from stoker.plane.staging import stage; from stoker.base.errors import Denied\n"
               "try: stage.resolve(['train.py'], Path(sys.argv[1]), {'PATH': sys.argv[2]})\n"
               "except Denied as e: print(e.message)")
    argv = [sys.executable, "-c", program, str(folder), str(bare / "bin")]
    if os.geteuid() == 0:  # root may read everything, unless it gives that up
        if not shutil.which("setpriv"):
            pytest.skip("root without setpriv")
        argv = ["setpriv", "--bounding-set=-dac_override,-dac_read_search", *argv]
    out = subprocess.run(argv, capture_output=True, text=True, check=True).stdout
    assert "train.py cannot be read" in out
