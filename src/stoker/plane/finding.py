"""Finding a run by what was typed, and the run object of it: what the verbs of service.py share.
Changes nothing.

`ref` is an id, a unique prefix of an id, or a name. A name wins over a prefix. The name `train` means the
newest run of train, train-2, ...: for `stop`, the newest that has not ended; `rm` refuses a name that means
several runs.
"""

from __future__ import annotations

import contextlib
import time

from stoker.backends.base import Backend, Observation
from stoker.base import rundir
from stoker.base.config import Home
from stoker.base.errors import InvalidSpec, NotFound, StateError, StokerError
from stoker.base.state import State
from stoker.plane import homecoming, names, present
from stoker.plane.capacity import usage_of, waits_after
from stoker.plane.control.admission import waits_for
from stoker.plane.control.reconciler import Reconciler
from stoker.plane.record import Run
from stoker.plane.store import labels
from stoker.plane.store.database import Store
from stoker.plane.store.queries import Queries
from stoker.plane.targets import Target, Targets


class Finding:
    """Finds runs by name or id, from the current content of store and reconciler."""

    _home: Home
    _targets: Targets
    _store: Store
    _reconciler: Reconciler

    def _find(self, ref: str, active: bool = False) -> Run:
        """The run of this id, else the newest of this name (with `active` the newest that has not ended),
        else of this start of an id."""
        with self._store.read() as q:
            run = (
                q.get(ref)
                or (q.newest_named(ref, active=True) if active else None)
                or q.newest_named(ref)
                or q.by_name(ref)
            )
            if run is not None:
                return run
            found = q.by_prefix(ref) if ref else []
            meant = names.meant(ref, q.newest_names()) if ref and not found else ""
        if len(found) == 1:
            return found[0]
        if found:
            named = ", ".join(run.id for run in found[:5])
            raise NotFound(
                f"'{ref}' matches more than one run: {named}{', ...' if len(found) > 5 else ''}.",
                hint="Type more characters, or the full name of the run.",
            )
        raise NotFound(f"There is no run '{ref}'.", hint=meant or None)

    def _same_name(self, ref: str, run: Run) -> int:
        """The number of runs that `ref` may mean."""
        if ref == run.id or ref not in (run.name, run.name_stem):
            return 1
        with self._store.read() as q:
            return max(1, q.count_named(ref))

    def _typed(self, run: Run) -> str:
        """What to type for a run: its name, or its id where the name means a newer run."""
        with self._store.read() as q:
            return present.typed_ref(run.id if q.older_of_name([run.id]) else run.name)

    def _attempt(self, run: Run, attempt: int | None, *, ask: bool = False) -> int:
        """The number of an attempt that has begun.
        `ask` the machine where the row may be a moment behind it."""
        begun = present.begun(run)
        if (
            ask
            and run.state in (State.STAGING, State.STARTING, State.STOPPING)
            and (attempt is None or attempt > begun)
        ):
            seen = self._look(run, self._known_target(run))
            begun = max(begun, (seen.attempt if seen else None) or 0)
        number = begun if attempt is None else attempt
        if begun == 0:
            raise StateError(
                f"{run.name} has not started: {present.sentence(run)}", hint=f"stoker show {self._typed(run)}"
            )
        if number > begun and not run.state.final:
            raise StateError(
                f"{run.name} has no attempt {number} yet.", hint=f"stoker show {self._typed(run)}"
            )
        if not 1 <= number <= begun:
            raise NotFound(
                f"{run.name} has no attempt {number}; its last attempt is {begun}.",
                hint=f"stoker show {self._typed(run)}",
            )
        return number

    def _has_begun(self, run_id: str, attempt: int | None) -> bool:
        with self._store.read() as q:
            run = q.get(run_id)
        return run is None or run.state.final or present.begun(run) >= (attempt or 1)

    def _target(self, run: Run) -> Target | None:
        try:
            return self._targets.get(run.target)
        except InvalidSpec:
            return None

    def _known_target(self, run: Run) -> Target:
        return self._targets.get(run.target)

    def _reader(self, run: Run, attempt: int) -> Backend:
        """Where an attempt is read; its copy on this machine also serves
        when the machine is no longer in config.toml."""
        target = self._target(run)
        copied = None if target is not None else self._targets.copied(run.id, attempt)
        return copied or self._known_target(run).reader(run.id, attempt)

    def _look(self, run: Run, target: Target) -> Observation | None:
        """Seen just now; what was seen last where the machine cannot be reached."""
        with contextlib.suppress(StokerError):
            return target.backend.poll([run.id]).get(run.id)
        return self._reconciler.seen(run.id)

    def _used(self, run: Run) -> float:
        """Running seconds over all attempts, as of now."""
        seen = self._reconciler.seen(run.id)
        if run.state.final or seen is None or seen.used_s is None:
            return run.used_s
        beat = seen.heartbeat_at if run.state is State.RUNNING else None
        return max(run.used_s, seen.used_s + (max(0.0, time.time() - beat) if beat else 0.0))

    def _one(self, run: Run) -> dict:
        with self._store.read() as q:
            return self._many(q, [run])[0]

    def _many(self, q: Queries, runs: list[Run]) -> list[dict]:
        """Run objects; what is the same for all is asked once."""
        targets = {name: self._target(run) for name, run in {run.target: run for run in runs}.items()}
        waiting = [run for run in runs if run.state is State.PENDING]
        usage = {name: usage_of(q.holders(name)) for name in {run.target for run in waiting}}
        after = q.waits_of([run.id for run in waiting])
        others = {i: q.get(i) for i in {i for ids in after.values() for i in ids}}
        ids = [run.id for run in runs]
        older, labelled, homes = (
            q.older_of_name(ids),
            labels.of(q, ids),
            q.metas(list(map(homecoming.key, ids))),
        )
        behind = {
            run.id: waits_after([(i, others[i]) for i in after.get(run.id, ())], run.id) for run in waiting
        }
        told = {
            run.id: waits_for(run, targets[run.target], usage[run.target], behind[run.id]) for run in waiting
        }
        return [
            present.run_object(
                run,
                targets[run.target],
                ref=run.id if run.id in older else "",
                waits_for=told.get(run.id),
                used_s=self._used(run),
                still_s=present.stands_still(run, self._reconciler.seen(run.id)),
                silence=self._reconciler.reach.silence(run.target),
                label=labelled.get(run.id),
                home=homecoming.read(homes.get(homecoming.key(run.id))),
                kept_in=str(self._home.runs / run.id / rundir.OUTPUTS),
            )
            for run in runs
        ]
