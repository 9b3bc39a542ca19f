"""Whole rehearsals: scripts in usual styles run through, planted mistakes are found and told."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from stoker.base.vendor import lay_out

SCRIPTS = Path(__file__).parent / "scripts"
pytestmark = [pytest.mark.slow, pytest.mark.timeout(180)]


class Rehearsal:
    def __init__(self, done: subprocess.CompletedProcess[str], report: dict, folder: Path) -> None:
        self.code, self.out, self.err, self.report, self.folder = done.returncode, done.stdout, done.stderr, report, folder


@pytest.fixture
def rehearse(tmp_path):
    def run(*words: str, ranks: int = 2, text: str | None = None, **env: str) -> Rehearsal:
        folder, records = tmp_path / "work", tmp_path / "records"
        shutil.copytree(SCRIPTS, folder)
        records.mkdir()
        if text is not None:
            (folder / "train.py").write_text(text)
        kept = {k: v for k, v in os.environ.items() if not k.startswith(("STOKER_", "PYTHON"))}
        done = subprocess.run([sys.executable, *words], capture_output=True, text=True, timeout=170, check=False, cwd=folder,
                              env={**kept, "PYTHONPATH": str(lay_out(tmp_path)), "STOKER_HOOKS": str(records),
                                   "STOKER_REHEARSE": str(ranks), "OMP_NUM_THREADS": "1", **env})
        report = records / "rehearsal.json"
        return Rehearsal(done, json.loads(report.read_text()) if report.exists() else {}, folder)

    return run


def changed(name: str, *changes: tuple[str, str]) -> str:
    text = (SCRIPTS / name).read_text()
    for before, after in changes:
        assert text.count(before) >= 1, before
        text = text.replace(before, after)
    return text


def test_a_script_for_torchrun(rehearse):
    seen = rehearse("ddp_torchrun.py")
    assert seen.code == 0, seen.err
    assert seen.report["verdict"] == "rehearsal passed" and seen.report["ranks"] == 2 and seen.report["steps"] == [4, 4]
    assert "simulated GPU (rehearsal on a CPU)" in seen.out and not seen.report["warnings"]
    assert (seen.folder / "last.pt").exists()
    assert "memory of the GPU" in seen.err


@pytest.mark.campaign
def test_the_same_by_the_launchers_themselves(rehearse):
    seen = rehearse("-m", "torch.distributed.run", "--standalone", "--nproc_per_node", "8", "ddp_torchrun.py")
    assert seen.code == 0 and seen.report["ranks"] == 2, seen.err


@pytest.mark.campaign
@pytest.mark.parametrize(("name", "ranks"), [("ddp_spawn.py", 2), ("data_parallel.py", 2), ("amp_single.py", 1)])
def test_usual_styles(rehearse, name, ranks):
    seen = rehearse(name, ranks=ranks)
    assert seen.code == 0, seen.err
    assert seen.report["verdict"] == "rehearsal passed"
    assert not seen.report["warnings"], seen.report["warnings"]


STEP = "            optimizer.step()\n"
MISTAKES = {
    "same_gpu": ([("torch.cuda.set_device(local_rank)", "pass"), ('torch.device("cuda", local_rank)', 'torch.device("cuda")'),
                  ("device_ids=[local_rank], output_device=local_rank", "")], "use the same GPU (cuda:0)"),
    "batch_not_moved": ([("x, y = x.to(device, non_blocking=True), y.cuda(non_blocking=True)", "x = x.to(device)")],
                        "Expected all tensors to be on the same device, but found at least two devices, cuda:"),
    "weights_not_moved": ([("cross_entropy(model(x), y)", "cross_entropy(model(x), y, weight=torch.ones(3))")], "at least two devices"),
    "numpy_of_a_gpu_tensor": ([(STEP, STEP + "            loss.detach().numpy()\n")], "can't convert cuda:"),
    "unequal_calls": ([(STEP, STEP + "            if rank == 0:\n                dist.all_reduce(total)\n")], "wait for each other"),
    "one_rank_leaves": ([("        dist.barrier()\n", "        if rank == 0:\n            dist.barrier()\n        else:\n            return\n")], "a rank waits for another rank that has ended"),
    "no_such_gpu": ([("torch.cuda.set_device(local_rank)", "torch.cuda.set_device(local_rank + 1)")], "invalid device ordinal"),
    "collective_on_the_cpu": ([("torch.zeros(1, device=device)", "torch.zeros(1)"), ("total += loss.detach()", "total += loss.detach().cpu()")],
                              "No backend type associated with device type cpu"),
    "model_on_the_cpu": ([(".to(device)\n    model = DDP", "\n    model = DDP")], "device_ids"),
    "batch_norm_of_one": ([("batch_size=16", "batch_size=1")], "Expected more than 1 value per channel"),
    "nan": ([("lr=1e-2", "lr=1e-2"), ("loss = nn.functional", "loss = float('nan') * nn.functional")], "loss is not finite"),
}


@pytest.mark.campaign
@pytest.mark.parametrize("name", MISTAKES)
def test_a_planted_mistake_is_found(rehearse, name):
    changes, said = MISTAKES[name]
    seen = rehearse("train.py", text=changed("ddp_torchrun.py", *changes))
    assert seen.code == 1, seen.err
    assert said in seen.report["verdict"], seen.err


LINTS = {
    "set_epoch": ([("sampler.set_epoch(epoch)", "pass")], "set_epoch"),
    "map_location": ([(', map_location={"cuda:0": f"cuda:{local_rank}"})', ")"), ("== device", "is not None")], "without map_location loads tensors to cuda:0"),
    "no_sampler": ([("sampler=sampler, ", "shuffle=True, ")], "same first batch"),
}


@pytest.mark.campaign
@pytest.mark.parametrize("name", LINTS)
def test_what_looks_like_a_mistake_is_told(rehearse, name):
    changes, said = LINTS[name]
    seen = rehearse("train.py", text=changed("ddp_torchrun.py", *changes))
    assert seen.code == 0, seen.err
    assert any(said in line for line in seen.report["warnings"]), seen.err


@pytest.mark.campaign
def test_a_mistake_in_a_process_of_the_scripts_own(rehearse):
    seen = rehearse("train.py", text=changed("ddp_spawn.py", ("torch.randn(20, 5).to(rank)", "torch.randn(20, 5)")))
    assert seen.code == 1 and "Expected all tensors to be on the same device" in seen.report["verdict"], seen.err
    assert any(line.startswith("at train.py:") for line in seen.report["lines"])


TRANSFORMED = """import torch
from torch import nn
class Shift(nn.Module):
    def forward(self, x):
        return x + 1.0
