# Tries: the script has a tracer of its own (sys.settrace, as coverage and debuggers have) that counts lines and steers by them.
# expected: either
import sys
import torch
from torch import nn

torch.manual_seed(0)
lines = 0


def tracer(frame, event, arg):
    global lines
    if frame.f_code.co_name != "train":
        return None
    lines += event == "line"
    return tracer


X = torch.randn(320, 8)
m = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 1))
o = torch.optim.SGD(m.parameters(), 1e-2)


def train():
    for i in range(800):
        x = X[(i * 16) % 320:][:16]
        loss = (m(x).squeeze(1) - x.sum(1)).pow(2).mean()
        o.zero_grad()
        loss.backward()
        o.param_groups[0]["lr"] = 1e-2 / (1 + lines / 5000)
        o.step()
        if i % 25 == 0:
            print(i, loss.item(), lines, flush=True)


sys.settrace(tracer)
train()
sys.settrace(None)
print("final", sum(p.double().sum().item() for p in m.parameters()), lines)
