"""Makes random training scripts out of parts, kills them, and shrinks one that comes back wrong.

`python tests/resume/fuzz.py [FROM:TO] [--show SEED] [--shrink SEED] [--kills N] [--json FILE]`. A seed always makes the same script.
"""

from __future__ import annotations

import argparse
import json
import random
import shutil
import sys
import tempfile
import textwrap
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))

from harness import Kill, Script, Trial, campaign, read, vendored

# Every part with its choices; the first choice is the simplest, to which shrinking goes back.
PARTS: dict[str, list[str]] = {
    "source": ["slices", "loader", "randperm", "get_batch", "next_iter", "workers", "persistent", "own_generator", "weighted", "buckets", "iterable", "noisy_dataset", "noisy_workers",
               "cycle", "zip_two", "anew_each_epoch", "generator_chain"],
    "model": ["mlp", "batchnorm", "dropout", "conv", "gru", "attention", "residual", "tied", "embedding", "buffers", "layerdrop", "hooked", "cached"],
    "loss": ["mse", "cross_entropy", "masked", "branch", "regularised", "two_terms", "graph_penalty"],
    "optimizer": ["sgd", "momentum", "adam", "adamw_groups", "rmsprop", "adagrad", "fused", "lbfgs", "two", "by_hand", "amsgrad", "nadam"],
    "scheduler": ["none", "step", "cosine", "one_cycle", "plateau", "lambda", "by_hand"],
    "shape": ["flat", "main", "trainer", "generator", "try_except", "recursive"],
    "accumulate": ["1", "3"],
    "clip": ["none", "norm", "value"],
    "precision": ["fp32", "bf16", "scaler"],
    "average": ["none", "ema", "best_copy", "swa", "lookahead"],
}
EXTRAS = ["noise_torch", "noise_numpy", "noise_random", "gauss", "mixup", "history", "running", "numpy_out", "tolist_out", "early_stop", "csv", "json", "save_best", "keep_last", "append", "logging",
          "evaluate", "exists", "deque", "closure", "global_count", "masked_time", "sampled_action", "shuffle_list", "device_copy", "grad_noise", "freeze_late", "ckpt_reload", "reseed", "npy"]


def spec_of(seed: int) -> dict[str, object]:
    """The parts of one script. Half of all choices are the simplest, so that scripts stay as simple as people's."""
    rng = random.Random(f"fuzz {seed}")
    chosen: dict[str, object] = {part: rng.choice(options) if rng.random() < 0.7 else options[0] for part, options in PARTS.items()}
    chosen["extras"] = sorted(rng.sample(EXTRAS, rng.choice((0, 2, 4, 6, 8))))
    chosen["seed"] = rng.randrange(1000)
    chosen["every"] = rng.choice((5, 10, 20))
    return chosen


