"""Brings a run to its machine: its data, then its folder.
Tells how far it is, and ends when the run is stopped."""

from __future__ import annotations

import time
from pathlib import Path

from stoker.base import rundir
from stoker.base.errors import TargetError
from stoker.plane import datasets
from stoker.plane.record import WISH_RUN, Run
from stoker.plane.store.database import Store
from stoker.plane.targets import Target

LOOK_S = 0.5  # between two looks whether it is still wanted
TOLD_S = 10.0  # between two lines to whoever follows the run


def send(run: Run, target: Target, folder: Path, store: Store) -> None:
    """Send the spooled run `folder` and its data to the machine. Can be repeated; the next try uses what
    has already arrived. Raises StokerError."""
    tell = _Teller(run, target, store)
    try:
        places = datasets.ready(target, run.spec, _hashes(target), tell)
        datasets.link(folder / rundir.WORK, places)
        target.stage(run.id, folder, tell)
        datasets.copies(target, run.spec)
    finally:
        target.sending.pop(run.id, None)


def again(run: Run, target: Target, store: Store) -> None:
    """Before a later attempt: make sure that the data on the machine is the data that the run began with.
    Raises StokerError."""
    if run.attempt > 1 and run.spec.data:
        try:
            datasets.ready(target, run.spec, _hashes(target), _Teller(run, target, store))
        finally:
            target.sending.pop(run.id, None)


def _hashes(target: Target) -> Path:
    return target.kept.parent / "server" / datasets.HASHES


class _Teller:
    """Called with each piece that is sent."""

    def __init__(self, run: Run, target: Target, store: Store) -> None:
        self._run, self._target, self._store = run, target, store
        self._begun = self._looked = time.monotonic()
        self._told = 0.0

    def __call__(self, sent: int, whole: int) -> None:
        now = time.monotonic()
        if now - self._looked < LOOK_S:
            return
        self._looked = now
        with self._store.read() as q:
            wanted = q.get(self._run.id)
        if wanted is None or wanted.wish != WISH_RUN:
            raise TargetError("The run was stopped while its files were being sent.", retry=True)
        self._target.sending[self._run.id] = (sent, whole, sent / max(1e-3, now - self._begun))
        if now - self._told >= TOLD_S:
            self._told = now
            self._store.on_change([self._run.id])
