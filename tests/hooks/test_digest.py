"""The fingerprint by which `verify-resume` compares runs."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from stoker.base.vendor import lay_out

pytest.importorskip("torch")
pytestmark = pytest.mark.slow
AROUND = """
import torch
class Around(torch.optim.Optimizer):
    def __init__(self, base):
        super().__init__(base.param_groups, {})
        self.base, self.calls = base, 0
    def step(self):
        self.calls += 1
        if self.calls == 2:
            raise ValueError
        self.base.step()
torch.manual_seed(0)
net = torch.nn.Linear(4, 2)
opt = Around(torch.optim.Adam(net.parameters(), lr=RATE))
for n in range(11):
    net(torch.ones(1, 4)).sum().backward()
    try:
        opt.step()
    except ValueError:
        pass
"""


def digest(tmp_path: Path, text: str) -> dict:
    (tmp_path / "train.py").write_text(text)
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("STOKER_", "PYTHON"))}
    hooks = lay_out(tmp_path / "hooks") if not (tmp_path / "hooks").exists() else next((tmp_path / "hooks").iterdir())
    env = {"PYTHONPATH": str(hooks), "STOKER_HOOKS": str(tmp_path), "STOKER_DIGEST": str(tmp_path / "digest")}
    subprocess.run([sys.executable, "train.py"], cwd=tmp_path, env={**kept, **env}, timeout=120, check=True)
    return json.loads((tmp_path / "digest").read_text())


def test_the_step_of_an_optimizer_around_another_one_is_one_step_and_both_of_their_states_count(tmp_path):
    """Ten steps, for one raised before it reached the optimizer within."""
    found = digest(tmp_path, AROUND.replace("RATE", "0.1"))
    assert (found["steps"], found["ended"]) == (10, True)
    assert found["tensors"] == 2 + 2 * 2 + 2 * 3  # of the module; of both optimizers; what Adam keeps
    assert digest(tmp_path, AROUND.replace("RATE", "0.1"))["digest"] == found["digest"]
    assert digest(tmp_path, AROUND.replace("RATE", "0.11"))["digest"] != found["digest"]
