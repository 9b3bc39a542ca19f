"""Parts of the measurement by themselves: kept batches, padding, names of calls, the scratch folder, labels in order."""

from __future__ import annotations

import json
import subprocess
import sys
from collections import namedtuple
from pathlib import Path

import pytest
from settings_lives import live

from stoker.base.vendor import lay_out

torch = pytest.importorskip("torch")

from stoker.inside.measure import calls, course, look, order, ring, statics  # noqa: E402

SOURCE = Path(__file__).resolve().parents[2] / "src"


def _ring(*batches):
    one = ring.Ring()
    for batch in batches:
        one.keep(batch)
    return one


def test_batches_come_back_as_they_were_whatever_is_done_to_them():
    pair = namedtuple("pair", "x y")
    batches = [{"x": torch.full((2, 3), float(i)), "names": ["a", "b"], "more": pair(torch.tensor([i]), None)} for i in range(4)]
    one = _ring(*batches)
    first = one.give()
    first["new"] = 1
    assert "new" not in one.give() and type(first["more"]) is pair
    assert one.give()["x"] is one.batches[3]["x"] and not one.touched  # no copy where none is needed


@pytest.mark.parametrize("harm", [lambda x: x.add_(1), lambda x: x.numpy().fill(9), lambda x: x.requires_grad_()])
def test_a_batch_that_is_changed_in_place_is_seen(harm):
    x = torch.zeros(4, 4)
    one = _ring([x, torch.ones(4)])
    harm(x)
    one.keep([torch.zeros(4, 4), torch.ones(4)])
    assert one.touched
    one.look_back()
    given = one.give()
    given[0].add_(5)
    assert all(float(each[0].sum()) == 0 for each in one.batches)


def test_two_batches_as_one():
    one = _ring(*([torch.full((2, 3), float(i)), {"y": torch.tensor([i, i])}] for i in range(4)))
    twice = one.doubled()
    assert [each[0].shape for each in twice.batches] == [(4, 3), (4, 3)] and twice.batches[1][1]["y"].tolist() == [2, 2, 3, 3]
    assert _ring(torch.tensor(1.0), torch.tensor(2.0)).doubled() is None


def test_padding_is_what_fills_rows_up():
    words = torch.randint(1, 500, (8, 20))
    words[:4, 10:] = 0
    assert statics._padding([words], torch) == pytest.approx(40 / 160)
    assert statics._padding([torch.randint(0, 2, (8, 50), generator=torch.Generator().manual_seed(1))], torch) == 0  # two values all over
    sound = torch.randn(2, 10, 4)
    sound[1, 6:] = 0
    assert statics._padding([{"sound": sound}], torch) == pytest.approx(4 / 20)
    assert statics._padding([torch.randn(3, 4)], torch) is None


