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
    assert "Stoker splits batches over ranks" in heard.getvalue()
    assert "on a CPU, precision 16 means bfloat16" in heard.getvalue()
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


class Sums(Gan):
    """Losses of one batch by two backwards, and steps every second batch."""

    every = 2

    def training_step(self, batch, batch_idx):
        optimizer, _ = self.optimizers()
        for part in batch[0][:3], batch[0][3:]:
            self.manual_backward(self.losses(part, 0) / self.every)
        if (batch_idx + 1) % self.every == 0:
            optimizer.step()
            optimizer.zero_grad()


def gradients_by_hand_are_sums_also_over_several_batches():
    module = Sums(True)
    trainer = pl.Trainer(max_epochs=1)
    trainer.fit(module, DataLoader(DATA, batch_size=10))
    assert trainer.global_step == 2
    plain = Sums(True)
    optimizer, _ = plain.configure_optimizers()
    for n, (x, _) in enumerate(DataLoader(DATA, batch_size=10)):
        for part in x[:3], x[3:]:
            (plain.losses(part, 0) / 2).backward()
        if n % 2:
            optimizer.step()
            plain.zero_grad()
    for name, p in plain.named_parameters():
        assert torch.allclose(p, module.get_parameter(name), atol=1e-6), name


class Hooked(pl.Callback):
    """Notes each of its hooks."""

    def __init__(self):
        self.seen = []

    def setup(self, trainer, module, stage):
        self.seen.append(f"setup {stage}")


for _moment in ("train_batch_start", "train_batch_end", "validation_start", "validation_epoch_start", "validation_epoch_end", "validation_end",
                "train_epoch_start", "train_epoch_end", "test_start", "test_epoch_end", "test_end"):
    setattr(Hooked, f"on_{_moment}", lambda self, *given, _moment=_moment: self.seen.append(_moment))


def every_hook_of_a_callback_is_called_and_limits_hold():
    hooked = Hooked()
    trainer = pl.Trainer(max_epochs=1, limit_train_batches=1, limit_val_batches=2, limit_test_batches=1, callbacks=[hooked])
    module = Module()
    trainer.fit(module, datamodule=Numbers())
    assert hooked.seen == ["setup fit", "train_epoch_start", "train_batch_start", "train_batch_end", "validation_start", "validation_epoch_start",
                           "validation_epoch_end", "validation_end", "train_epoch_end"]
    assert trainer.callback_metrics["val"].item() == pytest.approx(X[:32, 0].mean().item(), abs=1e-6)
    assert trainer.test(datamodule=Numbers())[0]["test"] == pytest.approx(X[:16, 0].mean().item(), abs=1e-6)
    assert hooked.seen[-4:] == ["setup test", "test_start", "test_epoch_end", "test_end"]
    without = pl.Trainer(max_epochs=1, limit_val_batches=0)
    without.fit(Module(), datamodule=Numbers())
    assert "val" not in without.callback_metrics
    quick = pl.Trainer(fast_dev_run=3)
    quick.fit(Plain(), DataLoader(DATA, batch_size=8))
    assert quick.global_step == 3


class Logs(Plain):
    """Numbers with a step and an epoch, and a weight of its own in an evaluation."""

    def training_step(self, batch, batch_idx):
        self.log("x", batch[0][:, 0].mean(), on_epoch=True)
        return super().training_step(batch, batch_idx)

    def validation_step(self, batch, batch_idx):
        self.log("weighted", float(batch_idx), batch_size=1 + 2 * batch_idx)
        self.log("index", float(batch_idx))


