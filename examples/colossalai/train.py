"""A ResNet on CIFAR pictures, written for ColossalAI 0.1; it does not know Stoker.
It runs on the CPU too, and resumes after a kill.

    stoker run --compat colossalai train.py
    stoker run --ranks 2 --compat colossalai train.py
"""

import lzma
from pathlib import Path

import colossalai
import torch
import torch.nn.functional as F
from colossalai.core import global_context as gpc
from colossalai.logging import get_dist_logger
from colossalai.nn.lr_scheduler import CosineAnnealingLR
from colossalai.utils import get_dataloader
from torch import nn
from torch.utils.data import Dataset

HERE = Path(__file__).parent


class Pictures(Dataset):
    def __init__(self, first, last, training):
        rows = torch.frombuffer(
            bytearray(lzma.decompress((HERE / "pictures.bin.xz").read_bytes())), dtype=torch.uint8
        ).reshape(-1, 769)
        self.labels = rows[first:last, 0].long()
        self.images = (rows[first:last, 1:].reshape(-1, 3, 16, 16) / 255 - 0.5) / 0.25
        self.training = training

    def __len__(self):
        return len(self.labels)

    def __getitem__(self, index):
        image = self.images[index]
        if self.training:
            if torch.rand(()) < 0.5:
                image = image.flip(2)
            left, top = torch.randint(0, 5, (2,)).tolist()
            image = F.pad(image, (2, 2, 2, 2))[:, top:top + 16, left:left + 16]
        return image, self.labels[index]


class Block(nn.Module):
    def __init__(self, inputs, outputs, stride):
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False),
            nn.BatchNorm2d(outputs),
            nn.ReLU(),
            nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False),
            nn.BatchNorm2d(outputs),
        )
        self.way = nn.Conv2d(inputs, outputs, 1, stride, bias=False)

    def forward(self, x):
        return F.relu(self.body(x) + self.way(x))


def resnet():
    return nn.Sequential(nn.Conv2d(3, 16, 3, 1, 1, bias=False), nn.BatchNorm2d(16), nn.ReLU(),
                         Block(16, 16, 1), Block(16, 32, 2), Block(32, 64, 2),
                         nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, 3))


def main():
    colossalai.launch_from_torch(config=HERE / "config.py")
    logger = get_dist_logger()
    model = resnet()
    train_dataloader = get_dataloader(
        dataset=Pictures(0, 600, True), shuffle=True, batch_size=gpc.config.BATCH_SIZE
    )
    test_dataloader = get_dataloader(dataset=Pictures(600, 780, False), add_sampler=False, batch_size=60)
    criterion = nn.CrossEntropyLoss()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, weight_decay=5e-4)
    lr_scheduler = CosineAnnealingLR(optimizer, total_steps=gpc.config.NUM_EPOCHS)
    engine, train_dataloader, test_dataloader, _ = colossalai.initialize(
        model, optimizer, criterion, train_dataloader, test_dataloader
    )

    for epoch in range(gpc.config.NUM_EPOCHS):
        engine.train()
        for img, label in train_dataloader:
            img = img.cuda()
            label = label.cuda()
            engine.zero_grad()
            output = engine(img)
            train_loss = engine.criterion(output, label)
            engine.backward(train_loss)
            engine.step()
        lr_scheduler.step()

        engine.eval()
        correct = total = 0
        for img, label in test_dataloader:
            img = img.cuda()
            label = label.cuda()
            with torch.no_grad():
                output = engine(img)
                test_loss = engine.criterion(output, label)
            correct += torch.sum(torch.argmax(output, dim=-1) == label)
            total += img.size(0)
        logger.info(
            f"epoch {epoch}  train loss {train_loss:.5f}  test loss {test_loss:.5f}  accuracy "
            f"{correct / total:.5f}  "
            f"rate {lr_scheduler.get_last_lr()[0]:.5g}",
            ranks=[0],
        )


if __name__ == "__main__":
    main()
