"""A table of learning rates that is too short."""
import torch
from torch.optim.lr_scheduler import LambdaLR

milestones = {0: 1.0, 1: 1.0, 2: 0.5, 3: 0.25}
net = torch.nn.Linear(2, 2)
opt = torch.optim.SGD(net.parameters(), lr=0.1)
sched = LambdaLR(opt, lr_lambda=lambda epoch: milestones[epoch])  # here
for epoch in range(6):
    for _ in range(3):
        opt.zero_grad()
        net(torch.ones(1, 2)).sum().backward()
        opt.step()
    sched.step()
    print("epoch", epoch, "lr", sched.get_last_lr())
