"""What scripts hand to libraries is written as it was: names, values, steps. With the real library where it is installed, else with a
stand-in of the same shape (libraries/); docs/reference/numbers.md names the versions of the real trials."""

from __future__ import annotations

import importlib.util
import json
import math
import os
import subprocess
import sys
from pathlib import Path

import pytest

from stoker.base.vendor import SOURCE

LIBRARIES = Path(__file__).with_name("libraries")
BEGIN = """
import os, sys
sys.path.insert(0, os.environ["SOURCE"])
import inside.numbers
inside.numbers.watch()
assert not {"wandb", "mlflow", "lightning", "transformers", "accelerate", "keras", "tqdm", "argparse", "click", "hydra"} & sys.modules.keys()
class Tensor:
    def __init__(self, value): self.value = value
    def item(self):
        assert "inside" not in sys._getframe(1).f_globals["__name__"]
        return self.value
    def __float__(self): return self.item()
"""


def run(script: str, folder: Path, *words: str) -> tuple[list[dict], str]:
    """The lines that were written, and what was printed."""
    path = folder / "script.py"
    path.write_text(BEGIN + script)
    missing = [name for name in ("wandb", "mlflow", "lightning", "transformers", "accelerate", "keras", "hydra", "omegaconf") if importlib.util.find_spec(name) is None]
    (folder / "site").mkdir()
    for name in missing:
        (folder / "site" / name).symlink_to(LIBRARIES / name)
    env = {**os.environ, "PYTHONPATH": str(folder / "site"), "SOURCE": str(SOURCE.parent), "STOKER_HOOKS": str(folder), "NETRC": "/dev/null", "WANDB_API_KEY": "",
           "KERAS_BACKEND": "torch", "WANDB_SILENT": "true", "CUDA_VISIBLE_DEVICES": ""}
    done = subprocess.run([sys.executable, path, *words], check=False, env=env, cwd=folder, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=100)
    assert done.returncode == 0, done.stderr
    faults = folder / "processes.jsonl"
    assert not faults.exists(), faults.read_text()
    return [json.loads(line) for line in (folder / "numbers.jsonl").read_text().splitlines()], done.stdout + done.stderr


def points(lines: list[dict]) -> dict[str, list]:
    """Name -> [[step, value], ...]; the second logger of a name is `name #2`."""
    found: dict[str, list] = {}
    for line in lines:
        for name, value in line.get("values", {}).items():
            found.setdefault(name + (f" #{line['nth']}" if "nth" in line else ""), []).append([line["step"], value])
    return found


def asked(lines: list[dict]) -> dict[str, dict]:
    """Source -> parameters."""
    found: dict[str, dict] = {}
    for line in lines:
        found.setdefault(line["from"], {}).update(line["parameters"]) if "parameters" in line else None
    return found


WANDB = """
import wandb
run = wandb.init(project="p", mode={mode!r}, config={{"lr": 0.1, "api_key": "hidden", "model": {{"width": 8}}}})
for step in range(3):
    wandb.log({{"loss": 1.0 / (step + 1), "text": "x"}}, step=step)
    wandb.log({{"val/loss": {value}}}, step=step)
wandb.log({{"auto": 1.5}})
wandb.log({{"auto": 2.5}})
run.finish()
run = wandb.init(project="p", mode={mode!r})
run.log({{"auto": 7}})
run.finish()
"""


@pytest.mark.parametrize("mode", ["offline", None, "disabled"])
def test_wandb_in_each_mode(tmp_path: Path, mode: str | None):
    lines, said = run(WANDB.format(mode=mode, value="2.5" if mode == "disabled" else "Tensor(2.5)" if importlib.util.find_spec("wandb") is None else "__import__('torch').tensor(2.5)"), tmp_path)
    assert points(lines) == {"loss": [[0, 1.0], [1, 0.5], [2, 1 / 3]], "val/loss": [[0, 2.5], [1, 2.5], [2, 2.5]],
                             "auto": [[2, 1.5], [3, 2.5]], "auto #2": [[0, 7]]}
    assert asked(lines) == {"wandb": {"lr": 0.1, "model": {"width": 8}}}
    assert ("no terminal to ask for a key, so the run is stored in" in said) == (mode is None)


def test_wandb_has_a_summary_and_axes_of_its_own(tmp_path: Path):
    lines, _ = run("""
import wandb
run = wandb.init(project="p", mode="offline")
run.define_metric("val/*", step_metric="epoch")
for epoch in range(2):
    run.log({"loss": 1.0 / (epoch + 1)})
    run.log({"val/loss": 2.0, "epoch": epoch})
run.summary["best"] = 0.5
run.summary.update({"deep": {"a": 1.5}, "text": {"b": "x"}})
run.finish()
""", tmp_path)
    told = [(line["axis"], line["step"], name) for line in lines for name in line.get("values", {})]
    assert sorted(told) == [("epoch", 0, "val/loss"), ("epoch", 1, "val/loss"), ("step", 0, "loss"), ("step", 1, "epoch"), ("step", 2, "loss"),
                            ("step", 3, "epoch")]
    assert [line["summary"] for line in lines if "summary" in line] == [{"best": 0.5}, {"deep/a": 1.5}]


