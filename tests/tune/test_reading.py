"""What the text of a script says: places of lines, epochs, turns, batches compared with themselves, data sets that change."""

import pytest

from stoker.tune import reading

HEAD = """\
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

class Data(Dataset):
    def __init__(self):
        self.level = 0
    def __len__(self):
        return 100
    def __getitem__(self, i):
        return torch.zeros(3)
    def harder(self):
        self.level += 1

data = Data()
loader = DataLoader(data, batch_size=4)
model = nn.Linear(3, 3)
a = torch.optim.SGD(model.parameters(), lr=0.1)
b = torch.optim.SGD(model.parameters(), lr=0.1)
"""
LOOP = """\
for epoch in range(3):
    {before}
    for x in loader:
        loss = model(x).sum()
        {middle}
        loss.backward()
        a.step()
"""


def read(tmp_path, text):
    path = tmp_path / "train.py"
    path.write_text(text)
    return reading.read(path)


def loop(before="pass", middle="pass"):
    return HEAD + LOOP.format(before=before, middle=middle)


def test_lines_know_where_they_stand(tmp_path):
    text = loop(middle="n = [p.grad for p in model.parameters()]")
    found = read(tmp_path, text)
    file = next(iter(found.sources))
    number = next(i for i, row in enumerate(text.splitlines(), 1) if "p.grad" in row)
    place = found.place(file, number)
    assert place.each_step and place.in_step and "parameters" in place.loops and place.text.startswith("n = [")
    assert found.epochs and not found.place(file, 1).in_step and not found.place("/nowhere.py", 1).text


@pytest.mark.parametrize("before", ["data.level = epoch", "data.harder()", "loader.dataset.level += 1", "data.set_epoch(epoch)"])
def test_a_data_set_that_is_changed_between_epochs(tmp_path, before):
    assert read(tmp_path, loop(before=before)).sets_on_dataset


@pytest.mark.parametrize("before", ["pass", "print(len(data))", "n = data.level", "x = data.describe()", "model.level = epoch"])
def test_a_data_set_that_is_not_changed(tmp_path, before):
    assert read(tmp_path, loop(before=before)).sets_on_dataset is None


def test_optimizers_that_take_turns(tmp_path):
    assert read(tmp_path, loop().replace("        a.step()\n", "        a.step()\n        loss.backward()\n        b.step()\n")).turns


def test_optimizers_that_step_together(tmp_path):
    assert not read(tmp_path, loop().replace("        a.step()\n", "        a.step()\n        b.step()\n")).turns


@pytest.mark.parametrize("middle", ["s = model(x) @ model(x).t(); y = torch.arange(len(x))", "d = torch.cdist(x, x); y = torch.eye(4)",
                                    "s = torch.matmul(x, x.T); y = torch.arange(4)"])
def test_samples_that_are_compared_within_a_batch(tmp_path, middle):
    assert read(tmp_path, loop(middle=middle)).batch_pairs


@pytest.mark.parametrize("middle", ["s = x @ model.weight; y = torch.arange(4)", "s = model(x) @ model(x).t()",
                                    "s = x @ x.transpose(-2, -1); y = s.masked_fill(s == 0, 1)"])
def test_samples_that_are_not_surely_compared(tmp_path, middle):
    assert read(tmp_path, loop(middle=middle)).batch_pairs is None


def test_a_data_set_that_takes_away_what_it_reads(tmp_path):
    assert read(tmp_path, loop().replace("        return torch.zeros(3)", "        os.unlink(self.files[i])\n        return 1")).takes_away
    assert read(tmp_path, loop()).takes_away is None


@pytest.mark.parametrize("row, draws", [("return torch.rand(3)", True), ("return self.x[i] + numpy.random.normal()", True),
                                        ("return self.x[i].flip(0)", False), ("return crop(self.x[i])", False)])
def test_a_data_set_that_draws_its_samples(tmp_path, row, draws):
    assert bool(read(tmp_path, loop().replace("return torch.zeros(3)", row)).draws) == draws


@pytest.mark.parametrize("middle, fine", [
    ("eps = 1e-3; d = (model(x + eps) - model(x)) / eps", True), ("h = 1e-4; d = (model(x + h) - model(x - h)) / (2 * h)", True),
    ("assert torch.allclose(model(x), x)", True), ("torch.backends.cuda.matmul.allow_tf32 = False", True),
    ("d = (x - x.mean()) / x.std()", False), ("d = (x - 1) / 0.1", False), ("d = x / 1e-3", False), ("torch.backends.cuda.matmul.allow_tf32 = True", False),
])
def test_what_needs_its_digits(tmp_path, middle, fine):
    assert bool(read(tmp_path, loop(middle=middle)).fine) == fine


@pytest.mark.parametrize("middle, loops", [
    ("for t in range(9): h = model(x[:, t])", {"time"}), ("for s in x.unbind(1): h = model(s)", {"time"}),
    ("for k in range(9): h = model(x)", set()), ("for k in (1, 2): h = x.roll(k)", set()),
    ("for p in model.parameters(): p.grad.norm()", {"parameters"}), ("for p in model.parameters(): print(p)", {"reports"}),
])
def test_kinds_of_loops(tmp_path, middle, loops):
    text = loop(middle=middle)
    found = read(tmp_path, text)
    number = next(i for i, row in enumerate(text.splitlines(), 1) if middle in row)
    assert found.place(next(iter(found.sources)), number).loops == loops


def test_the_calls_along_a_path_are_named(tmp_path):
    text = loop(middle="helper.sweep(x)") + "\n\ndef sweep(x):\n    gc.collect()\n"
    found = read(tmp_path, text.replace("helper.sweep", "sweep"))
    file = next(iter(found.sources))
    rows = text.splitlines()
    path = [(file, 1 + next(i for i, row in enumerate(rows) if word in row)) for word in ("sweep(x)", "gc.collect")]
    assert found.along(*path[-1], path).chain == ("sweep",)


@pytest.mark.parametrize("text", ["", "x = (", "print('hello')\n", "\x00"])
def test_what_is_no_training_is_read_too(tmp_path, text):
    assert read(tmp_path, text).epochs is False
