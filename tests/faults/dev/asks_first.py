"""Asks how long to train before it starts."""
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


def ask(question, default):
    answer = input(f"{question} [{default}] ")
    return type(default)(answer or default)


def main():
    epochs = ask("How many epochs?", 5)
    rate = ask("Learning rate?", 0.01)
    torch.manual_seed(204)
    x = torch.randn(1600, 10)
    loader = DataLoader(TensorDataset(x, x.sum(1, keepdim=True)), batch_size=16, shuffle=True)
    model = nn.Sequential(nn.Linear(10, 32), nn.ReLU(), nn.Linear(32, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=rate)
    for epoch in range(epochs):
        for a, b in loader:
            loss = nn.functional.mse_loss(model(a), b)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        print(f"epoch {epoch} loss {loss.item():.4f}")
    torch.save(model.state_dict(), "model.pt")


if __name__ == "__main__":
    main()
