"""Lines that warn and log are the script's own in a recorded run: ours stand between, and are passed over."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from stoker.base.vendor import lay_out

SCRIPT = """
import logging, sys, warnings
import torch
logging.basicConfig(format="%(filename)s:%(lineno)d %(message)s", stream=sys.stdout)

def called(level):
    warnings.warn("told", stacklevel=level)
    logging.warning("logged", stacklevel=level)

class Net(torch.nn.Module):
    def forward(self, x):
        called(self.level)
        return x

net = Net()
for net.level in range(1, 5):
    net(torch.ones(2))
layer = torch.nn.Linear(2, 1)
layer.register_full_backward_hook(lambda *_: None)
layer(torch.ones(2)).sum().backward()  # torch warns of this hook, two levels up
"""


@pytest.mark.inside
def test_warnings_and_log_lines_name_the_same_lines(tmp_path: Path):
    (tmp_path / "train.py").write_text(SCRIPT)
    told = []
    for hooked in (False, True):
        env = {k: v for k, v in os.environ.items() if not k.startswith(("STOKER", "PYTHON"))}
        if hooked:
            (tmp_path / "records").mkdir()
            env |= {"PYTHONPATH": str(lay_out(tmp_path / "hooks")), "STOKER_HOOKS": str(tmp_path / "records"), "STOKER_RESUME": "auto",
                    "STOKER_RESUME_DIR": str(tmp_path / "resume"), "STOKER_ATTEMPT": "1"}
        ran = subprocess.run([sys.executable, "train.py"], cwd=tmp_path, env=env, capture_output=True, text=True, timeout=100, check=True)
        told.append((ran.stdout, ran.stderr))
    assert "stoker" not in "".join(told[1]) and told[1][1].count("told") >= 2
    assert told[0] == told[1]
