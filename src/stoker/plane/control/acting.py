"""The steps of a run on its machine: each is done, then written down;
and what follows where one did not succeed."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from pathlib import Path

from stoker.backends.base import GpuTaken
from stoker.base import crash
from stoker.base.errors import NotFound, StokerError, TargetError
from stoker.base.state import State
from stoker.plane.control.admission import Admissions
from stoker.plane.control.lifecycle import Action, Assumed, Seen, stop_order
from stoker.plane.control.spool import Spool
from stoker.plane.reach import Reach
from stoker.plane.record import WISH_RUN, Run
from stoker.plane.staging import sending, stage
from stoker.plane.store.database import Store
from stoker.plane.targets import Target, Targets

log = logging.getLogger(__name__)

LOOK_AFTER_ACT_S = 1.0  # when the watch stream should have told already


class Acting:
    """Carries out the actions of `lifecycle.decide`. The reconciler schedules the next look at a run."""

    _store: Store
    _targets: Targets
    _spool: Spool
    _admissions: Admissions
    _now: Callable[[], float]
    _wake: threading.Condition
    _acted: dict[str, float]
    reach: Reach
    admit: Callable[[], None]
    _later: Callable[[str, float], None]
    _watched: Callable[[str], bool]

    def _carry_out(self, run: Run, actions: list[Action], seen: Seen | None) -> Seen | None:
        """Do the actions in order; what is known afterwards, None when that takes a new look."""
        target = self._targets.get(run.target)
        after = seen
        for action in actions:
            try:
                after = self._act(run, action, target, after)
            except StokerError as e:
                self._failed(run, action, e)
                return None
            if action.do == "remove":
                return None
            updated = self._apply(run, action.facts) if action.facts else run
            if updated is None:
                return after if action.do == "set" else None  # somebody was faster: decide anew
            run = updated
        return after if actions[-1].do in ("set", "stage", "limits") else None

    def _act(self, run: Run, action: Action, target: Target, seen: Seen | None) -> Seen | None:
        if action.do == "set":
            return seen
        backend = target.backend
        if action.do == "stage":
            crash.point("stage.before")
            if not self._spool.has(run.id):
                raise NotFound(f"The run folder of {run.id} is missing, here and on its machine.")
            self._assure(run, self._spool.path(run.id))
            sending.send(run, target, self._spool.path(run.id), self._store)
            crash.point("stage.after")
            self._spool.remove(run.id)
            seen = Assumed("staged")
        elif action.do == "start":
            crash.point("start.before")
            if target.here:
                self._assure(run, Path(target.run_folder(run.id)))
            sending.again(run, target, self._store)
            again = run.attempt > run.first_attempt  # decided here, in the place of the agent
            backend.start(
                run.id, run.attempt, again=again, **{"gpus" if run.gpus else "leases": run.gpu_uuids}
            )
            crash.point("start.after")
            # the watch stream of this machine is there in a moment, even if it is only being opened
            told = target.here or self._watched(run.target)
            self._later(run.id, LOOK_AFTER_ACT_S if told else 0.0)
        elif action.do == "limits":
            backend.write_limits(run.id, run.limits)
        elif action.do == "stop":
            crash.point("stop.before")
            backend.stop(run.id, run.grace_s, *stop_order(run, seen))
            crash.point("stop.after")
            self._later(run.id, LOOK_AFTER_ACT_S if self._watched(run.target) else 0.2)
        elif action.do == "remove":
            target.remove(run.id)
            self._spool.remove(run.id)
            with self._store.write() as q:
                q.delete(run.id)
            self.admit()
        with self._wake:
            self._acted[run.id] = time.monotonic()
        return seen

    def _assure(self, run: Run, folder: Path) -> None:
        """A frozen copy is what was frozen, also when the power was cut before it was on disk."""
        again = stage.assure(folder) if run.spec.copy else []
        if again:
            log.warning("%s: copied once more after a power cut: %s", run.id, ", ".join(again[:5]))

    def _apply(self, run: Run, facts: dict) -> Run | None:
        crash.point("apply.before")
        with self._store.write() as q:
            new = q.update(run, **facts)
        crash.point("apply.after")
        if new is not None and new.state.final and not run.state.final:
            self.admit()
        return new

    def _failed(self, run: Run, action: Action, error: StokerError) -> None:
        """A step did not succeed. What may pass is tried again; a clear no ends a run that has not begun."""
        log.warning("%s: %s: %s", run.id, action.do, error.message)
        begins = action.do in ("stage", "start")
        if isinstance(error, GpuTaken):
            self._admissions.put_back(run)
            self.admit()
        elif begins and isinstance(error, TargetError) and not error.retry:
            self._give_up(run, "start_failed", {"detail": error.message.rstrip("."), "hint": error.hint})
        elif action.do == "stage" and isinstance(error, NotFound) and not self._spool.has(run.id):
            self._give_up(run, "lost", {})
        elif action.do == "remove" and not (isinstance(error, TargetError) and error.retry):
            self._apply(
                run,
                {
                    "wish": WISH_RUN,
                    "warnings": (*run.warnings, f"The run could not be removed: {error.message}"),
                },
            )
        else:
            if begins and run.evidence.get("retrying") != (why := f"{error.message} {error.hint}"):
                self._apply(run, {"evidence": {"retrying": why}})
            self._later(run.id, self.reach.pause(run.id))

    def _give_up(self, run: Run, reason: str, evidence: dict) -> None:
        """It ends without the attempt that was to begin."""
        facts = {
            "state": State.FAILED,
            "reason": reason,
            "evidence": evidence,
            "ended_at": self._now(),
            "gpu_uuids": (),
            "restart_at": None,
            "attempt": run.attempt - 1,
        }
        self._apply(run, facts)
