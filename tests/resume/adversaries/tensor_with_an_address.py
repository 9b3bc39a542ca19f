# Tries: pictures remember by its address which transform has made them, as MONAI's do, and the script goes by that
# expected: refused
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

torch.manual_seed(0)


class Picture(torch.Tensor):
    pass


class Turn:
    def __call__(self, x):
        x = x.flip(0).as_subclass(Picture)
        x.made_by = [{"class": "Turn", "id": id(self)}]
        return x


class Pictures(Dataset):
    def __init__(self):
        self.x, self.turn = torch.randn(200, 4), Turn()

    def __len__(self):
        return 200

    def __getitem__(self, n):
        return self.turn(self.x[n])


data, net = Pictures(), nn.Linear(4, 1)
o = torch.optim.SGD(net.parameters(), 0.01)
ours = 0
for epoch in range(20):
    for pictures in DataLoader(data, 4, shuffle=True, collate_fn=list):
        loss = net(torch.stack([each.as_subclass(torch.Tensor) for each in pictures])).pow(2).mean()
        o.zero_grad()
        loss.backward()
        o.step()
        ours += sum(each.made_by[0]["id"] == id(data.turn) for each in pictures)
    print(epoch, loss.item(), ours)
