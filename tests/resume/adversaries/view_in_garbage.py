# Tries: a circle of objects that waits for the garbage collector holds a view, and the view (in C) its base
# expected: exact
import torch
torch.manual_seed(0)
class Site: pass
net = torch.nn.Linear(4, 1); opt = torch.optim.SGD(net.parameters(), lr=0.01); x = torch.ones(50, 4)
def step():
    s = Site(); s.me = s
    s.value = net(x).squeeze(-1)          # as a trace of Pyro keeps it
    loss = s.value.pow(2).mean(); opt.zero_grad(); loss.backward(); opt.step()
    return loss.item()
for i in range(3000):
    l = step()
    if i % 100 == 0: print(i, l)
