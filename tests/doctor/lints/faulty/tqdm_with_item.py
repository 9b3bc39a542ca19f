# A mistake on purpose: tqdm with item.
import torch
from tqdm import tqdm
from parts import model, train_dl, loss_fn


def fit(epochs):
    dev = torch.accelerator.current_accelerator()
    optim = torch.optim.AdamW(model.parameters(), lr=1e-4)
    for epoch in range(epochs):
        bar = tqdm(train_dl, desc=f"epoch {epoch}")
        for xb, yb in bar:
            xb, yb = xb.to(dev), yb.to(dev)
            loss = loss_fn(model(xb), yb)
            loss.backward()
            optim.step()
            optim.zero_grad()
            bar.set_postfix(loss=loss.item())  # lint: sync-each-step
