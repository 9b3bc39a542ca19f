"""State of every kind that changes only where a ghost does not go (inside a model's call, a hook, backward, an optimizer's step) and is
looked at only at the end, long after the tail: each kind comes back exactly, or the image is refused. Never wrong in silence.

`python tests/resume/test_shield_state.py [NAME...]` prints what becomes of each.
"""

from __future__ import annotations

import sys
import tempfile
import textwrap
from pathlib import Path

import pytest
from harness import Kill, Stage, one_text, read, vendored

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

SCRIPT = """
import torch
from torch import nn
{made}
torch.manual_seed(0)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(8, 32), nn.Linear(32, 1)
        {own}

    def forward(self, x):
        {changed}
        return self.b(self.a(x).relu()).squeeze(1)


X = torch.randn(320, 8)
m = Net()
o = torch.optim.Adam(m.parameters(), 1e-2)
{more}
for i in range(420):
    x = X[(i * 16) % 320:][:16]
    loss = (m(x) - x.sum(1)).pow(2).mean()
    o.zero_grad()
    loss.backward()
    o.step()
    if i % 25 == 0:
        print(i, loss.item(), flush=True)
print("final", sum(p.double().sum().item() for p in m.parameters()), {told})
"""

# name: (made at the start, in Net.__init__, changed in forward, after the optimizer is made, told at the end)
KINDS = {
    "hash in a module": ("import hashlib", "self.h = hashlib.sha256()", "self.h.update(x.numpy().tobytes())", "", "m.h.hexdigest()"),
    "hash beside it": ("import hashlib\nh = hashlib.md5()", "pass", "h.update(x.numpy().tobytes())", "", "h.hexdigest()"),
    "blake in a list": ("import hashlib\nh = [hashlib.blake2b()]", "pass", "h[0].update(b'x')", "", "h[0].hexdigest()"),
    "crc by compressor": ("import zlib\nz, size = zlib.compressobj(), []", "pass", "size.append(0); z.compress(x.numpy().tobytes())", "", "len(z.flush()), len(size)"),
    "text in memory": ("import io\nt = io.StringIO()", "pass", "t.write('x')", "", "len(t.getvalue())"),
    "bytes in memory of a module": ("import io", "self.t = io.BytesIO()", "self.t.write(b'xy')", "", "len(m.t.getvalue())"),
    "csv writer on memory": ("import csv, io\nt = io.StringIO()\nw = csv.writer(t)", "pass", "w.writerow([1, 2])", "", "len(t.getvalue())"),
    "count of itertools": ("import itertools\nc = itertools.count()", "pass", "next(c)", "", "next(c)"),
    "cycle of itertools in a module": ("import itertools", "self.c = itertools.cycle('abcdefg')", "next(self.c)", "", "next(m.c)"),
    "iterator of a range": ("r = iter(range(100000))", "pass", "next(r)", "", "next(r)"),
    "iterator of a list in a module": ("", "self.r = iter(list(range(5000)))", "next(self.r)", "", "next(m.r)"),
    "map": ("r = map(abs, range(100000))", "pass", "next(r)", "", "next(r)"),
    "zip": ("r = zip(range(100000), range(5, 100000))", "pass", "next(r)", "", "next(r)"),
    "enumerate": ("r = enumerate(range(100000))", "pass", "next(r)", "", "next(r)"),
    "accumulate": ("import itertools\nr = itertools.accumulate(range(100000))", "pass", "next(r)", "", "next(r)"),
    "generator": ("def gen():\n    n = 0\n    while True:\n        n += 1\n        yield n\nr = gen()", "pass", "next(r)", "", "next(r)"),
    "generator in a module": ("def gen():\n    n = 0\n    while True:\n        n += 1\n        yield n", "self.r = gen()", "next(self.r)", "", "next(m.r)"),
    "global": ("n = 0", "pass", "global n; n += 1", "", "n"),
    "nonlocal": ("def maker():\n    n = 0\n    def count():\n        nonlocal n\n        n += 1\n        return n\n    return count\ncount = maker()", "pass", "count()", "", "count()"),
    "attribute of a function": ("def f(): pass\nf.n = 0", "pass", "f.n += 1", "", "f.n"),
    "default argument": ("def f(seen=[]):\n    seen.append(1)\n    return len(seen)", "pass", "f()", "", "f()"),
    "attribute of a class": ("class Box: n = 0", "pass", "Box.n += 1", "", "Box.n"),
    "attribute of the module class": ("", "type(self).n = 0", "type(self).n += 1", "", "Net.n"),
    "attribute of an instance elsewhere": ("import types\nbox = types.SimpleNamespace(n=0)", "pass", "box.n += 1", "", "box.n"),
    "slots": ("class Box:\n    __slots__ = ('n',)\nbox = Box()\nbox.n = 0", "pass", "box.n += 1", "", "box.n"),
    "dict": ("d = {}", "pass", "d[len(d)] = 1", "", "len(d)"),
    "set in a module": ("", "self.s = set()", "self.s.add(len(self.s))", "", "len(m.s)"),
    "deque": ("import collections\nd = collections.deque(maxlen=1000)", "pass", "d.append(1)", "", "len(d)"),
    "counter": ("import collections\nd = collections.Counter()", "pass", "d['a'] += 1", "", "d"),
    "ordered dict": ("import collections\nd = collections.OrderedDict(a=1, b=2)", "pass", "d.move_to_end(next(iter(d)))", "", "list(d)"),
    "heap": ("import heapq\nd = []", "pass", "heapq.heappush(d, -len(d))", "", "d[0]"),
    "bytearray": ("d = bytearray()", "pass", "d.append(7)", "", "len(d)"),
    "array of array": ("import array\nd = array.array('i')", "pass", "d.append(7)", "", "len(d)"),
    "memoryview": ("d = bytearray(8)\nv = memoryview(d)", "pass", "v[0] = (v[0] + 1) % 256", "", "bytes(d)"),
    "simple queue": ("import queue\nq = queue.SimpleQueue()", "pass", "q.put(1)", "", "q.qsize()"),
    "queue": ("import queue\nq = queue.Queue()", "pass", "q.put(1)", "", "q.qsize()"),
    "random": ("import random\nrandom.seed(5)", "pass", "random.random()", "", "random.random()"),
    "own random": ("import random", "self.r = random.Random(3)", "self.r.random()", "", "m.r.random()"),
    "numpy random": ("import numpy as np\nnp.random.seed(1)", "pass", "np.random.rand()", "", "np.random.rand()"),
    "numpy generator": ("import numpy as np\nr = np.random.default_rng(1)", "pass", "r.random()", "", "r.random()"),
    "torch generator": ("r = torch.Generator().manual_seed(1)", "pass", "torch.rand(2, generator=r)", "", "torch.rand(1, generator=r).item()"),
    "torch generator in a module": ("", "self.r = torch.Generator().manual_seed(1)", "torch.rand(2, generator=self.r)", "", "torch.rand(1, generator=m.r).item()"),
    "numpy array": ("import numpy as np\nd = np.zeros(4)", "pass", "d[0] += 1", "", "d.sum()"),
    "numpy array of objects": ("import numpy as np\nd = np.array([0, 'a'], dtype=object)", "pass", "d[0] += 1", "", "d[0]"),
    "numpy record": ("import numpy as np\nd = np.zeros(3, dtype=[('a', 'i4')])", "pass", "d['a'] += 1", "", "d['a'].sum()"),
    "tensor without grad": ("d = torch.zeros(4)", "pass", "d.add_(1)", "", "d.sum().item()"),
    "list of tensors": ("d = []", "pass", "d.append(x.mean()) if len(d) < 500 else None", "", "torch.stack(d).sum().item()"),
    "lru cache": ("import functools\n@functools.lru_cache(None)\ndef f(n): return n\nk = [0]", "pass", "k[0] += 1; f(k[0])", "", "f.cache_info().misses"),
    "cached property": ("import functools", "self.k = 0", "self.k += 1; self.__dict__.setdefault('p', 0); self.__dict__['p'] += 2", "", "m.p, m.k"),
    "context variable": ("import contextvars\nv = contextvars.ContextVar('v', default=0)", "pass", "v.set(v.get() + 1)", "", "v.get()"),
    "thread local": ("import threading\nv = threading.local()\nv.n = 0", "pass", "v.n += 1", "", "v.n"),
    "weak dict": ("import weakref\nd = weakref.WeakKeyDictionary()\nclass K: pass\nks = [K() for _ in range(600)]", "pass", "d[ks[len(d)]] = 1", "", "len(d)"),
    "weak value": ("import weakref\nclass K: pass\nks = []\nd = weakref.WeakValueDictionary()", "pass", "k = K(); ks.append(k); d[len(d)] = k", "", "len(d)"),
    "environment": ("import os\nos.environ['N'] = '0'", "pass", "os.environ['N'] = str(int(os.environ['N']) + 1)", "", "os.environ['N']"),
    "recursion limit": ("import sys", "pass", "sys.setrecursionlimit(sys.getrecursionlimit() + 1)", "", "sys.getrecursionlimit()"),
    "decimal context": ("import decimal", "pass", "decimal.getcontext().prec += 1", "", "decimal.getcontext().prec"),
    "string of a list": ("d = ['']", "pass", "d[0] += 'x'", "", "len(d[0])"),
    "partial": ("import functools\nd = []\np = functools.partial(d.append, 1)", "pass", "p()", "", "len(d)"),
    "user dict": ("import collections\nd = collections.UserDict()", "pass", "d[len(d)] = 1", "", "len(d)"),
    "default dict": ("import collections\nd = collections.defaultdict(list)", "pass", "d['a'].append(1)", "", "len(d['a'])"),
    "warnings once": ("import warnings\nseen = []", "pass", "seen.append(1); warnings.warn('n') if len(seen) == 5 else None", "", "len(seen)"),
    "logging handler": ("import logging\nclass H(logging.Handler):\n    n = 0\n    def emit(self, record):\n        self.n += 1\nh = H()\nlog = logging.getLogger('a')\nlog.addHandler(h)", "pass", "log.warning('x')", "", "h.n"),
    "forward hook": ("n = [0]", "pass", "pass", "m.register_forward_hook(lambda *_: n.append(1))", "len(n)"),
    "backward hook": ("n = [0]", "pass", "pass", "m.a.register_full_backward_hook(lambda *_: n.append(1))", "len(n)"),
    "tensor hook": ("n = [0]", "pass", "pass", "m.a.weight.register_hook(lambda g: n.append(1))", "len(n)"),
    "accumulated hook": ("n = [0]", "pass", "pass", "m.a.weight.register_post_accumulate_grad_hook(lambda p: n.append(1))", "len(n)"),
    "optimizer hook": ("n = [0]", "pass", "pass", "o.register_step_post_hook(lambda *_: n.append(1))", "len(n)"),
    "optimizer hook with a hash": ("import hashlib\nh = hashlib.sha1()", "pass", "pass", "o.register_step_pre_hook(lambda *_: h.update(b'x'))", "h.hexdigest()"),
    "deleted attribute": ("", "self.k = 0; self.old = 1", "self.k += 1; self.__dict__.pop('old', None)", "", "m.k, hasattr(m, 'old')"),
    "replaced function": ("def f(n): return n\nk = [0]", "pass", "k[0] += 1; globals().__setitem__('f', lambda n, k=k[0]: n + k)", "", "f(1)"),
    "time": ("import time\nt = [0, 0]", "pass", "t[0] += 1; t[1] += time.perf_counter() > 0", "", "t"),
    "exception kept": ("d = []", "pass", "d.append(ValueError(len(d)))", "", "d[-1].args"),
    "struct packed": ("import struct\nd = bytearray(4)", "pass", "struct.pack_into('i', d, 0, struct.unpack_from('i', d)[0] + 1)", "", "bytes(d)"),
    "ctypes": ("import ctypes\nd = ctypes.c_int(0)", "pass", "d.value += 1", "", "d.value"),
    "buffer registered late": ("", "self.k = 0", "self.register_buffer('late', torch.ones(1) * (self.k + 1), persistent=False); self.k += 1", "", "m.late.item()"),
    "parameter group": ("", "pass", "o.param_groups[0]['lr'] = 1e-2 / (1 + len(o.state)) if 'o' in globals() else 0", "", "o.param_groups[0]['lr']"),
    "training flag": ("k = [0]", "pass", "k[0] += 1; self.a.training = k[0] % 2 == 0", "", "m.a.training"),
    "requires grad": ("k = [0]", "pass", "k[0] += 1; self.a.bias.requires_grad_(k[0] % 300 < 299)", "", "m.a.bias.requires_grad"),
    "grad mode": ("k = [0]", "pass", "k[0] += 1", "", "torch.is_grad_enabled(), k"),
    "default dtype": ("k = [0]", "pass", "k[0] += 1; torch.set_printoptions(precision=k[0] % 7 + 1)", "", "str(torch.tensor(0.123456789)), k"),
    "words of the command line": ("import argparse\nargs = argparse.Namespace(n=0)", "pass", "args.n += 1", "", "args.n"),
    "tensor among the words": ("import argparse\nargs = argparse.Namespace(w=torch.zeros(3))", "pass", "args.w += 1", "", "args.w.sum().item()"),
    "name in torch": ("torch.calls = 0", "pass", "torch.calls += 1", "", "torch.calls"),
    "function of torch replaced": ("real = torch.relu\ndef patch():\n    n = [0]\n    def counted(x):\n        n[0] += 1\n        return real(x)\n    counted.n = n\n"
                                   "    torch.relu = counted\npatch()", "pass", "torch.relu(x)", "", "torch.relu.n[0]"),
    "name in builtins": ("import builtins\nbuiltins.calls = 0", "pass", "builtins.calls += 1", "", "builtins.calls"),
    "attribute of a class of torch": ("nn.Linear.calls = 0", "pass", "nn.Linear.calls += 1", "", "nn.Linear.calls"),
    "matches of a pattern": ("import re\nr = re.finditer('a', 'a' * 5000)", "pass", "next(r)", "", "next(r).start()"),
    "iterator of struct": ("import struct\nr = struct.iter_unpack('b', bytes(range(100)) * 50)", "pass", "next(r)", "", "next(r)"),
    "shared memory": ("from multiprocessing import shared_memory\nd = shared_memory.SharedMemory(create=True, size=8)", "pass", "d.buf[0] = (d.buf[0] + 1) % 256", "",
                      "d.buf[0], d.unlink()"),
    "semaphore": ("import threading\nd = threading.Semaphore(5000)", "pass", "d.acquire()", "", "d._value"),
    "text wrapper on memory": ("import io\nt = io.TextIOWrapper(io.BytesIO())", "pass", "t.write('xy'); t.flush()", "", "t.tell()"),
    "buffered writer on memory": ("import io\nt = io.BufferedRandom(io.BytesIO())", "pass", "t.write(b'xy'); t.flush()", "", "t.tell()"),
    "member of an enum": ("import enum\nclass E(enum.Enum):\n    A = 1\nE.A.n = 0", "pass", "E.A.n += 1", "", "E.A.n"),
    "records kept by logging": ("import logging, logging.handlers\nh = logging.handlers.MemoryHandler(10000, flushLevel=100)\nlog = logging.getLogger('b')\nlog.propagate = False\nlog.addHandler(h)", "pass",
                                "log.warning('x')", "", "len(h.buffer)"),
    "handler that only logging holds": ("import logging\nclass H(logging.Handler):\n    n = 0\n    def emit(self, record):\n        self.n += 1\nlogging.getLogger().addHandler(H())", "pass",
                                         "logging.warning('x')", "", "logging.getLogger().handlers[-1].n"),
    "level of a logger": ("import logging\nlog = logging.getLogger('c')\nlog.setLevel(1)", "pass", "log.setLevel(log.level + 1)", "", "log.level"),
    "priority queue": ("import queue\nq = queue.PriorityQueue()", "pass", "q.put(1)", "", "q.qsize()"),
    "configuration": ("import configparser\nc = configparser.ConfigParser()\nc['a'] = {'n': '0'}", "pass", "c['a']['n'] = str(int(c['a']['n']) + 1)", "", "c['a']['n']"),
    "zip file in memory": ("import io, zipfile\nb = io.BytesIO()\nz = zipfile.ZipFile(b, 'w')", "pass", "z.writestr(str(len(z.filelist)), 'x')", "", "len(z.filelist)"),
    "decompressor": ("import bz2\nz = bz2.BZ2Compressor()", "pass", "z.compress(b'xy')", "", "len(z.flush())"),
    "seed sequence": ("import numpy as np\ns = np.random.SeedSequence(3)", "pass", "s.spawn(1)", "", "s.n_children_spawned"),
    "iterator of numpy": ("import numpy as np\nr = np.nditer(np.arange(5000.0))", "pass", "next(r)", "", "r.iterindex"),
    "flat iterator of numpy": ("import numpy as np\nr = np.arange(5000.0).flat", "pass", "next(r)", "", "r.index"),
    "reader of csv": ("import csv\nr = csv.reader(['a'] * 5000)", "pass", "next(r)", "", "r.line_num"),
    "tokens": ("import shlex\nr = shlex.shlex('a ' * 5000)", "pass", "r.get_token()", "", "r.instream.tell()"),
    "exit stack": ("import contextlib\nd = contextlib.ExitStack()", "pass", "d.callback(print)", "", "len(d._exit_callbacks)"),
    "scheduler of calls": ("import sched\nd = sched.scheduler()", "pass", "d.enter(1, 1, print)", "", "len(d.queue)"),
    "tree of xml": ("import xml.etree.ElementTree as et\nd = et.Element('a')", "pass", "et.SubElement(d, 'b')", "", "len(d)"),
    "module made by hand": ("import types\nd = types.ModuleType('d')\nd.n = 0", "pass", "d.n += 1", "", "d.n"),
    "cell of a method": ("class Box:\n    def count(self, k=[0]):\n        k[0] += 1\n        return k[0]\nbox = Box()", "pass", "box.count()", "", "box.count()"),
    "default behind no_grad": ("import inspect\n@torch.no_grad()\ndef f(seen=[0]):\n    seen[0] += 1", "pass", "f()", "", "inspect.unwrap(f).__defaults__"),
    "default behind a context manager": ("import contextlib\n@contextlib.contextmanager\ndef f(seen=[0]):\n    seen[0] += 1\n    yield", "pass", "with f(): pass", "",
                                         "f.__wrapped__.__defaults__"),
    "default of an optimizer's step": ("import inspect\nclass Own(torch.optim.SGD):\n    def step(self, closure=None, seen=[0]):\n        seen[0] += 1\n        super().step()", "pass", "pass",
                                       "o = Own(m.parameters(), 1e-3)", "inspect.unwrap(Own.step).__defaults__"),
    "static counter in a wrapped class": ("import functools\n@functools.lru_cache(2)\ndef f(k): return k\nclass Box:\n    hits = property(lambda s: f.cache_info().misses)\nk = [0]", "pass",
                                         "k[0] += 1; f(k[0])", "", "Box().hits"),
    "default device": ("k = [0]", "pass", "k[0] += 1; torch.set_default_device('meta' if k[0] % 2 else 'cpu') if k[0] > 400 else 0", "", "torch.get_default_device()"),
    "working directory": ("import os\nhere = os.getcwd()", "pass", "os.chdir('/' if os.getcwd() == here else here)", "", "os.getcwd() == here"),
    "precision of products": ("k = [0]", "pass", "k[0] += 1; torch.set_float32_matmul_precision('high' if k[0] % 2 else 'highest')", "", "torch.get_float32_matmul_precision()"),
    "locale of numbers": ("import numpy as np", "pass", "np.set_printoptions(precision=np.get_printoptions()['precision'] % 12 + 1)", "", "str(np.pi * np.ones(1))"),
    "number of threads": ("k = [0]", "pass", "k[0] += 1; torch.set_num_threads(k[0] % 2 + 1)", "", "torch.get_num_threads()"),
    "deterministic switch": ("k = [0]", "pass", "k[0] += 1; torch.use_deterministic_algorithms(k[0] % 2 == 0)", "", "torch.are_deterministic_algorithms_enabled()"),
    "numbers too small to be normal": ("import sys", "pass", "torch.set_flush_denormal(sys.float_info.min / 2 != 0.0)", "", "sys.float_info.min / 2"),
    "threads of torch": ("", "pass", "torch.set_num_threads(torch.get_num_threads() % 2 + 1)", "", "torch.get_num_threads()"),
    "kernels of mkldnn": ("", "pass", "torch._C._set_mkldnn_enabled(not torch._C._get_mkldnn_enabled())", "", "torch._C._get_mkldnn_enabled()"),
    "kernels of attention": ("from torch.backends import cuda", "pass", "cuda.enable_math_sdp(not cuda.math_sdp_enabled())", "", "cuda.math_sdp_enabled()"),
    "how often torch warns": ("", "pass", "torch.set_warn_always(not torch.is_warn_always_enabled())", "", "torch.is_warn_always_enabled()"),
    "anomaly mode": ("", "pass", "torch.autograd.set_detect_anomaly(not torch.is_anomaly_enabled())", "", "torch.is_anomaly_enabled()"),
    "fresh memory filled": ("import torch.utils.deterministic as d", "pass", "d.fill_uninitialized_memory = not d.fill_uninitialized_memory", "", "d.fill_uninitialized_memory"),
    "engine of quantized kernels": ("q = torch.backends.quantized", "pass", "q.engine = next(e for e in q.supported_engines if e != q.engine)", "", "q.engine"),
    "backward in several threads": ("", "pass", "torch.autograd.set_multithreading_enabled(not torch._C._is_multithreading_enabled())", "", "torch._C._is_multithreading_enabled()"),
    "locale": ("import locale", "pass", "locale.setlocale(locale.LC_ALL, 'C.UTF-8' if locale.setlocale(locale.LC_ALL) == 'C' else 'C')", "", "locale.setlocale(locale.LC_ALL)"),
    "time limit of sockets": ("import socket", "pass", "socket.setdefaulttimeout((socket.getdefaulttimeout() or 0) + 1)", "", "socket.getdefaulttimeout()"),
    "longest field of csv": ("import csv", "pass", "csv.field_size_limit(csv.field_size_limit() + 1)", "", "csv.field_size_limit()"),
    "dialects of csv": ("import csv", "pass", "csv.register_dialect(f'd{len(csv.list_dialects())}')", "", "len(csv.list_dialects())"),
    "switches between threads": ("import sys", "pass", "sys.setswitchinterval(sys.getswitchinterval() * 1.01)", "", "sys.getswitchinterval()"),
    "signal handler": ("import signal", "pass", "signal.signal(10, signal.SIG_IGN if signal.getsignal(10) is signal.SIG_DFL else signal.SIG_DFL)", "", "str(signal.getsignal(10))"),
    "hook of errors": ("import sys\ndef mine(*a): pass", "pass", "sys.excepthook = mine if sys.excepthook is sys.__excepthook__ else sys.__excepthook__", "", "sys.excepthook is mine"),
    "how tensors are shared": ("import torch.multiprocessing as mp", "pass", "mp.set_sharing_strategy('file_system' if mp.get_sharing_strategy() == 'file_descriptor' else 'file_descriptor')", "",
                               "mp.get_sharing_strategy()"),
    "logging turned off": ("import logging", "pass", "logging.disable(logging.root.manager.disable + 1)", "", "logging.root.manager.disable"),
    "function by type": ("import functools\n@functools.singledispatch\ndef f(x): return 0", "pass", "f.register(type('T', (), {}), abs)", "", "len(f.registry)"),
}


