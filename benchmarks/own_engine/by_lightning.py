"""The training of the rival table with Lightning's Trainer:
`ModelCheckpoint(save_last=True)` and `ckpt_path="last"`.

`stateful`: the loader is torchdata's StatefulDataLoader, whose state Lightning saves.
"""

import os
import warnings

import lightning.pytorch as pl
import task
import torch.nn.functional as F
from lightning.pytorch.callbacks import ModelCheckpoint

warnings.filterwarnings("ignore")


class Net(pl.LightningModule):
    def __init__(self) -> None:
        super().__init__()
        self.net = task.model()

    def training_step(self, batch, batch_idx):
        x, y = batch
        return F.cross_entropy(self.net(x), y)

    def configure_optimizers(self):
        moving = task.optimizer(self.net)
        return {"optimizer": moving, "lr_scheduler": {"scheduler": task.schedule(moving), "interval": "step"}}


pl.seed_everything(task.SEED, workers=True, verbose=False)
if task.OPTIONS.get("stateful"):
    from torchdata.stateful_dataloader import StatefulDataLoader

    train = task.loader(StatefulDataLoader)
else:
    train = task.loader()
saves = ModelCheckpoint(
    dirpath="saved", filename="{step}", every_n_train_steps=task.SAVE_EVERY, save_last=True, save_top_k=1
)
trainer = pl.Trainer(
    max_epochs=task.EPOCHS,
    accumulate_grad_batches=task.ACCUMULATE,
    callbacks=[saves],
    accelerator="cpu",
    devices=1,
    logger=False,
    enable_progress_bar=False,
    enable_model_summary=False,
    deterministic=True,
)
module = Net()
trainer.fit(module, train, ckpt_path="saved/last.ckpt" if os.path.exists("saved/last.ckpt") else None)
task.finish(module.net)
