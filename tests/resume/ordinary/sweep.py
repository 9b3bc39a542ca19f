# A hyper-parameter sweep in one process: product of settings, a function per trial, json lines, the best trial kept.
# expected: exact
import itertools
import json
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

g = torch.Generator().manual_seed(0)
X = torch.randn(800, 6, generator=g)
Y = (X[:, 0] > X[:, 1]).long()


def trial(lr, width, opt_name):
    torch.manual_seed(17)
    model = nn.Sequential(nn.Linear(6, width), nn.ReLU(), nn.Linear(width, 2))
    opt = getattr(torch.optim, opt_name)(model.parameters(), lr=lr)
    dl = DataLoader(TensorDataset(X[:600], Y[:600]), 20, shuffle=True)
    curve = []
    for epoch in range(4):
        for x, y in dl:
            loss = nn.functional.cross_entropy(model(x), y)
            opt.zero_grad()
            loss.backward()
            opt.step()
        with torch.no_grad():
            curve.append((model(X[600:]).argmax(1) == Y[600:]).float().mean().item())
        if curve[-1] < 0.4:
            break
    return curve, model


best, best_cfg = -1.0, None
with open("trials.jsonl", "w") as f:
    for lr, width, name in itertools.product([1e-1, 1e-2, 1e-3], [8, 32], ["SGD", "Adam"]):
        curve, model = trial(lr, width, name)
        f.write(json.dumps({"lr": lr, "width": width, "opt": name, "curve": curve}) + "\n")
        print(lr, width, name, ["%.3f" % c for c in curve], flush=True)
        if curve[-1] > best:
            best, best_cfg = curve[-1], (lr, width, name)
            torch.save(model.state_dict(), "best.pt")
print("best", best, best_cfg)
