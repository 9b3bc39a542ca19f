"""Lightning's own way: ModelCheckpoint each 40 steps, and fit(ckpt_path="last") with --resume."""
import argparse
import os

import lightning as L
import torch
import torch.nn.functional as F
from lightning.pytorch.callbacks import ModelCheckpoint
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

parser = argparse.ArgumentParser()
parser.add_argument("--resume", action="store_true")
args = parser.parse_args()


class Net(L.LightningModule):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(
            nn.Linear(16, 256), nn.ReLU(), nn.Dropout(0.2), nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, 3)
        )

    def training_step(self, batch, batch_idx):
        x, y = batch
        loss = F.cross_entropy(self.net(x), y)
        if self.global_step % 40 == 0:
            print(f"step {self.global_step} loss {loss.item():.6f}", flush=True)
        return loss

    def configure_optimizers(self):
        optimizer = torch.optim.AdamW(self.parameters(), lr=3e-3)
        return [optimizer], [torch.optim.lr_scheduler.StepLR(optimizer, 10, 0.5)]


L.seed_everything(3, verbose=False)
x = torch.randn(1600, 16)
y = (x[:, :4].sum(1) > 0).long() + (x[:, 4:8].sum(1) > 0).long()
loader = DataLoader(TensorDataset(x, y), batch_size=32, shuffle=True)
saver = ModelCheckpoint(dirpath="saved", every_n_train_steps=40, save_last=True)
trainer = L.Trainer(
    max_epochs=60,
    accelerator="cpu",
    logger=False,
    callbacks=[saver],
    enable_progress_bar=False,
    enable_model_summary=False,
)
trainer.fit(Net(), loader, ckpt_path="last" if args.resume and os.path.exists("saved/last.ckpt") else None)
