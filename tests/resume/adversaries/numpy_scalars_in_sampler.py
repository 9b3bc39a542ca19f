# Tries: a sampler shuffles a list of numpy's integers
# expected: exact
import torch, numpy as np
torch.manual_seed(0)
class S(torch.utils.data.Sampler):
    def __init__(self): self.labels = [np.int64(i) for i in range(10)]
    def __len__(self): return 100
    def __iter__(self):
        idx = [0] * 100; i = 0
        np.random.shuffle(self.labels)
        for l in self.labels:
            idx[i:i + 10] = np.random.choice(np.arange(40) + 40 * l, 10, replace=False); i += 10
        return iter(idx)
torch.manual_seed(0); np.random.seed(0)
net = torch.nn.Linear(4, 1); opt = torch.optim.SGD(net.parameters(), lr=0.01)
dl = torch.utils.data.DataLoader(list(torch.randn(400, 4)), 4, sampler=S())
for e in range(40):
    for x in dl:
        loss = net(x).pow(2).mean(); opt.zero_grad(); loss.backward(); opt.step()
    print(e, loss.item())
