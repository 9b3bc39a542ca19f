# Predict the output of wind turbines; keeps an eye on every layer while it trains.
import torch
import torch.nn as nn
from torch.utils.data import DataLoader, TensorDataset


class Turbine(nn.Module):
    def __init__(self, layers=8, width=64):
        super().__init__()
        dims = [24] + [width] * layers
        self.layers = nn.ModuleList([nn.Linear(a, b) for a, b in zip(dims, dims[1:])])
        self.head = nn.Linear(width, 1)

    def forward(self, x):
        for layer in self.layers:
            x = torch.relu(layer(x))
        return self.head(x)


def report(model, step, loss):
    line = [f"step {step} loss {loss:.5f}"]
    for name, p in model.named_parameters():
        line.append(f"{name}: mean {p.mean():.5f} std {p.std():.5f} max {p.abs().max():.5f} grad {p.grad.norm():.5f}")
    print("\n    ".join(line), flush=True)


def main():
    torch.manual_seed(13)
    x = torch.randn(3200, 24)
    y = x[:, :3].prod(1, keepdim=True)
    loader = DataLoader(TensorDataset(x, y), batch_size=32, shuffle=True)
    model = Turbine()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    step = 0
    for epoch in range(8):
        for a, b in loader:
            optimizer.zero_grad()
            loss = nn.functional.mse_loss(model(a), b)
            loss.backward()
            optimizer.step()
            step += 1
            report(model, step, loss.item())


if __name__ == "__main__":
    main()
