# Nothing wrong here: lightning.
import lightning as L
import torch
from torch import nn
from torch.utils.data import DataLoader


class Lit(L.LightningModule):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(8, 8), nn.Dropout(0.1), nn.Linear(8, 2))

    def training_step(self, batch, batch_idx):
        x, y = batch
        loss = nn.functional.cross_entropy(self.net(x), y)
        self.log("train_loss", loss)
        return loss

    def validation_step(self, batch, batch_idx):
        x, y = batch
        self.log("acc", (self.net(x).argmax(1) == y).float().mean())

    def configure_optimizers(self):
        opt = torch.optim.Adam(self.parameters(), lr=1e-3)
        return [opt], [torch.optim.lr_scheduler.CosineAnnealingLR(opt, T_max=10)]


def main(train_set, valid_set):
    trainer = L.Trainer(max_epochs=10, accelerator="gpu")
    trainer.fit(Lit(), DataLoader(train_set, 64, shuffle=True), DataLoader(valid_set, 64))
