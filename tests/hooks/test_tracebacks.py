"""Errors read as under plain python: the frames of the script with their lines, and none of Stoker's."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import beside
import pytest

from stoker.base.vendor import lay_out

ATTEMPT = """
import atexit, builtins, io, json, os, pathlib, shutil, subprocess, sys, threading, traceback

def attempt(call):
    try:
        call()
    except BaseException:
        traceback.print_exc()
"""

PLAIN = ATTEMPT + """
def chained():
    try:
        open("nope")
    except OSError as e:
        raise ValueError("cause") from e

def in_context():
    try:
        os.listdir("nope")
    except OSError:
        os.stat("nope2")

def full():
    with open("/dev/full", "w") as f:
        f.write("x")

def replaced():
    os.replace("nope", "y")

for call in (chained, in_context, full, replaced, lambda: open(3.5), lambda: open("f", "q"), lambda: json.load(open("nope.json")),
             lambda: pathlib.Path("nope").read_text(), lambda: shutil.copy("nope", "x"), lambda: input("? "), lambda: os.mkdir("/proc/x"),
             lambda: subprocess.run(["false"], check=True), lambda: subprocess.run(["no-such-program"]), lambda: open("a/b", "w")):
    attempt(call)
thread = threading.Thread(target=in_context, name="t")
thread.start()
thread.join()

class Late:
    def __del__(self):
        os.listdir("gone")

import random, time
for call in (time.time, time.perf_counter, time.localtime, time.strftime, time.sleep, os.scandir, os.listdir, os.stat, os.kill, os.system, os.open,
             os.fsync, os.remove, os.write, open, io.open, input, atexit.register, atexit.unregister, random.seed, shutil.copy):
    attempt(lambda: call(*[None] * 12))
    attempt(lambda: call(nonsense=1))
for call in (time.sleep, os.kill, os.system, os.open, os.fsync, os.remove, open, atexit.register):
    attempt(call)
for _ in os.scandir(path="."):
    pass
atexit.register(lambda function: print("the keyword", function), function=1)

Late()
atexit.register(os.remove, "gone too")
atexit.register(chained)
in_context()
"""

TORCH = ATTEMPT + """
import dataclasses, logging, pdb, signal
import torch
from torch.utils.data import DataLoader, Dataset
logging.basicConfig()
net = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Sequential(torch.nn.ReLU(), torch.nn.Linear(5, 2)))

@dataclasses.dataclass(frozen=True)
class Frozen(Exception):
    word: str

class Raises(torch.nn.Module):
    def forward(self, x):
        raise Frozen("in forward")

