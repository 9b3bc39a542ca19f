# A mistake on purpose: step lr per batch.
import argparse
import torch
from torch.utils.data import DataLoader
from parts import Net, dataset

p = argparse.ArgumentParser()
p.add_argument("--epochs", default=90, type=int)
args = p.parse_args()
loader = DataLoader(dataset, batch_size=256, shuffle=True)
model = Net()
optimizer = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9, weight_decay=1e-4)
scheduler = torch.optim.lr_scheduler.StepLR(optimizer, step_size=30, gamma=0.1)


def train(loader, model, optimizer, scheduler):
    for images, target in loader:
        loss = torch.nn.functional.cross_entropy(model(images), target)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        scheduler.step()  # lint: scheduler-place


for epoch in range(args.epochs):
    train(loader, model, optimizer, scheduler)
