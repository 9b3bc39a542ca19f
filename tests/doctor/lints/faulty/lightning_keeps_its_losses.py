# A mistake on purpose: the list of losses of an epoch keeps their graphs, and a number is fetched at each step.
import pytorch_lightning as pl
import torch
from torch import nn


class Lit(pl.LightningModule):
    def __init__(self):
        super().__init__()
        self.net = nn.Linear(8, 2)
        self.losses = []

    def training_step(self, batch, batch_idx):
        x, y = batch
        loss = nn.functional.cross_entropy(self.net(x), y)
        self.losses.append(loss)  # lint: loss-graph
        self.log("train_loss", loss.item())  # lint: sync-each-step
        print(batch_idx)  # lint: print-each-step
        return {"loss": loss}

    def on_train_epoch_end(self):
        self.losses.clear()

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), lr=1e-3)
