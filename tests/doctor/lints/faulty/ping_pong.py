# A mistake on purpose: ping pong.
import torch
from stuff import model, loader, mixup, criterion

device = torch.device("cuda:0")
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
for epoch in range(20):
    for x, y in loader:
        x = x.to(device)
        features = model.backbone(x).cpu()  # lint: sync-each-step
        features = mixup(features)
        out = model.head(features.to(device))  # lint: cpu-round-trip
        loss = criterion(out, y.to(device))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
