"""What the fronts of other libraries promise, each as a function; run in one process that has torch."""

from __future__ import annotations

import contextlib
import io
import json
import os
import sys
import traceback
from argparse import Namespace
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from stoker.compat import colossalai
from stoker.compat import lightning as pl
from stoker.engine.errors import InvalidSpec, StateError

X = torch.randn(40, 6, generator=torch.Generator().manual_seed(0))
DATA = TensorDataset(X, (X[:, 0] > 0).long())


class Plain(pl.LightningModule):
    def __init__(self, width: int = 4):
        super().__init__()
        self.save_hyperparameters()
        self.net = nn.Sequential(nn.Linear(6, width), nn.ReLU(), nn.Linear(width, 2))

    def training_step(self, batch, batch_idx):
        return F.cross_entropy(self.net(batch[0]), batch[1])

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.1)


class Old(Plain):
    """As in Lightning 0.5."""

    def __init__(self, hparams):
        super().__init__()
        self.hparams = hparams
        self.calls = []

    def validation_step(self, batch, batch_nb):
        logits = self.net(batch[0])
        return {"val_loss": F.cross_entropy(logits, batch[1]), "n": len(batch[0])}

    def validation_end(self, outputs):
        self.calls.append(len(outputs))
        mean = torch.stack([out["val_loss"] for out in outputs]).mean()
        return {"avg_val_loss": mean, "log": {"val_loss": mean}}

    def configure_optimizers(self):
        optimizer = torch.optim.SGD(self.parameters(), lr=self.hparams.rate)
        return [optimizer], [torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer, patience=0, factor=0.5, threshold=10.0, threshold_mode="abs")]

    @pl.data_loader
    def train_dataloader(self):
        return DataLoader(DATA, batch_size=8, shuffle=True)

    @pl.data_loader
    def val_dataloader(self):
        return DataLoader(DATA, batch_size=16)


def an_old_module_with_old_words():
    heard = io.StringIO()
    with contextlib.redirect_stderr(heard):
        trainer = pl.Trainer(max_nb_epochs=4, gpus=None, nb_gpu_nodes=1, distributed_backend="dp", accumulate_grad_batches=2, precision=16,
                             train_percent_check=1.0, early_stop_callback=False, show_progress_bar=False, default_save_path=os.getcwd())
        module = Old(Namespace(rate=0.2))
        trainer.fit(module)
    assert "the ranks of ddp do" in heard.getvalue()
    assert "precision 16 on a CPU is bfloat16" in heard.getvalue()
    assert trainer.global_step == 4 * 3
    assert module.calls == [3] * 4
    assert trainer.task.optimizers[0].param_groups[0]["lr"] == pytest.approx(0.2 * 0.5 ** 3)
    assert {"val_loss", "avg_val_loss"} <= set(trainer.callback_metrics)
    assert module.device.type == "cpu"


def limits_and_steps():
    trainer = pl.Trainer(max_epochs=2, limit_train_batches=3, callbacks=[])
    trainer.fit(Plain(), DataLoader(DATA, batch_size=8))
    assert trainer.global_step == 6
    trainer = pl.Trainer(max_steps=7)
    trainer.fit(Plain(), DataLoader(DATA, batch_size=8))
    assert trainer.global_step == 7
    trainer = pl.Trainer(fast_dev_run=True)
    trainer.fit(Plain(), DataLoader(DATA, batch_size=8))
    assert trainer.global_step == 1


class Gan(pl.LightningModule):
    """Two optimizers; `by_hand` steps them itself."""

    def __init__(self, by_hand: bool):
        super().__init__()
        torch.manual_seed(3)
        self.maker, self.critic = nn.Linear(2, 6), nn.Linear(6, 1)
        self.automatic_optimization = not by_hand

    def losses(self, x, which):
        fake = self.maker(x[:, :2])
        return F.softplus(-self.critic(fake)).mean() if which == 0 else F.softplus(-self.critic(x)).mean() + F.softplus(self.critic(fake.detach())).mean()

    def configure_optimizers(self):
        return torch.optim.SGD(self.maker.parameters(), lr=0.1), torch.optim.Adam(self.critic.parameters(), lr=0.01)


class ByRule(Gan):
    def training_step(self, batch, batch_idx, optimizer_idx):
        return self.losses(batch[0], optimizer_idx)


class ByHand(Gan):
    def training_step(self, batch, batch_idx):
        for n, optimizer in enumerate(self.optimizers()):
            self.toggle_optimizer(optimizer)
            optimizer.zero_grad()
            self.manual_backward(self.losses(batch[0], n))
            optimizer.step()
            self.untoggle_optimizer(optimizer)


def two_optimizers_by_rule_by_hand_and_in_plain_torch():
    found = []
    for kind, by_hand in ((ByRule, False), (ByHand, True)):
        module = kind(by_hand)
        trainer = pl.Trainer(max_epochs=2)
        trainer.fit(module, DataLoader(DATA, batch_size=8))
        assert trainer.global_step == 10
        assert all(p.requires_grad for p in module.parameters())
        found.append(module)
    plain = Gan(True)
    optimizers = plain.configure_optimizers()
    for _ in range(2):
        for x, _ in DataLoader(DATA, batch_size=8):
            for n, optimizer in enumerate(optimizers):
                plain.zero_grad()
                plain.losses(x, n).backward()
                optimizer.step()
    for module in found:
        for name, p in plain.named_parameters():
            assert torch.allclose(p, module.get_parameter(name), atol=1e-6), name


class Module(Plain):
    def validation_step(self, batch, batch_idx):
        self.log("val", batch[0][:, 0].mean())

    def test_step(self, batch, batch_idx):
        self.log("test", batch[0][:, 0].mean())


