# Tries: what hooks and forwards put into lists, dicts, attributes and variables, used by the loop: features for a loss, statistics that are printed, counters that decide.
# expected: exact
from collections import Counter, OrderedDict, defaultdict, deque
from functools import partial

import torch
from torch import nn
import torch.nn.functional as F

torch.manual_seed(0)
features, counted = {}, 0
ordered, fired, norms = OrderedDict(), Counter(), {"all": []}


def keep(name):
    def hook(module, args, out):
        features[name] = out
    return hook


def in_order(name, module, args, out):
    ordered[name] = out.detach().mean().item()
    ordered.move_to_end(name)
    fired["even" if ordered[name] > 0.02 else "odd"] += 1


def into(found, name, module, args, out):
    found[name].append(out.detach().norm().item())


class SaveOutput:
    def __init__(self):
        self.outputs, self.mean = [], 0.0

    def __call__(self, module, args, out):
        self.outputs.append(out)
        self.mean = out.detach().mean().item()

    def clear(self):
        self.outputs = []


class Monitor:
    def __init__(self, model):
        self.stats, self.recent = defaultdict(list), deque(maxlen=5)
        for name, module in model.named_modules():
            if isinstance(module, nn.Linear):
                module.register_forward_hook(lambda m, a, o, name=name: self.see(name, o))

    def see(self, name, out):
        self.stats[name].append(out.detach().std().item())
        self.recent.append((name, out.detach().abs().max().item()))


class Gate(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear, self.calls, self.aux, self.seen = nn.Linear(16, 16), 0, [], {}

    def forward(self, x):
        global counted
        counted += 1
        self.calls += 1
        weights = self.linear(x).softmax(1)
        self.aux.append((weights ** 2).sum())
        self.seen["last"] = weights.detach().argmax(1)
        return x * weights


def make():
    return nn.Sequential(nn.Linear(8, 16), nn.ReLU(), Gate(), nn.Dropout(0.1), nn.Linear(16, 4))


student, teacher = make(), make().eval().requires_grad_(False)
for net, who in ((student, "s"), (teacher, "t")):
    net[1].register_forward_hook(keep(who))
saved, monitor = SaveOutput(), Monitor(student)
student[4].register_forward_hook(saved)
for n, module in enumerate(student):
    module.register_forward_hook(partial(in_order, n))
student[2].register_forward_hook(partial(into, norms, "all"))
opt = torch.optim.Adam(student.parameters(), lr=1e-3)
total, grads = 0.0, []
student[0].weight.register_hook(lambda g: grads.append(g.norm().item()))
for step in range(400):
    x = torch.randn(16, 8)
    saved.clear()
    student[2].aux = []
    with torch.no_grad():
        teacher(x)
    out = student(x)
    loss = F.mse_loss(features["s"], features["t"]) + 0.01 * sum(student[2].aux) + saved.outputs[-1].pow(2).mean()
    opt.zero_grad()
    loss.backward()
    if grads[-1] > 0.05 and student[2].calls % 3:
        opt.step()
    total += saved.mean + monitor.stats["0"][-1] + monitor.recent[-1][1] + float(student[2].seen["last"].sum())
    total += sum((1 + n) * value for n, value in enumerate(ordered.values())) + fired["odd"] % 5 + norms["all"][-1]
    if step % 3 == 0:
        ordered.popitem(last=False)
    features.clear()
    del loss, out
    if step % 20 == 0:
        print(step, f"{total:.9f}", counted, len(monitor.stats["4"]), len(monitor.recent), f"{grads[-1]:.9f}", list(ordered), dict(fired), len(norms["all"]), flush=True)
torch.save(student.state_dict(), "student.pt")
