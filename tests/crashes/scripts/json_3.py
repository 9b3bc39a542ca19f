"""Reads a manifest that nests too deep."""
import json
import pathlib

import torch

manifest = pathlib.Path("manifest.json")
manifest.write_text("[" * 100_000 + "]" * 100_000)


def entries(path):
    with path.open() as stream:
        yield from json.load(stream)  # here


def include(name, depth=0):
    if depth > 20:
        return list(entries(name))
    return include(name, depth + 1)


torch.manual_seed(0)
layer = torch.nn.Linear(3, 3)
sgd = torch.optim.SGD(layer.parameters(), lr=0.1)
for k in range(5):
    sgd.zero_grad()
    layer(torch.randn(2, 3)).sum().backward()
    sgd.step()
print("warm")
include(manifest)
