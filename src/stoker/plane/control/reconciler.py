"""The only one that touches machines:
load -> look -> decide -> act (repeatable) -> apply (if nobody was faster).

One loop thread decides whose turn it is; a small pool of workers a target looks and acts;
one watch stream a machine tells of changes. With nothing alive it sleeps without a time-out.

A verb writes a wish (`wish`: run, stop or rm; `attempt`, `stop_asked`, `limits`) in one short transaction,
wakes the reconciler, and returns.
- The network is never used inside a transaction.
- A run never fails because its machine does not answer.
- STARTING is stored before the start is sent.
"""

from __future__ import annotations

import contextlib
import heapq
import logging
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from concurrent.futures import wait as wait_for

from stoker.backends.base import Observation
from stoker.base.errors import StokerError
from stoker.base.state import State
from stoker.plane.control.acting import Acting
from stoker.plane.control.admission import Admissions
from stoker.plane.control.agenda import Again
from stoker.plane.control.lifecycle import UNSURE, Assumed, Seen, decide, overtaken
from stoker.plane.control.queue_notes import QueueNotes
from stoker.plane.control.recovery import found_far, insert_named
from stoker.plane.control.silences import keep_silence, silent_before
from stoker.plane.control.spool import SWEEP_AGE_S, Spool
from stoker.plane.control.watching import Watch, first_lines
from stoker.plane.reach import RETRY_FIRST_S, Reach
from stoker.plane.record import WISH_RM, WISH_RUN
from stoker.plane.store.database import Store
from stoker.plane.targets import GPUS_OLD_S, Targets

log = logging.getLogger(__name__)

POLL_S = 10.0  # every live run is looked at this often, whatever the watch stream tells
LINGER_S = 20.0  # the watch stream stays open for the next run
WORKERS = 6  # a target
ROUNDS = 6  # of decide and act in one step
MAIL_MAX = 100  # observations of a run that wait for a worker
CLOSE_S = 5.0
QUEUE = ""  # stands for the queue where else the id of a run stands


