"""Accumulation, weights and ranks: one step equals that of one big batch; another number of ranks sees the same samples in the same order."""

from __future__ import annotations

import json

import pytest
import torch
from enginekit import Training
from safetensors.torch import load_file
from scripts import script

pytestmark = [pytest.mark.slow, pytest.mark.inside]

BIG = """
engine = stoker.Engine(folder="run", accumulate={accumulate})
torch.manual_seed(5)
model = nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 2)).double()
opt = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
data = TensorDataset(x[:{count}].double(), (x[:{count}, 0] > 0).long())
train = DataLoader(data, batch_size={batch}, shuffle=True)
engine.setup(model, opt, train)
for epoch in engine.epochs(3):
    for a, b in engine.batches(train):
        {step}
print("END", engine.steps)
engine.export("weights.safetensors", model)
"""
MEAN = "engine.step(F.cross_entropy(model(a), b))"
TOKENS = """tokens = (a[:, 1] > -0.5).double(); engine.step((F.cross_entropy(model(a), b, reduction="none") * tokens).sum(), weight=tokens.sum().item())"""


def weights(nursery, folder, ranks=1, **words):
    training = Training(nursery, folder, {"ranks": ranks})
    path = script(folder, BIG.format(**words))
    codes = training.live(path)
    assert not any(codes), training.text()
    return load_file(folder / "weights.safetensors"), training.text()


@pytest.mark.parametrize("step", [MEAN, TOKENS], ids=["mean", "tokens"])
@pytest.mark.parametrize(("accumulate", "ranks"), [(4, 1), (2, 2), (1, 4)])
def test_small_batches_make_the_step_of_a_big_one(nursery, tmp_path, step, accumulate, ranks):
    count = 34  # 12, 12 and 10: the last step has 3, 3, 3 and 1
    big, said = weights(nursery, tmp_path / "big", accumulate=1, batch=12, count=count, step=step)
    small, _ = weights(nursery, tmp_path / "small", ranks, accumulate=accumulate, batch=3, count=count, step=step)
    assert "END 9" in said
    for name, tensor in big.items():
        assert torch.allclose(tensor, small[name], rtol=0, atol=1e-9), name


def test_two_losses_of_a_micro_batch_are_a_sum(nursery, tmp_path):
    twice = "engine.backward(0.25 * F.cross_entropy(model(a), b)); engine.backward(0.75 * F.cross_entropy(model(a), b), opt); engine.update()"
    one, _ = weights(nursery, tmp_path / "one", accumulate=2, batch=6, count=34, step=MEAN)
    two, said = weights(nursery, tmp_path / "two", accumulate=2, batch=6, count=34, step=twice)
    assert "END 9" in said
    for name, tensor in one.items():
        assert torch.allclose(tensor, two[name], rtol=0, atol=1e-9), name


def test_another_number_of_ranks_sees_the_same_samples_with_the_same_draws(nursery, tmp_path):
    options = {"ranks": 4, "dropout": True, "epochs": 3, "die_at": 7, "save": "3step", "samples": 61}
    straight = Training(nursery, tmp_path / "straight", {**options, "die_at": None})
    straight.run()
    killed = Training(nursery, tmp_path / "killed", options)
    pids = killed.start()
    assert nursery.wait(pids[0]) == -9
    killed.kill(pids)
    killed.options = {**options, "ranks": 2}
    assert killed.live() == [0, 0], killed.text()
    assert "sample-exact (the number of ranks changed (4 → 2))" in killed.text()
    assert "batch size 16 = 2 ranks x 4 samples x 2 micro-batches" in killed.text()

    def real(training):
        lines = [line for rank in range(4) for line in (training.folder / f"seen{rank}.txt").read_text().splitlines()]
        return {line for line in lines if line.startswith("train") and line.endswith("False")}

    assert real(straight) == real(killed)
    one, other = (load_file(t.root / (t.root / "latest").read_text().strip() / "tensors.safetensors") for t in (straight, killed))
    for name, tensor in one.items():
        if name.startswith("model1.state"):
            assert torch.allclose(tensor, other[name], atol=1e-5), name
    docs = [json.loads((t.root / (t.root / "latest").read_text().strip() / "state.json").read_text()) for t in (straight, killed)]
    assert docs[0]["step"] == docs[1]["step"]
    assert docs[0]["samples"] == docs[1]["samples"] == 183


def test_an_evaluation_sees_each_sample_once_over_all_ranks(nursery, tmp_path):
    training = Training(nursery, tmp_path, {"ranks": 4, "epochs": 1, "samples": 50})
    training.run()
    ids = [int(i) for rank in range(4) for line in (tmp_path / f"seen{rank}.txt").read_text().splitlines() if line.startswith("test")
           for i in line.split()[1].split(",")]
    assert sorted(ids) == list(range(50))


@pytest.mark.parametrize("workers", [0, 2])
def test_workers_evaluation_and_logging_change_no_bit(nursery, tmp_path, workers):
    texts = []
    for n, extra in enumerate(["", "        engine.log(loss=loss)\n    with engine.eval():\n        for z, _ in engine.batches(train): torch.randn(3); model(z)\n"]):
        body = f"""
class Noisy(Dataset):
    def __len__(self): return 40
    def __getitem__(self, i): return x[i] + torch.randn(6), i % 2
engine = stoker.Engine(folder="run")
model = nn.Sequential(nn.Linear(6, 8), nn.Dropout(0.5), nn.Linear(8, 2))
opt = torch.optim.SGD(model.parameters(), lr=0.1)
train = DataLoader(Noisy(), batch_size=8, shuffle=True, num_workers={workers * n}, persistent_workers={bool(workers * n)})
engine.setup(model, opt, train)
for epoch in engine.epochs(2):
    for a, b in engine.batches(train):
        loss = F.cross_entropy(model(a), b)
        engine.step(loss)
{extra}
print("END", weights(model))
"""
        training = Training(nursery, tmp_path / str(n), {})
        path = script(training.folder, body)
        assert training.live(path) == [0], training.text()
        texts.append(training.text().splitlines()[-1])
    assert texts[0] == texts[1]
