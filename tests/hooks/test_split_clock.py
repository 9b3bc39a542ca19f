"""Where the time of little trainings goes, whose split is known by how they are made: what sleeps is found under its own name."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from stoker.base import reading
from stoker.base.vendor import lay_out
from stoker.plane import steps

pytest.importorskip("torch")

HEAD = """
import os, time, torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, IterableDataset, TensorDataset
torch.manual_seed(0)
class Slow(Dataset):
    def __init__(self, n, s):
        self.n, self.s = n, s
    def __len__(self):
        return self.n
    def __getitem__(self, i):
        time.sleep(self.s)
        return torch.ones(4) * i, torch.ones(1)
def net():
    return nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 1))
m = net()
"""
OPTIMIZER = "o = torch.optim.SGD(m.parameters(), 1e-4)\n"


@pytest.fixture(scope="module")
def hooks(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return lay_out(tmp_path_factory.mktemp("clock"))


class Told:
    """What the clock of one run wrote down."""

    def __init__(self, attempt: Path, done: subprocess.CompletedProcess[str]) -> None:
        self.done, self.attempt = done, attempt
        self.lines = steps.read(attempt)
        self.processes = list(reading.read_lines(attempt / "hooks" / "processes.jsonl", 1 << 20))
        self.steady = [line for line in self.lines if not line.get("first")]
        self.first = [line for line in self.lines if line.get("first")]

    def ms(self, kind: str) -> float:
        return sum(line["ms"].get(kind, 0.0) for line in self.steady)

    @property
    def steps(self) -> int:
        return self.lines[-1]["step"]


def train(hooks: Path, folder: Path, code: str, optimizer: str = OPTIMIZER, **env: str) -> Told:
    (folder / "attempt" / "hooks").mkdir(parents=True)
    script = folder / "script.py"
    script.write_text(HEAD + optimizer + code)
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("STOKER_", "PYTHON"))}
    done = subprocess.run([sys.executable, str(script)], cwd=folder, capture_output=True, text=True, timeout=100, check=False,
                          env={**kept, "PYTHONPATH": str(hooks), "STOKER_HOOKS": str(folder / "attempt" / "hooks"), "OMP_NUM_THREADS": "1", **env})
    assert done.returncode == 0, done.stderr
    told = Told(folder / "attempt", done)
    for line in told.lines:  # every moment is counted, and counted once
        assert sum(line["ms"].values()) == pytest.approx(1000 * line["s"], rel=0.01, abs=0.5)
    return told


def test_each_sleep_is_found_under_its_name(hooks, tmp_path):
    told = train(hooks, tmp_path, """
