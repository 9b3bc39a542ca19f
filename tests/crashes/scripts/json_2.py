"""A hook of the JSON decoder that raises."""
import json
import sys

import torch


class Config(dict):
    def __getattr__(self, name):
        try:
            return self[name]
        except KeyError:
            raise AttributeError(f"no setting {name!r}") from None


def hook(pairs):
    seen = Config()
    for key, value in pairs:
        if key in seen:
            raise ValueError(f"{key!r} stands twice")  # here
        seen[key] = value
    return seen


open("good.json", "w").write('{"lr": 0.05, "model": {"width": 8}}')
open("bad.json", "w").write('{"lr": 0.05, "model": {"width": 8, "width": 9}}')

config = json.load(open("good.json"), object_pairs_hook=hook)
model = torch.nn.Linear(config.model.width, 1)
opt = torch.optim.SGD(model.parameters(), lr=config.lr)
for _ in range(6):
    opt.zero_grad()
    model(torch.ones(1, config.model.width)).sum().backward()
    opt.step()
print("trained", file=sys.stdout)
config = json.load(open("bad.json"), object_pairs_hook=hook)
