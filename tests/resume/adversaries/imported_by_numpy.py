# Tries: arrays that a library makes when it imports a part of itself in the middle of training, as numpy.median does with numpy.ma.
# expected: exact
import numpy as np
import torch
from collections import deque
torch.manual_seed(0)
m = torch.nn.Linear(8, 4)
opt = torch.optim.SGD(m.parameters(), lr=0.01)
recent = deque(maxlen=20)
for step in range(500):
    loss = m(torch.randn(16, 8)).pow(2).mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
    recent.append(loss.item())
    if step % 20 == 19:
        print(step, float(np.median(list(recent)[-20:])), flush=True)
torch.save(m.state_dict(), "m.pt")