def test_pictures_are_kept_as_they_were_and_the_oldest_make_room(tmp_path: Path):
    lines, _ = run("""
from inside.numbers import pictures
pictures.KEPT_MAX = 40_000
import matplotlib
matplotlib.use("Agg")
import matplotlib.pyplot as plt
import pathlib, numpy
from torch.utils.tensorboard import SummaryWriter
writer = SummaryWriter("runs")
writer.add_image("samples/<b>", numpy.zeros((3, 4, 4)), 7)
writer.close()
for i in range(4):
    plt.plot([1, 2 + i])
    plt.savefig("a.png" if i % 2 else pathlib.Path("a"))
    plt.savefig("a.pdf")


""", tmp_path)
    told = [(line["from"], line["axis"], line["step"], line["picture"]["name"]) for line in lines if "picture" in line]
    assert told == [("tensorboard", "step", 7, "samples/<b>"), *(("matplotlib", "order", n, "a") for n in range(1, 5))]
    files = {line["picture"]["file"]: line["picture"]["bytes"] for line in lines if "picture" in line}
    there = {f"pictures/{each.name}": each.stat().st_size for each in (tmp_path / "pictures").iterdir()}
    assert sum(there.values()) <= 40_000 and there.items() <= files.items() and list(files)[-1] in there and next(iter(files)) not in there
    last = (tmp_path / list(files)[-1]).read_bytes()
    assert last == (tmp_path / "a.png").read_bytes() and last.startswith(b"\x89PNG")


def test_a_configuration_that_is_merged_with_the_command_line_and_dataclasses_are_parameters(tmp_path: Path):
    lines, _ = run("""
import argparse, dataclasses
from omegaconf import OmegaConf
@dataclasses.dataclass
class Model:
    width: int = 8
    token: str = "hidden"
config = OmegaConf.merge({"lr": 1, "wd": 2}, OmegaConf.from_cli())
OmegaConf.merge({"other": 1}, {"lr": 3})
from inside.numbers.arguments import plain
assert plain({"model": Model(), "o": object()}) == {"model": {"width": 8}}
assert type(config) is not None
""", tmp_path, "lr=5")
    assert asked(lines) == {"omegaconf": {"lr": 5, "wd": 2}}


def test_mlflow(tmp_path: Path):
    lines, _ = run("""
import mlflow
mlflow.set_tracking_uri("sqlite:///m.db")
with mlflow.start_run():
    mlflow.log_param("lr", 0.1)
    for step in range(3):
        mlflow.log_metric("loss", Tensor(step / 2), step=step)
        mlflow.log_metrics({"acc": 0.5, "f1": 0.25 * step}, step=step)
        mlflow.log_metric("no step", step + 5.0)
with mlflow.start_run():
    mlflow.log_metric("loss", 9.0, step=0)
""", tmp_path)
    assert points(lines) == {"loss": [[0, 0.0], [1, 0.5], [2, 1.0]], "acc": [[0, 0.5], [1, 0.5], [2, 0.5]], "f1": [[0, 0.0], [1, 0.25], [2, 0.5]],
                             "no step": [[0, 5.0], [1, 6.0], [2, 7.0]], "loss #2": [[0, 9.0]]}
    assert {line["axis"] for line in lines if "no step" in line.get("values", {}) and line["step"]} == {"order"}
    assert asked(lines) == {"mlflow": {"lr": "0.1"}}


def test_lightning_tells_its_loggers_and_is_captured_once(tmp_path: Path):
    lines, _ = run("""
from lightning.pytorch.trainer.connectors.logger_connector.logger_connector import _LoggerConnector
from inside.numbers import lines
class Logger:
    def log_metrics(self, metrics, step): lines.write("tensorboard", metrics, step)
    def save(self): pass
class Trainer:
    loggers, current_epoch = [Logger()], 0
    class fit_loop:
        class epoch_loop: _batches_that_stepped = 7
for fold in range(2):
    connector = _LoggerConnector(Trainer())
    connector.log_metrics({"loss": 0.5})
    connector.log_metrics({"val_loss": 0.25, "step": 40.0})
    connector.log_metrics({"test_loss": 0.75}, step=9)
""", tmp_path)
    assert points(lines) == {"loss": [[7, 0.5]], "val_loss": [[40, 0.25]], "test_loss": [[9, 0.75]],
                             "loss #2": [[7, 0.5]], "val_loss #2": [[40, 0.25]], "test_loss #2": [[9, 0.75]]}
    assert {line["from"] for line in lines if "values" in line} == {"lightning"}


def test_the_trainer_of_transformers(tmp_path: Path):
    lines, _ = run("""
from transformers.trainer_callback import CallbackHandler, TrainerCallback, TrainerState
class Told(TrainerCallback):
    def on_log(self, args, state, control, logs=None, **kwargs): lines.write("tensorboard", {"train/loss": logs["loss"]}, state.global_step)
from inside.numbers import lines
handler, state = CallbackHandler([Told()], None, None, None, None), TrainerState()
class Control: should_log = True
for state.global_step in (10, 20):
    handler.on_log(None, state, Control(), {"loss": 0.5, "grad_norm": 1.25, "epoch": 0.1})
""", tmp_path)
    assert points(lines) == {"loss": [[10, 0.5], [20, 0.5]], "grad_norm": [[10, 1.25], [20, 1.25]]}