SOURCES = {
    "slices": ("", "((X[i * B % 320:][:B], Y[i * B % 320:][:B]) for i in range(40))"),
    "loader": ("loader = DataLoader(TensorDataset(X, Y), B, shuffle=True)", "loader"),
    "randperm": ("", "((X[j], Y[j]) for j in torch.randperm(N).split(B))"),
    "get_batch": ("def get_batch():\n    ix = torch.randint(N, (B,))\n    return X[ix], torch.stack([Y[i] for i in ix])", "(get_batch() for _ in range(30))"),
    "next_iter": ("loader = DataLoader(TensorDataset(X, Y), B, shuffle=True)\nit = iter(loader)\ndef pull():\n    global it\n    try:\n        return next(it)\n    except StopIteration:\n        it = iter(loader)\n        return next(it)",
                  "(pull() for _ in range(31))"),
    "workers": ("loader = DataLoader(TensorDataset(X, Y), B, shuffle=True, num_workers=2)", "loader"),
    "persistent": ("loader = DataLoader(TensorDataset(X, Y), B, shuffle=True, num_workers=1, persistent_workers=True)", "loader"),
    "own_generator": ("loader = DataLoader(TensorDataset(X, Y), B, shuffle=True, generator=torch.Generator().manual_seed(4))", "loader"),
    "weighted": ("loader = DataLoader(TensorDataset(X, Y), B, sampler=WeightedRandomSampler(torch.rand(N), N))", "loader"),
    "buckets": ("class Buckets:\n    def __init__(self):\n        self.b = [list(range(i, i + B)) for i in range(0, N - B, B)]\n    def __iter__(self):\n        order = torch.randperm(len(self.b)).tolist()\n        return iter([self.b[i] for i in order])\n"
                "    def __len__(self):\n        return len(self.b)\nloader = DataLoader(TensorDataset(X, Y), batch_sampler=Buckets())", "loader"),
    "iterable": ("class Stream(IterableDataset):\n    def __iter__(self):\n        for i in torch.randperm(N).tolist():\n            yield X[i], Y[i]\nloader = DataLoader(Stream(), B)", "loader"),
    "noisy_dataset": ("class Noisy(Dataset):\n    def __len__(self):\n        return N\n    def __getitem__(self, i):\n        x = X[i] + 0.1 * torch.randn(8) + float(np.random.randn()) * 0.01\n        return (x.flip(0) if random.random() < 0.3 else x), Y[i]\n"
                      "loader = DataLoader(Noisy(), B, shuffle=True)", "loader"),
    "noisy_workers": ("class Noisy(Dataset):\n    def __len__(self):\n        return N\n    def __getitem__(self, i):\n        x = X[i] + 0.1 * torch.randn(8)\n        return (x.flip(0) if random.random() < 0.3 else x), Y[i]\n"
                      "loader = DataLoader(Noisy(), B, shuffle=True, num_workers=2)", "loader"),
    "cycle": ("source = itertools.cycle(DataLoader(TensorDataset(X, Y), B, shuffle=True))", "itertools.islice(source, 33)"),
    "zip_two": ("a = DataLoader(TensorDataset(X, Y), B // 2, shuffle=True)\nb = DataLoader(TensorDataset(X.flip(0), Y.flip(0)), B // 2, shuffle=True)", "((torch.cat([p, r]), torch.cat([q, s])) for (p, q), (r, s) in zip(a, b))"),
    "anew_each_epoch": ("", "DataLoader(TensorDataset(X, Y), B + epoch % 3, shuffle=True, drop_last=True)"),
    "generator_chain": ("loader = DataLoader(TensorDataset(X, Y), B, shuffle=True)\ndef noisy(source):\n    drift = torch.zeros(8)\n    for x, y in source:\n        drift = 0.9 * drift + 0.1 * x.mean(0)\n        yield x - drift, y\n"
                        "def ahead(source):\n    held = None\n    for batch in source:\n        if held is not None:\n            yield held\n        held = batch\n    yield held", "ahead(noisy(loader))"),
}
MODELS = {
    "mlp": "net = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 4))",
    "batchnorm": "net = nn.Sequential(nn.Linear(8, 32), nn.BatchNorm1d(32), nn.ReLU(), nn.Linear(32, 4))",
    "dropout": "net = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Dropout(0.2), nn.Linear(32, 4))",
    "conv": "net = nn.Sequential(nn.Unflatten(1, (1, 8)), nn.Conv1d(1, 6, 3), nn.ReLU(), nn.Flatten(), nn.Linear(36, 4))",
    "gru": "class Net(nn.Module):\n    def __init__(self):\n        super().__init__()\n        self.rnn, self.out = nn.GRU(2, 16, batch_first=True), nn.Linear(16, 4)\n        self.h = None\n    def forward(self, x):\n        y, h = self.rnn(x.view(len(x), 4, 2))\n"
           "        self.h = h.detach().mean(1, keepdim=True) if self.h is None else 0.9 * self.h + 0.1 * h.detach().mean(1, keepdim=True)\n        return self.out(y[:, -1] + 0.1 * self.h[0])\nnet = Net()",
    "attention": "class Net(nn.Module):\n    def __init__(self):\n        super().__init__()\n        self.up, self.att, self.out = nn.Linear(2, 16), nn.MultiheadAttention(16, 2, batch_first=True), nn.Linear(16, 4)\n    def forward(self, x):\n"
                 "        h = self.up(x.view(len(x), 4, 2))\n        return self.out(self.att(h, h, h)[0].mean(1))\nnet = Net()",
    "residual": "class Block(nn.Module):\n    def __init__(self):\n        super().__init__()\n        self.f = nn.Sequential(nn.LayerNorm(8), nn.Linear(8, 16), nn.GELU(), nn.Linear(16, 8))\n    def forward(self, x):\n        return x + self.f(x)\n"
                "net = nn.Sequential(Block(), Block(), nn.Linear(8, 4))",
    "tied": "net = nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 8), nn.Linear(8, 4))\nnet[2].weight = net[0].weight",
    "embedding": "class Net(nn.Module):\n    def __init__(self):\n        super().__init__()\n        self.e, self.out = nn.Embedding(20, 8), nn.Linear(16, 4)\n    def forward(self, x):\n        k = (x[:, 0] * 5).long().clamp(-9, 9) + 10\n        return self.out(torch.cat([self.e(k), x], 1))\nnet = Net()",
    "buffers": "class Net(nn.Module):\n    def __init__(self):\n        super().__init__()\n        self.a, self.b = nn.Linear(8, 16), nn.Linear(16, 4)\n        self.register_buffer('seen', torch.zeros(8), persistent=False)\n        self.calls = 0\n    def forward(self, x):\n"
               "        self.seen = self.seen * 0.99 + x.detach().mean(0)\n        self.calls += 1\n        return self.b(self.a(x + 0.01 * self.seen).tanh())\nnet = Net()",
    "layerdrop": "class Net(nn.Module):\n    def __init__(self):\n        super().__init__()\n        self.layers, self.out = nn.ModuleList(nn.Linear(8, 8) for _ in range(3)), nn.Linear(8, 4)\n    def forward(self, x):\n        for layer in self.layers:\n"
                 "            if random.random() < 0.8:\n                x = x + layer(x).relu()\n        return self.out(x)\nnet = Net()",
    "hooked": "net = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 4))\nmeans = []\nnet[0].register_forward_hook(lambda m, a, o: means.append(o.detach().mean()))\nnet[2].weight.register_hook(lambda g: g.clamp(-1, 1))",
    "cached": "class Net(nn.Module):\n    def __init__(self):\n        super().__init__()\n        self.a, self.b, self.memo = nn.Linear(8, 16), nn.Linear(16, 4), {}\n    def forward(self, x):\n        if len(x) not in self.memo:\n            self.memo[len(x)] = torch.linspace(0, 0.1, len(x))[:, None]\n"
              "        return self.b(self.a(x + self.memo[len(x)]).relu())\nnet = Net()",
}
LOSSES = {
    "mse": "loss = F.mse_loss(out[:, 0], x.sum(1)[:len(out)])", "cross_entropy": "loss = F.cross_entropy(out, y)",
    "masked": "mask = y > 1\nloss = F.cross_entropy(out, y) + (out[mask].pow(2).mean() * 0.01 if mask.any() else 0.0)",
    "branch": "loss = F.cross_entropy(out, y)\nif loss > 1.2:\n    loss = loss + 0.01 * out.pow(2).mean()\nelif loss.item() < 0.4:\n    loss = loss * 0.5",
    "regularised": "loss = F.cross_entropy(out, y) + 1e-4 * sum(p.pow(2).sum() for p in net.parameters())",
    "two_terms": "loss = F.cross_entropy(out, y) + 0.1 * F.smooth_l1_loss(net(x * 0.9), out.detach())",
    "graph_penalty": "xg = x.clone().requires_grad_()\ngrad, = torch.autograd.grad(F.cross_entropy(net(xg), y), xg, create_graph=True)\nloss = F.cross_entropy(out, y) + 0.1 * grad.pow(2).sum()",
}
OPTIMIZERS = {
    "sgd": "opt = torch.optim.SGD(net.parameters(), lr=LR * 5)", "momentum": "opt = torch.optim.SGD(net.parameters(), lr=LR * 2, momentum=0.9, nesterov=True)", "adam": "opt = torch.optim.Adam(net.parameters(), lr=LR)",
    "adamw_groups": "ps = list(net.parameters())\nopt = torch.optim.AdamW([{'params': ps[:1], 'weight_decay': 0.1}, {'params': ps[1:], 'lr': LR / 2}], lr=LR)", "rmsprop": "opt = torch.optim.RMSprop(net.parameters(), lr=LR, momentum=0.5, centered=True)",
    "adagrad": "opt = torch.optim.Adagrad(net.parameters(), lr=LR * 3)", "fused": "opt = torch.optim.AdamW(net.parameters(), lr=LR, fused=True)", "lbfgs": "opt = torch.optim.LBFGS(net.parameters(), lr=0.1, max_iter=3, history_size=3)",
    "two": "ps = list(net.parameters())\nopt, opt2 = torch.optim.Adam(ps[:-1], lr=LR), torch.optim.SGD(ps[-1:], lr=LR)", "amsgrad": "opt = torch.optim.Adam(net.parameters(), lr=LR, amsgrad=True, foreach=False)",
    "by_hand": "class Plain(torch.optim.Optimizer):\n    def __init__(self, params, lr):\n        super().__init__(params, dict(lr=lr))\n    @torch.no_grad()\n    def step(self, closure=None):\n        for g in self.param_groups:\n            for p in g['params']:\n                if p.grad is not None:\n"
               "                    s = self.state[p]\n                    s['n'] = s.get('n', 0) + 1\n                    s['v'] = s.get('v', torch.zeros_like(p)).mul(0.9).add(p.grad)\n                    p.sub_(s['v'], alpha=g['lr'] / (1 + s['n'] * 1e-3))\nopt = Plain(net.parameters(), LR)",
    "nadam": "opt = torch.optim.NAdam(net.parameters(), lr=LR)",
}
SCHEDULERS = {
    "none": ("", "", ""), "step": ("sched = S.StepLR(opt, 40, 0.9)", "sched.step()", ""), "cosine": ("sched = S.CosineAnnealingWarmRestarts(opt, 50)", "sched.step()", ""),
    "one_cycle": ("sched = S.OneCycleLR(opt, max_lr=LR * 2, total_steps=5000)", "sched.step()", ""), "plateau": ("sched = S.ReduceLROnPlateau(opt, patience=1, factor=0.7)", "", "sched.step(total / max(1, seen))"),
    "lambda": ("sched = S.LambdaLR(opt, lambda e: 1 / (1 + e / 300))", "sched.step()", ""), "by_hand": ("", "for group in opt.param_groups:\n    group['lr'] = LR * (0.5 + 0.5 * math.cos(step / 100))", ""),
}
AVERAGES = {
    "none": ("", ""), "ema": ("ema = {k: v.detach().clone() for k, v in net.named_parameters()}", "for k, v in net.named_parameters():\n    ema[k] = 0.98 * ema[k] + 0.02 * v.detach()"),
    "best_copy": ("best_state, best_loss = None, None", "if best_loss is None or loss.item() < best_loss:\n    best_state, best_loss = copy.deepcopy(net.state_dict()), loss.item()"),
    "swa": ("swa = torch.optim.swa_utils.AveragedModel(net)", "if step % 10 == 0:\n    swa.update_parameters(net)"),
    "lookahead": ("slow = [p.detach().clone() for p in net.parameters()]", "if step % 15 == 0:\n    for s, p in zip(slow, net.parameters()):\n        s.lerp_(p.detach(), 0.5)\n        p.data.copy_(s)"),
}
# where: set-up, before the forward, after the step, at the end of an epoch
EXTRA_LINES: dict[str, tuple[str, str, str, str]] = {
    "noise_torch": ("", "x = x + 0.05 * torch.randn_like(x)", "", ""), "noise_numpy": ("", "x = x + 0.05 * torch.from_numpy(np.random.randn(*x.shape)).float()", "", ""), "noise_random": ("", "x = x * random.uniform(0.9, 1.1)", "", ""),
    "gauss": ("rnd = random.Random(5)", "if rnd.random() < 0.5:\n    x = x + rnd.gauss(0, 0.05) + random.gauss(0, 0.01)", "", ""), "mixup": ("", "if np.random.rand() < 0.5:\n    x = x + 0.2 * x[torch.randperm(len(x))] * float(np.random.beta(0.4, 0.4))", "", ""),
    "history": ("history = []", "", "history.append(loss.detach())", "print('history', torch.stack(history[-30:]).mean().item())"), "running": ("running = torch.zeros(())", "", "running = 0.95 * running + 0.05 * loss.detach()", "print('running', running)"),
    "numpy_out": ("arrays = []", "", "arrays.append(out.detach().numpy().mean())", "print('np', float(np.mean(arrays)))"), "tolist_out": ("counts = collections.Counter()", "", "counts.update(out.detach().argmax(1).tolist())", "print(sorted(counts.items()))"),
    "early_stop": ("patience, low = 0, 1e9", "", "", "if total < low - 1e-3:\n    low, patience = total, 0\nelse:\n    patience += 1\nif patience > 4:\n    stop = True"),
    "csv": ("table = open('log.csv', 'w', newline='')\nwriter = csv.writer(table)", "", "writer.writerow([step, loss.item()])", "table.flush()"), "json": ("facts = {}", "", "", "facts[str(epoch)] = total\nwith open('facts.json', 'w') as f:\n    json.dump(facts, f)"),
    "save_best": ("lowest = 1e9", "", "", "if total < lowest:\n    lowest = total\n    torch.save({'net': net.state_dict(), 'opt': opt.state_dict(), 'epoch': epoch}, 'best.pt')"),
    "keep_last": ("os.makedirs('ck', exist_ok=True)", "", "if step % 30 == 0:\n    torch.save(net.state_dict(), 'ck/tmp')\n    os.replace('ck/tmp', f'ck/{step:06d}.pt')\n    for old in sorted(os.listdir('ck'))[:-3]:\n        os.remove('ck/' + old)", ""),
    "append": ("open('notes.txt', 'w').close()", "", "if step % 9 == 0:\n    with open('notes.txt', 'a') as f:\n        f.write(f'{step} {loss.item():.6f}\\n')", "print('notes', sum(1 for _ in open('notes.txt')))"),
    "logging": ("logging.basicConfig(level=logging.INFO, format='%(message)s', filename='run.log', filemode='w')", "", "if step % 7 == 0:\n    logging.info('step %d loss %.5f', step, loss)", ""),
    "evaluate": ("", "", "", "net.eval()\nwith torch.no_grad():\n    acc = (net(X).argmax(1) == Y).float().mean().item()\nnet.train()\nprint('acc', acc)"), "exists": ("", "if not os.path.exists('flag') and step > 60:\n    open('flag', 'w').write('x')\n    x = x * 0.5", "", ""),
    "deque": ("window = collections.deque(maxlen=12)", "", "window.append(loss.detach().clone())", "print('window', sum(window).item())"), "closure": ("def counter():\n    n = 0\n    def up():\n        nonlocal n\n        n += 1\n        return n\n    return up\nup = counter()", "if up() % 5 == 0:\n    x = x * 1.01", "", ""),
    "global_count": ("tally = {'n': 0, 'high': 0}", "", "tally['n'] += 1\ntally['high'] += int(loss > 1)", "print(tally)"), "masked_time": ("began = time.time()", "", "", "print(f'time {time.time() - began:.3f}s')"),
    "sampled_action": ("", "", "pick = torch.distributions.Categorical(logits=out.detach()).sample()\nif pick[0].item() == 0:\n    net[-1].bias.data.mul_(0.999) if isinstance(net, nn.Sequential) else None", ""), "shuffle_list": ("order = list(range(8))", "random.shuffle(order)\nx = x[:, order] if step % 4 == 0 else x", "", ""),
    "device_copy": ("dev = torch.device('cpu')", "x, y = x.to(dev, non_blocking=True), y.to(dev)", "", ""), "grad_noise": ("", "", "", "print('norm', torch.stack([p.detach().norm() for p in net.parameters()]).norm().item())"),
    "freeze_late": ("", "", "if step == 150:\n    next(iter(net.parameters())).requires_grad_(False)", ""), "ckpt_reload": ("", "", "if step % 120 == 0:\n    torch.save(net.state_dict(), 'back.pt')\nif step % 120 == 75 and step > 120:\n    net.load_state_dict(torch.load('back.pt'))", ""),
    "reseed": ("", "", "", "torch.manual_seed(epoch)\nrandom.seed(epoch + 1)"), "npy": ("", "", "", "np.save('weights.npy', next(iter(net.parameters())).detach().numpy())"),
}
HEAD = """# A training script put together from parts.
# expected: either
# mask: time [\\d.]+s
import collections, copy, csv, hashlib, itertools, json, logging, math, os, random, time
import numpy as np
import torch
import torch.nn.functional as F
from torch import nn
from torch.optim import lr_scheduler as S
from torch.utils.data import DataLoader, Dataset, IterableDataset, TensorDataset, WeightedRandomSampler
"""
DIGEST = """
def digest(*things):
    found = hashlib.sha256()
    for t in things:
        for v in (t if isinstance(t, (list, tuple)) else [t]):
            found.update(v.detach().numpy().tobytes() if isinstance(v, torch.Tensor) else repr(v).encode())
    return found.hexdigest()[:16]
"""


