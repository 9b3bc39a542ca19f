"""A LightningModule on Stoker's Trainer: Lightning need not be installed.
`python lit.py` resumes it after a kill.

A script that imports pytorch_lightning itself runs unmodified: `stoker run --compat lightning script.py`.
"""

import torch
import torch.nn.functional as F
from digits import load
from torch import nn
from torch.utils.data import DataLoader

from stoker.compat import lightning as pl


class Digits(pl.LightningModule):
    def __init__(self, width=128, rate=2e-3):
        super().__init__()
        self.save_hyperparameters()
        self.net = nn.Sequential(
            nn.Flatten(), nn.Linear(64, width), nn.ReLU(), nn.Dropout(0.2), nn.Linear(width, 10)
        )

    def forward(self, images):
        return self.net(images)

    def training_step(self, batch, batch_idx):
        images, labels = batch
        loss = F.cross_entropy(self(images), labels)
        self.log("train_loss", loss, on_step=True, on_epoch=True)
        return loss

    def validation_step(self, batch, batch_idx):
        images, labels = batch
        logits = self(images)
        self.log("val_loss", F.cross_entropy(logits, labels), prog_bar=True)
        self.log("val_acc", (logits.argmax(1) == labels).float().mean(), prog_bar=True)

    def configure_optimizers(self):
        optimizer = torch.optim.Adam(self.parameters(), lr=self.hparams.rate)
        return [optimizer], [torch.optim.lr_scheduler.StepLR(optimizer, 5, gamma=0.5)]


pl.seed_everything(1)
train_set, test_set = load()
best = pl.ModelCheckpoint(monitor="val_acc", mode="max")
trainer = pl.Trainer(
    max_epochs=12,
    accumulate_grad_batches=2,
    gradient_clip_val=1.0,
    gpus=0,
    distributed_backend="ddp",
    callbacks=[best, pl.EarlyStopping(monitor="val_loss", patience=4)],
)
trainer.fit(Digits(), DataLoader(train_set, batch_size=16, shuffle=True), DataLoader(test_set, batch_size=64))
trainer.engine.print(f"best test accuracy {100 * best.best_model_score:.2f} %")
