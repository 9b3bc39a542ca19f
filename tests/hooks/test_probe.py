"""Little trainings that measure themselves: what is found is known by how they are made, and nothing of the user's is changed."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from stoker.base.vendor import lay_out

pytest.importorskip("torch")

HEAD = """
import os, sys, time, torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, IterableDataset, TensorDataset
torch.manual_seed(0)
class Slow(Dataset):
    def __init__(self, n, s=0.0):
        self.n, self.s = n, s
    def __len__(self):
        return self.n
    def __getitem__(self, i):
        time.sleep(self.s)
        return torch.ones(4), i * 3 // self.n
m = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 1))
o = torch.optim.SGD(m.parameters(), 1e-4)
def step(x):
    loss = m(x).pow(2).mean()
    o.zero_grad()
    loss.backward()
    o.step()
    return loss
"""


@pytest.fixture(scope="module")
def hooks(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return lay_out(tmp_path_factory.mktemp("probe"))


class Told:
    """What one trial left behind."""

    def __init__(self, room: Path, folder: Path, done: subprocess.CompletedProcess[str]) -> None:
        self.done, self.room, self.folder = done, room, folder
        path = room / "facts.json"
        self.facts = json.loads(path.read_text()) if path.exists() else {}
        self.lines = [json.loads(line) for line in (room / "hooks" / "processes.jsonl").read_text().splitlines()]

    def windows(self, phase: str) -> list[dict]:
        return [w for w in self.facts["windows"] if w["phase"] == phase and not w.get("sampled")]

    @property
    def phases(self) -> set[str]:
        return {w["phase"] for w in self.facts["windows"]}

    def per_step(self, phase: str, kind: str) -> float:
        found = self.windows(phase)
        return sum(w["ms"].get(kind, 0.0) for w in found if "ms" in w) / sum(w["steps"] for w in found)


def trial(hooks: Path, tmp_path: Path, code: str, head: str = HEAD, env: dict | None = None, **order: object) -> Told:
    room, folder = tmp_path / "room", tmp_path / "theirs"
    for each in (room / "hooks", room / "outside", folder / "runs"):
        each.mkdir(parents=True)
    (folder / "runs" / "old.txt").write_text("as it was")
    (folder / "script.py").write_text(head + code)
    said = {"mode": "probe", "seconds": 3.0, "steps": 0, "seed": None, "settings": {}, "try": ["none"], **order}
    (room / "order.json").write_text(json.dumps(said))
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("STOKER_", "PYTHON"))}
    done = subprocess.run([sys.executable, "script.py"], cwd=folder, capture_output=True, text=True, timeout=100, check=False,
                          stdin=subprocess.DEVNULL, env={**kept, "PYTHONPATH": str(hooks), "STOKER_HOOKS": str(room / "hooks"),
                                                         "STOKER_TUNE": str(room), "STOKER_RESUME": "off", "OMP_NUM_THREADS": "1",
                                                         **(env or {})})
    told = Told(room, folder, done)
    assert "stoker" not in done.stderr and not told.facts.get("faults"), (done.stderr, told.facts.get("faults"))
    return told


def test_a_training_measures_itself(hooks, tmp_path):
    told = trial(hooks, tmp_path, """
class Growing(Slow):
    epoch = 0
    def __init__(self, n, s):
        super().__init__(n, s)
        self.epoch = 0
data = Growing(240, 0.002)
train, test = DataLoader(data, batch_size=4), DataLoader(Slow(8), batch_size=4)
for epoch in range(10_000):
    m.train()
    data.epoch = epoch
    seen = 0
    for x, y in train:
        assert float(x.max()) == 1.0, "a batch came back changed"
        step(x).item()
        x.add_(5)
        seen += 1
    assert seen == 60, seen
    m.eval()
    with torch.no_grad():
        for x, y in test:
            m(x)
    os.makedirs("runs", exist_ok=True)
    torch.save(m.state_dict(), "runs/model.pt")
    with open("log.txt", "a") as f:
        f.write(f"{epoch}\\n")
    assert os.path.exists("runs/model.pt") and sorted(os.listdir("runs")) == ["model.pt", "old.txt"]
    torch.load("runs/model.pt")
