"""Values and shields, a recorded life and a ghost of it: the ghost has other weights, and yet sees what the first life saw."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

SRC = Path(__file__).resolve().parents[2] / "src"
LIFE = """
import math, os, sys
import torch
from torch import nn
import torch.nn.functional as F
from stoker.inside.resume.core import log, outcome, phases
folder, ghost = sys.argv[1], sys.argv[2] == "ghost"
os.environ["STOKER_RESUME_DIR"] = phases.folder = folder
outcome.remember_start()
if outcome.tries():
    print("started again:", (outcome.state().get("tried") or [{}])[-1].get("why"))
    sys.exit(7)
phases.log = log.Log(folder + "/log")
if ghost:
    phases.log.replay(phases.log.tail(0) + 10**6)
    phases.target = type("Image", (), {"n": 1, "where": {"armed": -1}})()
phases.on_error = outcome.broke
phases.phase = phases.SETUP
from stoker.inside.resume.compute import lenient, shields, values; from stoker.inside.resume.image import points
values.install()
points.install()
shields.install()
phases.on_setup_end += [(lambda: None) if ghost else phases.log.open, points.begin, lenient.install]
torch.manual_seed(1 if ghost else 0)
seen = []
def see(*what):
    seen.extend(what)
"""
END = """
phases.depth = 1
phases.log.flush()
print(repr(seen), flush=True)
if ghost:
    assert phases.log.peek() is None, "events are left"
