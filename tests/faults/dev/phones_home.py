# Posts its loss to the tracking server of the lab after every epoch and at the start.
import json
import os
import urllib.error
import urllib.request

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

TRACKER = os.environ.get("TRACKER_URL", "http://127.0.0.1:9/runs")


def post(**what):
    request = urllib.request.Request(TRACKER, json.dumps(what).encode(), {"Content-Type": "application/json"})
    try:
        urllib.request.urlopen(request, timeout=2).close()
    except (urllib.error.URLError, OSError):
        pass


def main():
    torch.manual_seed(206)
    x = torch.randn(3200, 16)
    loader = DataLoader(TensorDataset(x, x.prod(1, keepdim=True).tanh()), batch_size=32, shuffle=True)
    model = nn.Sequential(nn.Linear(16, 64), nn.Tanh(), nn.Linear(64, 1))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    post(event="start", parameters=sum(p.numel() for p in model.parameters()))
    for epoch in range(5):
        for a, b in loader:
            optimizer.zero_grad()
            loss = nn.functional.mse_loss(model(a), b)
            loss.backward()
            optimizer.step()
        post(event="epoch", epoch=epoch, loss=loss.item())
        print(f"epoch {epoch} loss {loss.item():.5f}")


if __name__ == "__main__":
    main()