def test_labels_that_come_class_after_class():
    assert course._sorted([[i * 7, i // 10] for i in range(30)])
    assert not course._sorted([[i, i % 3] for i in range(30)]) and not course._sorted([[i, 0] for i in range(30)])
    assert not course._sorted([[i, i] for i in range(30)])  # a number of its own for each is no class


@pytest.mark.parametrize(("seen", "turns"), [
    ([0, 1, 2, 0, 1, 2, 0, 1, 2], False),  # both step behind one backward
    ([0, 1, 0, 2, 0, 1, 0, 2], True),
    ([0, 1, 0, 1, 0, 1], False),
])
def test_optimizers_that_take_turns(monkeypatch, seen, turns):
    monkeypatch.setattr(statics, "_steppers", seen)
    assert statics._turns() is turns


def test_a_phase_in_bfloat16_is_no_autocast_of_the_scripts(monkeypatch):
    monkeypatch.setattr(statics, "_autocast", [])
    enter, bf16 = statics._enter(lambda each: each), torch.autocast("cpu", dtype=torch.bfloat16)
    monkeypatch.setitem(order.facts, "trying", "bf16")
    enter(bf16)
    assert statics._autocast == []
    monkeypatch.delitem(order.facts, "trying")
    enter(bf16)
    assert statics._autocast == ["bfloat16"]


def test_a_model_uses_channels_last_only_where_a_tensor_tells(tmp_path):
    """A filter of one channel or one pixel is contiguous in both formats."""
    told = live(lay_out(tmp_path / "hooks_of_it"), tmp_path, """
from stoker_hooks.measure import changes, statics
from stoker_hooks.settings import knobs
found = {}
def train(name, *convolutions, last=False, inputs=None, channels=3):
    model = nn.Sequential(*convolutions)
    model = model.to(memory_format=torch.channels_last) if last else model
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    x = torch.randn(2, channels, 8, 8)
    x = x if inputs is None else x.contiguous(memory_format=inputs)
    for _ in range(2):
        model(x).mean().backward()
        optimizer.step()
    def fact():
        facts = {}
        statics._model(facts, torch)
        return facts["model"]["channels_last"]
    change = next(each for each in changes.computing(False) if each.phase == "channels_last")
    why = change.fits()
    found[name] = [fact(), bool(why)]
    if not why:  # what is tried is not the script's, whenever it ends
        assert change.on() == "" and fact() is False
        change.off()
        assert fact() is False
rgb, deep = lambda: nn.Conv2d(3, 16, 3), lambda: nn.Conv2d(16, 16, 1)
train("one channel", nn.Conv2d(1, 16, 3), channels=1)
train("one channel, last", nn.Conv2d(1, 16, 3), last=True, channels=1)
train("one pixel", nn.Conv2d(3, 16, 1))
train("one channel, then more", nn.Conv2d(1, 3, 3), rgb(), channels=1)
train("colours", rgb(), deep())
train("colours, last", rgb(), deep(), last=True)
train("only one of two last", nn.Conv2d(3, 3, 3).to(memory_format=torch.channels_last), rgb())
train("inputs last", rgb(), inputs=torch.channels_last)
train("one pixel, inputs last", nn.Conv2d(3, 16, 1), inputs=torch.channels_last)
train("transposed, last", nn.ConvTranspose2d(3, 16, 3), last=True)
tell(found=found)
""", {"threads": 1})
    done, offered, same = [True, True], [False, False], [None, True]
    assert told.said["found"] == {
        "one channel": same, "one channel, last": same, "one pixel": offered, "one channel, then more": offered,
        "colours": offered, "colours, last": done, "only one of two last": offered, "inputs last": done,
        "one pixel, inputs last": done, "transposed, last": done,
    }


def test_names_of_calls(tmp_path):
    """The name is read at the very instruction: each line is stopped in by a trace, where its outermost call is made."""
    script = tmp_path / "theirs.py"
    lines = {"loss.item()": "Tensor.item", "gc.collect()": "gc.collect", "time.sleep(0)": "time.sleep", "optimizer.step()": "optimizer.step",
             "box.net(x)": "Module.__call__", "clip(box.net.parameters(), 1.0)": "clip_grad_norm_", "print(end='')": "print",
             "F.relu(x)": "torch.nn.functional.relu", "torch.zeros(1)": "torch.zeros", "clip_all(x)": "clip_all", "box.helper()": "Box.helper"}
    script.write_text("import gc, time, torch\nimport torch.nn.functional as F\nfrom torch.nn.utils import clip_grad_norm_ as clip\n"
                      "class Box:\n    def helper(self):\n        return 1\ndef clip_all(x):\n    return x\n"
                      "def loop(box, x, loss, optimizer):\n" + "".join(f"    {line}\n" for line in lines))
    names: dict = {}
    exec(compile(script.read_text(), str(script), "exec"), names)
    code, found = names["loop"].__code__, {}
    box = names["Box"]()
    box.net = torch.nn.Linear(3, 3)
    frame = type("Frame", (), {"f_code": code, "f_globals": names, "f_locals": {
        "box": box, "x": torch.ones(3), "loss": torch.ones(1), "optimizer": object.__new__(torch.optim.SGD)}})()
    import dis
    for instruction in dis.get_instructions(code):
        if instruction.opname.startswith("CALL"):
            line = instruction.positions.lineno
            text = script.read_text().split("\n")[line - 1].strip()
            seen = calls.at((frame, code, instruction.offset, line), None)
            if instruction.positions.end_col_offset - instruction.positions.col_offset == len(text):
                found[text] = seen
    assert {text: seen[1] for text, seen in found.items()} == lines
    assert not found["clip_all(x)"][2] and not found["box.helper()"][2] and found["loss.item()"][2]  # its own are no leaves


def test_who_had_the_cores():
    a = look.Look()
    sum(range(2_000_000))
    told = look.between(a, look.Look())
    assert told["cpu_s"] >= 0.01 and 0 <= told.get("stolen_s", 0) <= told.get("wait_s", 0) + 1e-6
    assert look.cores() >= 1 and look.resident() > 1 << 20


SCRATCH = '''
import json, os, sqlite3, shutil, sys
sys.path.insert(0, sys.argv[1])
from stoker.inside import scratch
theirs, room = sys.argv[2:]
os.chdir(theirs)
noted = []
scratch.install(room + "/outside", always=(room,), kept=(theirs,), note=lambda what, path: noted.append(path))
def after(name, call):
    if name in sys.modules:
        call(sys.modules[name])
scratch.other_files(after)
class Accessor:  # as in pathlib of Python 3.9: what C gives is no method
    ask, read, names, all_names = os.stat, open, os.listdir, os.scandir
at = Accessor()
assert at.ask("data.txt").st_size == 6 and at.read("data.txt").read() == "theirs" and at.names("runs") == ["old.txt"]
assert [e.name for e in at.all_names("runs")] == ["old.txt"]
assert open("data.txt").read() == "theirs"
with open("data.txt", "a") as f:
    f.write(" and more")
assert open("data.txt").read() == "theirs and more"
os.makedirs("runs/a")
open("runs/a/new.txt", "w").close()
assert sorted(os.listdir("runs")) == ["a", "old.txt"] and sorted(e.name for e in os.scandir("runs")) == ["a", "old.txt"]
os.remove("runs/old.txt")
assert not os.path.exists("runs/old.txt") and os.listdir("runs") == ["a"]
try:
    open("runs/old.txt")
except FileNotFoundError:
    pass
os.rename("config.json", "config.old")
assert not os.path.exists("config.json") and open("config.old").read() == "{}"
with sqlite3.connect("log.db") as db:
    db.execute("create table t (a)")
shutil.rmtree("cache")
assert not os.path.exists("cache")
os.makedirs("cache")
assert os.path.isdir("cache") and os.listdir("cache") == []
print(json.dumps(sorted({os.path.relpath(p.split(" (")[0]) for p in noted})))
'''


def test_nothing_of_the_users_is_changed(tmp_path):
    theirs, room = tmp_path / "theirs", tmp_path / "room"
    for folder in (theirs / "runs", theirs / "cache", room / "outside"):
        folder.mkdir(parents=True)
    held = {"data.txt": "theirs", "config.json": "{}", "runs/old.txt": "old", "cache/one.bin": "1"}
    for name, text in held.items():
        (theirs / name).write_text(text)
    done = subprocess.run([sys.executable, "-c", SCRATCH, str(SOURCE), str(theirs), str(room)], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    assert {p.relative_to(theirs).as_posix(): p.read_text() for p in theirs.rglob("*") if p.is_file()} == held
    assert {"data.txt", "log.db", "runs/a/new.txt"} <= set(json.loads(done.stdout))
