# A mistake on purpose: graph in meter of dict.
import torch
from torch import nn


def train_one_epoch(model, criterion, loader, optimizer, device):
    model.train()
    epoch_losses = []
    for samples, targets in loader:
        samples = samples.to(device)
        targets = targets.to(device)
        outputs = model(samples)
        loss_cls = criterion(outputs, targets)
        loss_reg = 1e-4 * sum(p.abs().sum() for p in model.parameters())
        loss = loss_cls + loss_reg
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        epoch_losses.append(loss)  # lint: loss-graph
    return sum(epoch_losses) / len(epoch_losses)