def test_accelerate_without_a_known_tracker(tmp_path: Path):
    lines, _ = run("""
import accelerate
accelerator = accelerate.Accelerator(log_with=[], project_dir=".")
accelerator.init_trackers("p", config={"lr": 0.1})
for step in range(2):
    accelerator.log({"loss": 0.5 * step, "not yet a number": Tensor(1.0)}, step=step)
accelerator.end_training()
""", tmp_path)
    assert points(lines) == {"loss": [[0, 0.0], [1, 0.5]]}
    assert asked(lines) == {"accelerate": {"lr": 0.1}}


def test_keras_has_a_curve_for_each_fit(tmp_path: Path):
    lines, _ = run("""
import keras
class Model: pass
for fit in range(2):
    history = keras.callbacks.History()
    history.set_model(Model())
    history.on_train_begin()
    for epoch in range(2):
        history.on_epoch_end(epoch, {"loss": 1.0 + fit, "val_loss": 2.0})
""", tmp_path)
    assert points(lines) == {"loss": [[0, 1.0], [1, 1.0]], "val_loss": [[0, 2.0], [1, 2.0]], "loss #2": [[0, 2.0], [1, 2.0]], "val_loss #2": [[0, 2.0], [1, 2.0]]}
    assert {line["axis"] for line in lines if "values" in line} == {"epoch"}


def test_hydra_and_not_its_own_options(tmp_path: Path):
    (tmp_path / "conf").mkdir()
    (tmp_path / "conf" / "config.yaml").write_text("lr: 0.1\nmodel:\n  width: 8\n  twice: ${model.width}\n")
    lines, _ = run("""
import hydra
@hydra.main(config_path="conf", config_name="config", version_base=None)
def main(config): pass
main()
""", tmp_path, "lr=0.5")
    assert asked(lines) == {"hydra": {"lr": 0.5, "model": {"width": 8, "twice": "${model.width}"}}}


def test_tqdm_keeps_training_and_validation_apart(tmp_path: Path):
    pytest.importorskip("tqdm")
    lines, _ = run("""
from tqdm import tqdm
def epoch(count, begin):
    bar = tqdm(range(count))
    for i in bar: bar.set_postfix(loss=begin + i / 3, shown=f"{i / 8:.3f}", word="x", object=Tensor(1.0))
for each in range(2):
    epoch(2, 0.0)
    epoch(2, 10.0)
    for title in ("Train epoch", "Validation"):
        with tqdm(range(2), desc=f"{title} {each}/2") as bar:
            for i in bar: bar.set_postfix({"loss": 20.0 + i, "lr": 0.5}, refresh=False)
""", tmp_path)
    found = points(lines)
    assert found["loss"] == [[1, 0.0], [2, 1 / 3], [3, 0.0], [4, 1 / 3]]
    assert found["loss #2"] == [[1, 10.0], [2, 10 + 1 / 3], [3, 10.0], [4, 10 + 1 / 3]]
    assert found["shown"] == [[1, 0.0], [2, 0.125], [3, 0.0], [4, 0.125]]
    assert found["train/loss"] == found["val/loss"] == [[1, 20.0], [2, 21.0], [3, 20.0], [4, 21.0]]
    assert set(found) == {"loss", "loss #2", "shown", "shown #2", "train/loss", "val/loss", "lr", "lr #2"}


def test_parsers_of_the_command_line(tmp_path: Path):
    lines, _ = run("""
import argparse
parser = argparse.ArgumentParser()
parser.add_argument("-e", "--epochs", type=int)
parser.add_argument("--lr", type=float, default=0.1)
parser.add_argument("--sizes", type=int, nargs="+")
parser.add_argument("--hf-token", default="hidden")
parser.add_argument("--device", default=Tensor(1.0))
parser.parse_args(["--lr", "9"])
parser.parse_args()
import click
@click.command(context_settings={"ignore_unknown_options": True})
@click.option("-e", "--epochs", type=int)
@click.argument("rest", nargs=-1)
def main(epochs, rest): pass
main()
""", tmp_path, "-e", "5", "--sizes", "8", "16")
    assert asked(lines) == {"argparse": {"epochs": 5, "lr": 0.1, "sizes": [8, 16]}, "click": {"epochs": 5, "rest": ["--sizes", "8", "16"]}}


def test_a_value_that_is_not_finite(tmp_path: Path):
    lines, _ = run("import wandb\nrun = wandb.init(project='p', mode='offline')\nrun.log({'loss': float('nan')})\nrun.log({'loss': float('inf')})\nrun.finish()", tmp_path)
    (_, first), (_, second) = points(lines)["loss"]
    assert math.isnan(float(first)) and float(second) in (math.inf,)
