"""What doctor says of another machine's Python: packages are installed where pip can install them."""

from __future__ import annotations

import json
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

from stoker.doctor import there
from stoker.plane.precheck import FIND_SPEC


def told_by(python: str) -> dict:
    done = subprocess.run([python, "-c", FIND_SPEC, "nosuchmodule"], capture_output=True, text=True, check=True)
    return json.loads(done.stdout)


def test_an_interpreter_says_whether_pip_may_install_there():
    marked = (Path(sysconfig.get_path("stdlib")) / "EXTERNALLY-MANAGED").exists()
    base = told_by(sys._base_executable)
    assert base["lacks"] == ["nosuchmodule"] and base["managed"] is marked
    if sys.prefix != sys.base_prefix:
        assert told_by(sys.executable)["managed"] is False, "an environment has its own packages"


@pytest.mark.parametrize("managed", [True, False])
def test_the_hint_for_a_missing_module_works_with_that_python(tmp_path, managed):
    (tmp_path / "train.py").write_text("import torch\n")
    facts = {"interpreter": {"executable": "/usr/bin/python3", "version": "3.11.2", "lacks": ["torch"], "managed": managed}}
    found = there.examine("box", ["python", "train.py"], tmp_path, lambda modules, python: facts)
    hint = next(each.hint for each in found if each.topic == "import")
    assert ("stoker ssh box /usr/bin/python3 -m venv env" in hint) is managed
    assert ("stoker ssh box env/bin/pip install torch" in hint and "--python ~/env" in hint) is managed
