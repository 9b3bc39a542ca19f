"""What counts as printing and logging, how often it happens, and the line that is named; an evaluation and its print are none of that."""

import pytest
from made_facts import CARD, SPLIT, facts, line, pairs

from stoker.tune import reading, report, rules

SCRIPT = """\
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader


class Net(nn.Module):
    def forward(self, x):
        x = F.relu(self.conv1(x)); x = F.relu(self.conv2(x))
        return F.log_softmax(x, 1)


def penalty(out):
    if out.isnan().any(): print("not a number")
    return (out.exp() + 1).log().mean()


def report(model, step):
    row = [p.norm().item() for p in model.parameters()]
    print(step, row)


def train_step(model, x, y, i):
    loss = F.nll_loss(model(x), y) + penalty(x); loss.backward(); optimizer.step()
    print(i, loss.item())


def train(args, model, loader):
    for i, (x, y) in enumerate(loader):
        loss = F.nll_loss(model(x), y) + penalty(x); loss.backward(); optimizer.step()  # whole
        if i % args.log_interval == 0:
            print(f"{i} {loss.item()}")
        print("each", i)
        report(model, i)


def train_in_parts(model, loader):
    for i, (x, y) in enumerate(loader):
        train_step(model, x, y, i)


def test(model, loader):
    with torch.no_grad():
        for x, y in loader:
            out = model(x)
            correct = (out.argmax(1) == y).sum().item()
    print("accuracy", correct)


loader, held = DataLoader(data, 32), DataLoader(other, 32)
model = Net()
optimizer = torch.optim.SGD(model.parameters(), 0.1)
for epoch in range(9):
    train(args, model, loader)
    train_in_parts(model, loader)
    test(model, held)
"""
CONV, LOG, SUM = "x = F.relu(self.conv1", "return (out.exp()", "correct ="
STEP, SELDOM, EACH = "# whole", 'print(f"{i}', 'print("each"'


@pytest.fixture
def text(tmp_path):
    (tmp_path / "mnist.py").write_text(SCRIPT)
    return reading.read(tmp_path / "mnist.py")


def number(of):
    return next(i for i, row in enumerate(SCRIPT.splitlines(), 1) if of in row)


def seen(text, call, kind, *path, windows=(), share=0.27):
    """The cause "logging" where the sampler saw this call, down this path; None where there is none."""
    file = next(iter(text.sources))
    told = {**line(call, share, number=number(path[-1]), kind=kind, file=file), "path": [[file, number(each)] for each in path]}
    found = rules.judge(facts(*windows, stacks={"n": 800, "lines": [told]}), CARD, text)
    return next((c for c in found.causes if c.name == "logging"), None), found


TEST = "    test(model, held)"
TRAIN = "    train(args, model, loader)"


@pytest.mark.parametrize(("call", "kind", "path"), [
    ("torch.nn.functional.relu", "evaluation", (TEST, "out = model(x)", CONV)),
    ("Tensor.item", "evaluation", (TEST, SUM)), ("Tensor.item", "other", (TEST, SUM)),
    ("torch.nn.functional.relu", "forward", (TRAIN, STEP, CONV)),
    ("Tensor.log", "other", (TRAIN, STEP, LOG)), ("Tensor.exp", "other", (TRAIN, STEP, LOG)),
])
def test_what_computes_is_no_logging(text, call, kind, path):
    assert seen(text, call, kind, *path)[0] is None


@pytest.mark.parametrize(("call", "kind", "path", "named"), [
    ("print", "log", (TRAIN, SELDOM), SELDOM), ("print", "log", (TRAIN, EACH), EACH),
    ("Tensor.norm", "other", (TRAIN, "        report(model, i)", "row = ["), "        report(model, i)"),
    ("print", "log", ("    train_in_parts(model, loader)", "        train_step(model", "print(i, loss"), "print(i, loss"),
    ("print", "log", (TRAIN, STEP, 'print("not a'), 'print("not a'),
])
def test_the_line_named_prints_or_calls_what_only_prints(text, call, kind, path, named):
    cause, _ = seen(text, call, kind, *path)
    assert cause.line == number(named) and cause.share.value == pytest.approx(0.27)


@pytest.mark.parametrize(("where", "logged", "often"), [
    (EACH, None, "logs in each step."), (SELDOM, None, "logs."), (SELDOM, 1, "logs about every 20 steps."), (SELDOM, 20, "logs in each step."),
])
def test_each_step_only_where_it_is(text, where, logged, often):
    windows = pairs("R1", 9.8, **({} if logged is None else {"logged": logged}))
    assert often in seen(text, "print", "log", TRAIN, where, windows=windows)[0].text


def test_a_print_every_n_steps_gets_no_second_test(text):
    _, found = seen(text, "print", "log", TRAIN, SELDOM)
    assert next(a for a in found.actions if a.name == "logging").diff == ""
    _, found = seen(text, "print", "log", TRAIN, EACH)
    assert "% 50 == 0" in next(a for a in found.actions if a.name == "logging").diff


def test_a_change_of_the_script_helps_only_as_a_forecast(text):
    _, found = seen(text, "print", "log", TRAIN, EACH)
    told = next(t for t in found.tips if t.name == "syncs")
    assert told.state == "NOT TESTED" and told.text.endswith("Forecast: +37%.") and told.gain is None
    _, busy = seen(text, "print", "log", TRAIN, EACH, windows=pairs("R1", 9.8, stolen=0.5, cpu=0.4))
    told = next(t for t in busy.tips if t.name == "syncs")
    assert told.state == "NOT TESTED" and "%" not in told.text


def test_headline_and_table_give_the_same_step():
    """Evaluation is in no step: the clock's 17.8 ms are 14.6 ms of a step, and 3.2 ms of evaluation."""
    split = {kind: part * 14.5 / 17.7 for kind, part in SPLIT.items()} | {"evaluation": 3.2 / 17.7}
    windows = pairs("R1", 17.5, base=17.7, split=split)
    for each in windows:
        each["evaluation_s"] = each["ms"].get("evaluation", 0.0) / 1e3
        each["wall_s"] -= each["evaluation_s"]
    found = rules.judge(facts(*windows), CARD, None)
    rows = [r.split() for r in report.text(found, CARD).splitlines()]
    assert found.verdict.startswith("Already good: 14.6 ms a step")
    assert ["a", "step", "14.6", "14.6"] in rows and sum(s.share for s in found.stages if s.name != "evaluation") == pytest.approx(1)
    assert next(r for r in rows if r[:1] == ["evaluation"])[1] == "3.22"
