"""A sampler of the script's own that raises."""
import torch
from torch.utils.data import BatchSampler, DataLoader, Sampler, TensorDataset


class Balanced(Sampler):
    """Draws one index of each class in turn."""

    def __init__(self, labels):
        self.by_class = {}
        for i, label in enumerate(labels.tolist()):
            self.by_class.setdefault(label, []).append(i)

    def __iter__(self):
        pools = {k: iter(v) for k, v in self.by_class.items()}
        while pools:
            for k in sorted(pools):
                try:
                    yield next(pools[k])
                except StopIteration:
                    del pools[99]  # here

    def __len__(self):
        return sum(map(len, self.by_class.values()))


torch.manual_seed(4)
labels = torch.tensor([0, 1, 0, 1, 0, 1, 1, 1, 0, 0, 0, 0, 0])
data = TensorDataset(torch.randn(len(labels), 3), labels)
loader = DataLoader(data, batch_sampler=BatchSampler(Balanced(labels), 2, drop_last=False))
net = torch.nn.Linear(3, 2)
opt = torch.optim.SGD(net.parameters(), lr=0.1)
for x, y in loader:
    opt.zero_grad()
    loss = torch.nn.functional.cross_entropy(net(x), y)
    loss.backward()
    opt.step()
    print("%.3f" % loss)
