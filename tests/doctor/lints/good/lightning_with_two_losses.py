# Nothing wrong here: what is kept is what goes back, or is detached.
import lightning.pytorch as pl
import torch
from torch import nn


class Lit(pl.LightningModule):
    def __init__(self):
        super().__init__()
        self.net = nn.Linear(8, 2)
        self.seen = []

    def training_step(self, batch, batch_idx):
        losses = []
        for x, y in batch:
            losses.append(nn.functional.cross_entropy(self.net(x), y))
        loss = torch.stack(losses).mean()
        self.seen.append(loss.detach())
        if batch_idx % 100 == 0:
            print(batch_idx, loss.item())
        return loss

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), lr=1e-3)
