# Tries: batches are tensors of a class that counts each operation on them, and the text goes by that: whoever looks at one must not be counted
# expected: either
import torch
from torch import nn
from torch.utils.data import DataLoader

torch.manual_seed(0)


class Counted(torch.Tensor):
    calls = 0

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        Counted.calls += 1
        out = super().__torch_function__(func, types, args, kwargs or {})
        if isinstance(out, Counted):
            out.born = Counted.calls
        return out


def collate(rows):
    x = torch.stack(rows).as_subclass(Counted)
    first = x[0]
    first.tag = "row"
    return x, first


net, total = nn.Linear(4, 1), 0
o = torch.optim.SGD(net.parameters(), 0.01)
data = list(torch.randn(400, 4))
for epoch in range(10):
    for x, first in DataLoader(data, 4, shuffle=True, collate_fn=collate):
        out = net(x)
        loss = out.pow(2).mean() + 0 * first.sum()
        o.zero_grad()
        loss.backward()
        o.step()
        total += Counted.calls % 7
    print(epoch, loss.item(), total, Counted.calls, getattr(out, "born", None), first.tag)