def numbers_have_the_names_and_weights_of_lightning():
    stop = pl.EarlyStopping("x", patience=1, mode="min")
    trainer = pl.Trainer(max_epochs=5, callbacks=[stop])
    trainer.fit(Logs(), DataLoader(DATA, batch_size=8))  # without an evaluation: it looks after each epoch
    assert trainer.current_epoch == 1
    mean = X[:, 0].mean().item()
    assert trainer.callback_metrics["x_epoch"].item() == trainer.callback_metrics["x"].item() == pytest.approx(mean, abs=1e-6)
    trainer.engine._core.metrics.flush()
    lines = [json.loads(line) for line in trainer.engine._core.metrics.path.read_text().splitlines()]
    assert {name for line in lines for name in line} >= {"x_step", "x_epoch"}
    trainer = pl.Trainer(max_epochs=1)
    trainer.fit(Logs(), DataLoader(DATA, batch_size=8), DataLoader(DATA, batch_size=20))
    assert trainer.callback_metrics["weighted"].item() == pytest.approx(3 / 4)
    assert trainer.callback_metrics["index"].item() == pytest.approx(1 / 2)
    endless = type("Endless", (Logs,), {"validation_step": lambda self, batch, n: self.log("bad", float("nan"))})
    trainer = pl.Trainer(max_epochs=5, callbacks=[pl.EarlyStopping("bad", patience=3)])
    trainer.fit(endless(), DataLoader(DATA, batch_size=8), DataLoader(DATA))
    assert trainer.current_epoch == 0


def the_best_weights_are_tested():
    class Moves(Module):
        def validation_step(self, batch, batch_idx):
            self.log("epoch", -float(self.current_epoch))

        def test_step(self, batch, batch_idx):
            self.log("first", self.net[0].weight.sum())

    after = []
    class Notes(pl.Callback):
        def on_train_epoch_end(self, trainer, module):
            after.append(module.net[0].weight.sum().item())

    module = Moves()
    trainer = pl.Trainer(max_epochs=3, callbacks=[pl.ModelCheckpoint(monitor="epoch", mode="max"), Notes()])
    trainer.fit(module, datamodule=Numbers())
    assert trainer.test(datamodule=Numbers())[0]["first"] == pytest.approx(after[2], abs=1e-6)
    assert trainer.test(datamodule=Numbers(), ckpt_path="best")[0]["first"] == pytest.approx(after[0], abs=1e-6)


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
    with pytest.raises(StateError, match="from a different Module"):
        Module.load_from_checkpoint("net.safetensors", width=6)
    assert list(trainer.engine._core.keeper.root.glob("tensorboard/events.out.*"))
    module.logger.experiment.add_scalar("mine", 3.0, 1)
    trainer.engine._core.metrics.flush()
    assert {"mine": 3.0}.items() <= json.loads(trainer.engine._core.metrics.path.read_text().splitlines()[-1]).items()


