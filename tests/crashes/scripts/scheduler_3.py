"""A scheduler of its own under a decorator, with a note on the error."""
import functools
import math
import torch
from torch.optim.lr_scheduler import LRScheduler


def checked(f):
    @functools.wraps(f)
    def inner(*args, **kwargs):
        rates = f(*args, **kwargs)
        if any(math.isnan(r) or r < 0 for r in rates):
            raise ArithmeticError(f"{f.__qualname__} gave {rates}")  # here
        return rates
    return inner


class Polynomial(LRScheduler):
    def __init__(self, optimizer, total):
        self.total = total
        super().__init__(optimizer)

    @checked
    def get_lr(self):
        return [base * (1 - self.last_epoch / self.total) for base in self.base_lrs]


def batches():
    g = torch.Generator().manual_seed(9)
    while True:
        yield torch.randn(5, 4, generator=g)


net = torch.nn.Linear(4, 4)
opt = torch.optim.Adagrad(net.parameters(), lr=1e-2)
poly = Polynomial(opt, total=7)
try:
    for step, x in enumerate(batches()):
        opt.zero_grad()
        net(x).square().sum().backward()
        opt.step()
        poly.step()
        print(step, f"{opt.param_groups[0]['lr']:.5f}")
except ArithmeticError as error:
    error.add_note(f"after {step} steps")
    raise