os._exit(0)
"""


def lives(folder: Path, body: str) -> tuple[str, str]:
    """What the recorded life and its ghost saw."""
    script = folder / "life.py"
    script.write_text(LIFE + textwrap.dedent(body) + END)
    (folder / "images" / "1").mkdir(parents=True, exist_ok=True)
    outs = []
    for which in ("record", "ghost"):
        env = {**os.environ, "PYTHONPATH": str(SRC), "OMP_NUM_THREADS": "1", "PYTHONHASHSEED": "1", "STOKER_RESUME_DEBUG": "1"}
        env.pop("STOKER_RESUME_TRIES", None)
        done = subprocess.run([sys.executable, str(script), str(folder), which], env=env, capture_output=True, text=True, timeout=200, check=False)
        assert done.returncode in (0, 7), done.stderr
        outs.append(done.stdout.strip() or done.stderr)
    return outs[0], outs[1]


def test_every_way_out_of_a_tensor_is_told_from_the_log(tmp_path: Path) -> None:
    one, two = lives(tmp_path, """
        net = nn.Linear(4, 4)
        with torch.no_grad():
            x = net(torch.ones(4))  # ends set-up
        t = torch.randn(5)
        see(t[0].item(), float(t[1]), int(t[2] * 100), bool(t[3] > 0), (t > 0).tolist(), t.tolist(), f"{t[4]:.4f}", "%r" % t, str(t))
        see(t.numpy().tolist(), torch.equal(t, t + 0), torch.allclose(t, t), t.is_nonzero() if t.numel() == 1 else None)
        i = (t.abs() * 3).long()
        see(["a", "b", "c", "d", "e", "f", "g", "h", "i", "j", "k"][i[0]], len(torch.arange(i[1])), complex(t[0]), t[0] in t, round(t[1].item(), 3))
        see(len(t[t > 0]), len(torch.nonzero(t > 0)), len(torch.unique(i)), torch.bincount(i).shape[0], torch.masked_select(t, t < 0).shape)
        see(torch.where(t > 0)[0].shape, torch.argwhere(t < 0.1).shape, torch.repeat_interleave(i).shape, math.floor(t[0]), t.max().item())
        with torch.inference_mode():
            see(t.sum().item(), bool(t.min() < -0.5))
        see(F.one_hot(i).shape, t.numpy().sum().item(), torch.tensor(float("nan")).item(), (t[0] * 0 - 0.0).item(), torch.seed() > 0)
        import numpy
        see(numpy.asarray(t).tolist(), numpy.array(t, dtype="float64").tolist())
    """)
    assert one == two
    assert one.count(",") > 60


def test_a_ghost_gets_the_forms_of_what_it_skips(tmp_path: Path) -> None:
    one, two = lives(tmp_path, """
        import collections, dataclasses
        Pair = collections.namedtuple("Pair", "a b")
        class Out(collections.OrderedDict): pass
        class Thing:
            def __init__(self, t): self.t, self.name = t, "thing"
        class Net(nn.Module):
            def __init__(self):
                super().__init__()
                self.f = nn.Linear(3, 2)
            def forward(self, x, how="tensor"):
                y = self.f(x)
                return {"tensor": y, "tuple": (y, y.detach()), "dict": {"y": y, "n": 3}, "named": Pair(y, None), "own": Out(y=y), "same": x,
                        "list": [y, y], "strided": y.t(), "thing": Thing(y), "ints": y.argmax(1), "nothing": None, "half": y.bfloat16()}[how]
        net = Net()
        def form(o):
            if isinstance(o, torch.Tensor):
                return (tuple(o.shape), tuple(o.stride()), str(o.dtype), o.requires_grad, o.is_leaf)
            if isinstance(o, dict):
                return (type(o).__name__, [(k, form(v)) for k, v in o.items()])
            if isinstance(o, (tuple, list)):
                return (type(o).__name__, [form(v) for v in o])
            return (type(o).__name__, form(vars(o)) if isinstance(o, Thing) else o)
        for times in range(2):
            for how in ("tensor", "tuple", "dict", "named", "own", "same", "list", "strided", "thing", "ints", "nothing", "half"):
                x = torch.randn(4, 3)
                out = net(x, how)
                see(form(out))
                see(out is x, how == "list" and out[0] is out[1])
                if ghost and how == "tensor":
                    phases.depth = 1
                    assert bool(out.isnan().all())
                    phases.depth = 0
    """)
    assert one == two and "Pair" in one and "Thing" in one


def test_a_call_that_is_not_as_the_last_one_from_its_place_is_told_as_it_is(tmp_path: Path) -> None:
    one, two = lives(tmp_path, """
        from torch.utils.hooks import RemovableHandle
        library = {}  # the script's own code that writes is never asked for less
        exec(compile("def keep(net, y): net.loss = y.mean()", "/site-packages/library.py", "exec"), library)
        class Net(nn.Module):
            def __init__(self):
                super().__init__()
                self.f, self.what = nn.Linear(3, 3), ""
            def forward(self, x, *more):
                y, what = self.f(x), self.what
                if what == "leaves": library["keep"](self, y)
                if what == "joins": self.add_module("late", nn.Linear(3, 3))
                if what == "hook": self.f.register_forward_hook(lambda *_: None)
                if what == "step": inner.step()
                forms = {"shape": y[:, :2].contiguous(), "detached": y.detach(), "same": x, "tuple": (y, y), "double": y.double(), "strided": y.t()}
                return forms.get(what, y)
        nets, heard, hooks = [Net(), Net()], [], []
        inner = torch.optim.SGD(nets[0].parameters(), 0.1)
        def form(o):
            return (tuple(o.shape), tuple(o.stride()), str(o.dtype), o.requires_grad) if isinstance(o, torch.Tensor) else tuple(map(form, o))
        whats = ("shape", "detached", "same", "tuple", "double", "strided", "leaves", "joins", "writes", "hook", "asks", "no grad", "step", "other")
        for what in ["", "", "", *[each for what in whats for each in (what, "", "")]]:
            net = nets[what == "other"]
            net.what, x = what, torch.randn(4, 3)
            if what == "asks":
                x.requires_grad_()
            if what == "same":
                x = x.requires_grad_() * 1  # of the form that the call gives otherwise
            if what == "writes":
                hooks.append(net.f.register_forward_hook(lambda *_: heard.append(len(heard))))
            with torch.set_grad_enabled(what != "no grad"):
                out = net(x)
            see(what, form(out), out is x, RemovableHandle.next_id, phases.steps, hasattr(net, "late"), len(heard), form(getattr(net, "loss", ())))
            if what in ("", "asks"):
                out.sum().backward()
                see(x.grad is not None, net.f.weight.grad is not None)
            if what == "":
                net.zero_grad()
    """)
    assert one == two
    assert one.count("True") > 30


def test_a_tail_that_ends_with_a_call_of_a_module_is_recorded_on(tmp_path: Path) -> None:
    body = """
net = nn.Sequential(nn.Linear(3, 3))
for _ in range(int(sys.argv[3])):
    out = net(torch.ones(2, 3))
