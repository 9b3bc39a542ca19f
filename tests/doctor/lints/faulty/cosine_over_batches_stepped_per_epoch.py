# A mistake on purpose: cosine over batches stepped per epoch.
import torch
from torch.utils.data import DataLoader
from torch.optim.lr_scheduler import CosineAnnealingLR
from parts import model, dataset

loader = DataLoader(dataset, 32, True)
n_epochs = 5
opt = torch.optim.AdamW(model.parameters(), 1e-3)
lr_sched = CosineAnnealingLR(opt, T_max=n_epochs * len(loader))
for ep in range(n_epochs):
    model.train()
    for b in loader:
        opt.zero_grad()
        model(b).loss.backward()
        opt.step()
    lr_sched.step()  # lint: scheduler-place
