# Tries: a forward keeps a view in a new dictionary each time
# expected: exact
import torch
torch.manual_seed(0)
class Aug(torch.nn.Module):
    def forward(self, x):
        self._params = {"shape": torch.tensor(x.shape, dtype=torch.long).expand(2)}
        return x * 2
aug = Aug(); net = torch.nn.Linear(4, 1); opt = torch.optim.SGD(net.parameters(), lr=0.01)
for i in range(5000):
    loss = net(aug(torch.ones(2, 4))).pow(2).mean(); opt.zero_grad(); loss.backward(); opt.step()
    if i % 100 == 0: print(i)
