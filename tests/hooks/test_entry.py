"""How the hooks come into a Python process, and that a script cannot tell."""

from __future__ import annotations

import importlib
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from stoker.base.vendor import hooks_name, lay_out
from stoker.inside.entry import imports


@pytest.fixture
def hooks(tmp_path: Path) -> Path:
    return lay_out(tmp_path)


def python(hooks: Path, code: str, *flags: str, path: str = "", **env: str) -> subprocess.CompletedProcess[str]:
    records = hooks.parent / "records"
    records.mkdir(exist_ok=True)
    where = os.pathsep.join([str(hooks), *([path] if path else [])])
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("STOKER_", "PYTHON"))}
    return subprocess.run([sys.executable, *flags, "-c", code], capture_output=True, text=True, timeout=60, check=False,
                          env={**kept, "PYTHONPATH": where, "STOKER_HOOKS": str(records), **env})


def lines(hooks: Path, folder: str = "records") -> list[dict]:
    """What the processes said of themselves while they ran; how each ended has a line of its own."""
    every = [json.loads(line) for line in (hooks.parent / folder / "processes.jsonl").read_text().splitlines()]
    return [line for line in every if "uncaught" not in line]


def test_each_process_says_that_it_is_hooked(hooks):
    assert python(hooks, "import subprocess, sys; subprocess.run([sys.executable, '-c', 'print(1)'])").stdout == "1\n"
    assert [line["role"] for line in lines(hooks)] == ["script", "script"]
    assert lines(hooks)[0]["argv"][1] == "-c"


def test_odd_words_on_the_command_line_are_valid_json(hooks):
    done = subprocess.run([sys.executable, "-c", "1", 'a"b\n\\', b"\xff\xe4", "ä"], timeout=60, check=True,
                          env={"PYTHONPATH": str(hooks), "STOKER_HOOKS": str(hooks.parent)})
    assert done.returncode == 0
    (line,) = lines(hooks, ".")
    assert line["argv"][3] == 'a"b\n\\' and line["argv"][5] == "ä"


def test_hooks_are_compiled_once_where_python_keeps_no_bytecode(hooks, tmp_path):
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "theirs.py").write_text("import sys\nprint(sys.dont_write_bytecode)\n")
    done = python(hooks, "import random, theirs", path=str(tmp_path / "mine"), PYTHONDONTWRITEBYTECODE="1", STOKER_RESUME="auto",
                  STOKER_RESUME_DIR=str(tmp_path / "resume"))
    assert (done.stdout, done.stderr) == ("True\n", "")
    for folder, name in (("entry", "handlers"), ("resume/world", "files")):
        assert list((hooks / "stoker_hooks" / folder).glob(f"__pycache__/{name}.*.pyc")), f"each process compiles {name} again"
    assert not (tmp_path / "mine" / "__pycache__").exists(), "the script's own modules are kept as it says"


def test_sys_path_is_as_without_them(hooks):
    code = "import sys; print(sys.path)"
    plain = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True,
                           env={k: v for k, v in os.environ.items() if not k.startswith("PYTHON")})
    assert python(hooks, code).stdout == plain.stdout


def test_a_sitecustomize_of_the_user_still_runs(hooks, tmp_path):
    other = tmp_path / "theirs"
    other.mkdir()
    (other / "sitecustomize.py").write_text("import builtins; builtins.theirs = __file__; print('first')\n")
    done = python(hooks, "import sys; print(theirs, sys.modules['sitecustomize'].__file__)", path=str(other))
    assert done.stdout == f"first\n{other}/sitecustomize.py {other}/sitecustomize.py\n" and not done.stderr


def test_a_sitecustomize_that_fails_is_told_as_python_tells_it(hooks, tmp_path):
    other = tmp_path / "theirs"
    other.mkdir()
    (other / "sitecustomize.py").write_text("import no_such_thing\n")
    plain = subprocess.run([sys.executable, "-c", "print(1)"], capture_output=True, text=True, timeout=60, check=True,
                           env={**{k: v for k, v in os.environ.items() if not k.startswith("PYTHON")}, "PYTHONPATH": str(other)})
    done = python(hooks, "print(1)", path=str(other))
    assert (done.stdout, done.stderr) == (plain.stdout, plain.stderr)
    assert "no_such_thing" in done.stderr


@pytest.mark.parametrize("flag", ["-I", "-E", "-S"])
def test_flags_that_keep_them_out(hooks, flag):
    assert python(hooks, "print(1)", flag).stdout == "1\n"
    assert not (hooks.parent / "records" / "processes.jsonl").exists()


def test_the_roles_of_multiprocessing(hooks):
    script = hooks.parent / "m.py"
    script.write_text("import multiprocessing as mp\ndef work(q): q.put(5)\nif __name__ == '__main__':\n"
                      "    for how in ('spawn', 'fork', 'forkserver'):\n        c = mp.get_context(how); q = c.Queue(); p = c.Process(target=work, args=(q,))\n"
                      "        p.start(); print(q.get()); p.join()\n")
    done = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, timeout=60, check=True,
                          env={**os.environ, "PYTHONPATH": str(hooks), "STOKER_HOOKS": str(hooks.parent)})
    assert done.stdout == "5\n5\n5\n", done.stderr
    roles = [line["role"] for line in lines(hooks, ".")]
    assert roles[0] == "script" and "worker" in roles and "service" in roles and roles.count("script") == 1


def test_torch_is_noticed_when_the_script_imports_it_not_before(hooks):
    pytest.importorskip("torch")
    assert python(hooks, "import sys; print('torch' in sys.modules)").stdout == "False\n"
    done = python(hooks, "import torch.nn; import sys; print(torch.__spec__.loader.__dict__.get('exec_module'))")
    assert done.stdout == "None\n", done.stderr
    assert lines(hooks)[-1]["torch"]


def test_who_stands_around_an_import_is_told_of_each_attempt(tmp_path, monkeypatch):
    (tmp_path / "halting.py").write_text("import sys\nsys.told.append('runs')\nif len(sys.told) < 3:\n    raise ValueError\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(sys, "told", [], raising=False)
    monkeypatch.delitem(sys.modules, "halting", raising=False)
    imports.around("halting", lambda module: sys.told.append("begins"), lambda module: sys.told.append(module.__name__))
    with pytest.raises(ValueError):
        importlib.import_module("halting")
    assert sys.told == ["begins", "runs"]
    importlib.import_module("halting")
    assert sys.told[2:] == ["begins", "runs", "halting"]
    imports.around("halting", sys.told.append, sys.told.append)
    assert len(sys.told) == 5


def test_another_framework_is_noticed(hooks, tmp_path):
    (tmp_path / "other" / "tensorflow").mkdir(parents=True)
    (tmp_path / "other" / "tensorflow" / "__init__.py").write_text("")
    done = python(hooks, "import tensorflow", path=str(tmp_path / "other"))
    assert not done.returncode and lines(hooks)[-1]["other"] == "tensorflow"


def test_no_folder_to_write_to_is_no_reason_to_fail(hooks):
    done = python(hooks, "print(1)", STOKER_HOOKS="/nowhere/at/all")
    assert (done.stdout, done.stderr) == ("1\n", "")


def test_the_folder_is_named_after_its_content(hooks):
    assert hooks.name == hooks_name() and lay_out(hooks.parent) == hooks
    assert (hooks / "sitecustomize.py").exists() and (hooks / "stoker_hooks" / "__init__.py").exists()
    assert not list(hooks.parent.glob(".*.new"))
