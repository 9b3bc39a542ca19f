# Tries: the same, without a graph
# expected: exact
import torch
torch.manual_seed(0)
class Site: pass
net = torch.nn.Linear(4, 1); opt = torch.optim.SGD(net.parameters(), lr=0.01); x = torch.ones(50, 4)
def step():
    s = Site(); s.me = s
    s.value = (x @ torch.ones(4, 1)).squeeze(-1)
    loss = net(x).pow(2).mean(); opt.zero_grad(); loss.backward(); opt.step()
    return loss.item() + 0 * s.value.sum().item()
for i in range(3000):
    l = step()
    if i % 100 == 0: print(i, l)