class Numbers(pl.LightningDataModule):
    def __init__(self, size: int = 8):
        super().__init__()
        self.save_hyperparameters()

    def setup(self, stage=None):
        self.data = DATA

    def train_dataloader(self):
        return DataLoader(self.data, batch_size=self.hparams.size)

    def val_dataloader(self):
        return DataLoader(self.data, batch_size=16)

    test_dataloader = val_dataloader


def evaluations_count_each_sample_once_and_weights_come_back():
    trainer = pl.Trainer(max_epochs=1, logger=pl.TensorBoardLogger("logs"))
    module = Module(width=5)
    assert module.hparams.width == module.hparams["width"] == 5
    trainer.fit(module, datamodule=Numbers())
    mean = X[:, 0].mean().item()
    assert trainer.callback_metrics["val"].item() == pytest.approx(mean, abs=1e-6)
    assert trainer.test(datamodule=Numbers())[0]["test"] == pytest.approx(mean, abs=1e-6)
    assert trainer.validate(module, DataLoader(DATA, batch_size=7))[0]["val"] == pytest.approx(mean, abs=1e-6)
    trainer.save_checkpoint("net.safetensors")
    again = Module.load_from_checkpoint("net.safetensors", width=5)
    assert again.net[0].weight.equal(module.net[0].weight)
    with pytest.raises(StateError, match="of another Module"):
        Module.load_from_checkpoint("net.safetensors", width=6)
    assert list(trainer.engine._core.keeper.root.glob("tensorboard/events.out.*"))
    module.logger.experiment.add_scalar("mine", 3.0, 1)
    trainer.engine._core.metrics.flush()
    assert {"mine": 3.0}.items() <= json.loads(trainer.engine._core.metrics.path.read_text().splitlines()[-1]).items()


def words_that_cannot_be_followed_are_refused():
    for words, message in (({"nb_gpu_nodes": 2}, "trains on one node"), ({"strategy": "deepspeed"}, "strategy='deepspeed'"), ({"precision": 64}, "precision is"),
                           ({"max_epohcs": 3}, "max_epohcs=...): this argument is not known"), ({"accumulate_grad_batches": {4: 2}}, "a whole number"),
                           ({"gradient_clip_algorithm": "value"}, "by their norm only")):
        with pytest.raises(InvalidSpec, match=message.replace("(", r"\(").replace(")", r"\)")):
            pl.Trainer(**words)
    replaced = type("Replaced", (Plain,), {"optimizer_step": lambda self: None})
    with pytest.raises(InvalidSpec, match=r"Replaced\.optimizer_step replaces a part of Lightning's loop"):
        pl.Trainer(max_epochs=1).fit(replaced(), DataLoader(DATA))
    with pytest.raises(InvalidSpec, match="no train_dataloader"):
        pl.Trainer(max_epochs=1).fit(Plain())
    with pytest.raises(InvalidSpec, match="EarlyStopping watches 'val_loss'; logged were: val"):
        pl.Trainer(max_epochs=1, callbacks=[pl.EarlyStopping()]).fit(Module(), datamodule=Numbers())


def a_configuration_is_a_file_or_a_dict():
    Path("config.py").write_text("import math\nBATCH_SIZE = 4\nNUM_EPOCHS = 2\nmodel = dict(width=3)\n_hidden = 1\n")
    found = colossalai.read("config.py")
    assert found == {"BATCH_SIZE": 4, "NUM_EPOCHS": 2, "model": {"width": 3}}
    assert found.model.width == 3
    for config, message in (("nowhere.py", "no configuration nowhere.py"), ({"parallel": {"tensor": {"size": 2}}}, "splits the model"), ({"zero": {}}, "splits the model")):
        with pytest.raises(InvalidSpec, match=message):
            colossalai.launch_from_torch(config)
    with pytest.raises(StateError, match="launch_from_torch was not called yet"):
        colossalai.initialize(nn.Linear(1, 1), None)


def a_loop_that_is_not_known_is_said_and_not_saved():
    colossalai.launch_from_torch({"accumulation": 1, "BATCH_SIZE": 8, "fp16": {"mode": colossalai.AMP_TYPE.NAIVE}, "gradient_accumulation": 2})
    model = nn.Linear(6, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    loader = colossalai.get_dataloader(DATA, shuffle=True, batch_size=8)
    heard = io.StringIO()
    with contextlib.redirect_stderr(heard):
        engine, train, _, _ = colossalai.initialize(model, optimizer, nn.CrossEntropyLoss(), loader)
        assert len(train) == 5
        for _ in iter(int, 1):  # not range
            for x, y in train:
                engine.zero_grad()
                engine.backward(engine.criterion(engine(x), y))
                engine.step()
            break
    core = engine.stoker._core
    assert "the loop over epochs is not over a number of epochs of the configuration" in heard.getvalue()
    assert core.steps == 3
    assert core.precision.name == "fp16"
    assert not list(core.keeper.root.glob("step-*"))


CHECKS = [an_old_module_with_old_words, limits_and_steps, two_optimizers_by_rule_by_hand_and_in_plain_torch,
          evaluations_count_each_sample_once_and_weights_come_back, words_that_cannot_be_followed_are_refused, a_configuration_is_a_file_or_a_dict,
          a_loop_that_is_not_known_is_said_and_not_saved]


def main() -> int:
    """The number of checks that failed; each failure is printed."""
    failed = 0
    for check in CHECKS:
        try:
            check()
        except Exception:
            failed += 1
            print("FAILED", check.__name__)
            traceback.print_exc()
    return failed


sys.exit(main())
