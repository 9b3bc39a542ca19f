"""A context manager around each step, which raises from what it caught."""
import contextlib

import torch
from torch import nn


class Diverged(Exception):
    pass


@contextlib.contextmanager
def step_of(optimizer, number):
    optimizer.zero_grad()
    try:
        yield
    except RuntimeError as e:
        raise Diverged(f"step {number} has no gradient") from e  # here
    else:
        optimizer.step()


def run():
    torch.manual_seed(5)
    model = nn.Sequential(nn.Linear(3, 3), nn.ReLU(), nn.Linear(3, 1))
    sgd = torch.optim.SGD(model.parameters(), 0.05, momentum=0.9)
    hidden = None
    for n in range(9):
        with step_of(sgd, n):
            y = model(torch.rand(7, 3))
            hidden = y if n == 6 else y + (0 if hidden is None else hidden.detach().mean())
            if n == 6:
                hidden = torch.tensor(hidden.mean().item())
            hidden.mean().backward()
        print("step", n)


if __name__ == "__main__":
    run()
