"""A file is missing in an import inside of a function."""
import torch

net = torch.nn.Linear(4, 4)
opt = torch.optim.AdamW(net.parameters())
for i in range(4):
    opt.zero_grad()
    net(torch.ones(1, 4)).sum().backward()
    opt.step()
    print("warm-up", i)


def evaluate(net):
    from numpylib import data  # late, as some do against cycles
    return net(torch.from_numpy(data.MEAN))


print(evaluate(net))
