# Tries: the loss of an optimizer's closure, with its graph, outlives the step while it is recorded
# expected: exact
import torch
torch.manual_seed(0)
net = torch.nn.Sequential(torch.nn.Linear(1, 20), torch.nn.Tanh(), torch.nn.Linear(20, 1)); opt = torch.optim.Adam(net.parameters(), 1e-3)
def closure():
    opt.zero_grad()
    x = torch.linspace(-1, 1, 20).reshape(20, 1).clone().requires_grad_()
    y = net(x)
    d = torch.autograd.grad(y.sum(), x, create_graph=True)[0]
    loss = (d - 1).pow(2).mean(); loss.backward()
    return loss
for i in range(3000):
    opt.step(closure)
    if i % 100 == 0: print(i)
