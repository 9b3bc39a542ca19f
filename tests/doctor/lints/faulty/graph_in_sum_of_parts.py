# A mistake on purpose: graph in sum of parts.
import torch
from model import Net, batches

net = Net()
opt = torch.optim.AdamW(net.parameters(), lr=3e-4)
total, count = 0, 0
for step, (x, y) in enumerate(batches()):
    opt.zero_grad()
    pred = net(x)
    loss = ((pred - y) ** 2).mean()
    loss.backward()
    opt.step()
    total = total + loss * x.size(0)  # lint: loss-graph
    count += x.size(0)
    if step % 100 == 0:
        print(total / count)
