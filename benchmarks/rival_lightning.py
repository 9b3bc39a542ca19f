"""Lightning's two helpers on the script beside this file:
its warnings of a loader at fit, and its batch finder. For benchmarks/rivals.py.

Run by an interpreter that has `lightning`; the script is that of rival_edits.for_loadtune, whose parts a
LightningModule is made of.
Prints one line of JSON.
"""

from __future__ import annotations

import json
import sys
import warnings
from pathlib import Path


class Ready(Exception):
    """The parts of a training."""


def parts_of(script: Path) -> tuple[dict, object]:
    """What the script gives to its Workload, and the loader that it made."""
    def workload(name: str, **parts: object) -> dict:
        return parts

    sys.argv[1:] = []
    try:
        exec(compile(script.read_text(), str(script), "exec"),
             {"__name__": "__main__", "__file__": str(script), "Ready": Ready, "Workload": workload})
    except Ready as ready:
        trace = ready.__traceback__
        while trace.tb_next:
            trace = trace.tb_next
        return ready.args[0], trace.tb_frame.f_locals["data_loader"]
    raise ValueError(f"{script} did not come to its training")


def main() -> None:
    """Fit one batch with the script's own loader; then look for a batch size, if that was asked for."""
    script, batch = Path(sys.argv[1]), sys.argv[2] == "batch"
    with warnings.catch_warnings(record=True) as heard:
        warnings.simplefilter("always")
        parts, loader = parts_of(script)
        from lightning.pytorch import LightningModule, Trainer
        from lightning.pytorch.tuner import Tuner
        from torch.utils.data import DataLoader

        class Asked(LightningModule):
            def __init__(self) -> None:
                super().__init__()
                self.automatic_optimization = False
                self.model, self.batch_size = parts["make_model"](), parts["default_batch_size"]

            def training_step(self, batch, _):
                return parts["train_step"](
                    self.model, parts["make_optimizer"](self.model), batch, self.device
                )

            def configure_optimizers(self):
                return None

            def train_dataloader(self):
                return DataLoader(
                    parts["make_dataset"](),
                    batch_size=self.batch_size,
                    shuffle=True,
                    collate_fn=parts["collate_fn"],
                )

        quiet = {
            "accelerator": "cpu",
            "logger": False,
            "enable_checkpointing": False,
            "enable_progress_bar": False,
            "enable_model_summary": False,
        }
        Trainer(max_epochs=1, limit_train_batches=1, **quiet).fit(Asked(), train_dataloaders=loader)
        told = (
            {"found": Tuner(Trainer(max_epochs=1, **quiet)).scale_batch_size(Asked(), mode="power")}
            if batch
            else {}
        )
        told["had"] = parts["default_batch_size"]
    told["workers"] = [
        str(w.message)
        for w in heard
        if "num_workers" in str(w.message) or "worker processes" in str(w.message)
    ]
    print(json.dumps(told))


if __name__ == "__main__":
    main()