real = o.step
class Step(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = net()
    def forward(self, x):
        time.sleep(0.004)
        return self.inner(x)
class Back(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.clone()
    @staticmethod
    def backward(ctx, g):
        time.sleep(0.003)
        return g
m = Step()
o = torch.optim.SGD(m.parameters(), 1e-4)
train, test = DataLoader(Slow(40, 0.002), batch_size=4), DataLoader(Slow(8, 0.002), batch_size=4)
for epoch in range(2):
    m.train()
    for x, y in train:
        loss = Back.apply(m(x)).sum()
        loss.backward()
        time.sleep(0.002)
        o.step()
        o.zero_grad()
        time.sleep(0.005)
    m.eval()
    with torch.no_grad():
        for x, y in test:
            m(x)
            time.sleep(0.01)
    torch.save(m.state_dict(), "m.pt")
""")
    made = 2 * 10 - 1  # steps after the first
    assert told.steps == 20 and len(told.first) == 1 and told.first[0]["steps"] == 1 and told.first[0]["setup_s"] > 0
    least = {"data": 8 * made, "forward": 4 * made, "backward": 3 * made, "optimizer": 2 * made, "other": 5 * made,
             "evaluation": 2 * 2 * (8 + 4 + 10)}
    for kind, ms in least.items():
        assert told.ms(kind) >= ms, kind
    whole = sum(told.ms(kind) for kind in least)
    assert told.ms("save") > 0 and told.ms("log") == told.ms("transfer") == 0
    assert sum(line["samples"] for line in told.steady) == 4 * made
    assert [epoch["batches"] for line in told.lines for epoch in line.get("epochs", ())] == [10, 10]
    assert max(told.ms("backward"), told.ms("optimizer")) < whole / 2  # nothing was put down to the wrong one
    summary = steps.summary(told.lines)
    assert summary["epochs"] == 2 and sum(summary["split"].values()) == pytest.approx(1, abs=0.001)


def test_workers_two_optimizers_and_accumulation(hooks, tmp_path):
    told = train(hooks, tmp_path, """
d = net()
p = torch.optim.Adam(d.parameters(), 1e-4)
loader = DataLoader(Slow(48, 0.001), batch_size=4, num_workers=2)
for epoch in range(2):
    for i, (x, y) in enumerate(loader):
        d(x).mean().backward()
        (m(x) - d(x)).pow(2).mean().backward()
        if i % 3 == 2:
            time.sleep(0.002)
            o.step(), p.step()
            o.zero_grad(), p.zero_grad()
""")
    assert told.steps == 2 * 12 // 3  # not twice as many for the second optimizer
    assert told.ms("start") > 0 and told.ms("optimizer") >= 2 * (told.steps - 1) and told.ms("evaluation") == 0
    assert len({line["pid"] for line in told.lines}) == 1  # workers say nothing
    assert steps.summary(told.lines)["ranks"] == 1


def test_loops_of_other_kinds(hooks, tmp_path):
    told = train(hooks, tmp_path, """
def batch():
    time.sleep(0.003)
    return torch.randn(16, 4)
for i in range(20):  # no loader; the same network evaluated between
    if i % 5 == 0:
        m.eval()
        with torch.no_grad():
            for _ in range(3):
                time.sleep(0.002)
                m(torch.randn(16, 4))
        m.train()
    loss = m(batch()).pow(2).mean()
    o.zero_grad()
    loss.backward()
    o.step()
second = torch.optim.LBFGS(m.parameters(), max_iter=3)
x = torch.randn(64, 4)
def closure():
    second.zero_grad()
    loss = m(x).pow(2).mean()
    loss.backward()
    time.sleep(0.001)
    return loss
for i in range(4):
    second.step(closure)
print(i)
try:
    m(torch.randn(3, 5))
except RuntimeError:
    print("as ever")
m(batch()).sum().backward()
""")
    assert told.done.stdout.split("\n")[1] == "as ever"
    assert told.ms("other") >= 3 * 19 and 0 < told.ms("evaluation") < told.ms("other") and told.ms("log") > 0
    assert told.ms("optimizer") >= 4
    assert told.ms("data") == 0 and 20 <= told.steps <= 24


def test_each_sample_is_counted_and_a_batch_may_be_empty(hooks, tmp_path):
    told = train(hooks, tmp_path, """
class Uneven:
    def __iter__(self):
        return iter([[0, 1, 2], [3], [4, 5]])
    def __len__(self):
        return 3
data = Slow(10, 0)
for loader in (DataLoader(data, batch_size=4), DataLoader(data, batch_sampler=Uneven()), DataLoader(data, batch_size=4, collate_fn=lambda rows: [])):
    for epoch in range(2):
        for batch in loader:
            m(torch.ones(2, 4)).sum().backward()
            o.step()
""")
    assert told.steps == 2 * (3 + 3 + 3)
    assert sum(line["batches"] for line in told.lines) == told.steps - 3  # of each loader the first one, which nobody had trained on yet
    assert sum(line["samples"] for line in told.lines) - (2 * (10 + 6) - 4 - 3) in range(6)  # of what is empty nobody knows


@pytest.mark.parametrize("resume", ["auto", "off"])
def test_what_is_printed_is_found_beside_exact_resume_too(hooks, tmp_path, resume):
    told = train(hooks, tmp_path, """
for i in range(20):
    m(torch.ones(4)).sum().backward()
    o.step()
    print("x" * 100_000, i, flush=True)
""", STOKER_RESUME=resume, STOKER_RESUME_DIR=str(tmp_path / "resume"), PYTHONHASHSEED="1")
    assert told.steps == 20 and told.ms("log") > 0.1 and told.ms("image") == 0
    assert told.done.stdout == "".join(f"{'x' * 100_000} {i}\n" for i in range(20))


def test_images_are_not_code_of_the_script(hooks, tmp_path):
    """What the last image took is found under its own name. Each step is counted once."""
    told = train(hooks, tmp_path, """
large = nn.Linear(3000, 3000)
for i in range(60):
    m(torch.ones(4)).sum().backward()
    o.step()
    large.weight.data[i] += 1
""", STOKER_RESUME="auto", STOKER_RESUME_DIR=str(tmp_path / "resume"), PYTHONHASHSEED="1", STOKER_IMAGE_EVERY="10steps")
    image = json.loads((tmp_path / "resume" / "state.json").read_text())["image"]
    assert image["step"] >= 10 and told.ms("image") >= 1000 * image["stall_s"] - 0.1 > 0
    assert sum(line["steps"] for line in told.lines) == told.steps == 60


def test_a_script_cannot_tell(hooks, tmp_path):
    code = """
import contextlib, copy, inspect, io, pickle
for i in range(5):
    m(torch.randn(2, 4)).sum().backward()
    o.step()
assert pickle.loads(pickle.dumps(print)) is print and print.__name__ == "print"
class Log:
    write = print
with contextlib.redirect_stdout(io.StringIO()) as heard:
    Log().write("no method")
assert heard.getvalue() == "no method\\n"
assert list(inspect.signature(DataLoader.__init__).parameters)[1] == "dataset"
assert torch.equal(copy.deepcopy(m)[0].weight, m[0].weight)
scripted = torch.jit.script(m)
assert torch.equal(scripted(torch.ones(1, 4)), m(torch.ones(1, 4)))
traced = torch.fx.symbolic_trace(m)
assert torch.equal(traced(torch.ones(1, 4)), m(torch.ones(1, 4)))
torch.save(m, "whole.pt")
assert type(torch.load("whole.pt", weights_only=False)) is nn.Sequential
pid = os.fork()
if not pid:
    m(torch.ones(1, 4))
    os._exit(0)
os.waitpid(pid, 0)
"""
    told = train(hooks, tmp_path, code, STOKER_CLOCK="steps")
    assert told.steps == 5 and "stoker" not in told.done.stderr and b"stoker" not in (tmp_path / "whole.pt").read_bytes()
    rows = [row for line in told.lines for row in line.get("each", ())]
    assert [row[0] for row in rows] == [1, 2, 3, 4, 5] and all(sum(row[1:]) > 0 for row in rows)


def test_compiled_models_have_no_graph_break_of_ours(hooks, tmp_path):
    told = train(hooks, tmp_path, """
import torch._dynamo
seen = []
def backend(graph, inputs):
    seen.append(len(list(graph.graph.nodes)))
    return graph.forward
fast = torch.compile(m, backend=backend, fullgraph=True)
for i in range(6):
    fast(torch.randn(2, 4)).sum().backward()
    o.step()
whole = torch.compile(lambda x: m(x).sum() * 2, backend=backend, fullgraph=True)
for i in range(3):
    whole(torch.randn(2, 4)).backward()
    o.step()
print(len(seen))
""")
    assert told.steps == 9 and told.done.stdout.strip() == "2"


def test_a_run_that_trains_nothing(hooks, tmp_path):
    told = train(hooks, tmp_path, "for epoch in range(0):\n    o.step()\n")
    assert steps.trained_nothing(told.lines, told.processes) == "an optimizer was created, but made no step"


def test_a_script_that_starts_no_ranks_trains_nothing(hooks, tmp_path):
    told = train(hooks, tmp_path, "import torch.multiprocessing as mp\nmp.spawn(print, nprocs=0)\n", optimizer="")
    assert steps.trained_nothing(told.lines, told.processes).startswith("the script started 0 ranks")


def test_a_fault_of_ours_takes_the_clock_out_and_nothing_else(hooks, tmp_path):
    told = train(hooks, tmp_path, """
from stoker_hooks.clock import marks
for i in range(5):
    if i == 3:
        marks._fetched = None  # whatever breaks in there
        marks.durations = None
    m(torch.randn(2, 4)).sum().backward()
    o.step()
print("ended")
""")
    assert told.done.stdout == "ended\n"
    records = (tmp_path / "attempt" / "hooks" / "processes.jsonl").read_text()
    assert "stopped: " in records


def test_events_of_a_gpu_are_read_when_they_are_past(hooks):
    """The accelerator is pretended: events that are done when it says so, on a clock of its own."""
    code = """
import json, sys
sys.path.insert(0, sys.argv[1])
from stoker_hooks.clock.device import Device
clock, done = [0.0], [0]
class Event:
    def record(self):
        self.at = clock[0]
    def query(self):
        return self.at <= done[0]
    def elapsed_time(self, other):
        return other.at - self.at
d = Device(Event)
def step():
    for mark, ms in ((d.begins, 5), (d.forward_begins, 1), (d.backward_begins, 10), (d.backward_ends, 20), (d.step_ends, 2)):
        clock[0] += ms
        mark()
for done[0] in (0, 60, 1000):
    step()
    print(json.dumps(d.collect()))
"""
    done = subprocess.run([sys.executable, "-c", code, str(hooks)], capture_output=True, text=True, timeout=60, check=True)
    nothing, some, rest = [json.loads(line) for line in done.stdout.splitlines()]
    assert nothing == {}
    # 38 ms a step: at 60 the GPU is in the second backward; what lies before the first mark of all is not known
    assert some == {"gpu_ms": {"gap": 5.0, "transfer": 2.0, "forward": 20.0, "backward": 20.0, "optimizer": 2.0}}
    assert rest == {"gpu_ms": {"gap": 5.0, "transfer": 1.0, "forward": 10.0, "backward": 40.0, "optimizer": 4.0}}


def test_a_script_without_torch_writes_nothing(hooks, tmp_path):
    (tmp_path / "hooks").mkdir()
    subprocess.run([sys.executable, "-c", "print(1)"], check=True, capture_output=True, timeout=60,
                   env={"PYTHONPATH": str(hooks), "STOKER_HOOKS": str(tmp_path / "hooks")})
    assert not (tmp_path / "steps.jsonl").exists()


def test_weights_that_are_changed_by_hand(hooks, tmp_path):
    told = train(hooks, tmp_path, """
for x, y in DataLoader(Slow(120, 0.001), batch_size=2):
    loss = (m(x) - y).pow(2).mean()
    m.zero_grad()
    loss.backward()
    with torch.no_grad():
        for p in m.parameters():
            p.add_(p.grad, alpha=-1e-4)
    time.sleep(0.004)
""", optimizer="")
    assert told.steps == 60 - 8  # the first backwards could be those of a long accumulation
    assert told.ms("data") > 2 * 40 and told.ms("other") > 4 * 40


def test_a_long_accumulation_is_no_step_by_hand(hooks, tmp_path):
    told = train(hooks, tmp_path, """
for n, (x, y) in enumerate(DataLoader(Slow(120, 0.001), batch_size=2), 1):
    (m(x) - y).pow(2).mean().backward()
    if n % 20 == 0:
        o.step()
        o.zero_grad()
""")
    assert told.steps == 3
