# needs: lightning
# expected: exact
# leftovers: yes
"""Lightning with what people add: checkpoints, a CSV log, early stopping, accumulation, clipping, one-cycle learning rate, a bar."""
import lightning as L
import torch
import torch.nn.functional as F
from lightning.pytorch.callbacks import EarlyStopping, LearningRateMonitor, ModelCheckpoint
from lightning.pytorch.loggers import CSVLogger
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class Net(L.LightningModule):
    def __init__(self, width=64, lr=4e-3):
        super().__init__()
        self.save_hyperparameters()
        self.net = nn.Sequential(nn.Linear(16, width), nn.BatchNorm1d(width), nn.ReLU(), nn.Dropout(0.3), nn.Linear(width, 3))
        self.seen = []

    def forward(self, x):
        return self.net(x)

    def training_step(self, batch, batch_idx):
        x, y = batch
        logits = self(x)
        loss = F.cross_entropy(logits, y)
        self.log("train_loss", loss, on_step=True, on_epoch=True, prog_bar=True)
        self.log("train_acc", (logits.argmax(1) == y).float().mean())
        return loss

    def validation_step(self, batch, batch_idx):
        x, y = batch
        logits = self(x)
        self.seen.append((logits.argmax(1) == y).float().mean())
        self.log("val_loss", F.cross_entropy(logits, y), prog_bar=True)

    def on_validation_epoch_end(self):
        print(f"epoch {self.current_epoch} right {torch.stack(self.seen).mean().item():.6f}", flush=True)
        self.seen.clear()

    def configure_optimizers(self):
        optimizer = torch.optim.AdamW(self.parameters(), lr=self.hparams.lr, weight_decay=0.02)
        schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, self.hparams.lr, total_steps=self.trainer.estimated_stepping_batches)
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": schedule, "interval": "step"}}


def main():
    L.seed_everything(5, workers=True, verbose=False)
    x = torch.randn(1600, 16)
    y = (x[:, :4].sum(1) > 0).long() + (x[:, 4:8].sum(1) > 0).long()
    train = DataLoader(TensorDataset(x[:1280], y[:1280]), batch_size=16, shuffle=True)
    held = DataLoader(TensorDataset(x[1280:], y[1280:]), batch_size=64)
    best = ModelCheckpoint("checkpoints", monitor="val_loss", save_top_k=2, save_last=True, filename="best-{epoch}-{val_loss:.4f}")
    trainer = L.Trainer(max_epochs=12, accelerator="cpu", logger=CSVLogger("logs", name="run"), accumulate_grad_batches=2, gradient_clip_val=0.5, log_every_n_steps=10,
                        enable_progress_bar=False, callbacks=[best, EarlyStopping("val_loss", patience=4), LearningRateMonitor("step")])
    trainer.fit(Net(), train, held)
    print("end", trainer.global_step, best.best_model_path.rsplit("/", 1)[-1], f"{best.best_model_score.item():.6f}")
    again = Net.load_from_checkpoint(best.best_model_path)
    print("best", sum(p.double().sum().item() for p in again.parameters()))


if __name__ == "__main__":
    main()
