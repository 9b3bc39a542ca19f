"""An autograd function whose backward raises."""
import traceback
import sys

import torch


class ClampGrad(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, limit):
        ctx.limit = limit
        ctx.calls = ClampGrad.calls = getattr(ClampGrad, "calls", 0) + 1
        return x.clone()

    @staticmethod
    def backward(ctx, grad):
        if ctx.calls > 7:
            raise FloatingPointError("gradient norm over %s at call %d" % (ctx.limit, ctx.calls))  # here
        return grad.clamp(-ctx.limit, ctx.limit), None


def train():
    torch.manual_seed(0)
    model = torch.nn.Linear(6, 2)
    optim = torch.optim.RMSprop(model.parameters(), lr=1e-3)
    while True:
        out = ClampGrad.apply(model(torch.randn(3, 6)), 0.5)
        loss = out.abs().sum()
        optim.zero_grad()
        loss.backward()
        optim.step()
        print("loss", "%.4f" % loss.item(), flush=True)


try:
    train()
except FloatingPointError:
    traceback.print_exc()
    sys.exit(1)