""", seconds=6.0, **{"try": ["workers", "fused"]})
    facts = told.facts
    assert facts["ended"] == "enough" and told.done.returncode == 0, told.done.stderr
    assert sorted(p.name for p in told.folder.rglob("*")) == ["old.txt", "runs", "script.py"]  # nothing was written there
    written = tmp_path / "room" / "outside" / told.folder.resolve().relative_to("/")
    assert (written / "log.txt").exists() and (written / "runs" / "model.pt").exists()
    assert any(name.endswith("log.txt") for name in facts["side_effects"]["outside"])
    for block in {w["block"] for w in told.windows("R1")}:
        beside = [w["phase"] for w in facts["windows"] if w["block"] == block]
        assert beside == ["R0", "R1", "R1", "R0"]
    assert told.per_step("R0", "data") >= 8.0 and told.per_step("R1", "data") < 8.0  # each sample sleeps 2 ms, four make a batch
    assert any(phase.startswith("workers=") for phase in told.phases)
    assert all(w["samples"] == 4 * w["steps"] and len(w["step_ms"]) == w["steps"] for w in facts["windows"] if w["steps"] < 500)
    loader = next(each for each in facts["loaders"] if each["train"])
    assert loader["id"].startswith("script.py:") and loader["id"].partition("#")[2] == "0"
    assert loader["pass_steps"] == loader["len"] == 60
    assert loader["dataset"]["changed"] == ["epoch"] and loader["labels_sorted"] and loader["sampler"] == "SequentialSampler"
    assert [each["train"] for each in facts["loaders"]].count(True) == 1
    samples = facts["samples"]
    assert samples["wait_s"] / samples["n"] >= 0.0018 > samples["cpu_s"] / samples["n"] and samples["same"] and samples["apart"]
    top = max(facts["stacks"]["lines"], key=lambda line: line["share"])
    assert (top["call"], top["kind"]) == ("time.sleep", "data") and "time.sleep" in (told.folder / "script.py").read_text().split("\n")[top["line"] - 1]
    assert facts["memory"][0][0] == 0 and facts["model"]["tensors"] == 4 and facts["optimizers"][0]["type"] == "SGD"


def test_lines_and_flags_of_a_busy_loop(hooks, tmp_path):
    """No loader, two optimizers in turns, gradients filled with zeros, saving and collecting in each step."""
    told = trial(hooks, tmp_path, """
import gc
gc.freeze()
many = [[i] for i in range(100_000)]
d = nn.Linear(4, 1)
p = torch.optim.Adam(d.parameters(), 1e-4)
big = torch.randn(400, 400)
def keep():
    torch.save({"big": big, "model": m.state_dict()}, "m.pt")
for i in range(100_000):
    x = torch.randn(8, 4)
    for net, optimizer in ((m, o), (d, p)):
        optimizer.zero_grad(set_to_none=False)
        net(x).pow(2).mean().backward(retain_graph=True)
        optimizer.step()
    keep()
    gc.collect()
    time.sleep(0.01)
""", seconds=4.0)
    facts = told.facts
    assert facts["ended"] == "enough" and told.phases == {"R0"} and facts["loaders"] == []
    calls = {line["call"]: line for line in reversed(facts["stacks"]["lines"])}  # the largest share of each
    assert {"torch.save", "gc.collect", "time.sleep"} <= calls.keys()
    source = (told.folder / "script.py").read_text().split("\n")
    for call in ("torch.save", "gc.collect", "time.sleep"):
        assert call in source[calls[call]["line"] - 1]
    assert calls["torch.save"]["kind"] == "save" and len(calls["torch.save"]["path"]) == 2
    assert facts["flags"]["turns"] and facts["flags"]["retain_graph"] and facts["flags"]["zero_fill"]
    assert len(facts["optimizers"]) == 2 and facts["steps_seen"] > 5 and not (told.folder / "m.pt").exists()


def test_steps_that_print_are_counted(hooks, tmp_path):
    """A script that prints in every fifth step."""
    told = trial(hooks, tmp_path, """
