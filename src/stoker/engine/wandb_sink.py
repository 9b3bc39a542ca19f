"""The logged numbers on Weights & Biases. After a kill, no line is missing or repeated.
Source is metrics.jsonl. Each start reads the file up to the checkpoint.
Line n is step n of the W&B run, so lines that W&B already has are left out.
Without an API key the numbers stay on this machine, in a folder that `wandb sync` uploads.
"""

from __future__ import annotations

import netrc
import os
import secrets
import shutil
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from stoker.base.rundir import write_whole
from stoker.engine import place
from stoker.engine.errors import InvalidSpec
from stoker.engine.progress import say

ID = "wandb-id"
SERVER = "https://api.wandb.ai"


class Wandb:
    """A W&B run; only rank 0 has one. Environment variables of W&B (WANDB_MODE, WANDB_PROJECT,
    WANDB_NAME, ...) apply."""

    def __init__(self, root: Path) -> None:
        """Raises InvalidSpec without the package wandb."""
        try:
            import wandb
        except ImportError as e:
            raise InvalidSpec(
                f'Engine(log="wandb"): wandb cannot be imported ({e}).', hint="pip install wandb"
            ) from None
        self._wandb: Any = wandb  # what its types demand changes between versions
        self._root = root
        self._id = _id_of(root)
        for old in (root / "wandb").glob(f"offline-run-*-{self._id}"):  # everything is written again
            shutil.rmtree(old, ignore_errors=True)
        self._run = self._begin()
        self._run.define_metric("step")
        self._run.define_metric("*", step_metric="step")
        self._had = self._run.starting_step
        self._line = 0

    def _begin(self) -> Any:
        if os.environ.get("WANDB_MODE"):
            return self._init(None)
        if not _has_key():
            say(f"no W&B API key: metrics go to {self._root / 'wandb'}; `wandb sync` uploads the metrics")
            return self._init("offline")
        try:
            return self._init("online")
        except self._wandb.Error as e:  # the training does not depend on somebody else's server
            say(
                f"W&B cannot be used ({str(e).splitlines()[0]}): metrics go to {self._root / 'wandb'}; "
                "`wandb sync` uploads the metrics"
            )
            return self._init("offline")

    def _init(self, mode: str | None) -> object:
        script = place.main_file()
        project = os.environ.get("WANDB_PROJECT") or (script.stem if script else "stoker")
        settings = self._wandb.Settings(console="off", silent=mode == "offline")
        again = {} if mode == "offline" else {"resume": "allow"}
        return self._wandb.init(
            dir=str(self._root), id=self._id, project=project, mode=mode, settings=settings, **again
        )

    def add(self, line: dict) -> None:
        """Send one line of metrics.jsonl; values that are not numbers are left out."""
        if self._line >= self._had:
            self._run.log(
                {name: v for name, v in line.items() if name != "at" and isinstance(v, int | float)},
                step=self._line,
            )
        self._line += 1

    def close(self) -> None:
        """Send the buffered lines, and end the W&B run."""
        self._run.finish()


def _id_of(root: Path) -> str:
    """The id of this training's W&B run, the same at each start."""
    path = root / ID
    if not path.exists():
        write_whole(path, secrets.token_hex(4).encode())
    return path.read_text()


def _has_key() -> bool:
    """Is there a key where W&B looks for one: in the environment,
    or in the netrc file that `wandb login` writes?"""
    if os.environ.get("WANDB_API_KEY") or os.environ.get("WANDB_IDENTITY_TOKEN_FILE"):
        return True
    host = urlsplit(os.environ.get("WANDB_BASE_URL") or SERVER).hostname or ""
    try:
        return (
            netrc.netrc(os.environ.get("NETRC") or os.path.expanduser("~/.netrc")).authenticators(host)
            is not None
        )
    except (OSError, netrc.NetrcParseError):
        return False
