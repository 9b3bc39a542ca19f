# needs: lightning
# expected: exact
"""Lightning's own first example: a module with three methods, and a Trainer that is asked for nothing."""
import lightning as L
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class Net(L.LightningModule):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(16, 64), nn.ReLU(), nn.Dropout(0.2), nn.Linear(64, 3))

    def training_step(self, batch, batch_idx):
        x, y = batch
        loss = F.cross_entropy(self.net(x), y)
        self.log("loss", loss)
        return loss

    def validation_step(self, batch, batch_idx):
        x, y = batch
        self.log("val_loss", F.cross_entropy(self.net(x), y))

    def on_validation_epoch_end(self):
        print(f"epoch {self.current_epoch} val {self.trainer.callback_metrics['val_loss'].item():.6f}", flush=True)

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), lr=1e-3)


def main():
    L.seed_everything(7, verbose=False)
    x = torch.randn(1600, 16)
    y = (x[:, :4].sum(1) > 0).long() + (x[:, 4:8].sum(1) > 0).long()
    train = DataLoader(TensorDataset(x[:1280], y[:1280]), batch_size=32, shuffle=True)
    held = DataLoader(TensorDataset(x[1280:], y[1280:]), batch_size=64)
    trainer = L.Trainer(max_epochs=16, accelerator="cpu", logger=False, enable_checkpointing=False, enable_progress_bar=False, enable_model_summary=False)
    model = Net()
    trainer.fit(model, train, held)
    print("end", trainer.global_step, sum(p.double().sum().item() for p in model.parameters()))


if __name__ == "__main__":
    main()
