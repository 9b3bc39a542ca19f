# Tries: batches hold tensors of a class of their own, with attributes: boxes in a format, pictures that know where they are from
# expected: exact
import enum

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

torch.manual_seed(0)


class Format(enum.Enum):
    CORNERS = "xyxy"
    CENTRES = "cxcywh"


class Boxes(torch.Tensor):
    @classmethod
    def make(cls, data, form, place):
        boxes = data.as_subclass(cls)
        boxes.form, boxes.place = form, place
        return boxes


class Pictures(Dataset):
    def __len__(self):
        return 200

    def __getitem__(self, n):
        boxes = Boxes.make(torch.randn(1 + n % 3, 4), Format.CORNERS if n % 2 else Format.CENTRES, {"name": f"{n}.png", "origin": torch.ones(2) * n})
        return torch.randn(4).as_subclass(Boxes), boxes


net = nn.Linear(4, 4)
o = torch.optim.SGD(net.parameters(), 0.01)
for epoch in range(12):
    corners = 0
    for pictures, boxes in DataLoader(Pictures(), 4, shuffle=True, collate_fn=lambda rows: (torch.stack([r[0] for r in rows]), [r[1] for r in rows])):
        out = net(pictures)
        loss = sum((row - each.mean(0)).pow(2).mean() for row, each in zip(out, boxes))
        o.zero_grad()
        loss.backward()
        o.step()
        corners += sum(each.form is Format.CORNERS for each in boxes)
    print(epoch, loss.item(), corners, boxes[0].place["name"], boxes[0].place["origin"][0].item(), type(out).__name__, tuple(boxes[-1].shape))
print("final", net.weight.sum().item())