def compose(spec: dict) -> str:
    """The script of a spec."""
    extras = [EXTRA_LINES[e] for e in spec["extras"]]
    lbfgs, accumulate = spec["optimizer"] == "lbfgs", int(spec["accumulate"])
    scaler = spec["precision"] == "scaler" and not lbfgs
    setup_source, source = SOURCES[spec["source"]]
    sched_setup, sched_step, sched_epoch = SCHEDULERS[spec["scheduler"]]
    avg_setup, avg_step = AVERAGES[spec["average"]]
    steppers = ["opt", "opt2"] if spec["optimizer"] == "two" else ["opt"]
    setup = [f"torch.manual_seed({spec['seed']}); random.seed({spec['seed']}); np.random.seed({spec['seed']})", "N, B, LR, EPOCHS = 330, 10, 5e-3, 16", "X = torch.randn(N, 8)",
             "Y = X[:, :4].argmax(1)", setup_source, MODELS[spec["model"]], OPTIMIZERS[spec["optimizer"]], sched_setup, avg_setup, "step, stop = 0, False",
             "scaler = torch.amp.GradScaler('cpu', init_scale=1024.0, growth_interval=100)" if scaler else "", *[e[0] for e in extras]]
    forward = "out = net(x)\n" + LOSSES[spec["loss"]]
    if spec["precision"] == "bf16":
        forward = "with torch.autocast('cpu', dtype=torch.bfloat16):\n    out = net(x).float()\n" + LOSSES[spec["loss"]]
    body = ["step += 1", *[e[1] for e in extras]]
    if lbfgs:
        inner = "opt.zero_grad()\n" + forward + "\nloss.backward()\nreturn loss"
        body += ["def closure():\n" + textwrap.indent(inner, "    "), "loss = opt.step(closure)", "with torch.no_grad():\n    out = net(x)"]
    else:
        zero, clip = "\n".join(f"{o}.zero_grad()" for o in steppers), {"none": "", "norm": "nn.utils.clip_grad_norm_(net.parameters(), 1.0)", "value": "nn.utils.clip_grad_value_(net.parameters(), 0.3)"}[spec["clip"]]
        go = "\n".join((f"scaler.step({o})" if scaler else f"{o}.step()") for o in steppers) + ("\nscaler.update()" if scaler else "")
        update = "\n".join(filter(None, ["scaler.unscale_(opt)" if scaler and clip else "", clip, go, zero]))
        body += [forward, "scaler.scale(loss).backward()" if scaler else f"(loss / {accumulate}).backward()" if accumulate > 1 else "loss.backward()"]
        body.append(f"if step % {accumulate} == 0:\n" + textwrap.indent(update, "    ") if accumulate > 1 else update)
    body += [sched_step, avg_step, *[e[2] for e in extras], "total += loss.item()", "seen += 1", f"if step % {spec['every']} == 0:\n    print(step, loss.item(), flush=True)"]
    every_epoch = [sched_epoch, *[e[3] for e in extras], "print('epoch', epoch, total / max(1, seen), flush=True)"]

    def text(parts: list[str]) -> str:
        return "\n".join(p for p in parts if p)

    names = "global step, stop"
    loop = f"for x, y in {source}:\n" + textwrap.indent(text(body), "    ")
    one = text(["total, seen = 0.0, 0", loop, *every_epoch])
    assigned = sorted({"running", "low", "patience", "lowest", "best_state", "best_loss", "it"} & set(text([*setup, one]).replace(",", " ").split()))
    names += "".join(f", {n}" for n in assigned)
    finish = "print('final', digest(*net.state_dict().values()), digest(*[list(s.values()) for s in opt.state.values() if 'd' not in s]), step, torch.rand(1).item(), random.random(), np.random.rand())"
    shape = spec["shape"]
    if shape == "main":
        whole = text([*setup]) + "\ndef main():\n    " + names + "\n    for epoch in range(EPOCHS):\n" + textwrap.indent(one, " " * 8) + "\n        if stop:\n            break\n    " + finish + "\nmain()\n"
    elif shape == "trainer":
        whole = text(setup) + "\nclass Trainer:\n    def __init__(self):\n        self.epoch, self.losses = 0, []\n    def run_epoch(self, epoch):\n        " + names + "\n" + textwrap.indent(one, " " * 8) + \
            "\n        self.losses.append(total)\n        self.epoch += 1\n    def fit(self):\n        while self.epoch < EPOCHS and not stop:\n            self.run_epoch(self.epoch)\ntrainer = Trainer()\ntrainer.fit()\nprint(trainer.losses[-1])\n" + finish + "\n"
    elif shape == "generator":
        whole = text(setup) + "\ndef epochs():\n    " + names + "\n    for epoch in range(EPOCHS):\n" + textwrap.indent(one, " " * 8) + "\n        yield total\n        if stop:\n            return\nfor total in epochs():\n    print('yielded', total)\n" + finish + "\n"
    elif shape == "try_except":
        whole = text(setup) + "\ntry:\n    for epoch in range(EPOCHS):\n" + textwrap.indent(one, " " * 8) + "\n        if stop:\n            raise StopIteration(epoch)\nexcept StopIteration as e:\n    print('stopped', e)\nfinally:\n    print('finally')\n" + finish + "\n"
    elif shape == "recursive":
        whole = text(setup) + "\ndef deeper(epoch):\n    " + names + "\n    if epoch == EPOCHS or stop:\n        return 0\n" + textwrap.indent(one, "    ") + "\n    return total + deeper(epoch + 1)\nprint(deeper(0))\n" + finish + "\n"
    else:
        whole = text(setup) + "\nfor epoch in range(EPOCHS):\n" + textwrap.indent(one, "    ") + "\n    if stop:\n        break\n" + finish + "\n"
    return HEAD + DIGEST + whole


