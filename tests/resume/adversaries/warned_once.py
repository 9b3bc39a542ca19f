# Tries: warnings that Python, and torch in C++, show once: in a forward, in the loop, under "once", and one more after filters have changed. They are printed, so that a second one shows.
# expected: exact
import sys
import warnings
import numpy as np
import torch
from torch import nn

torch.manual_seed(0)
sys.stderr = sys.stdout
warnings.simplefilter("once", FutureWarning)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.a = nn.Linear(8, 1)
        self.calls = 0

    def forward(self, x):
        self.calls += 1
        warnings.warn("in a forward")
        warnings.warn("once in all", FutureWarning)
        torch.from_numpy(np.frombuffer(b"12345678", dtype=np.int64))
        return self.a(x)


net = Net()
opt = torch.optim.SGD(net.parameters(), 1e-3)
for step in range(1000):
    x = torch.randn(32, 8)
    loss = (net(x) - x[:, :1]).pow(2).mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
    warnings.warn(f"in the loop, {step // 400}")
    if step == 700:
        warnings.simplefilter("default", UserWarning)
    if step % 25 == 0:
        print(step, loss.item(), flush=True)
print("calls", net.calls)
