"""What doctor says of another machine's Python: packages are installed where pip can install them."""

from __future__ import annotations

import json
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

from stoker.backends.pythons import SHOW
from stoker.doctor import there


def told_by(python: str) -> dict:
    done = subprocess.run([python, "-c", SHOW, "nosuchmodule"], capture_output=True, text=True, check=True)
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
    found = there.examine("box", ["python", "train.py"], tmp_path, lambda modules, python: facts, lambda modules: [])
    hint = next(each.hint for each in found if each.topic == "import")
    assert ("stoker ssh box /usr/bin/python3 -m venv env" in hint) is managed
    assert ("stoker ssh box env/bin/pip install torch" in hint and "--python ~/env" in hint) is managed


MANAGED = {"executable": "/usr/bin/python3", "version": "3.11.2", "managed": True}
ENV = {"python": "/root/env/bin/python", "typed": "~/env", "managed": False}
CONDA = {"python": "/opt/conda/bin/python", "typed": "/opt/conda", "managed": False}
PIP = "stoker ssh box {} -m pip install {}   then use --python {}"


@pytest.mark.parametrize("others, hints", [
    ([ENV | {"lacks": []}], ["Use --python ~/env: this Python has torch.", "Use --python ~/env: this Python has yaml."]),
    ([ENV | {"lacks": ["torch", "yaml"]}, CONDA | {"lacks": []}],
     ["Use --python /opt/conda: this Python has torch.", "Use --python /opt/conda: this Python has yaml."]),
    ([CONDA | {"lacks": ["torch", "yaml"]}, ENV | {"lacks": ["torch", "yaml"]}],
     [PIP.format(ENV["python"], each, "~/env") for each in ("torch", "pyyaml")]),
    ([ENV | {"lacks": ["yaml"]}], ["Use --python ~/env: this Python has torch.", PIP.format(ENV["python"], "pyyaml", "~/env")]),
    ([ENV | {"lacks": ["yaml", "pip"]}],
     ["Use --python ~/env: this Python has torch.", f"stoker ssh box {ENV['python']} -m ensurepip   then: " + PIP.format(ENV["python"], "pyyaml", "~/env")]),
])
def test_a_python_that_has_the_modules_is_named_and_no_environment_is_made_over_another(tmp_path, others, hints):
    (tmp_path / "train.py").write_text("import torch\nimport yaml\ntry:\n    import numpy\nexcept ImportError:\n    pass\n")
    facts = {"interpreter": MANAGED | {"lacks": ["torch", "yaml"]}}
    for command in (["train.py"], ["python", "-m", "torch.distributed.run", "--nproc-per-node", "2", "train.py"]):
        found = there.examine("box", command, tmp_path, lambda modules, python: facts, lambda modules: others)
        assert [each.hint for each in found if each.topic == "import"] == hints