class Reconciler(Acting):
    """Carries out the requests in the store. Call `start` once, and `wake` after each committed request.
    `close` does not end runs."""

    def __init__(
        self, store: Store, targets: Targets, spool: Spool, *, now: Callable[[], float] = time.time
    ) -> None:
        self._store, self._targets, self._spool, self._now = store, targets, spool, now
        self.reach = Reach(
            now, before=silent_before(store), changed=lambda name: self._give(name, self._keep_silence, name)
        )
        self._admissions = Admissions(store, targets)
        self._notes = QueueNotes(store, targets)
        self._wake = threading.Condition()
        self._closed = False
        self._care: dict[str, str] = {}  # live runs -> target
        self._woken: dict[str, int] = {}  # run -> wishes that came while it was in care
        self._dirty: dict[str, set[str]] = {}  # target -> runs to be looked at now
        self._looking: set[str] = set()  # targets that are being looked at
        # run -> observations that no worker has taken yet
        self._mail: dict[str, list[tuple[Seen | None, float]]] = {}
        self._busy: set[str] = set()  # runs that a worker has in hand
        self._acted: dict[str, float] = {}  # run -> when our last step on it ended
        self._seen: dict[str, Observation] = {}
        self._due: list[tuple[float, str]] = []  # (monotonic time, run to be looked at then)
        self._poll_at: dict[str, float] = {}
        self._watches: dict[str, Watch] = {}
        self._admit = True
        # machines that did not answer when they were searched for lost runs
        self._unsearched: set[str] = set()
        self._sweep_at: float | None = time.monotonic() + SWEEP_AGE_S + 1
        self._pools: dict[str, ThreadPoolExecutor] = {}
        self._jobs: set[Future[None]] = set()
        # targets whose pool holds work, but could not start a thread for it
        self._starved = Again(RETRY_FIRST_S)
        self._thread = threading.Thread(target=self._loop, name="reconciler", daemon=True)

    # -- for the service
    # ----------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Begin to observe every active run in the store."""
        with self._store.read() as q:
            care = q.in_care()
        with self._wake:
            for run_id, target in care:
                self._care[run_id] = target
                self._dirty.setdefault(target, set()).add(run_id)
        self._thread.start()

    def wake(self, run_id: str, target: str, *, fresh: bool = False) -> None:
        """A request about this run was committed. `fresh`: its machine cannot know the run yet."""
        with self._wake:
            self._care[run_id] = target
            self._woken[run_id] = self._woken.get(run_id, 0) + 1
            if fresh:
                self._deliver(run_id, Assumed("absent"), time.monotonic())
            else:
                self._dirty.setdefault(target, set()).add(run_id)
            self._wake.notify()

    def admit(self) -> None:
        """A run waits for resources, or resources became free."""
        with self._wake:
            self._admit = True
            self._wake.notify()

    def seen(self, run_id: str) -> Observation | None:
        """The newest observation of an active run."""
        with self._wake:
            return self._seen.get(run_id)

    def heard(self, target: str) -> bool:
        """The machine has answered somebody else. If it was silent, look at its runs now; returns whether it
        was."""
        if not self.reach.answered(target):
            return False
        with self._wake:
            self._dirty.setdefault(target, set()).update(r for r, t in self._care.items() if t == target)
            if target in self._watches:
                self._watches[target].hurry()
            self._wake.notify()
        return True

    def find_again(self, target: str) -> None:
        """After the loss of the database: find the active runs of this state folder on this machine."""
        self._give(target, self._adopt_all, target)

    def close(self) -> None:
        """End the loop, the worker threads and the watch streams. Runs continue."""
        with self._wake:
            self._closed = True
            watches, self._watches = list(self._watches.values()), {}
            self._wake.notify_all()
        for watch in watches:
            watch.close()
        if self._thread.is_alive():
            self._thread.join(CLOSE_S)
        for pool in self._pools.values():
            pool.shutdown(wait=False, cancel_futures=True)
        wait_for(list(self._jobs), CLOSE_S)

    # -- the loop
    # -----------------------------------------------------------------------------------------------------

    def _loop(self) -> None:
        while True:
            with self._wake:
                while not self._closed and (pause := self._pause()) != 0:
                    self._wake.wait(pause)
                if self._closed:
                    return
            try:
                self._turn()
            except Exception:
                # whatever it was: the next turn may do better, and without us nothing happens any more
                log.exception("the loop")
                time.sleep(RETRY_FIRST_S)

    def _turn(self) -> None:
        with self._wake:
            admit, self._admit = self._admit, False
            self._take_due()
            self._hand_out()
            self._feed_starved()
            closing = self._tend_watches()
        for watch in closing:
            watch.close()
        if admit:
            self._let_in()
        self._sweep()

    def _pause(self) -> float | None:
        """Seconds until something is to be done: 0 now, None when only a wake can bring something."""
        ready = any(run_id not in self._busy for run_id in self._mail)
        look = any(target not in self._looking for target, ids in self._dirty.items() if ids)
        if self._admit or ready or look:
            return 0
        moments = [self._due[0][0]] if self._due else []
        moments += [
            self._poll_at[target]
            for target in set(self._care.values()) - self._looking
            if target in self._poll_at
        ]
        moments += [
            watch.idle_since + LINGER_S for watch in self._watches.values() if watch.idle_since is not None
        ]
        if self._sweep_at is not None:
            moments.append(self._sweep_at)
        moments += self._starved.moments()
        if not moments:
            return None
        return max(0.0, min(moments) - time.monotonic())

    def _take_due(self) -> None:
        now = time.monotonic()
        while self._due and self._due[0][0] <= now:
            _, run_id = heapq.heappop(self._due)
            if run_id == QUEUE:
                self._admit = True
            elif run_id in self._care:
                self._dirty.setdefault(self._care[run_id], set()).add(run_id)
        for target in set(self._care.values()):
            if now >= self._poll_at.setdefault(target, now + POLL_S):
                self._dirty.setdefault(target, set()).update(r for r, t in self._care.items() if t == target)

    def _hand_out(self) -> None:
        for target, ids in list(self._dirty.items()):
            if ids and target not in self._looking:
                self._looking.add(target)
                self._dirty[target] = set()
                if len(ids) * 2 > sum(t == target for t in self._care.values()):
                    self._poll_at[target] = time.monotonic() + POLL_S
                self._give(target, self._look, target, sorted(ids))
        for run_id in [r for r in self._mail if r not in self._busy]:
            self._busy.add(run_id)
            self._give(self._care.get(run_id, "local"), self._step, run_id)

    def _tend_watches(self) -> list[Watch]:
        """Open a stream for each machine with live runs; the streams that nobody needs any more."""
        now, live = time.monotonic(), set(self._care.values())
        closing = []
        for name in live:
            if name not in self._watches:
                watch = Watch(name, self._targets, self._told)
                watch.start()
                self._watches[name] = watch
            self._watches[name].idle_since = None
        for name, watch in list(self._watches.items()):
            if name in live:
                continue
            if watch.idle_since is None:
                watch.idle_since = now
            elif now - watch.idle_since >= LINGER_S:
                closing.append(self._watches.pop(name))
        return closing

    def _give(self, target: str, work: Callable[..., None], *args: object) -> None:
        """Let a worker of that target do it. A machine that hangs holds up only its own."""
        with self._wake:
            if self._closed:
                return
            if target not in self._pools:
                self._pools[target] = ThreadPoolExecutor(WORKERS, thread_name_prefix=f"plane-{target}")
            try:
                job = self._pools[target].submit(work, *args)
            except RuntimeError:  # no thread to be had: the pool keeps the work until one can be started
                log.warning("no worker thread for %s now", target)
                self._starved.add(target, time.monotonic())
                return
            self._jobs.add(job)
        job.add_done_callback(self._jobs.discard)

    def _feed_starved(self) -> None:
        """Pools whose thread could not be started try again: any new work makes them."""
        for target in self._starved.take(time.monotonic()):
            self._give(target, lambda: None)  # no work but for the thread

    def _let_in(self) -> None:
        """Start those whose turn it is.
        A machine that was never asked what it has is asked by a worker first."""
        try:
            admitted, unknown, later = self._admissions.run()
        except StokerError as e:
            log.warning("admission: %s", e.message)
            self._later(QUEUE, self.reach.pause(QUEUE))
            return
        self.reach.forget(QUEUE)
        for run in admitted:
            self.wake(run.id, run.target, fresh=run.attempt == 1 and self._spool.has(run.id))
        with self._wake:
            unsearched, self._unsearched = self._unsearched, set()
        for name in unsearched:
            self._give(name, self._adopt_all, name)
        for name in self._notes.due():
            self._give(name, self._tell_queue, name)
        for name in unknown:
            self._give(name, self._ask_capacity, name)
        if later and not unknown:
            self._later(QUEUE, GPUS_OLD_S + 1.0)

    def _ask_capacity(self, name: str) -> None:
        try:
            self._targets.get(name).capacity(max_age_s=GPUS_OLD_S)
            self.reach.answered(name)
            self.admit()
        except StokerError as e:
            log.warning("capacity of %s: %s", name, e.message)
            self._later(QUEUE, self.reach.failed(name, e.message))

    def _keep_silence(self, name: str) -> None:
        """Since when a machine is silent is known to the next server too."""
        try:
            keep_silence(self._store, name, self.reach)
        except StokerError as e:
            log.warning("silence of %s: %s", name, e.message)

    def _tell_queue(self, name: str) -> None:
        """A machine that switches itself off hears that runs wait for it, or no longer do."""
        try:
            self._notes.tell(name)
        except StokerError as e:
            log.warning("queue of %s: %s", name, e.message)
            pause = self.reach.pause(f"queue of {name}")
            self._notes.pause(name, pause)
            self._later(QUEUE, pause)
        else:
            self.reach.forget(f"queue of {name}")
            self.admit()  # it may have changed meanwhile

    def _adopt_all(self, name: str) -> None:
        """The watch stream begins with all that lives there."""
        try:
            target = self._targets.get(name)
            with target.backend.watch() as stream:
                for seen in first_lines(stream):
                    run = found_far(target, seen)
                    if run is None:
                        continue
                    with self._store.write() as q:
                        known = q.get(run.id) is not None
                        if not known:
                            insert_named(q, run)
                    if not known:
                        self.wake(run.id, run.target)
        except StokerError as e:
            log.warning("cannot look for runs on %s: %s", name, e.message)
            with self._wake:
                self._unsearched.add(name)
            self._later(QUEUE, self.reach.pause(f"runs of {name}"))

    def _sweep(self) -> None:
        if self._sweep_at is None or time.monotonic() < self._sweep_at:
            return
        self._sweep_at = None

        def known() -> set[str]:
            with self._store.read() as q:
                return q.all_ids()
        try:
            swept = self._spool.sweep(known)
        except (StokerError, OSError) as e:
            log.warning("Stoker could not delete leftover folders of new runs (spool): %s", e)
            return
        if swept:
            log.info("deleted leftover folders of new runs (spool): %s", ", ".join(swept))

    # -- look
    # --------------------------------------------------------------------------------------------------------

    def _look(self, name: str, ids: list[str]) -> None:
        asked, asked_at = time.monotonic(), time.time()
        found: dict[str, Observation] = {}
        why = ""
        try:
            target = self._targets.get(name)
            told = target.backend.poll(ids)
            target.learn_clock(told.values(), asked_at, asked_at + time.monotonic() - asked)
            found = {run_id: target.by_ours(seen) for run_id, seen in told.items()}
        except StokerError as e:
            log.warning("look at %s: %s", name, e.message)
            why = e.message
        except Exception as e:
            log.exception("look at %s", name)
            why = f"{type(e).__name__}: {e}"
        pause = self.reach.failed(name, why) if why else 0.0
        back = not why and self.reach.answered(name)
        with self._wake:
            self._looking.discard(name)
            if why:  # no poll of all its runs comes before the next try either
                self._poll_at[name] = time.monotonic() + pause
            for run_id in ids:
                self._deliver(run_id, found.get(run_id), asked)
                if why:
                    self._later(run_id, pause)
            if back and name in self._watches:
                self._watches[name].hurry()
            self._wake.notify()

    def _told(self, name: str, seen: Observation) -> None:
        """A line of a watch stream. What could be a misunderstanding is
        looked at again before anybody acts on it."""
        with contextlib.suppress(StokerError):
            seen = self._targets.get(name).by_ours(seen)
        with self._wake:
            self.reach.answered(name)
            if self._care.get(seen.id) != name:
                return
            if seen.phase in UNSURE:
                self._dirty.setdefault(name, set()).add(seen.id)
            else:
                self._deliver(seen.id, seen, time.monotonic())
            self._wake.notify()

    def _deliver(self, run_id: str, seen: Seen | None, asked: float) -> None:
        mail = self._mail.setdefault(run_id, [])
        # a machine may tell more than we can think about; what is newer counts
        mail[:] = [*mail, (seen, asked)][-MAIL_MAX:]

    # -- decide, act, apply
    # -------------------------------------------------------------------------------------------

    def _step(self, run_id: str) -> None:
        with self._wake:
            letters = self._mail.pop(run_id, [])
        try:
            for seen, asked in letters:
                self._advance(run_id, seen, asked)
        except StokerError as e:
            log.warning("%s: %s", run_id, e.message)
            self._later(run_id, self.reach.pause(run_id))
        except Exception:
            log.exception("%s", run_id)
            self._later(run_id, self.reach.pause(run_id))
        finally:
            with self._wake:
                self._busy.discard(run_id)
                self._wake.notify()

    def _advance(self, run_id: str, seen: Seen | None, asked: float) -> None:
        if isinstance(seen, Observation):
            with self._wake:
                self._seen[run_id] = seen
        for _ in range(ROUNDS):
            with self._store.read() as q:
                run = q.get(run_id)
            if run is None:
                break
            if asked < self._acted.get(run_id, 0.0) and overtaken(run, seen):
                self._later(run_id, 0.0)
                return
            asked = float("inf")  # what we know after a step of our own is not old
            actions = decide(run, seen, self._now(), self._targets.mine(run.target))
            if not actions:
                break
            seen = self._carry_out(run, actions, seen)
            if seen is None:
                break
        self._settle(run_id)

    def _settle(self, run_id: str) -> None:
        """After the last decision: who is at rest needs no care, unless a wish came since we looked."""
        woken = self._woken.get(run_id)
        with self._store.read() as q:
            run = q.get(run_id)
        if (
            run is None
            or (run.state.final and run.wish != WISH_RM)
            or (run.state is State.PENDING and run.wish == WISH_RUN)
        ):
            self._forget(run_id, woken)
            return
        if run.state in (State.RUNNING, State.STOPPING):
            self.reach.forget(run_id)
        if run.state is State.STARTING and run.restart_at:
            self._later(run_id, max(0.05, run.restart_at - self._now()))

    def _forget(self, run_id: str, woken: int | None) -> None:
        with self._wake:
            if run_id not in self._mail and self._woken.get(run_id) == woken:
                target = self._care.pop(run_id, None)
                if target is not None and target not in self._care.values():
                    # else its next run would be looked at before it has begun
                    self._poll_at.pop(target, None)
                for book in (self._woken, self._seen, self._acted):
                    book.pop(run_id, None)
                self.reach.forget(run_id)
            self._wake.notify()

    def _watched(self, target: str) -> bool:
        watch = self._watches.get(target)
        return watch is not None and watch.connected

    def _later(self, run_id: str, seconds: float) -> None:
        """Look at this run then, or at the queue."""
        with self._wake:
            heapq.heappush(self._due, (time.monotonic() + seconds, run_id))
            self._wake.notify()
