"""Convert the arguments of Lightning's Trainer, of all versions, to a plan for Stoker's Trainer.
Unsupported arguments are refused or reported."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from typing import Any

import torch

from stoker.compat.lightning_callbacks import EarlyStopping, Logger, TensorBoardLogger, WandbLogger
from stoker.engine.errors import InvalidSpec
from stoker.engine.progress import say

# argument of an old version: its newest name
RENAMED = {
    "max_nb_epochs": "max_epochs",
    "nb_gpu_nodes": "num_nodes",
    "num_gpu_nodes": "num_nodes",
    "distributed_backend": "strategy",
    "gradient_clip": "gradient_clip_val",
    "train_percent_check": "limit_train_batches",
    "val_percent_check": "limit_val_batches",
    "test_percent_check": "limit_test_batches",
    "min_nb_epochs": "min_epochs",
    "overfit_pct": "overfit_batches",
    "check_val_every_n_epochs": "check_val_every_n_epoch",
}
# has no meaning here, or is always so: left out without a word
WITHOUT_EFFECT = {
    "default_root_dir",
    "default_save_path",
    "weights_save_path",
    "log_every_n_steps",
    "row_log_interval",
    "log_save_interval",
    "enable_progress_bar",
    "progress_bar_refresh_rate",
    "show_progress_bar",
    "enable_model_summary",
    "weights_summary",
    "enable_checkpointing",
    "checkpoint_callback",
    "num_sanity_val_steps",
    "nb_sanity_val_steps",
    "deterministic",
    "benchmark",
    "profiler",
    "replace_sampler_ddp",
    "use_distributed_sampler",
    "process_position",
    "print_nan_grads",
    "move_metrics_to_cpu",
    "terminate_on_nan",
    "detect_anomaly",
    "inference_mode",
    "barebones",
    "amp_level",
    "amp_backend",
    "auto_lr_find",
    "auto_scale_batch_size",
    "auto_select_gpus",
    "flush_logs_every_n_steps",
    "track_grad_norm",
    "log_gpu_memory",
    "num_processes",
    "devices",
    "gpus",
    "experiment",
    "limit_predict_batches",
}
# would change the training and is not followed: refused, unless its value asks for nothing
NOT_FOLLOWED = {
    "min_epochs": "Stoker supports no minimum; early stopping may end the training before min_epochs",
    "min_steps": "Stoker supports no minimum; early stopping may end the training before min_steps",
    "resume_from_checkpoint": "Stoker resumes by itself and reads only its own checkpoints",
    "plugins": "Stoker does not use plugins",
    "reload_dataloaders_every_n_epochs": "Stoker creates the loaders only once",
    "reload_dataloaders_every_epoch": "Stoker creates the loaders only once",
    "stochastic_weight_avg": "Stoker does not average weights",
    "sync_batchnorm": "Stoker does not synchronize batch norm; each rank normalizes its own batch",
}
SINKS = {TensorBoardLogger: "tensorboard", WandbLogger: "wandb"}
PRECISIONS = {
    "32": "fp32",
    "32-true": "fp32",
    "16": "fp16",
    "16-mixed": "fp16",
    "bf16": "bf16",
    "bf16-mixed": "bf16",
}
DEVICES = ("auto", "cpu", "gpu", "cuda", "mps")
ONE_MACHINE = {"ddp": "", "ddp_cpu": "", "ddp_spawn": "", "ddp_find_unused_parameters_true": "",
               "ddp_find_unused_parameters_false": "", "auto": "", "single_device": "",
               "dp": "dp splits batches inside one process; Stoker splits batches over ranks, like ddp",
               "ddp2": "Stoker runs ddp2 as ddp"}


@dataclass
class Plan:
    """The arguments for Stoker's Trainer. most_train, most_validated, most_tested:
    maximum number of batches; a float is a share of all batches."""

    epochs: int | None = None
    steps: int | None = None
    precision: str = "fp32"
    accumulate: int = 1
    clip: float | None = None
    device: str | None = None
    eval_every: int = 1
    most_train: int | float | None = None
    most_validated: int | float | None = None
    most_tested: int | float | None = None
    callbacks: list = field(default_factory=list)
    logger: Logger = field(default_factory=Logger)
    log: list[str] = field(default_factory=list)


def plan(given: dict[str, Any]) -> Plan:
    """Arguments read: max_epochs, max_steps, precision, accumulate_grad_batches, gradient_clip_val, gpus,
    devices, accelerator, num_nodes, strategy, check_val_every_n_epoch, limit_train_batches,
    limit_val_batches, limit_test_batches, fast_dev_run, callbacks, early_stop_callback, logger, and their old
    names. Raises InvalidSpec, which names the argument."""
    words: dict[str, Any] = {
        RENAMED.get(name, name): float(value) if name.endswith("_percent_check") else value
        for name, value in given.items()
    }
    take = words.pop
    _refuse_not_followed(words)
    made = Plan(accumulate=_whole(take("accumulate_grad_batches", 1), "accumulate_grad_batches"))
    made.clip = take("gradient_clip_val", None) or None
    made.eval_every = take("check_val_every_n_epoch", 1) or 1
    kinds = ("limit_train_batches", "limit_val_batches", "limit_test_batches")
    made.most_train, made.most_validated, made.most_tested = (
        _limit(take(name, None), name) for name in kinds
    )
    if made.most_train == 0:
        raise InvalidSpec(
            "Trainer(limit_train_batches=0): with this limit, nothing is trained.",
            hint="To evaluate without training: trainer.validate(model, loader)",
        )
    made.epochs, made.steps = _length(take("max_epochs", None), take("max_steps", None))
    made.device = _device(words, take("accelerator", None))
    made.precision = _precision(take("precision", 32), take("use_amp", False), made.device)
    _one_machine(take("num_nodes", 1), take("strategy", None))
    _tell_ranks(words.get("devices", words.get("gpus", words.get("num_processes"))))
    quick = int(take("fast_dev_run", False))
    if quick:
        made.epochs, made.steps = 1, None
        made.most_train = made.most_validated = made.most_tested = quick
    callbacks = take("callbacks", None) or []
    made.callbacks = list(callbacks) if isinstance(callbacks, list | tuple) else [callbacks]
    stops = take("early_stop_callback", None)
    made.callbacks += [EarlyStopping()] if stops is True else [stops] if stops else []
    kept = words.get("checkpoint_callback")
    made.callbacks += [kept] if hasattr(kept, "on_validation_end") else []
    logger = take("logger", None)
    loggers = [
        each
        for each in (logger if isinstance(logger, list | tuple) else [logger])
        if isinstance(each, Logger)
    ]
    made.logger = loggers[0] if loggers else Logger()
    made.log = [sink for kind, sink in SINKS.items() if any(isinstance(each, kind) for each in loggers)]
    if take("val_check_interval", 1.0) not in (1.0, None):
        say("val_check_interval is ignored: Stoker evaluates at the end of each epoch")
    if take("gradient_clip_algorithm", "norm") not in ("norm", None):
        raise InvalidSpec(
            "Trainer(gradient_clip_algorithm='value'): Stoker clips gradients only by their norm."
        )
    if take("overfit_batches", 0):
        raise InvalidSpec(
            "Trainer(overfit_batches=...) is not supported: pass a small loader to trainer.fit instead."
        )
    unknown = sorted(set(words) - WITHOUT_EFFECT)
    if unknown:
        raise InvalidSpec(f"Trainer(... {unknown[0]}=...): Stoker's Trainer does not know this argument.",
                          hint="Remove the argument, or run the script with Lightning itself.")
    return made


def _length(epochs: int | None, steps: int | None) -> tuple[int | None, int | None]:
    steps = None if steps in (None, -1) else steps
    if epochs in (None, -1) and steps is None:
        return 1000, None
    if steps is not None and epochs not in (None, -1):
        raise InvalidSpec("Trainer(max_epochs=..., max_steps=...): Stoker supports only one of these limits.",
                          hint="Keep the limit that the training reaches first, and remove the other limit.")
    return (None, steps) if steps is not None else (epochs, None)


def _refuse_not_followed(words: dict[str, object]) -> None:
    """Takes the arguments of NOT_FOLLOWED out of the words.
    Raises InvalidSpec for one that asks for something."""
    for name, why in NOT_FOLLOWED.items():
        value = words.pop(name, None)
        one_of_one = name.startswith("min_") and value == 1
        alone = name == "sync_batchnorm" and os.environ.get("WORLD_SIZE", "1") == "1"
        if value and value != -1 and not one_of_one and not alone:
            raise InvalidSpec(
                f"Trainer({name}={value!r}): {why}.",
                hint="Remove the argument, or run the script with Lightning itself.",
            )


def _limit(value: Any, name: str) -> int | float | None:
    """A number of batches, or a share of them; None for all."""
    if value is None or (isinstance(value, float) and value == 1.0):
        return None
    number = isinstance(value, int) and not isinstance(value, bool) and value >= 0
    if not number and not (isinstance(value, float) and 0 <= value < 1):
        raise InvalidSpec(
            f"Trainer({name}={value!r}): {name} must be a number of batches, or a share from 0.0 to 1.0."
        )
    return value


def _device(words: dict[str, object], accelerator: object) -> str | None:
    """The device that is asked for; None for the best one.
    `accelerator` names a strategy in Lightning before 1.5."""
    if accelerator in ONE_MACHINE and accelerator != "auto":
        words.setdefault("strategy", accelerator)
        return "cpu" if accelerator == "ddp_cpu" else _device(words, None)
    if accelerator not in (None, *DEVICES):
        raise InvalidSpec(f"Trainer(accelerator={accelerator!r}): Stoker supports {', '.join(DEVICES)}.")
    if accelerator in ("cpu", "mps"):
        return "cpu"
    if accelerator is not None or "gpus" not in words:
        return None
    return "cpu" if words["gpus"] in (0, None, [], "") else None


def _precision(asked: object, amp: object, device: str | None) -> str:
    name = PRECISIONS.get("16" if amp else str(asked))
    if name is None:
        raise InvalidSpec(f"Trainer(precision={asked!r}): Stoker supports {', '.join(PRECISIONS)}.")
    if name == "fp16" and (device == "cpu" or not torch.cuda.is_available()):
        say("on a CPU, precision 16 means bfloat16")
        return "bf16"
    return name


def _one_machine(nodes: object, strategy: object) -> None:
    if nodes not in (None, 1):
        raise InvalidSpec(
            f"Trainer(num_nodes={nodes}): Stoker trains on one node.",
            hint="Remove num_nodes, or set it to 1.",
        )
    if strategy is None:
        return
    if strategy not in ONE_MACHINE:
        raise InvalidSpec(f"Trainer(strategy={strategy!r}): Stoker supports {', '.join(ONE_MACHINE)}.")
    if ONE_MACHINE[strategy]:
        say(ONE_MACHINE[strategy])


def _tell_ranks(asked: object) -> None:
    count = len(asked) if isinstance(asked, list | tuple) else asked
    if isinstance(count, int) and count > 1 and os.environ.get("WORLD_SIZE", "1") == "1":
        say(
            f"the script asks for {count} devices, but only one rank trains. To start {count} ranks: "
            f"`stoker run --ranks {count}`"
        )


def _whole(value: object, name: str) -> int:
    if not isinstance(value, int) or value < 1:
        raise InvalidSpec(f"Trainer({name}={value!r}): {name} must be a whole number of at least 1.")
    return value