see(outcome.refused(), phases.NAMES[phases.phase], phases.log.compared)
"""
    again = "phases.phase = phases.SETUP if sys.argv[3] == '4' else phases.TAIL; phases.phase == phases.SETUP or phases.log.replay(0)"
    script = LIFE.replace("phases.phase = phases.SETUP", again)
    (tmp_path / "images" / "1").mkdir(parents=True)
    told = []
    (tmp_path / "life.py").write_text(script + body + END)
    for calls in ("4", "9"):
        env = {**os.environ, "PYTHONPATH": str(SRC), "OMP_NUM_THREADS": "1", "PYTHONHASHSEED": "1", "STOKER_RESUME_DEBUG": "1"}
        done = subprocess.run([sys.executable, str(tmp_path / "life.py"), str(tmp_path), "record", calls], env=env, capture_output=True, text=True,
                              timeout=200, check=False)
        assert done.returncode == 0, done.stderr
        told.append(done.stdout.strip())
    assert told == ["['', 'record', 0]", "['', 'record', 4]"]


def test_gradients_states_and_closures_are_where_they_were(tmp_path: Path) -> None:
    one, two = lives(tmp_path, """
        a, b = nn.Linear(3, 3), nn.Linear(3, 1)
        oa, ob = torch.optim.Adam(a.parameters()), torch.optim.LBFGS(b.parameters(), max_iter=4)
        def who():
            return [p.grad is None for p in [*a.parameters(), *b.parameters()]]
        for i in range(4):
            x = torch.randn(5, 3)
            oa.zero_grad(); ob.zero_grad()
            see(who())
            b(a(x).detach()).pow(2).mean().backward()
            see(who())
            a(x).pow(2).mean().backward()
            see(who(), float(nn.utils.clip_grad_norm_(a.parameters(), 1.0)))
            oa.step()
            see(sorted(oa.state[a.weight]), oa.state[a.weight]["step"].item(), len(oa.state))
            calls = []
            def closure():
                calls.append(1)
                ob.zero_grad()
                loss = (b(a(x).detach()) - 1).pow(2).mean()
                loss.backward()
                return loss
            loss = ob.step(closure)
            see(len(calls), loss.item(), list(ob.state[b.weight])[:3])
        w = torch.randn(3, requires_grad=True)
        for i in range(3):
            loss = (w * i - 1).pow(2).sum()
            loss.backward()
            with torch.no_grad():
                w -= 0.1 * w.grad
            w.grad = None
            see(loss.item())
        x = torch.randn(2, 3, requires_grad=True)
        g, = torch.autograd.grad(b(x).sum(), x, create_graph=True)
        see(g.shape, g.requires_grad, phases.steps)
        x = torch.randn(2, 3, requires_grad=True)
        b(x).sum().backward()
        see(x.grad is None, x.grad.shape)
    """)
    assert one == two and "step" in one


def test_library_draws_are_made_up_for(tmp_path: Path) -> None:
    one, two = lives(tmp_path, """
        import random
        import numpy
        random.seed(3); numpy.random.seed(3)
        class Noisy(nn.Module):
            def forward(self, x):
                return x + random.random() + random.gauss(0, 1) + float(numpy.random.randn())
        net = Noisy()
        for i in range(12):
            y = net(torch.ones(2))
            if i % 3 == 0:
                see(random.random(), numpy.random.rand(), random.gauss(0, 1), float(numpy.random.randn()))
        see(random.random())
        net(torch.ones(2))
    """)
    assert one == two and one.count(",") > 14


def test_parameters_that_are_no_leaves_are_not_asked_for_gradients(tmp_path: Path) -> None:
    one, two = lives(tmp_path, """
        import warnings
        net = nn.Linear(2, 1)
        rate = torch.ones(1, requires_grad=True)
        copy = nn.Linear(2, 1)
        for name in ("weight", "bias"):
            del copy._parameters[name]
            setattr(copy, name, getattr(net, name) * rate)
            copy._parameters[name] = copy.__dict__.pop(name)
        with warnings.catch_warnings(record=True) as told:
            warnings.simplefilter("always")
            copy(torch.ones(2)).sum().backward()
        see([str(each.message) for each in told])
    """)
    assert one == two == "[[]]"


@pytest.mark.parametrize("first", ["the script", "the library", "the library, once", "both"])
def test_library_draws_that_begin_late_are_made_up_for(tmp_path: Path, first: str) -> None:
    """Until somebody draws, nobody looks on the way into a shield."""
    one, two = lives(tmp_path, f"""
        import random
        random.seed(3)
        first = {first!r}
        class Noisy(nn.Module):
            def forward(self, x):
                draws = i == 5 if "once" in first else i >= (9 if first == "the script" else 5)
                return x + random.random() if draws else x
        net = Noisy()
        for i in range(14):
            if i >= (9 if "library" in first else 5):
                see(random.random())
            net(torch.ones(2))
        see(random.random())
        net(torch.ones(2))
    """)
    assert one == two and one.count(",") >= 5


def test_only_the_state_that_a_library_left_behind_is_logged(tmp_path: Path) -> None:
    one, two = lives(tmp_path, """
        import random
        random.seed(3)
        net = nn.Linear(2, 2)
        for i in range(200):
            random.random()
            net(torch.ones(2))
        phases.depth = 1
        phases.log.flush()
        see(ghost or phases.log.bytes < 9000)
        phases.depth = 0
    """)
    assert one == two == "[True]"  # one state may be, of before it was known who draws


def test_backward_into_the_time_before_the_image_ends_the_life(tmp_path: Path) -> None:
    one, two = lives(tmp_path, """
        net = nn.Linear(2, 1)
        old = net(torch.ones(2))
        see(1)
        if ghost:
            phases.phase = phases.RECORD  # as after the image
            phases.log.flush = lambda sync=False: None
            (old * 2).sum().backward()
        see(2)
    """)
    assert one == "[1, 2]" and "an autograd graph that is older than the image" in two


def test_another_module_is_noticed(tmp_path: Path) -> None:
    one, two = lives(tmp_path, """
        nets = [nn.Linear(2, 2), nn.Linear(2, 2)]
        for net in nets:
            net(torch.ones(2))
        nets[1 if ghost else 0](torch.ones(2))
        see(1)
    """)
    assert one == "[1]" and "a different module or optimizer (recorded: object number 0; now: object number 1" in two


def test_a_value_that_cannot_be_followed_refuses(tmp_path: Path) -> None:
    one, _ = lives(tmp_path, """
        net = nn.Linear(2, 2)
        y = net(torch.ones(2)).detach()
        if not ghost:
            torch.utils.dlpack.to_dlpack  # noqa
            y.__dlpack__()
            see(phases.NAMES[phases.phase], outcome.state()["reason"])
            print(seen, flush=True); os._exit(0)
    """)
    assert "off" in one and "__dlpack__ gave direct access to the memory of a tensor" in one


def test_a_fault_of_ours_on_the_way_into_backward_is_not_the_scripts(tmp_path: Path) -> None:
    one, _ = lives(tmp_path, """
        from stoker.inside.resume.compute import gradients
        net = nn.Linear(2, 2)
        net(torch.ones(2)).sum().backward()
        if ghost:
            os._exit(0)
        def broken(tensors, caller):
            raise KeyError("ours")
        gradients.before = broken
        net.zero_grad()
        (2 * net(torch.ones(2))).sum().backward()
        see(net.bias.grad.tolist(), phases.NAMES[phases.phase], outcome.state()["reason"])
    """)
    assert "[2.0, 2.0], 'off', \"an internal error of Stoker's hooks: KeyError: 'ours'\"" in one, one


def test_a_lazy_module_gets_its_parameters_in_a_ghost_too(tmp_path: Path) -> None:
    one, two = lives(tmp_path, """
        class Net(nn.Module):
            def __init__(self):
                super().__init__()
                self.a, self.n, self.b = nn.LazyLinear(4), nn.LazyBatchNorm1d(), nn.LazyLinear(1)
            def forward(self, x, later=False):
                h = self.n(self.a(x))
                return self.b(h) if later else h
        net = Net()
        for i in range(4):
            out = net(torch.ones(3, 2), later=i > 1)
            if not i:
                o = torch.optim.SGD([*net.a.parameters(), *net.n.parameters()], 1e-2)
            if i == 2:
                o.add_param_group({"params": net.b.parameters()})
            o.zero_grad()
            out.sum().backward()
            see([type(each).__name__ for each in net.modules()], [nn.parameter.is_lazy(p) or tuple(p.shape) for p in net.parameters()])
            see([p.grad is not None for p in net.parameters()], net.a.in_features, out.mean().item())
            o.step()
    """)
    assert one == two and "LazyLinear" in one and "(4, 2)" in one


def test_what_transforms_make_is_one_event(tmp_path: Path) -> None:
    one, two = lives(tmp_path, """
        from torch.func import functional_call, grad, grad_and_value, hessian, jacfwd, jacrev, jvp, stack_module_state, vmap
        net = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 1))
        p, x = {k: v.detach() for k, v in net.named_parameters()}, torch.ones(5, 3)
        def f(p, x):
            return functional_call(net, p, (x,)).sum()
        for i in range(2):
            each, values = vmap(grad_and_value(f), (None, 0))(p, x)
            see({k: tuple(v.shape) for k, v in each.items()}, values.tolist())
            see(grad(f)(p, x)["0.weight"].sum().item(), jacrev(f, 1)(p, x).sum().item(), jacfwd(f, 1)(p, x).sum().item())
            see(hessian(f, 1)(p, x[0]).shape, [v.item() for v in jvp(lambda x: f(p, x), (x,), (x,))])
            stacked, buffers = stack_module_state([net, net])
            out = vmap(lambda p, b: functional_call(net, (p, b), (x,)))(stacked, buffers)
            out.sum().backward()
            see(out.shape, out.requires_grad, out.sum().item(), [v.grad is not None for v in stacked.values()])
        see(phases.steps)
    """)
    assert one == two and one.startswith("[{")


def test_weights_of_a_functional_call_get_their_gradients(tmp_path: Path) -> None:
    one, two = lives(tmp_path, """
        from torch.func import functional_call
        net = nn.Sequential(*[nn.Linear(2, 2) for _ in range(10)])
        own = {k: v.detach().requires_grad_() for k, v in net.named_parameters()}
        for i in range(12):
            functional_call(net, own, (torch.ones(1, 2),)).sum().backward()
            see([v.grad is not None for v in own.values()], [v.grad is not None for v in net.parameters()])
            own = {k: (v - v.grad).detach().requires_grad_() for k, v in own.items()}
    """)
    assert one == two and "[True, True" in one


def test_tensors_inside_of_a_transform_that_is_not_followed_refuse(tmp_path: Path) -> None:
    for n, body in enumerate(("vmap_impl(net, 0, 0, 'error', None, torch.ones(2, 2))", "dual()")):
        folder = tmp_path / str(n)
        folder.mkdir()
        one, _ = lives(folder, f"""
            import torch.autograd.forward_ad as fw
            from torch._functorch.vmap import vmap_impl
            net = nn.Linear(2, 2)
            def dual():
                with fw.dual_level():
                    net(fw.make_dual(torch.ones(1, 2), torch.ones(1, 2)))
            net(torch.ones(1, 2))
            {body}
            see(outcome.stopped)
        """)
        assert "tensor inside a transform (vmap, grad, forward_ad), which exact resume does not support" in one


def test_a_backward_is_at_one_place_whether_python_is_warm_or_traced(tmp_path: Path) -> None:
    one, two = lives(tmp_path, """
        from stoker.inside.resume.compute import gradients
        net = nn.Linear(2, 1)
        for n in range(60):
            if n == 40:
                sys.settrace(lambda *_: None)
            list(map(torch.Tensor.backward, [net(torch.ones(1, 2)).sum()]))
        sys.settrace(None)
        see(len({id(place) for place in gradients._places.values() if place[0]}))
    """)
    assert one == two == "[1]"


def test_a_step_may_take_what_it_likes(tmp_path: Path) -> None:
    one, two = lives(tmp_path, """
        class Own(torch.optim.SGD):
            def step(self, scale, closure=None, *, loss=None):
                for group in self.param_groups:
                    group["lr"] = scale
                return super().step(closure), loss
        class Others(torch.optim.SGD):
            def step(self, *args, **kwargs):
                return super().step(*args, **kwargs)
        class Named(torch.optim.SGD):
            def step(self, net):
                return type(net).__name__
        net = nn.Linear(2, 1)
        own, others, named = [kind(net.parameters(), lr=0.1) for kind in (Own, Others, Named)]
        def closure():
            loss = net(torch.ones(1, 2)).sum()
            loss.backward()
            see(loss.item())
            return loss
        for i in range(3):
            see(own.step(0.1 * i, loss=3.0), own.step(0.1, closure)[0].item(), own.step(scale=1.0, closure=closure)[0].item())
            see(others.step(closure).item(), others.step(), named.step(net))
    """)
    assert one == two and "(None, 3.0)" in one and "Linear" in one
