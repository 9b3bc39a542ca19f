# Tries: text that leaves by many doors: stdout.buffer, sys.__stdout__, os.write, a reopened descriptor, atexit, buffered and unbuffered.
# exit: 3
# expected: either
import atexit
import os
import sys
import torch
from torch import nn

torch.manual_seed(0)
X = torch.randn(320, 8)
m = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 1))
o = torch.optim.SGD(m.parameters(), 1e-2)
door = open(1, "w", closefd=False)
atexit.register(lambda: print("at exit", sum(p.double().sum().item() for p in m.parameters())))
print("no newline at the end of this", end="")
for i in range(1000):
    x = X[(i * 16) % 320:][:16]
    loss = (m(x).squeeze(1) - x.sum(1)).pow(2).mean()
    o.zero_grad()
    loss.backward()
    o.step()
    if i % 20 == 0:
        way = (i // 20) % 6
        sys.stdout.flush()
        if way == 0:
            print(i, loss.item())
        elif way == 1:
            sys.stdout.buffer.write(f"raw {i} {loss.item()}\n".encode())
            sys.stdout.buffer.flush()
        elif way == 2:
            sys.__stdout__.write(f"old {i} {loss.item()}\n")
        elif way == 3:
            os.write(1, f"os {i} {loss.item()}\n".encode())
        elif way == 4:
            door.write(f"door {i} {loss.item()}\n")
            door.flush()
        else:
            print(i, loss.item(), end="\r")
print("\nfinal")
sys.exit(3)