def source(name: str) -> str:
    made, own, changed, more, told = KINDS[name]
    return textwrap.dedent(SCRIPT).format(made=made, own=own, changed=changed, more=more, told=told)


def trial(name: str, base: Path, hooks: Path):
    """Killed a little after its second image, and started again."""
    path = base / f"{name.replace(' ', '_')}.py"
    path.write_text(source(name))
    stage = Stage(read(path), base / "run", hooks=hooks, every="40steps")
    straight = stage.plain()
    assert straight.rc == 0, straight.err.decode()
    stage.fresh()
    lives = [stage.live(1, Kill("bare image", 0.05, 2))]
    if lives[0].rc is None:
        lives.append(stage.live(2))
    text, last = one_text(lives)
    return stage._judge(straight, stage.final(lives[-1], text), lives, last)


@pytest.mark.parametrize("name", KINDS)
def test_exact_or_refused(name, tmp_path, hooks):
    got = trial(name, tmp_path, hooks)
    assert got.good, got.line()


def main() -> int:
    wrong = 0
    with tempfile.TemporaryDirectory(prefix="shields-") as folder:
        hooks = vendored(Path(folder) / "hooks")
        for name in sys.argv[1:] or KINDS:
            base = Path(folder) / name.replace(" ", "_")
            base.mkdir()
            got = trial(name, base, hooks)
            wrong += not got.good
            print(f"{name:36s} {got.outcome:10s} {(got.differs or [got.reason])[0][:150]}", flush=True)
    return bool(wrong)


if __name__ == "__main__":
    sys.exit(main())
