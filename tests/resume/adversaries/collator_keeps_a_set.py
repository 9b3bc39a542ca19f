# Tries: a collate function keeps what it has warned about in a set of tuples
# expected: exact
import torch
torch.manual_seed(0)
class Collate:
    def __init__(self): self.warned = set()
    def __call__(self, xs):
        if tuple(["a", "b"]) not in self.warned: self.warned.add(tuple(["a", "b"]))
        return torch.stack(xs)
c = Collate(); net = torch.nn.Linear(4, 1); opt = torch.optim.SGD(net.parameters(), lr=0.01)
dl = torch.utils.data.DataLoader(list(torch.randn(400, 4)), 4, shuffle=True, collate_fn=c)
for e in range(12):
    for x in dl:
        loss = net(x).pow(2).mean(); opt.zero_grad(); loss.backward(); opt.step()
    print(e, loss.item())
