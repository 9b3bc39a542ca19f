"""`stoker run --rehearse N`: what it asks of a run, so that a script made for N GPUs runs a few steps on a
CPU and touches nothing."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from stoker.base.errors import InvalidSpec

if TYPE_CHECKING:
    from stoker.client import Client

RANKS = "STOKER_REHEARSE"
FOLDER = "STOKER_REHEARSE_FROM"
MOST = 64


def check(o: Mapping[str, Any]) -> None:
    """Raises InvalidSpec if another option conflicts with --rehearse."""
    if o["rehearse"] is None:
        return
    reasons = {
        "no_hooks": "--rehearse needs the hooks; remove --no-hooks.",
        "gpus": "A rehearsal needs no GPU; remove --gpus.",
        "restarts": "A rehearsal is never restarted; remove --restarts.",
        "yes": "A rehearsal is always a new run; remove --yes.",
    }
    for name, why in reasons.items():
        if o.get(name):
            raise InvalidSpec(why, hint=f"stoker run --rehearse {o['rehearse']} train.py")
    if o["resume"] == "auto":
        raise InvalidSpec(
            "A rehearsal is never recorded; remove --resume auto.",
            hint=f"stoker run --rehearse {o['rehearse']} train.py",
        )
    if o["rehearse"] > MOST:
        raise InvalidSpec(
            f"At most {MOST} GPUs can be simulated on one machine, not {o['rehearse']}.",
            hint="stoker run --rehearse 2 train.py",
        )


def apply(o: Mapping[str, Any], spec: dict, env: dict[str, str]) -> None:
    """Change the spec and the environment of a run to a rehearsal."""
    if o["rehearse"] is None:
        return
    env |= {RANKS: str(o["rehearse"]), FOLDER: spec["folder"]}
    spec["copy"] = True
    spec["env_names"] = sorted({*spec["env_names"], RANKS, FOLDER})


def is_one(client: Client, run: Mapping[str, Any]) -> bool:
    """True if this run was a rehearsal. A rehearsal is never continued as the real run."""
    return RANKS in (client.show(run["id"]).get("env_names") or ())