class Data(torch.utils.data.Dataset):
    shift = Shift()
    def __len__(self):
        return 64
    def __getitem__(self, i):
        return self.shift(torch.full((3, 5), float(i))), i % 2
net = nn.Sequential(nn.Flatten(), nn.Linear(15, 2)).cuda()
opt = torch.optim.SGD(net.parameters(), 0.01)
for x, y in torch.utils.data.DataLoader(Data(), 16, shuffle=True):
    opt.zero_grad()
    nn.functional.cross_entropy(net(x.cuda()), y.cuda()).backward()
    opt.step()
"""


def test_the_first_batch_is_not_a_sample_that_a_transform_was_given(rehearse):
    seen = rehearse("train.py", text=TRANSFORMED, ranks=1)
    assert seen.code == 0 and "first batch: [16, 3, 5]" in seen.err, seen.err


def test_a_script_that_trains_nothing_was_not_rehearsed(rehearse):
    seen = rehearse("train.py", text="import torch\nprint(torch.cuda.device_count())\n")
    assert seen.code == 3 and seen.out == "2\n" and "nothing was trained" in seen.err


def test_a_script_without_torch_is_left_alone(rehearse):
    seen = rehearse("-c", "import sys; print(sys.argv); sys.exit(0)", "--lr", "1")
    assert (seen.code, seen.out, seen.err) == (0, "['-c', '--lr', '1']\n", "")


def test_what_a_gpu_would_answer(rehearse):
    seen = rehearse("devices.py")
    assert seen.out.endswith("as on a GPU\n"), seen.err
