"""A group of exceptions out of a collator."""
import torch
from torch.utils.data import DataLoader
from torch.utils.data.dataloader import default_collate


class Collator:
    def __init__(self, keys):
        self.keys = keys

    def __call__(self, batch):
        errors = []
        for n, item in enumerate(batch):
            for key in self.keys:
                try:
                    item[key]
                except KeyError as e:
                    errors.append(ValueError(f"item {n} has no {e}"))
        if errors:
            raise ExceptionGroup("bad batch", errors)  # here
        return default_collate(batch)


items = [{"x": torch.randn(3), "y": torch.tensor(float(i))} for i in range(14)]
del items[12]["y"]
del items[13]["x"]
torch.manual_seed(0)
net = torch.nn.Linear(3, 1)
opt = torch.optim.Adam(net.parameters())
for b in DataLoader(items, batch_size=2, collate_fn=Collator(["x", "y"])):
    opt.zero_grad()
    (net(b["x"]).squeeze(1) - b["y"]).pow(2).mean().backward()
    opt.step()
    print("ok", b["y"].tolist())
