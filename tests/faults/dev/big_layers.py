"""A wide feed-forward classifier; nearly all of its time is matrix products."""
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class Wide(nn.Module):
    def __init__(self, width=1024, depth=4):
        super().__init__()
        self.first = nn.Linear(256, width)
        self.hidden = nn.ModuleList(nn.Linear(width, width) for _ in range(depth))
        self.last = nn.Linear(width, 20)

    def forward(self, x):
        x = torch.relu(self.first(x))
        for layer in self.hidden:
            x = torch.relu(layer(x))
        return self.last(x)


def main(epochs=5, batch=256):
    torch.manual_seed(9)
    x = torch.randn(5120, 256)
    y = x[:, :20].argmax(1)
    loader = DataLoader(TensorDataset(x, y), batch_size=batch, shuffle=True, drop_last=True)
    model = Wide()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    for epoch in range(epochs):
        correct = 0
        for a, b in loader:
            optimizer.zero_grad()
            out = model(a)
            loss = nn.functional.cross_entropy(out, b)
            loss.backward()
            optimizer.step()
            correct += (out.argmax(1) == b).sum().item()
        print(f"epoch {epoch}: loss {loss.item():.4f} accuracy {correct / len(x):.3f}")


if __name__ == "__main__":
    main()
