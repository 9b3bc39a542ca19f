# A mistake on purpose: item every step.
import torch
import torch.nn.functional as F
from torchvision import datasets, transforms

device = torch.device("cuda" if torch.cuda.is_available() else "cpu")


def train(model, loader, optimizer):
    model.train()
    seen, right, summed = 0, 0, 0.0
    for images, targets in loader:
        images, targets = images.to(device), targets.to(device)
        optimizer.zero_grad()
        logits = model(images)
        loss = F.cross_entropy(logits, targets)
        loss.backward()
        optimizer.step()
        summed += loss.item()  # lint: sync-each-step
        right += (logits.argmax(1) == targets).sum().item()
        seen += len(targets)
    return summed / seen, right / seen
