"""A small CNN on 28x28 pictures, as a tutorial writes it:
loader workers, augmentation, dropout, evaluation after each epoch."""

import argparse
import os
import time

os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, Dataset


class Pictures(Dataset):
    def __init__(self, count, seed, noise):
        numbers = torch.Generator().manual_seed(seed)
        self.labels = torch.randint(0, 10, (count,), generator=numbers)
        self.pictures = torch.rand(count, 1, 28, 28, generator=numbers)
        for picture, label in zip(self.pictures, self.labels.tolist(), strict=True):
            picture[0, 2 * label : 2 * label + 6, 4:24] += 1.0
        self.noise = noise

    def __len__(self):
        return len(self.labels)

    def __getitem__(self, index):
        picture = self.pictures[index]
        if self.noise:
            picture = picture.roll(int(torch.randint(-2, 3, ())), -1) + self.noise * torch.randn(1, 28, 28)
        return picture, self.labels[index]


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(1, 32, 3)
        self.conv2 = nn.Conv2d(32, 64, 3)
        self.dropout1 = nn.Dropout(0.25)
        self.dropout2 = nn.Dropout(0.5)
        self.fc1 = nn.Linear(9216, 128)
        self.fc2 = nn.Linear(128, 10)

    def forward(self, x):
        x = F.relu(self.conv1(x))
        x = F.relu(self.conv2(x))
        x = self.dropout1(F.max_pool2d(x, 2))
        x = F.relu(self.fc1(x.flatten(1)))
        return F.log_softmax(self.fc2(self.dropout2(x)), dim=1)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--epochs", type=int, default=20)
    parser.add_argument("--samples", type=int, default=6400)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--deterministic", action="store_true")
    args = parser.parse_args()
    torch.manual_seed(1)
    if args.deterministic:
        torch.use_deterministic_algorithms(True)
    device = torch.device(args.device)
    gpu = device.type == "cuda"
    train_loader = DataLoader(
        Pictures(args.samples, 3, 0.3), batch_size=64, shuffle=True, num_workers=args.workers
    )
    test_loader = DataLoader(Pictures(1000, 4, 0), batch_size=500)
    model = Net().cuda() if gpu else Net()
    optimizer = torch.optim.Adadelta(model.parameters(), lr=0.5)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, step_size=1, gamma=0.97)
    for epoch in range(1, args.epochs + 1):
        began = time.time()
        model.train()
        for step, (data, target) in enumerate(train_loader):
            if gpu:
                data, target = data.cuda(), target.cuda()
            optimizer.zero_grad()
            loss = F.nll_loss(model(data), target)
            loss.backward()
            optimizer.step()
            if step % 10 == 0:
                print(f"epoch {epoch} step {step} loss {loss.item():.6f}", flush=True)
        model.eval()
        right = 0
        with torch.no_grad():
            for data, target in test_loader:
                right += (model(data.to(device)).argmax(1) == target.to(device)).sum().item()
        scheduler.step()
        print(f"epoch {epoch}: {right} of 1000 right ({time.time() - began:.3f} s)", flush=True)
    torch.save(model.state_dict(), "model.pt")


if __name__ == "__main__":
    main()
