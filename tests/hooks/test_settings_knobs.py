"""Knobs that are turned in living trainings: what they change, what they give back, and what happens where they do not fit."""

from __future__ import annotations

from pathlib import Path

import pytest
from settings_lives import live

from stoker.base.vendor import lay_out

pytest.importorskip("torch")

TRAIN = """
torch.manual_seed(0)
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv, self.norm, self.drop, self.out = nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.Dropout(0.1), nn.Linear(2048, 4)
    def forward(self, x):
        self.seen = torch.is_autocast_enabled("cpu"), x.is_contiguous(memory_format=torch.channels_last)
        return {"y": [self.out(self.drop(torch.relu(self.norm(self.conv(x)))).flatten(1))], "n": 1}
x, y = torch.randn(64, 3, 16, 16), torch.randint(0, 4, (64,))
model = Net()
optimizer = torch.optim.Adam(model.parameters(), 1e-3)
def step():
    out = model(x)["y"][0]
    loss = nn.functional.cross_entropy(out, y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    return [str(out.dtype), *model.seen, {str(p.grad.dtype) for p in model.parameters()} == {"torch.float32"}]
"""


@pytest.fixture(scope="module")
def vendored(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return lay_out(tmp_path_factory.mktemp("settings"))


def test_settings_of_a_run_are_applied_and_told(vendored, tmp_path):
    told = live(vendored, tmp_path, TRAIN + """
tell(steps=[step() for _ in range(3)], threads=torch.get_num_threads(), fused=optimizer.param_groups[0]["fused"],
     saved=optimizer.state_dict()["param_groups"][0]["fused"], last=model.conv.weight.is_contiguous(memory_format=torch.channels_last))
""", {"threads": 2, "precision": "bf16", "channels_last": True, "fused": True, "compile": False})
    assert told.said["steps"] == [["torch.float32", True, True, True]] * 3
    assert (told.said["threads"], told.said["fused"], told.said["saved"], told.said["last"]) == (2, True, None, True)
    assert sorted(told.applied) == ["channels_last", "fused", "precision=bf16", "threads=2"]
    assert told.left == {}


def test_knobs_go_on_and_off_between_steps(vendored, tmp_path):
    told = live(vendored, tmp_path, TRAIN + """
from stoker_hooks.settings import knobs
first = step()
held = step(), knobs.root() is model, knobs.optimizers() == [optimizer], len(knobs.shapes())
model.eval(); a = model(x)["y"][0]
whys = [knobs.precision.on("bf16"), knobs.channels_last.on(True), knobs.threads.on(1), knobs.fused.on(True)]
b = model(x)["y"][0]; model.train()
on = step()
for each in knobs.ALL:
    each.off()
    each.off()
off = step()
tell(first=first, held=held, whys=whys, on=on, off=off, near=bool((a - b).abs().max() < 0.2), differs=not torch.equal(a, b),
     fused=optimizer.param_groups[0]["fused"], layout=model.conv.weight.is_contiguous(), bad=[knobs.precision.on("fp8"), knobs.threads.on(0)])
""", {"threads": 2})
    off, on = ["torch.float32", False, False, True], ["torch.float32", True, True, True]
    assert told.said["held"] == [off, True, True, 16]
    assert (told.said["first"], told.said["on"], told.said["off"]) == (off, on, off)
    assert told.said["whys"] == [""] * 4
    assert told.said["near"] and told.said["differs"]
    assert told.said["fused"] is None and told.said["layout"] is True
    assert all(told.said["bad"])


def test_a_forward_that_fails_with_a_knob_is_run_again_without(vendored, tmp_path):
    """As if the knob had never been: the same numbers as without settings, buffers and random state included."""
    code = """
torch.manual_seed(0)
class Strict(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm, self.drop, self.out = nn.BatchNorm1d(8), nn.Dropout(0.5), nn.Linear(8, 1)
    def forward(self, x):
        x = self.out(self.drop(self.norm(x)))
        if x.dtype is not torch.float32:
            raise RuntimeError("expected Float")
        return x
model = Strict()
optimizer = torch.optim.SGD(model.parameters(), 0.1)
for _ in range(3):
    loss = model(torch.randn(16, 8)).square().mean()
    optimizer.zero_grad(); loss.backward(); optimizer.step()
tell(loss=loss.item(), mean=model.norm.running_mean.tolist(), n=int(model.norm.num_batches_tracked))
"""
    plain, told = live(vendored, tmp_path, code, None), live(vendored, tmp_path, code, {"precision": "bf16"})
    assert told.said == plain.said
    assert told.applied == [] and "expected Float" in told.left["precision"]


def test_what_does_not_fit_is_left_with_its_reason(vendored, tmp_path):
    """Each of these models says no for itself; the settings of another model are not applied at all."""
    told = live(vendored, tmp_path, """
from stoker_hooks.settings import knobs, roots
found = {}
def train(name, model, call=None, value="bf16", knob=knobs.precision, make=torch.optim.SGD):
    optimizer = make(model.parameters(), lr=0.1)
    for _ in range(2):
        out = (call or model)(torch.randn(4, 8, dtype=next(model.parameters()).dtype))
        out.abs().mean().backward()
        optimizer.step()
    found[name] = knob.fits(value)
def net(): return nn.Sequential(nn.Linear(8, 8), nn.Linear(8, 2))
def cast(model):
    def call(x):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return model(x)
    return call
train("good", net())
a = net(); train("double", a.double())
a = net(); train("autocast", a, cast(a))
a = net(); train("several", a, lambda x: a[1](a[0](x)))
a = net(); train("by name", a, lambda x: a.forward(x))
a = net(); train("compiled", torch.compile(a, backend="eager"))
train("script", torch.jit.script(net()))
train("no convolutions", net(), value=True, knob=knobs.channels_last)
train("adadelta", net(), value=True, knob=knobs.fused, make=torch.optim.Adadelta)
train("fused", net(), value=True, knob=knobs.fused, make=torch.optim.AdamW)
scaler = torch.amp.GradScaler("cpu"); train("scaler", net())
tell(found=found)
""", {"shapes": "0" * 16, "threads": 2, "precision": "bf16"})
    found = told.said["found"]
    assert found.pop("good") == "" and found.pop("fused") == ""
    parts = {"double": "float64", "autocast": "already uses autocast", "several": "Linear", "by name": "", "compiled": "compile", "script": "TorchScript",
             "no convolutions": "no 2-D", "adadelta": "Adadelta", "scaler": "scales"}
    for name, part in parts.items():
        assert found[name] and part in found[name], (name, found[name])
    assert told.applied == [] and "shapes have changed" in told.left["threads"] and "shapes have changed" in told.left["precision"]
