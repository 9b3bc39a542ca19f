# Tries: the whole loop stands inside autocast, no_grad, saved_tensors_hooks, a profiler of functions and redirected output.
# expected: either
import contextlib
import sys
import torch
from torch import nn

torch.manual_seed(0)
X = torch.randn(320, 8)
m = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 1))
o = torch.optim.Adam(m.parameters(), 1e-2)
packed = [0]


class Tee:
    def __init__(self, *out):
        self.out = out
        self.written = 0

    def write(self, text):
        self.written += len(text)
        for f in self.out:
            f.write(text)

    def flush(self):
        for f in self.out:
            f.flush()


def pack(t):
    packed[0] += 1
    return t.to(torch.bfloat16) if t.dtype == torch.float32 else t


def unpack(t):
    return t.float() if t.dtype == torch.bfloat16 else t


with open("copy.txt", "w") as copy, contextlib.redirect_stdout(Tee(sys.stdout, copy)) as tee, torch.no_grad():
    with torch.autograd.graph.saved_tensors_hooks(pack, unpack), contextlib.ExitStack() as stack:
        for i in range(900):
            if i == 300:
                stack.enter_context(torch.autocast("cpu", dtype=torch.bfloat16))
            x = X[(i * 16) % 320:][:16]
            with torch.enable_grad():
                loss = (m(x).float().squeeze(1) - x.sum(1)).pow(2).mean()
                o.zero_grad()
                loss.backward()
            o.step()
            if i % 25 == 0:
                print(i, loss.item(), tee.written, m(x).requires_grad, flush=True)
print("final", sum(p.double().sum().item() for p in m.parameters()), packed)
