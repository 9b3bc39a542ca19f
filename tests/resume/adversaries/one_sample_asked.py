# Tries: a policy is asked with one state, with gradients on: its graph, never used, holds a view whose base nothing in Python holds
# expected: exact
import time

import numpy as np
import torch

torch.manual_seed(0)
rng = np.random.RandomState(0)
net = torch.nn.Linear(4, 2)
opt = torch.optim.Adam(net.parameters(), lr=0.01)
for episode in range(600):
    data = []
    for t in range(4):
        time.sleep(0.002)
        s = rng.randn(4)
        prob = torch.softmax(net(torch.from_numpy(s).float()), 0)
        a = torch.distributions.Categorical(prob).sample().item()
        data.append((s, a, prob[a].item()))
    S = torch.tensor(np.array([d[0] for d in data]), dtype=torch.float)
    A = torch.tensor([[d[1]] for d in data])
    loss = -torch.log_softmax(net(S), 1).gather(1, A).mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
    if episode % 20 == 0:
        print(episode, loss.item(), flush=True)
