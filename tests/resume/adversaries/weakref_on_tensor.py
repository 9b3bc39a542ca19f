# Tries: a forward hangs a weak reference on a parameter
# expected: exact
import torch, weakref
torch.manual_seed(0)
class Net(torch.nn.Module):
    def __init__(self):
        super().__init__(); self.w = torch.nn.Linear(4, 1)
    def forward(self, x):
        y = self.w.weight.exp(); self.w.weight.unconstrained = weakref.ref(self.w.weight)
        return x @ y.T
net = Net(); opt = torch.optim.SGD(net.parameters(), lr=0.01)
for i in range(3000):
    loss = net(torch.ones(2, 4)).pow(2).mean(); opt.zero_grad(); loss.backward(); opt.step()
    if i % 100 == 0: print(i, loss.item())
