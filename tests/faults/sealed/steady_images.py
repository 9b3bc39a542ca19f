# Convolutions in channels_last and bfloat16, pictures in one tensor.
import torch
from torch import nn
from torch.utils.data import BatchSampler, DataLoader, TensorDataset, RandomSampler


def conv(cin, cout):
    return nn.Sequential(nn.Conv2d(cin, cout, 3, 2, 1), nn.ReLU(inplace=True))


def main(epochs=6, batch=64):
    torch.manual_seed(110)
    pictures = torch.randn(1280, 3, 64, 64).contiguous(memory_format=torch.channels_last)
    data = TensorDataset(pictures, torch.randint(10, (1280,)))
    loader = DataLoader(data, sampler=BatchSampler(RandomSampler(data), batch, True), batch_size=None)
    model = nn.Sequential(conv(3, 64), conv(64, 128), conv(128, 128), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(128, 10))
    model = model.to(memory_format=torch.channels_last)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.02, fused=True)
    for epoch in range(epochs):
        for x, y in loader:
            optimizer.zero_grad()
            with torch.autocast("cpu", dtype=torch.bfloat16):
                loss = nn.functional.cross_entropy(model(x), y)
            loss.backward()
            optimizer.step()
        print("epoch", epoch, "loss", loss.item())


if __name__ == "__main__":
    main()
