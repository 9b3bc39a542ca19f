# Tries: set-up reads its data through a program, more than a log would hold, and asks others small things; Popen writes a file anew
# expected: exact
import subprocess
import sys

import torch
from torch import nn

torch.manual_seed(0)
text = subprocess.run([sys.executable, "-S", "-c", "print(' '.join(str(n * 7919 % 1000) for n in range(500000)))"], capture_output=True, text=True, check=True).stdout
numbers = torch.tensor([int(word) for word in text.split()[:4096]], dtype=torch.float32).reshape(-1, 8) / 1000
cores = int(subprocess.check_output(["echo", "4"], text=True))  # noqa: S607
with subprocess.Popen(["sh", "-c", "cat > names.txt"], stdin=subprocess.PIPE, text=True) as program:  # noqa: S607
    program.communicate("a\nb\n")
names = open("names.txt").read().split()
m = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 1))
o = torch.optim.Adam(m.parameters(), 1e-2 / cores)
for i in range(1600):
    x = numbers[(i * 16) % 512:][:16]
    loss = (m(x).squeeze(1) - x.sum(1)).pow(2).mean()
    o.zero_grad()
    loss.backward()
    o.step()
    if i % 25 == 0:
        print(i, loss.item(), flush=True)
print("final", sum(p.double().sum().item() for p in m.parameters()), len(text), names)
