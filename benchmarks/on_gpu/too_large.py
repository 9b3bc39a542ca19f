"""Asks for more memory than any GPU has."""

import sys

import torch

model = torch.nn.Linear(1000, 1000, device=sys.argv[1])
print(float(model(torch.ones(1, 1000, device=sys.argv[1])).sum()) < 1e9, flush=True)
torch.empty(1 << 42, device=sys.argv[1])