def words_that_cannot_be_followed_are_refused():
    for words, message in (({"nb_gpu_nodes": 2}, "trains on one node"), ({"strategy": "deepspeed"}, "strategy='deepspeed'"), ({"precision": 64}, "Stoker supports 32"),
                           ({"max_epohcs": 3}, "max_epohcs=...): Stoker's Trainer does not know this argument"), ({"accumulate_grad_batches": {4: 2}}, "a whole number"),
                           ({"gradient_clip_algorithm": "value"}, "only by their norm"), ({"resume_from_checkpoint": "old.ckpt"}, "reads only its own checkpoints"),
                           ({"min_epochs": 3}, "supports no minimum"), ({"stochastic_weight_avg": True}, "does not average weights"), ({"accelerator": "tpu"}, "supports auto"),
                           ({"limit_val_batches": 1.5}, "a share from 0.0 to 1.0"), ({"limit_train_batches": 0}, "nothing is trained")):
        with pytest.raises(InvalidSpec, match=message.replace("(", r"\(").replace(")", r"\)")):
            pl.Trainer(**words)
    replaced = type("Replaced", (Plain,), {"optimizer_step": lambda self: None})
    with pytest.raises(InvalidSpec, match=r"Replaced\.optimizer_step replaces a part of Lightning's loop"):
        pl.Trainer(max_epochs=1).fit(replaced(), DataLoader(DATA))
    for hook in ("on_after_backward", "on_save_checkpoint"):
        with pytest.raises(InvalidSpec, match=rf"Hooked\.{hook} is a hook that Stoker's Trainer does not call"):
            pl.Trainer(max_epochs=1).fit(type("Hooked", (Plain,), {hook: lambda self, *_: None})(), DataLoader(DATA))
        with pytest.raises(InvalidSpec, match=rf"Hooked\.{hook} is a hook"):
            pl.Trainer(max_epochs=1, callbacks=[type("Hooked", (pl.Callback,), {hook: lambda self, *_: None})()]).fit(Plain(), DataLoader(DATA))
    turns = type("Turns", (Plain,), {"configure_optimizers": lambda self: {"optimizer": torch.optim.SGD(self.parameters(), lr=0.1), "frequency": 5}})
    with pytest.raises(InvalidSpec, match="does not support `frequency`"):
        pl.Trainer(max_epochs=1).fit(turns(), DataLoader(DATA))
    with pytest.raises(InvalidSpec, match="can train with only one loader, but the script passes 2 loaders"):
        pl.Trainer(max_epochs=1).fit(Plain(), {"a": DataLoader(DATA), "b": DataLoader(DATA)})
    with pytest.raises(InvalidSpec, match="the module must accumulate gradients by itself"):
        pl.Trainer(max_epochs=1, accumulate_grad_batches=2).fit(ByHand(True), DataLoader(DATA))
    with pytest.raises(StateError, match="no best checkpoint"):
        pl.Trainer(max_epochs=1).test(Module(), DataLoader(DATA), ckpt_path="best")
    with pytest.raises(InvalidSpec, match="no train_dataloader"):
        pl.Trainer(max_epochs=1).fit(Plain())
    with pytest.raises(InvalidSpec, match=r"EarlyStopping watches 'val_loss', which is not logged\. Logged values: val"):
        pl.Trainer(max_epochs=1, callbacks=[pl.EarlyStopping()]).fit(Module(), datamodule=Numbers())


def a_scheduler_counts_optimizer_steps():
    colossalai.launch_from_torch({"gradient_accumulation": 2, "NUM_EPOCHS": 2})
    colossalai.global_context.config.EPOCHS = 7
    assert type(colossalai.global_context.config["EPOCHS"]) is colossalai.Epochs
    model = nn.Linear(6, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
    schedule = torch.optim.lr_scheduler.StepLR(optimizer, 1, 0.5)
    loader = colossalai.get_dataloader(DATA, batch_size=8)
    engine, train, _, schedule = colossalai.initialize(model, optimizer, nn.CrossEntropyLoss(), loader, lr_scheduler=schedule)
    for x, y in train:
        engine.backward(engine.criterion(engine(x), y))
        engine.step()
        schedule.step()
    assert engine.stoker.steps == 3
    assert schedule.get_last_lr() == [0.125]


def a_configuration_is_a_file_or_a_dict():
    Path("config.py").write_text("import math\nBATCH_SIZE = 4\nNUM_EPOCHS = 2\nmodel = dict(width=3)\n_hidden = 1\n")
    found = colossalai.read("config.py")
    assert found == {"BATCH_SIZE": 4, "NUM_EPOCHS": 2, "model": {"width": 3}}
    assert found.model.width == 3
    for config, message in (("nowhere.py", "no configuration file nowhere.py"), ({"parallel": {"tensor": {"size": 2}}}, "splits the model"), ({"zero": {}}, "splits the model")):
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
    assert "this loop does not read its number of epochs from the configuration" in heard.getvalue()
    assert core.steps == 3
    assert core.precision.name == "fp16"
    assert not list(core.keeper.root.glob("step-*"))


CHECKS = [an_old_module_with_old_words, limits_and_steps, two_optimizers_by_rule_by_hand_and_in_plain_torch,
          gradients_by_hand_are_sums_also_over_several_batches, every_hook_of_a_callback_is_called_and_limits_hold,
          numbers_have_the_names_and_weights_of_lightning, the_best_weights_are_tested,
          evaluations_count_each_sample_once_and_weights_come_back, words_that_cannot_be_followed_are_refused, a_configuration_is_a_file_or_a_dict,
          a_scheduler_counts_optimizer_steps, a_loop_that_is_not_known_is_said_and_not_saved]


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
