"""Accelerate's own way: save_state each 40 steps with the place in the data, load_state and
skip_first_batches with --resume."""
import argparse
import json
import os
import shutil

import torch
import torch.nn.functional as F
from accelerate import Accelerator
from accelerate.utils import set_seed
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

parser = argparse.ArgumentParser()
parser.add_argument("--resume", action="store_true")
args = parser.parse_args()
set_seed(3)
accelerator = Accelerator(cpu=True)
x = torch.randn(1600, 16)
y = (x[:, :4].sum(1) > 0).long() + (x[:, 4:8].sum(1) > 0).long()
loader = DataLoader(TensorDataset(x, y), batch_size=32, shuffle=True)
model = nn.Sequential(
    nn.Linear(16, 256), nn.ReLU(), nn.Dropout(0.2), nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, 3)
)
optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 400, 0.5)
model, optimizer, loader, scheduler = accelerator.prepare(model, optimizer, loader, scheduler)
begin = {"epoch": 0, "step": 0}
if args.resume and os.path.exists("state"):
    accelerator.load_state("state")
    with open("state/place.json") as f:
        begin = json.load(f)
for epoch in range(begin["epoch"], 120):
    skipped = begin["step"] if epoch == begin["epoch"] else 0
    batches = accelerator.skip_first_batches(loader, skipped) if skipped else loader
    for step, (inputs, targets) in enumerate(batches, skipped):
        optimizer.zero_grad()
        loss = F.cross_entropy(model(inputs), targets)
        accelerator.backward(loss)
        optimizer.step()
        scheduler.step()
        if (step + 1) % 40 == 0:
            print(f"epoch {epoch} step {step} loss {loss.item():.6f}", flush=True)
            accelerator.save_state("new")
            with open("new/place.json", "w") as f:
                json.dump({"epoch": epoch, "step": step + 1}, f)
            shutil.rmtree("old", ignore_errors=True)
            if os.path.exists("state"):
                os.rename("state", "old")
            os.rename("new", "state")
