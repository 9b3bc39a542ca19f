"""Schedules, averaged weights, and checkpoints of plain loops."""

from __future__ import annotations

import signal

import pytest
from enginekit import HERE, Training
from scripts import script

pytestmark = [pytest.mark.slow, pytest.mark.inside, pytest.mark.timeout(300)]


def test_schedules_averages_and_plain_checkpoints(nursery, tmp_path):
    training = Training(nursery, tmp_path, {})
    assert training.live(HERE / "helper_checks.py") == [0], training.text()


LOOP = """
model = nn.Sequential(nn.Linear(6, 8), nn.Dropout(0.3), nn.Linear(8, 2))
opt = torch.optim.Adam(model.parameters(), lr=0.1)
sched = stoker.sched.cosine(opt, "4ep", warmup="3step")
train = DataLoader(data, batch_size=8, shuffle=True)
sched.bind(train)
curve = []
for epoch in range(stoker.load_checkpoint("ckpt", 0, model, opt, sched=sched, curve=curve), 4):
    for a, b in train:
        opt.zero_grad()
        loss = F.cross_entropy(model(a), b)
        loss.backward()
        opt.step()
        sched.step()
        curve.append(loss.item())
        if DIE == str(len(curve)): os.kill(os.getpid(), signal.SIGKILL)
    stoker.save_checkpoint("ckpt", epoch, model, opt, sched=sched, curve=curve)
print("END", weights(model), sum(curve), len(curve))
"""


def test_a_plain_loop_with_the_helpers_survives_kills_also_during_a_save(nursery, tmp_path):
    seeded = "torch.manual_seed(1)\n" + LOOP
    straight = Training(nursery, tmp_path / "straight", {})
    assert straight.live(script(straight.folder, seeded)) == [0], straight.text()
    killed = Training(nursery, tmp_path / "killed", {})
    path = script(killed.folder, seeded)
    assert killed.live(path, DIE="13") == [-signal.SIGKILL]
    assert killed.live(path, STOKER_CRASH_AT="checkpoint-state")[0] != 0
    assert killed.live(path, STOKER_CRASH_AT="checkpoint-renamed")[0] != 0
    assert killed.live(path) == [0], killed.text()
    assert killed.text().splitlines()[-1] == straight.text().splitlines()[-1]


COMPILED = """
import functools
nn.Module.compile = functools.partialmethod(nn.Module.compile, backend="eager")  # all but the C compiler
engine = stoker.Engine(folder="run", save="1h", precision="bf16")
model = nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 2))
opt = torch.optim.SGD(model.parameters(), lr=0.1)
model, opt = engine.setup(model, opt, compile=True)
for epoch in engine.epochs(2):
    for a, b in engine.batches(DataLoader(data, batch_size=8)):
        loss = F.cross_entropy(model(a), b)
        engine.step(loss)
    with engine.eval(model):
        print("OUT", model(a).dtype, math.isfinite(loss.item()))
"""


def test_a_compiled_model_computes_in_bfloat16(nursery, tmp_path):
    training = Training(nursery, tmp_path, {})
    assert training.live(script(tmp_path, "import math\n" + COMPILED)) == [0], training.text()
    assert training.text().count("OUT torch.float32 True") == 2


def test_on_a_gpu_a_resume_is_bit_exact_only_with_deterministic_kernels(monkeypatch):
    torch = pytest.importorskip("torch")
    from stoker.engine import grade

    gpu = torch.device("cuda")
    assert not grade.of_kernels(torch.device("cpu"))
    assert [each for each, _ in grade.of_kernels(gpu)] == [grade.SAMPLE]
    monkeypatch.setattr(torch, "are_deterministic_algorithms_enabled", lambda: True)  # to switch it on changes this process for good
    assert not grade.of_kernels(gpu)
    monkeypatch.setattr(torch, "is_deterministic_algorithms_warn_only_enabled", lambda: True)
    assert grade.of_kernels(gpu)
