# needs: lightning
# expected: exact
"""Lightning over data whose length nobody knows: it fetches one batch ahead. The optimizers are stepped by hand."""
import lightning as L
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, IterableDataset


class Stream(IterableDataset):
    def __init__(self, count):
        self.count = count

    def __iter__(self):
        for n in range(self.count):
            x = torch.randn(16)
            yield x, torch.tensor(n % 3) if n % 5 == 0 else (x[:3].argmax())


class Net(L.LightningModule):
    def __init__(self):
        super().__init__()
        self.automatic_optimization = False
        self.body, self.head = nn.Linear(16, 48), nn.Linear(48, 3)
        self.count = 0

    def training_step(self, batch, batch_idx):
        body, head = self.optimizers()
        x, y = batch
        loss = F.cross_entropy(self.head(F.dropout(torch.tanh(self.body(x)), 0.1)), y)
        body.zero_grad()
        head.zero_grad()
        self.manual_backward(loss)
        head.step()
        if batch_idx % 2:
            body.step()
        self.count += 1
        if self.count % 25 == 0:
            print(self.count, f"{loss.item():.6f}", flush=True)

    def on_train_epoch_end(self):
        for schedule in self.lr_schedulers():
            schedule.step()

    def configure_optimizers(self):
        two = [torch.optim.SGD(self.body.parameters(), 0.05, momentum=0.9), torch.optim.Adam(self.head.parameters(), 2e-3)]
        return two, [torch.optim.lr_scheduler.ExponentialLR(each, 0.9) for each in two]


def main():
    L.seed_everything(9, verbose=False)
    trainer = L.Trainer(max_epochs=6, accelerator="cpu", logger=False, enable_checkpointing=False, enable_progress_bar=False, enable_model_summary=False)
    trainer.fit(Net(), DataLoader(Stream(1600), batch_size=16))
    print("end", trainer.global_step)


if __name__ == "__main__":
    main()