def write(spec: dict, folder: Path) -> Script:
    """The Script of a spec, as a file in the folder."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"fuzz{spec.get('number', '')}.py"
    path.write_text(compose(spec))
    return read(path)


def check(spec: dict, base: Path, hooks: Path, *, kills: int = 2, control: bool = False, say=lambda line: None) -> list[Trial]:
    """Run one spec under kills."""
    rng = random.Random(f"kills {spec['seed']}")
    plans = [[Kill("image", rng.uniform(0, 0.3), rng.choice((1, 2)))]] + [[Kill("image", rng.uniform(0, 0.6), rng.choice((1, 2, 4))), Kill("image", rng.uniform(0, 0.3))] for _ in range(kills - 1)]
    return campaign(write(spec, base / "src"), base, kills=kills, every="80steps", control=control, hooks=hooks, say=say, plans=plans)


def shrink(spec: dict, failing, say=print) -> dict:
    """The simplest spec that still fails: part after part is set back to its simplest choice."""
    changed = True
    while changed:
        changed = False
        for extra in list(spec["extras"]):
            smaller = {**spec, "extras": [e for e in spec["extras"] if e != extra]}
            if failing(smaller):
                spec, changed = smaller, True
        for part, options in PARTS.items():
            if spec[part] != options[0] and failing(smaller := {**spec, part: options[0]}):
                spec, changed = smaller, True
        say(json.dumps({k: v for k, v in spec.items() if v and v != PARTS.get(k, [None])[0]}))
    return spec


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("seeds", nargs="?", default="0:20", help="FROM:TO or one seed")
    parser.add_argument("--show", type=int, metavar="SEED", help="print that script")
    parser.add_argument("--shrink", type=int, metavar="SEED")
    parser.add_argument("--kills", type=int, default=2)
    parser.add_argument("--control", action="store_true", help="also compare two plain runs and the recorded one")
    parser.add_argument("--plain", action="store_true", help="only run each twice without Stoker")
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    if args.show is not None:
        print(compose(spec_of(args.show)))
        return 0
    base = Path(tempfile.mkdtemp(prefix="st-fuzz-", dir="/tmp"))
    hooks = base if args.plain else vendored(base / "hooks")
    if args.shrink is not None:
        def failing(spec: dict) -> bool:
            return any(not t.good for t in check(spec, base / "shrink", hooks, kills=args.kills, control=args.control))

        print(compose(shrink(spec_of(args.shrink), failing)))
        shutil.rmtree(base, ignore_errors=True)
        return 0
    first, _, last = args.seeds.partition(":")
    done, bad = [], 0
    for seed in range(int(first), int(last or int(first) + 1)):
        spec = {**spec_of(seed), "number": seed}
        if args.plain:
            from harness import Stage

            stage = Stage(write(spec, base / "src"), base / "x", hooks=base)
            one, two = stage.plain(), stage.plain()
            differs = one.differs(two, stage.script) or ([one.err.decode()[-700:]] if one.rc else [])
            bad += bool(differs)
            print(f"{seed} {one.seconds:.1f}s {len(one.text.splitlines())} lines {'; '.join(differs) or 'ok'}", {k: v for k, v in spec.items() if k in PARTS and v != PARTS[k][0]} if differs else "", flush=True)
            continue
        try:
            trials = check(spec, base / f"s{seed}", hooks, kills=args.kills, control=args.control, say=lambda line: print(line, flush=True))
        except AssertionError as error:
            print(seed, error, flush=True)
            bad += 1
            continue
        bad += sum(not t.good for t in trials)
        done += [{"seed": seed, **t.to_json()} for t in trials]
        if all(t.good for t in trials):
            shutil.rmtree(base / f"s{seed}", ignore_errors=True)
    counts: dict[str, int] = {}
    for t in done:
        counts[t["outcome"]] = counts.get(t["outcome"], 0) + 1
    print(counts, "real resumes", sum(t["resumes"] for t in done))
    if args.json:
        args.json.write_text(json.dumps(done, indent=1) + "\n")
    if not bad:
        shutil.rmtree(base, ignore_errors=True)
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
