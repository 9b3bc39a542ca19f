# Tries: two contexts of one class around the loop, that nothing but the stack holds
# expected: exact
import torch

torch.manual_seed(0)


class Quiet:
    def __enter__(self):
        return None

    def __exit__(self, *_):
        return False


net = torch.nn.Linear(4, 1)
opt = torch.optim.SGD(net.parameters(), lr=0.01)
with Quiet(), Quiet():
    for i in range(3000):
        loss = net(torch.ones(2, 4)).pow(2).mean()
        opt.zero_grad()
        loss.backward()
        opt.step()
        if i % 100 == 0:
            print(i, loss.item(), flush=True)
