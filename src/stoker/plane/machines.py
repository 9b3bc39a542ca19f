"""Machines as `stoker machine` shows them: are they reached, when are they switched off, whose runs are
there; and taking those over."""

from __future__ import annotations

import contextlib
import shlex
import threading
from dataclasses import replace
from typing import Any

from stoker.base import machines
from stoker.base.config import TargetConfig
from stoker.base.errors import InvalidSpec, StokerError
from stoker.base.units import iso
from stoker.plane.control.reconciler import Reconciler
from stoker.plane.control.recovery import described, insert_named
from stoker.plane.store.database import Store
from stoker.plane.targets import Target, Targets

LOOK_S = 3.0  # that a list waits for a machine to say when it is switched off


class Machines:
    """The verbs about machines. Any thread may use it."""

    def __init__(self, store: Store, targets: Targets, reconciler: Reconciler) -> None:
        self._store, self._targets, self._reconciler = store, targets, reconciler
        self._known: dict[str, dict] = {}  # machine -> what it said last of its switching off

    def all(self) -> list[dict]:
        """One dict per machine: `{"name", "address", "root", "gpus", "slots", "unreachable", "off"}`. Asks
        machines with an `off` command when they switch off."""
        targets = [self._targets.get(name) for name in self._targets.names()]
        asking = [
            threading.Thread(target=self._ask, args=(target,), daemon=True)
            for target in targets
            if target.config.off
        ]
        for each in asking:
            each.start()
        for each in asking:
            each.join(LOOK_S)
        return [self._one(target) for target in targets]

    def off(self, name: str) -> dict:
        """Ask a machine to switch itself off now. Returns `{"owed"}`: the runs whose files are not copied.
        Raises StateError while a run is active."""
        target = self._targets.get(name)
        if not target.config.off:
            raise InvalidSpec(
                f"{name} has no `off` command, so Stoker cannot switch the machine off.",
                hint=f"stoker machine rm {name}   then   "
                f"stoker machine add {name} ... --off 'shutdown -h now'",
            )
        target.backend.power("order", target.order)
        return target.backend.power("now")

    def withdraw(self, name: str) -> None:
        """This state folder no longer asks for the machine to be switched off."""
        target = self._targets.get(name)
        if target.config.off and target.owner:
            target.backend.power("withdraw", {"owner": target.owner["id"]})

    def found(self, name: str) -> list[dict]:
        """The runs on a machine that this state folder does not know:
        `{"id", "name", "phase", "owner", "command", "started_at"}`."""
        target = self._targets.get(name)
        with self._store.read() as q:
            known = q.all_ids()
        strangers = [seen for seen in target.backend.everything() if seen.id not in known]
        told = []
        for seen in strangers:
            run = described(target, seen)
            if run is not None:
                told.append(
                    {
                        "id": seen.id,
                        "name": run.name,
                        "phase": seen.phase,
                        "owner": (seen.owner or {}).get("hint") or "",
                        "command": list(run.spec.command),
                        "started_at": seen.started_at and iso(seen.started_at),
                    }
                )
        return told

    def adopt(self, name: str) -> list[dict]:
        """Take over all these runs, so that they belong to this state folder. Also takes over their
        owners' `off` command: writes it into config.toml, unless config.toml has an `off` command for the
        machine, and withdraws it for the former owners."""
        target = self._targets.get(name)
        found = self.found(name)
        owners: set[Any] = {
            (seen.owner or {}).get("id")
            for seen in target.backend.poll([each["id"] for each in found]).values()
        }
        taken = set(target.backend.adopt([each["id"] for each in found]))
        for seen in target.backend.poll(sorted(taken)).values() if taken else ():
            run = described(target, seen)
            if run is None:
                continue
            with self._store.write() as q:
                if q.get(run.id) is None:
                    insert_named(
                        q,
                        run.with_(
                            spec=run.spec.with_(target=name),
                            warnings=("This run was taken over from another state folder.",),
                        ),
                    )
            self._reconciler.wake(run.id, run.target)
        self._take_order(target, owners - {None, (target.owner or {}).get("id")})
        return [each for each in found if each["id"] in taken]

    def _take_order(self, target: Target, owners: set[str]) -> None:
        """The orders of these owners are ours now.
        Ours is given first, so that there is one at any moment."""
        orders = [
            order
            for order in target.backend.power("look").get("orders") or ()
            if (order.get("owner") or {}).get("id") in owners
        ]
        if not orders:
            return
        if not target.config.off:
            machines.set_off(self._targets.home, _ordered(target.config, orders[-1]))
            target = self._targets.get(target.name)
        target.backend.power("order", target.order)
        for order in orders:
            target.backend.power("withdraw", {"owner": order["owner"]["id"]})

    def _ask(self, target: Target) -> None:
        with contextlib.suppress(StokerError):
            self._known[target.name] = target.backend.power("look")
            self._reconciler.heard(target.name)

    def _one(self, target: Target) -> dict:
        silence, config = self._reconciler.reach.silence(target.name), target.config
        off = None
        if config.off:
            off = {"command": config.off, "after_s": config.off_after_s, "latest_s": config.off_latest_s,
                   "disk_survives": config.disk_survives, **_standing(self._known.get(target.name) or {})}
        return {
            "name": target.name,
            "address": config.host,
            "root": config.root,
            "gpus": config.gpus,
            "slots": config.slots,
            "python": config.python,
            "off": off,
            "unreachable": silence
            and {"since": iso(silence.since), "next_at": iso(silence.next_at), "why": silence.why},
        }


def _ordered(config: TargetConfig, order: dict) -> TargetConfig:
    """A machine that is switched off as another state folder has asked."""
    times: dict[str, Any] = {
        f"off_{key}": float(order[key])
        for key in ("latest_s", "after_s")
        if isinstance(order.get(key), int | float)
    }
    return replace(
        config, off=shlex.join(order["command"]), disk_survives=order.get("disk_survives") is True, **times
    )


def _standing(known: dict) -> dict:
    """Where its watchman stands, of what the machine said; no times where it said nothing."""
    state = known.get("state") or {}
    alive = bool(known.get("watchman"))
    times = {
        key: iso(state[key]) if alive and isinstance(state.get(key), int | float) else None
        for key in ("off_at", "latest_at")
    }
    ran = [each for each in state.get("ran") or () if isinstance(each, dict)]
    words = {key: state.get(key) if alive else None for key in ("state", "why")}
    return {**words, **times, "owed": known.get("owed") or [], "last": ran[-1] if ran else None}
