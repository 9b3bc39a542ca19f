"""Ctrl-C inside of a forward, caught to save the model."""
import signal
import sys
import traceback

import torch

torch.manual_seed(0)
model = torch.nn.Linear(4, 4)
opt = torch.optim.SGD(model.parameters(), lr=0.1)


class Interrupting(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.calls = 0

    def forward(self, x):
        self.calls += 1
        if self.calls == 9:
            signal.raise_signal(signal.SIGINT)  # here
        return x.tanh()


act = Interrupting()
try:
    for step in range(100):
        opt.zero_grad()
        act(model(torch.randn(2, 4))).sum().backward()
        opt.step()
        print("step", step)
except KeyboardInterrupt:
    traceback.print_exc()
    print("saving before we go")
    torch.save(model.state_dict(), "interrupted.pt")
    sys.exit(130)
