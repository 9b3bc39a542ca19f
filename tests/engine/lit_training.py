"""An unmodified Lightning script, as `stoker run --compat lightning` runs it; each sample that it sees is written to a file."""

import os

import pytorch_lightning as pl
import torch
import torch.nn.functional as F
from pytorch_lightning.callbacks import EarlyStopping, ModelCheckpoint
from torch import nn
from torch.utils.data import DataLoader, Dataset

from stoker.engine.config import every

SEEN = os.open("seen.txt", os.O_WRONLY | os.O_CREAT | os.O_APPEND)


class Points(Dataset):
    def __len__(self):
        return 50

    def __getitem__(self, i):
        return torch.linspace(-1, 1, 8).roll(i % 8) * (1 + i % 4) + 0.2 * torch.randn(8), i % 3, i


class Net(pl.LightningModule):
    def __init__(self, width=16):
        super().__init__()
        self.save_hyperparameters()
        self.net = nn.Sequential(nn.Linear(8, width), nn.BatchNorm1d(width), nn.ReLU(), nn.Dropout(0.3), nn.Linear(width, 3))

    def on_train_epoch_start(self):
        torch.rand(3)

    def training_step(self, batch, batch_idx):
        x, y, ids = batch
        os.write(SEEN, f"{self.current_epoch}.{batch_idx} {ids.tolist()} {x.sum().item():.9f}\n".encode())
        loss = F.cross_entropy(self.net(x), y)
        self.log("train_loss", loss, on_step=True, on_epoch=True)
        return {"loss": loss, "log": {"double": loss * 2}}

    def training_epoch_end(self, outputs):
        self.log("sum_of_losses", sum(float(out["loss"]) for out in outputs))

    def validation_step(self, batch, batch_idx):
        x, y, _ = batch
        self.log("val_loss", F.cross_entropy(self.net(x), y))
        return (self.net(x).argmax(1) == y).sum()

    def validation_epoch_end(self, outputs):
        self.log("val_right", float(sum(outputs)))

    def configure_optimizers(self):
        optimizer = torch.optim.Adam(self.parameters(), lr=3e-2)
        schedule = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.97)
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": schedule, "interval": "step"}}


pl.seed_everything(7)
trainer = pl.Trainer(max_epochs=4, accumulate_grad_batches=2, callbacks=[EarlyStopping("val_loss", patience=2), ModelCheckpoint(monitor="val_right", mode="max")])
trainer.engine._core.keeper.every = every("3step")  # often, so that kills come everywhere
trainer.fit(Net(), DataLoader(Points(), batch_size=4, shuffle=True, num_workers=1), DataLoader(Points(), batch_size=16))
print("RESULT", trainer.global_step, trainer.current_epoch, {k: round(float(v), 7) for k, v in sorted(trainer.callback_metrics.items())})