class Bad(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x * 2

    @staticmethod
    def backward(ctx, g):
        raise KeyError("in backward")

class Data(Dataset):
    def __init__(self, how):
        self.how = how

    def __len__(self):
        return 4

    def __getitem__(self, i):
        if self.how == "size":
            return torch.ones(i + 1)
        if self.how == "interrupt":
            os.kill(os.getpid(), signal.SIGINT)
        return open("nope.bin", "rb") if i == 3 else torch.ones(2)

def collate(items):
    raise TypeError("in collate")

def through(**how):
    for _ in DataLoader(Data(how.pop("how", "")), **how):
        pass

def step():
    def closure():
        raise ValueError("in closure")
    torch.optim.SGD(net.parameters(), lr=0.1).step(closure)

def schedule():
    opt = torch.optim.SGD(net.parameters(), lr=0.1)
    each = torch.optim.lr_scheduler.OneCycleLR(opt, 1.0, total_steps=1)
    opt.step()
    each.step()
    each.step()

def logged():
    try:
        net(torch.ones(3, 4))
    except RuntimeError:
        logging.exception("logged")
        trace = sys.exc_info()[2]
        while trace is not None:
            print(trace.tb_frame.f_code.co_filename, trace.tb_lineno)
            trace = trace.tb_next
        raise KeyError("in its context")

def post_mortem():
    try:
        net(torch.ones(3, 4))
    except RuntimeError as e:
        debugger = pdb.Pdb(stdin=io.StringIO("bt\\nup\\nq\\n"), nosigint=True)
        debugger.use_rawinput = False
        debugger.reset()
        debugger.interaction(None, e.__traceback__)

def generator():
    def each():
        yield 1
        net(torch.ones(3, 4))
    list(each())

def group():
    found = []
    for call in (logged, generator):
        try:
            call()
        except Exception as e:
            found.append(e)
    raise ExceptionGroup("both", found)

open("junk", "w").write("junk")
for call in (lambda: net(torch.ones(3, 4)), lambda: net(torch.ones(3, 9)), lambda: Raises()(1), logged, post_mortem, generator, step, schedule,
             lambda: Bad.apply(torch.ones(2, requires_grad=True)).sum().backward(), lambda: torch.ones(2).sum().backward(),
             lambda: through(), lambda: through(how="size", batch_size=2), lambda: through(collate_fn=collate), lambda: through(num_workers=1),
             lambda: through(how="interrupt"), lambda: torch.load("nope.pt"), lambda: torch.load("junk"), lambda: torch.save(1, "a/b.pt"),
             lambda: torch.ones(2).item(), lambda: torch.ones(2, requires_grad=True).numpy(), lambda: torch.ones(1).retain_grad(),
             lambda: DataLoader(Data(""), none=1), lambda: shutil.rmtree("nope"), lambda: subprocess.run(["false"], check=True),
             lambda: torch.nn.utils.clip_grad_norm_(net.parameters(), 1.0, norm_type="x"), torch.save, torch.jit.save, torch.autograd.backward,
             lambda: torch.save(none=1), lambda: torch.save(obj=1, f="a/b"), lambda: torch.jit.save(none=1), lambda: torch.autograd.backward(none=1),
             lambda: torch.jit.save(m=torch.jit.trace(torch.nn.ReLU(), torch.ones(1)), f="traced.pt")):
    attempt(call)
if sys.version_info >= (3, 11):
    attempt(group)
thread = threading.Thread(target=generator, name="t")
thread.start()
thread.join()
atexit.register(logged)
Raises()(torch.ones(1))
"""


@pytest.mark.timeout(300)
@pytest.mark.parametrize("script", [PLAIN, pytest.param(TORCH, marks=pytest.mark.inside)], ids=["plain", "torch"])
def test_what_a_failing_script_prints_is_what_plain_python_prints(tmp_path: Path, script: str):
    (tmp_path / "train.py").write_text(script)
    plain, hooked, _ = beside.both(tmp_path, "train.py")
    assert "stoker" not in "".join(hooked)
    assert plain[1].count("Traceback") > 10
    assert hooked[0] == plain[0]
    assert hooked[1].splitlines() == plain[1].splitlines()


DEEP = """
import sys, threading
import torch

class Block(torch.nn.Module):
    def __init__(self, inner, act):
        super().__init__()
        self.w = torch.nn.Parameter(torch.ones(2))
        self.inner, self.act = inner, act

    def forward(self, x):
        if self.inner is None:
            self.act()
            return x * self.w
        return self.inner(x * self.w)

def net(levels, act=lambda: None):
    block = None
    for _ in range(levels):
        block = Block(block, act)
    return block

def train(model):
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)
    for i in range(5):
        optimizer.zero_grad()
        loss = model(torch.ones(2)).sum()
        loss.backward()
        optimizer.step()
        print(i, loss.item(), sys.getrecursionlimit())

def fails():
    raise KeyError("at the bottom")

def sets(limit):
    try:
        sys.setrecursionlimit(limit)
    except Exception as e:
        print(type(e), e.args[0][:30])

most = 1000 // (4 if sys.version_info < (3, 12) else 3) - 30
train(net(most))
try:
    net(100, fails)(torch.ones(2))
except KeyError:
    print(sys.getrecursionlimit())
net(100, lambda: print(sys.getrecursionlimit()))(torch.ones(2))
for limit in (1100, 0, -1, "x"):
    net(100, lambda: sets(limit))(torch.ones(2))
    print(sys.getrecursionlimit())