for i in range(100_000):
    step(torch.ones(2, 4))
    if i % 5 == 0:
        print(i)
    time.sleep(0.002)
""", seconds=3.0)
    windows = [w for w in told.facts["windows"] if not w.get("cut")]
    steps, logged = sum(len(w["step_ms"]) for w in windows), sum(w["logged"] for w in windows)
    assert steps >= 20 and abs(logged - steps / 5) <= len(windows)


def test_streams_and_workers(hooks, tmp_path):
    """Each worker reads the whole stream; the loader is made anew for each epoch; the run ends before its time."""
    told = trial(hooks, tmp_path, """
class Stream(IterableDataset):
    def __iter__(self):
        for i in range(64):
            time.sleep(0.002)
            yield torch.full((4,), float(i))
for epoch in range(4):
    for x in DataLoader(Stream(), batch_size=8, num_workers=2):
        step(x)
        time.sleep(0.01)
print("done")
""", seconds=20.0)
    facts = told.facts
    assert facts["ended"] == "script" and "done" in told.done.stdout
    (loader,) = facts["loaders"]
    assert loader["train"] and loader["rebuilt"] and loader["workers"] == 2 and loader["dataset"]["iterable"]
    assert facts["steps_seen"] == 4 * 16  # epochs are as long as they are, whatever they were fed with
    if "samples" in facts:
        assert loader["duplicates"] and loader["replay"] is True


def test_a_trial_is_only_counted(hooks, tmp_path):
    told = trial(hooks, tmp_path, "for i in range(1000):\n    step(torch.ones(2, 4))\n    print(i, flush=True)\n", mode="trial", steps=40, seconds=0)
    ends = memoryview((told.room / "steps.bin").read_bytes()).cast("Q").tolist()
    assert len(ends) == 40 and ends == sorted(ends) and told.facts["steps_seen"] == 40
    assert told.facts["ended"] == "enough" and told.done.stdout.split()[-1] == "38"  # it ended within its 40th step


def test_several_ranks_are_left_alone(hooks, tmp_path):
    told = trial(hooks, tmp_path, "for i in range(100_000):\n    step(torch.ones(2, 4))\n", env={"WORLD_SIZE": "2", "RANK": "0"}, seconds=0.5)
    assert told.facts["ranks"] == 2 and not told.facts.get("windows") and told.facts["steps_seen"] > 0


def test_processes_that_the_script_starts(hooks, tmp_path):
    told = trial(hooks, tmp_path, """
import multiprocessing
def rank(n):
    for i in range(20):
        step(torch.ones(2, 4))
ranks = [multiprocessing.get_context("fork").Process(target=rank, args=(n,)) for n in range(2)]
[each.start() for each in ranks]
[each.join() for each in ranks]
""")
    assert told.facts["ranks"] == 2 and told.facts["steps_seen"] == 1 and "windows" not in told.facts and told.done.returncode == 0


def test_processes_that_train_beside_each_other_end_the_measurement(hooks, tmp_path):
    told = trial(hooks, tmp_path, """
import subprocess
while len(sys.argv) > 1:
    for x, y in DataLoader(Slow(64, 0.001), batch_size=4):
        step(x)
ranks = [subprocess.Popen([sys.executable, "script.py", str(n)]) for n in range(2)]
while all(each.poll() is None for each in ranks):
    time.sleep(0.02)
[each.kill() for each in ranks]
[each.wait() for each in ranks]
""", seconds=40.0, **{"try": []})
    assert told.facts["ranks"] == 2 and told.done.returncode == 0
    begun, ended = ((told.room / name).stat().st_mtime for name in ("ranks.jsonl", "facts.json"))
    assert ended - begun < 20  # long before the time for a measurement is over


@pytest.mark.parametrize("mode", ["guard", "batch"])
def test_what_we_cannot_read_or_copy_ends_the_measurement_and_not_the_script(hooks, tmp_path, mode):
    told = trial(hooks, tmp_path, """
