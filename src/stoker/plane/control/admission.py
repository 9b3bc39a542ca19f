"""Lets waiting runs in: capacity is handed out in the transaction that moves a run out of the queue, so
nothing is given twice.

That transaction also gives a run its GPUs and slots (docs/how-to/queue.md).
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Sequence

from stoker.base.errors import InvalidSpec, StokerError
from stoker.base.state import State
from stoker.plane.capacity import Admission, Usage, admit, admit_queue, shared_gpus, usage_of
from stoker.plane.record import WISH_RUN, Run
from stoker.plane.store.database import Store
from stoker.plane.store.queries import Queries
from stoker.plane.targets import GPUS_OLD_S, Target, Targets

HEAD = 32  # of each queue are looked at in one transaction


class Admissions:
    """Decides which runs may start, for the reconciler (`run`) and for a run that was just submitted
    (`at_once`)."""

    def __init__(self, store: Store, targets: Targets) -> None:
        self._store, self._targets = store, targets

    def run(self) -> tuple[list[Run], list[str], bool]:
        """Return the admitted runs; the targets whose capacity must be known before GPUs can be given out;
        and whether a run waits for a GPU that only a new look at the machine can find free."""
        admitted: list[Run] = []
        unknown: list[str] = []
        later = False
        with self._store.read() as q:
            names = q.targets_with_queue()
        for name in names:
            try:
                target = self._targets.get(name)
            except InvalidSpec:
                continue  # its table is gone from config.toml: its runs wait
            while batch := self._batch(target):
                admitted += batch
            with self._store.read() as q:
                waits = bool(q.next_for_gpus(name, 1))
                held = usage_of(q.holders(name)).gpus if waits else {}
            room = target.room(ask=False)
            others = {*room.busy, *room.leased} - {*held}
            if waits and (room.gpus is None or (others and target.age_s() > GPUS_OLD_S)):
                unknown.append(name)
            later = later or bool(waits and others)
        return admitted, unknown, later

    def put_back(self, run: Run) -> None:
        """Another program took the GPUs first: the run waits again, and the machine is asked who uses
        which GPU."""
        with contextlib.suppress(StokerError):
            self._targets.get(run.target).capacity(max_age_s=0.0)
        with self._store.write() as q:
            q.update(run, state=State.PENDING, gpu_uuids=(), started_at=None)

    def _batch(self, target: Target) -> list[Run]:
        room = target.room(ask=False)
        with self._store.write() as q:
            heads = (
                q.next_for_gpus(target.name, HEAD)
                + q.next_for_slots(target.name, HEAD)
                + q.next_for_nothing(target.name, HEAD)
            )
            if not heads:
                return []
            usage = usage_of(q.holders(target.name))
            started = [
                q.update(
                    run,
                    state=State.STAGING,
                    gpu_uuids=gpus,
                    warnings=(*run.warnings, *shared_gpus(gpus, usage, room)),
                )
                for run, gpus in admit_queue(heads, usage, room)
            ]
            return [run for run in started if run]


def at_once(
    q: Queries, target: Target, *, gpus: int, slots: int, priority: int, ids: Sequence[str] = ()
) -> Admission:
    """Whether a new run may start before all waiting runs: only if no run of the same or a higher priority
    waits for the same resource.
    "never" only if the size of the machine is known."""
    room = target.room(ask=False)
    counted = slots if room.slots is not None else 0
    if not gpus and not counted:
        return Admission("yes", gpus=tuple(room.named(ids)))
    usage = usage_of(q.holders(target.name))
    first = [
        *(q.next_for_gpus(target.name, 1) if gpus else ()),
        *(q.next_for_slots(target.name, 1) if counted else ()),
        *(q.next_for_gpus(target.name, 1) if counted and not gpus else ()),
    ]
    answer = admit(gpus, slots, usage, room, ids)
    wants = gpus and not room.used_by_others(ids)
    ahead = [
        run for run in first if run.priority >= priority and ((run.gpus and wants) or (run.slots and counted))
    ]
    if answer.verdict == "yes" and ahead:
        return Admission("wait", f"{ahead[0].name}, which needs the same resource and was submitted earlier")
    return answer


def start_again(q: Queries, target: Target, run: Run) -> Run:
    """Start an ended run again: at once, or through the queue. It waits again for active runs of its
    `after_any`."""
    admission = at_once(q, target, gpus=run.gpus, slots=run.slots, priority=run.priority)
    behind = q.not_ended(run.spec.after_any)
    yes = admission.verdict == "yes" and not behind
    q.clear_waits(run.id)
    q.add_waits(run.id, behind)
    new = q.update(
        run,
        state=State.STAGING if yes else State.PENDING,
        gpu_uuids=admission.gpus if yes else (),
        wish=WISH_RUN,
        queued_at=time.time(),
        attempt=run.attempt + 1,
        first_attempt=run.attempt + 1,
        reason=None,
        exit_code=None,
        ended_at=None,
        restart_at=None,
        evidence={},
        stop_grace=None,
        stop_asked=0,
        stop_sent=0,
    )
    return new or run


def waits_for(run: Run, target: Target | None, usage: Usage, others: str) -> str | None:
    """What a waiting run waits for, in words that follow "waits for"."""
    if others:
        return others
    if target is None:
        return f"the target '{run.target}', which is missing in config.toml"
    answer = admit(run.gpus, run.slots, usage, target.room(ask=False), run.spec.gpu_ids)
    if answer.verdict == "never":
        return f"more resources on its machine: the run needs {answer.why}"
    return answer.why or "its turn"