threads = [threading.Thread(target=net(most), args=[torch.ones(2)]) for _ in range(3)]
for each in threads:
    each.start()
for each in threads:
    each.join()
train(net(most))
"""

ENDLESS = """
import sys, traceback
import torch

class Node(torch.nn.Module):
    def forward(self, x):
        return self(x)

for more in range(6):
    sys.setrecursionlimit(400 + more)
    try:
        Node()(torch.ones(2))
    except RecursionError as e:
        print(e.__context__, sorted({frame.filename for frame in traceback.extract_tb(e.__traceback__)}))
"""

STACKS = """
import inspect, sys, traceback
import torch

class Asks(torch.nn.Module):
    def forward(self, x):
        print(*traceback.format_stack(), *traceback.format_stack(limit=3))
        print(*[(frame.f_code.co_name, line) for frame, line in traceback.walk_stack(None)])
        print(*[(each.function, each.lineno) for each in inspect.stack()])
        traceback.print_stack()
        return x

class Bad(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x * 2

    @staticmethod
    def backward(ctx, g):
        return g * float("nan")

class Net(torch.nn.Module):
    def forward(self, x):
        return Bad.apply(x).sum()

torch.nn.Sequential(torch.nn.Sequential(Asks()))(torch.ones(2))
torch.autograd.set_detect_anomaly(True)
Net()(torch.ones(2, requires_grad=True)).backward()
"""


@pytest.mark.inside
@pytest.mark.parametrize("script", [DEEP, STACKS, ENDLESS], ids=["deep", "stacks", "endless"])
def test_the_stack_is_as_deep_and_reads_as_under_plain_python(tmp_path: Path, script: str):
    (tmp_path / "train.py").write_text(script)
    plain, hooked, _ = beside.both(tmp_path, "train.py")
    assert hooked[0] == plain[0]
    assert hooked[1].splitlines() == plain[1].splitlines()
    assert script == STACKS or not plain[1]


@pytest.mark.inside
def test_an_error_that_a_signal_handler_raises_within_stokers_code_is_the_scripts():
    from stoker.inside.resume.core import outcome, phases
    from stoker.inside.resume.image import unsupported

    def handler(number: int, frame: object) -> None:
        raise TimeoutError("too long")

    phases.depth = 1
    try:
        with pytest.raises(TimeoutError, match="too long") as raised:
            unsupported._Quiet(handler)(14, None)
        with pytest.raises(TimeoutError, match="too long"):
            outcome.broke(raised.value)
        phases.leave()
        assert phases.from_signal is None
    finally:
        phases.depth = 0


def test_byte_code_with_and_without_the_cut_is_kept_apart(tmp_path: Path):
    hooks = lay_out(tmp_path)
    (hooks / "sitecustomize.py").unlink()  # it would take its folder out of sys.path
    fails = "from stoker_hooks import shape\nimport traceback\ntry:\n    shape.boxed(1)\nexcept TypeError:\n    traceback.print_exc()\n"
    (hooks / "stoker_hooks/shape.py").write_text("def boxed(x):\n    return x + ''\n")

    def told(first: str) -> str:
        argv = [sys.executable, "-c", first + fails]
        env = {k: v for k, v in os.environ.items() if not k.startswith(("STOKER", "PYTHON"))} | {"PYTHONPATH": str(hooks)}
        return subprocess.run(argv, env=env, capture_output=True, text=True, timeout=60, check=True).stderr

    loads = "from stoker_hooks import unseen\nunseen.install()\n"
    for _ in range(2):  # with what was left in __pycache__ the second time
        assert "boxed" in told("")
        assert "boxed" not in told(loads)
    assert {path.name.partition(".")[2] for path in (hooks / "stoker_hooks/__pycache__").glob("shape.*")} == {
        f"{sys.implementation.cache_tag}.pyc", f"{sys.implementation.cache_tag}.unseen.pyc"}
