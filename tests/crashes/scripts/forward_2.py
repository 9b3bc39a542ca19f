"""A hook that guards activations, called deep inside nested containers."""
import logging
import sys

import torch
from torch import nn

logging.basicConfig(level=logging.INFO, format="%(levelname)s %(name)s: %(message)s")
log = logging.getLogger("train")


class ActivationError(ValueError):
    def __init__(self, name, value):
        super().__init__(f"activation of {name} is {value}")
        self.name = name


def guard(name):
    def hook(module, inputs, output):
        if not torch.isfinite(output).all():
            raise ActivationError(name, "not finite")  # here
    return hook


def build():
    block = lambda i, o: nn.Sequential(nn.Linear(i, o), nn.Tanh())  # noqa
    model = nn.Sequential(block(4, 8), nn.Sequential(block(8, 8), nn.Linear(8, 1)))
    for name, module in model.named_modules():
        if isinstance(module, nn.Linear):
            module.register_forward_hook(guard(name))
    return model


def main():
    torch.manual_seed(3)
    model = build()
    opt = torch.optim.Adam(model.parameters())
    for it in range(10):
        x = torch.randn(16, 4)
        if it == 6:
            x[0, 0] = float("nan")
        opt.zero_grad()
        model(x).pow(2).mean().backward()
        opt.step()
        log.info("it %d", it)


if __name__ == "__main__":
    try:
        main()
    except Exception:
        log.exception("training failed")
        sys.exit(1)
