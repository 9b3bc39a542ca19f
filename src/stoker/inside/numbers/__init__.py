"""What a script hands to a logger, a progress bar or a parser of arguments,
written beside as one JSON line a call.

Seen where the library has made plain numbers of it. Nothing of the script's is touched:
no tensor is read, no value converted, no argument changed.
A library that the script does not import is not imported.
"""

from __future__ import annotations

import os

_WATCHED = {  # module -> (file of this folder, its function that is called with the module)
    "torch.utils.tensorboard.writer": ("board", "install"),
    "tensorboardX.writer": ("board", "install"),
    "wandb.sdk.interface.interface": ("to_wandb", "install"),
    "wandb.sdk.interface.interface_shared": ("to_wandb", "install_sender"),
    "wandb.sdk.lib.noop_run": ("to_wandb", "install_disabled"),
    "wandb.sdk.lib.wbauth.authenticate": ("to_wandb", "install_offline"),
    "mlflow.store.tracking.file_store": ("to_mlflow", "install_file"),
    "mlflow.store.tracking.rest_store": ("to_mlflow", "install_rest"),
    "mlflow.store.tracking.sqlalchemy_store": ("to_mlflow", "install_sql"),
    "lightning.pytorch.trainer.connectors.logger_connector.logger_connector": ("trainers", "lightning"),
    "pytorch_lightning.trainer.connectors.logger_connector.logger_connector": ("trainers", "lightning"),
    "transformers.trainer_callback": ("trainers", "transformers"),
    "accelerate.accelerator": ("trainers", "accelerate"),
    "keras.src.callbacks.history": ("trainers", "keras"),
    "tqdm.std": ("bars", "install"),
    "argparse": ("arguments", "argparse"),
    "click.core": ("arguments", "click"),
    "hydra.core.utils": ("arguments", "hydra"),
    "omegaconf.omegaconf": ("arguments", "omegaconf"),
    "matplotlib.figure": ("pictures", "matplotlib"),
}


def begin(_process: object) -> None:
    """In a script of the user's that is a run:
    not in the second life of an audit, and not in the tuner's trials."""
    if os.environ.get("STOKER_AUDIT") != "child" and not os.environ.get("STOKER_TUNE"):
        watch()


def watch() -> None:
    """Once for a script, before it begins. Costs nothing where no such library is imported."""
    from ..entry import imports
    for name, where in _WATCHED.items():
        imports.after(name, lambda module, where=where: _is_here(module, *where))


def _is_here(module: object, file: str, call: str) -> None:
    part = __import__(f"{__name__}.{file}", fromlist=(file,))
    getattr(part, call)(module)
