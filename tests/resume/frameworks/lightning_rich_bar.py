# needs: lightning rich
# expected: exact
# leftovers: yes
# mask: \d:\d\d:\d\d|\s*[\d.]+it/s
"""Lightning's Trainer with the bar that it has by default where rich is installed."""
import lightning as L
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class Net(L.LightningModule):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Dropout(0.1), nn.Linear(32, 1))

    def training_step(self, batch, batch_idx):
        x, y = batch
        loss = (self.net(x) - y).pow(2).mean()
        self.log("loss", loss, prog_bar=True)
        return loss

    def validation_step(self, batch, batch_idx):
        x, y = batch
        self.log("val_loss", (self.net(x) - y).pow(2).mean(), prog_bar=True)

    def on_validation_epoch_end(self):
        print(f"epoch {self.current_epoch} {self.trainer.callback_metrics.get('val_loss', 0):.6f}", flush=True)

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), 1e-3)


L.seed_everything(0)
data = TensorDataset(torch.randn(640, 8), torch.randn(640, 1))
L.Trainer(max_epochs=25, accelerator="cpu", logger=False).fit(Net(), DataLoader(data, batch_size=16, shuffle=True), DataLoader(data, batch_size=64))
