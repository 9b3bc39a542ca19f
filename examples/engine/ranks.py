"""Several processes, early stopping, and the best checkpoint;
`accumulate` keeps the batch when a resume has fewer processes.

    torchrun --nproc-per-node 2 ranks.py
    python ranks.py
"""

import torch
import torch.nn.functional as F
from digits import load
from torch import nn
from torch.utils.data import DataLoader

import stoker

engine = stoker.Engine(folder="runs/ranks", seed=1, clip=1.0, save="20s")
train_set, test_set = load()
train, test = DataLoader(train_set, batch_size=16, shuffle=True), DataLoader(test_set, batch_size=64)
model = nn.Sequential(nn.Flatten(), nn.Linear(64, 128), nn.BatchNorm1d(128), nn.ReLU(), nn.Linear(128, 10))
optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
engine.setup(model, optimizer, train, test)

best, worse = engine.keep(best=0.0, worse=0)
for epoch in engine.epochs(30):
    for images, labels in engine.batches(train):
        loss = F.cross_entropy(model(images), labels)
        engine.step(loss)
        engine.log(loss=loss)
    right = count = 0
    with engine.eval(model):
        for images, labels in engine.batches(test):  # each sample once, over all ranks
            right += (model(images).argmax(1) == labels).sum().item()
            count += len(labels)
    accuracy = engine.average(right / max(count, 1), weight=count)
    best, worse = engine.keep(best=max(best, accuracy), worse=0 if accuracy > best else worse + 1)
    engine.save(score=accuracy)
    engine.print(f"epoch {epoch + 1:2d}  test accuracy {100 * accuracy:.2f} %")
    if worse == 5:
        break
engine.export("best.safetensors", model, best=True)
engine.print(f"best test accuracy {100 * best:.2f} %, weights in best.safetensors")