class Shy(DataLoader):
    @property
    def batch_size(self):
        raise ValueError("nobody may ask")
    @batch_size.setter
    def batch_size(self, value):
        pass
class Batch:
    def __init__(self, rows):
        self.x = torch.stack([x for x, y in rows])
    def __deepcopy__(self, memo):
        raise ValueError("there is only one")
for epoch in range(3):
    for batch in Shy(Slow(64), batch_size=8, collate_fn=Batch):
        step(batch.x)
print("done")
""", mode=mode, **{"try": ["bf16"]})
    assert told.done.stdout == "done\n" and told.done.returncode == 0, told.done.stderr
    assert told.facts["fault"].startswith(f"{mode}: ValueError: ")


def test_data_that_is_used_up_is_not_read_beside_the_script_nor_removed(hooks, tmp_path):
    spool = tmp_path / "spool"
    spool.mkdir()
    for i in range(120):
        (spool / f"{i}").write_text("1 2 3 4")
    told = trial(hooks, tmp_path, f"""
class Spool(Slow):
    def __getitem__(self, i):
        time.sleep(0.003)
        with open("{spool}/" + str(i)) as f:
            x = torch.tensor([float(w) for w in f.read().split()])
        os.unlink(f.name)
        used.append(str(i))
        return x
used = []
for x in DataLoader(Spool(120), batch_size=2):
    step(x)
print(len(used), "used", set(used) & set(os.listdir("{spool}")))
""", seconds=10.0, **{"try": []})
    assert "used set()" in told.done.stdout and len(list(spool.iterdir())) == 120, told.done.stderr
    assert told.facts["ended"] == "script" and told.facts["steps_seen"] == 60
    assert "No such file" in next(each for each in told.facts["loaders"] if each["train"])["replay"]
    assert {w["phase"] for w in told.facts["windows"]} <= {"R0", "R1", "bf16", "threads=1", "threads=2", "fused", "batch=2x"}


def test_what_would_be_sent_is_not_sent(hooks, tmp_path):
    code = """
import http.server, threading, urllib.request
class Server(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200), self.end_headers(), self.wfile.write(b"data")
    def do_POST(self):
        print("posted", flush=True)
    def log_message(self, *_):
        pass
server = http.server.HTTPServer(("127.0.0.1", 0), Server)
threading.Thread(target=server.serve_forever, daemon=True).start()
url = f"http://127.0.0.1:{server.server_address[1]}/"
urllib.request.urlopen(url).read()
step(torch.ones(2, 4))
urllib.request.urlopen(url, b"loss=1").read()
"""
    told = trial(hooks, tmp_path, code)
    assert told.facts["ended"] == "error" and told.facts["error"]["type"] == "network" and told.facts["error"]["line"]
    assert told.facts["side_effects"]["network"] and told.facts["steps_seen"] == 1 and "posted" not in told.done.stdout


@pytest.mark.parametrize(("code", "kind", "line"), [
    ("import sys\nprint('?')\nanswer = input()\n", "stdin", 3),
    ("def f():\n    return {}['a']\nf()\n", "KeyError", 2),
])
def test_a_script_that_fails_by_itself(hooks, tmp_path, code, kind, line):
    told = trial(hooks, tmp_path, code, head="")
    assert told.facts["ended"] == "error" and told.done.returncode == 1
    assert (told.facts["error"]["type"], told.facts["error"]["line"]) == (kind, line)
    assert told.facts["error"]["file"].endswith("script.py") and told.facts["side_effects"]["stdin"] == (kind == "stdin")


def test_what_is_done_between_windows_is_in_no_window(hooks, tmp_path):
    told = trial(hooks, tmp_path, """
for x, y in DataLoader(Slow(100_000, 0.0005), batch_size=4):
    step(x)
""", seconds=6.0, **{"try": ["bf16", "fused", "threads"]})
    assert "bf16" in told.phases
    windows = [w for w in told.facts["windows"] if "ms" in w]
    apart = [round(sum(w["ms"].values()) - 1e3 * w["wall_s"], 1) for w in windows]
    assert sorted(apart)[-2] < 2, list(zip([w["phase"] for w in windows], apart, strict=True))
