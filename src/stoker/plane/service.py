"""The verbs. Each reads or writes wishes in one short transaction and wakes the reconciler;
plain JSON-able dicts in and out."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import stoker
from stoker.backends.base import LogStream
from stoker.base.config import Home, keep_reserve, make_home
from stoker.base.errors import InvalidSpec, NotFound, StateError, TargetError
from stoker.base.removal import clear
from stoker.base.spec import Limits
from stoker.base.state import HOLDING, State
from stoker.base.units import format_duration, iso
from stoker.hosts.base import Stream
from stoker.plane import detail, homecoming, precheck, present
from stoker.plane.capacity import usage_of
from stoker.plane.control.admission import start_again
from stoker.plane.control.lifecycle import decide
from stoker.plane.control.reconciler import Reconciler
from stoker.plane.control.recovery import recover
from stoker.plane.control.spool import Spool
from stoker.plane.finding import Finding
from stoker.plane.logs import Log, Pieces
from stoker.plane.machines import Machines
from stoker.plane.notifier import Events, Hub
from stoker.plane.numbers import overview
from stoker.plane.numbers.halving import Halver
from stoker.plane.numbers.overview import Overview
from stoker.plane.record import WISH_RM, WISH_RUN, WISH_STOP, Run, command_key, folder_key
from stoker.plane.recorded import picture, recorded
from stoker.plane.request import read_grace, read_limits, read_spec
from stoker.plane.run_folder import Folders, RunFolder
from stoker.plane.staging.bringing import Bringer, Pulling
from stoker.plane.store import labels
from stoker.plane.store.database import open_store
from stoker.plane.store.queries import Queries
from stoker.plane.submit import Submitter
from stoker.plane.targets import Targets

WAIT_MAX_S = 60.0
WAIT_STEP_S = 1.0  # a follower that was closed leaves this soon
REMOVED_WITHIN_S = 15.0
BACK_S = 5.0  # after a silent machine has answered, until the end of a run is known here
SILENT_S = 3.0  # for a machine that has not answered for a while
LISTED_MAX = 1_000_000
GC_AGE_S = 7 * 86400.0


class Service(Finding):
    """The plane of one state folder: store, reconciler and verbs. `close` does not end runs."""

    def __init__(self, where: Home) -> None:
        self._home = make_home(where)
        self._targets = Targets(where)
        self._store = open_store(where.database)
        keep_reserve(where)
        self._spool = Spool(where.spool)
        self._started_at = time.time()
        self._warnings = self._recover()
        self._overview = Overview()
        self._folders = Folders()
        self._hub = Hub()
        self._store.on_change = self._hub.publish
        self._submitter = Submitter(self._store, self._targets, self._spool)
        self._reconciler = Reconciler(self._store, self._targets, self._spool)
        self.machines = Machines(self._store, self._targets, self._reconciler)
        self._bringer = Bringer(self._store, self._targets, self._hub)
        self.sweeps = Halver(
            self._store, lambda run: self._overview.read(run, self._known_target(run)), self.stop
        )
        for each in (self._reconciler, self._bringer, self.sweeps):
            each.start()
        for name in self._targets.names() if self._store.fresh else ():
            if not self._targets.get(name).here:
                self._reconciler.find_again(name)

    def _recover(self) -> list[str]:
        warnings = []
        if self._store.kept_aside is not None:
            warnings.append(
                f"The database was damaged, or was not a database of Stoker. Stoker renamed the file to "
                f"{self._store.kept_aside}."
            )
        if self._store.fresh:
            here = {
                name: Path(target.root)
                for name in self._targets.names()
                if (target := self._targets.get(name)).here
            }
            with self._store.write() as q:
                found = recover(q, here, self._spool.folder)
                if found and not warnings:
                    warnings.append("The database was missing.")
                if found:
                    warnings.append(
                        f"{len(found)} runs were recovered from their folders. "
                        "Stoker no longer knows which runs were pinned."
                    )
                q.set_meta("warnings", "\n".join(warnings))
        with self._store.read() as q:
            return [line for line in (q.meta("warnings") or "").split("\n") if line]

    def keeps_its_database(self, gone: Callable[[], None]) -> bool:
        """False if the database was deleted; a new server makes it again. The first caller that notices
        also calls `gone`."""
        self._store.on_gone = gone
        return self._store.stands()

    def close(self) -> None:
        """Stop the reconciler and release all resources."""
        for each in (self._hub, self.sweeps, self._bringer, self._reconciler, self._targets, self._store):
            each.close()

    # -- one run
    # ------------------------------------------------------------------------------------------------------

    def submit(
        self,
        spec: dict,
        limits: dict,
        env: dict[str, str],
        stdin: bytes | None,
        *,
        on_name_taken: str = "refuse",
        dry_run: bool = False,
    ) -> dict:
        """Submit a run, or with `dry_run` return what it would send. "continue" returns the unfinished run
        of that name if it is the same run.

        `on_name_taken`: "refuse" or "continue". The answer has `continued` ("again", "active") if no run
        was made.
        """
        if on_name_taken not in ("refuse", "continue"):
            raise InvalidSpec(
                f"The argument `on_name_taken` must be 'refuse' or 'continue', not '{on_name_taken}'."
            )
        asked, wanted = read_spec(spec), read_limits(limits)
        if dry_run:
            return precheck.preview(asked, self._submitter.checked(asked), self._targets.config())
        with self._store.read() as q:
            there = self._submitter.find_named(q, asked, on_name_taken)
        if there is not None:
            if there.state.final:
                return {**self.start(there.id), "continued": "again"}
            return {**self._one(there), "continued": "active"}
        run = self._submitter.submit(asked, wanted, env, stdin, time.time())
        self._go_on(run, fresh=True)
        return self._one(run)

    def run(self, ref: str, active: bool = False) -> dict:
        """The run object. `active`: among runs of the same name, the newest that has not ended.

        `same_name`: number of runs that `ref` may mean.
        """
        run = self._find(ref, active=active)
        return {**self._one(run), "same_name": self._same_name(ref, run)}

    def show(self, ref: str) -> dict:
        """The run object and all details."""
        run = self._find(ref)
        with self._store.read() as q:
            history, beside = q.events_of(run.id), q.beside(run)
        target = self._target(run)
        if target is None:
            return {**self._one(run), "evidence": run.evidence, "same_name": self._same_name(ref, run)}
        copied = target.reader(run.id, present.begun(run))
        asked = detail.questions(run, target, beside)
        folder = self._folders.look(target.backend, run.id, asked, self._reconciler.seen(run.id), copied)
        if folder.reached and copied is target.backend and self._reconciler.heard(target.name):
            run = self._caught_up(run, folder)
        told, more = self._one(run), detail.detail(run, target, folder, history, beside)
        more["numbers"] = self._overview.table(run, target)
        more |= present.corrections(run, more, told["ref"], time.time() + target.ahead_s)
        broken = [
            f"The file {name} of the run cannot be used: {why}." for name, why in more["broken_files"].items()
        ]
        return {
            **told,
            **more,
            "warnings": [*told["warnings"], *broken],
            "same_name": self._same_name(ref, run),
        }

    def _caught_up(self, run: Run, folder: RunFolder) -> Run:
        """The run after its machine was silent: if it has ended there, as soon as this is known here."""
        ended = folder.seen is not None and folder.seen.phase == "ended"
        self.wait(run.id, BACK_S if ended else 0)
        return self._find(run.id)

    def start(self, ref: str, edited: bool = False) -> dict:
        """Start a new attempt of an ended run. For a run that waits for another run: stop waiting.
        `edited`: also if its script was edited, so that it restarts from scratch.

        Without it, such a start raises StateError (409).
        """
        run = self._find(ref)
        if run.state.final and not edited:
            detail.refuse_edited(run, self._target(run), self._typed(run))
        run_id = run.id
        with self._store.write() as q:
            run = _there(q, run_id)
            new = self._again(q, run)
        self._go_on(new)
        return self._one(new)

    def stop(self, ref: str, grace_s: float | Sequence[float] | None = None, force: bool = False) -> dict:
        """End a run: SIGINT, grace, SIGTERM, grace, SIGKILL to all its processes; `force`: without grace.
        Has no effect on an ended run."""
        grace = (0.0, 0.0) if force else read_grace(grace_s)
        run_id = self._find(ref, active=True).id
        with self._store.write() as q:
            run = _there(q, run_id)
            if not run.state.final and (other := run.evidence.get("taken_over")):
                raise StateError(
                    f"{run.name} was taken over by {other}.",
                    hint=f"To remove the run from the list here: stoker rm --force {run.id}",
                )
            if not run.state.final:
                wish = WISH_RM if run.wish == WISH_RM else WISH_STOP
                run = self._wish(q, run, wish=wish, stop_asked=run.stop_asked + 1, stop_grace=grace)
        self._go_on(run)
        return self._one(run)

    def keep(self, ref: str, seconds: float | None = None, pin: bool | None = None) -> dict:
        """Let a run continue for this many seconds from now, whatever its limit was; or set or remove its
        pin against gc."""
        if seconds is not None and not 0 < seconds < 1e9:
            raise InvalidSpec(
                "The time to keep a run must be a number of seconds above 0.", hint="stoker keep ID 3h"
            )
        run_id = self._find(ref).id
        with self._store.write() as q:
            run = _there(q, run_id)
            facts: dict = {} if pin is None else {"pinned": pin}
            if seconds is not None and run.limits.time_s is not None:
                facts["limits"] = Limits(
                    seq=run.limits.seq + 1, time_s=max(run.limits.time_s, self._used(run) + seconds)
                )
            run = q.update(run, **facts) or run
        if not run.state.final and run.state is not State.PENDING:
            self._reconciler.wake(run.id, run.target)
        return self._one(run)

    def label(
        self, ref: str, add: Sequence[str] = (), remove: Sequence[str] = (), note: str | None = None
    ) -> dict:
        """Add and remove tags, set the note."""
        run = self._find(ref)
        with self._store.write() as q:
            labels.change(q, run.id, add, remove, note)
        return self._one(run)

    def rm(self, ref: str, force: bool = False) -> dict:
        """Delete an ended run with its folder; with `force`, end an active run first. If its machine does
        not answer, `force` removes the run from this machine, and `left` says what may remain there.

        Returns after folder and row are deleted.
        """
        run = self._find(ref)
        if self._same_name(ref, run) > 1:
            raise InvalidSpec(f"Several runs have the name '{ref}', so Stoker deleted no run.",
                              hint=f"Give an id; the id of the newest run is {run.id}. All ids: stoker ps "
                                   "--all")
        if not run.state.final and not force:
            typed = self._typed(run)
            raise StateError(
                f"{run.name} is {run.state.value}. "
                "Without --force, Stoker deletes a run only after the run has ended.",
                hint=f"stoker stop {typed}   first, or   stoker rm --force {typed}",
            )
        told = self._one(run) if force else self.wait(run.id, REMOVED_WITHIN_S, outputs=True)
        if not force and homecoming.on_its_way(told["outputs"]):
            raise StateError(
                f"The files of {run.name} on {run.target} have not been copied to this machine "
                "yet, so Stoker does not delete the run.",
                hint=(
                    f"stoker show {present.typed_ref(told['ref'])}   or, to delete the run without copying "
                    f"its files: stoker rm --force {run.id}"
                ),
            )
        self._remove([run.id])
        silent = self._target(run) is None or self._reconciler.reach.silence(run.target)
        patience = (
            SILENT_S
            if force and silent
            else REMOVED_WITHIN_S + (sum(run.grace_s) if not run.state.final else 0)
        )
        if self._gone(run.id, patience):
            return {**told, "left": ""}
        target = self._target(run)
        if force and not (target and target.here):
            return {**told, "left": self._forget(run)}
        raise TargetError(
            (
                f"{run.name} is not removed yet: its machine does not answer. When the machine answers, "
                "Stoker removes the run."
            ),
            hint=(
                f"stoker show {present.typed_ref(told['ref'])}   or, to remove the run from the list here: "
                f"stoker rm --force {run.id}"
            ),
        )

    def _forget(self, run: Run) -> str:
        """Delete all that is here of a run whose machine does not answer;
        what may be left there, in a sentence."""
        target = self._target(run)
        with self._store.write() as q:
            q.delete(run.id)
        self._spool.remove(run.id)
        clear(self._home.runs, run.id)
        self._reconciler.wake(run.id, run.target)
        if target is None:
            return (
                f"The machine {run.target} is not in config.toml, so Stoker does not delete the run's "
                "files there."
            )
        processes = "" if run.state.final else "and did not end the run's processes "
        return (
            f"{run.target} does not answer, so Stoker did not delete the folder {target.run_folder(run.id)} "
            f"{processes}there. When {run.target} answers, you can get the run back: stoker machine adopt "
            f"{run.target}."
        )

    def wait(self, ref: str, timeout_s: float, outputs: bool = False) -> dict:
        """Return the run, final or not, after at most `timeout_s` (at most 60). `outputs`: also wait until
        its files are here, or a try failed."""
        run_id = self._find(ref).id

        def final() -> bool:
            with self._store.read() as q:
                run, row = q.get(run_id), q.meta(homecoming.key(run_id))
            return run is None or (run.state.final and not (outputs and homecoming.coming(row)))
        self._hub.wait_until(run_id, final, min(max(0.0, timeout_s), WAIT_MAX_S), time.monotonic)
        return self.run(run_id)

    # -- lists
    # --------------------------------------------------------------------------------------------------------

    def runs(
        self, *, all: bool = False, folder: str | None = None, limit: int = 200, active: bool = False
    ) -> list[dict]:
        """Active runs, or all runs; newest first. `active`: all active runs, beside the newest `limit`."""
        where = folder_key(folder) if folder else None
        with self._store.read() as q:
            found = q.listing(everything=all, folder_hash=where, limit=min(max(1, limit), LISTED_MAX))
            if active and len(found) == limit:
                found += q.active_before(found[-1], folder_hash=where)
            told = self._many(q, found)
        more = self._overview.in_lists(found, [self._target(run) for run in found])
        return [{**entry, **each} for entry, each in zip(told, more, strict=True)]

    def numbers(self, ref: str, names: Sequence[str] = (), points: int | None = None) -> dict:
        """Curves of a run, limited to `names`, with at most about `points` points each."""
        run = self._find(ref)
        return overview.series(
            self._one(run),
            self._overview.read(run, self._known_target(run), points or overview.POINTS),
            names,
            points,
        )

    def recorded(self, ref: str, kind: str) -> dict:
        """Recorded facts of a run besides its numbers: see `plane.recorded`."""
        run = self._find(ref)
        return recorded(run, self._known_target(run), kind)

    def picture(self, ref: str, path: str) -> bytes:
        """A captured picture of a run. Raises NotFound; TargetError where its machine does not answer."""
        run = self._find(ref)
        return picture(run, self._known_target(run), path)

    def compare(self, refs: Sequence[str], code: bool = False) -> dict:
        """Compare runs: parameters, metrics, environment; with `code`, also the code of two runs."""
        found = {run.id: run for run in map(self._find, refs)}.values()
        return self._overview.compare([(run, self._one(run), self._known_target(run)) for run in found], code)

    def candidates(self, folder: str, command: Sequence[str]) -> list[dict]:
        """Unfinished runs of the same command in the same folder, newest first."""
        with self._store.read() as q:
            return self._many(q, q.candidates(folder_key(folder), command_key(command)))

    def gc(self, dry_run: bool, older_s: float | None = None) -> dict:
        """Disk space in bytes and inodes of ended runs; without `dry_run`, deletes those that are not
        pinned.

        `{"runs": [run, with bytes and inodes], "bytes", "inodes", "removed": [id]}`; the default age is 7
        days.
        """
        age = GC_AGE_S if older_s is None else older_s
        with self._store.read() as q:
            old = q.ended_before(time.time() - age)
            told = self._many(q, old)
        for run, entry in zip(old, told, strict=True):
            target = self._target(run)
            cost = detail.cost(Path(target.run_folder(run.id))) if target and target.here else None
            spooled = detail.cost(self._spool.path(run.id)) if self._spool.has(run.id) else (0, 0)
            entry["bytes"], entry["inodes"] = (
                (None, None) if cost is None else (cost[0] + spooled[0], cost[1] + spooled[1])
            )
        doomed = [
            entry["id"]
            for entry in told
            if not entry["pinned"] and not homecoming.on_its_way(entry["outputs"])
        ]
        sums = {
            key: sum(entry[key] or 0 for entry in told if entry["id"] in doomed)
            for key in ("bytes", "inodes")
        }
        report = {"dry_run": dry_run, "older_s": age, "runs": told, "removed": [], **sums}
        if not dry_run:
            self._remove(doomed)
            deadline = time.monotonic() + REMOVED_WITHIN_S + 0.1 * len(doomed)
            report["removed"] = [i for i in doomed if self._gone(i, max(0.0, deadline - time.monotonic()))]
        return report

    def top(self, target: str = "") -> dict:
        """A machine and its active runs; without a name, this machine and all active runs."""
        name, machine = target, self._targets.get(target or "local")
        with self._store.read() as q:
            live = [
                run
                for run in q.listing(everything=False)
                if run.state in HOLDING and name in ("", run.target)
            ]
            told = self._many(q, live)
        for run, entry in zip(live, told, strict=True):
            seen = self._reconciler.seen(run.id)
            entry["telemetry"] = seen.telemetry if seen else None
            entry["progress"] = detail.progress(run, machine if run.target == "local" else None)
        return {"machine": detail.machine(machine, machine.capacity(max_age_s=2.0)), "runs": told}

    def capacity(
        self,
        target: str = "local",
        look: bool = False,
        modules: Sequence[str] | None = None,
        python: str = "",
    ) -> dict:
        """Resources of a machine, and which of them are in use; see `precheck.facts`."""
        told = precheck.facts(self._targets.get(target), look, modules, python)
        with self._store.read() as q:
            return told | precheck.used(usage_of(q.holders(target)), told)

    def data(self, target: str, remove: Sequence[str] = ()) -> list[dict]:
        """Datasets on a machine; see `precheck.datasets_there`. Raises StateError for a dataset that an
        active run may read."""
        with self._store.read() as q:
            active = [
                run for run in q.listing(everything=False) if run.target == target and not run.state.final
            ]
            using = [run.name for run in active if run.spec.data]
            if remove and using:
                raise StateError(
                    f"{', '.join(using)} may still read data on {target}, so Stoker removed nothing.",
                    hint=f"Wait until no run reads data there: stoker wait {using[0]}",
                )
        return precheck.datasets_there(self._targets.get(target), remove)

    def info(self) -> dict:
        """Facts about the server."""
        with self._store.read() as q:
            return {
                "version": stoker.__version__,
                "pid": os.getpid(),
                "started_at": iso(self._started_at),
                "home": str(self._home.path),
                "warnings": self._warnings,
                "runs": q.counts(),
                "targets": self._targets.names(),
            }

    # -- streams
    # ------------------------------------------------------------------------------------------------------

    def logs(  # noqa: PLR0917
        self,
        ref: str,
        attempt: int | None = None,
        stream: str = "out",
        offset: int = 0,
        tail: int | None = None,
        since: float | None = None,
        follow: bool = False,
    ) -> Pieces:
        """Bytes of a log ("out", "err", "both" as one text): from `offset`, the last `tail` lines, or since a
        time (Unix seconds).
        With `follow`, waits for the attempt to begin, also while its machine cannot be reached, and ends with
        it. Another thread may call `close`.

        Without `follow`, a run that has not begun raises StateError.
        """
        if stream not in ("out", "err", "both"):
            raise InvalidSpec(f"There is no stream '{stream}'.", hint="Use `out`, `err` or `both`.")
        named = self._find(ref)
        run_id = named.id
        if stream == "both" and not named.spec.split_stderr:
            stream = "out"  # one log has both, in the order in which they were printed

        def found(closed: Callable[[], bool]) -> Callable[[int], LogStream] | None:
            while follow and not closed():
                if self._hub.wait_until(
                    run_id, lambda: self._has_begun(run_id, attempt), WAIT_STEP_S, time.monotonic
                ):
                    break
            if closed():
                return None
            run = self._find(run_id)
            number = self._attempt(run, attempt, ask=True)
            log = Log(self._reader(run, number), run.id, number, stream)
            target = self._target(run)
            moment = since if since is None or target is None else since + target.ahead_s
            if stream == "both":
                return lambda given: log.open_both(max(0, offset), given, follow, tail=tail, since=moment)
            begin = max(0, offset)
            if moment is not None:
                begin = max(begin, log.since_offset(moment))
            end = None
            if tail is not None:
                size = log.size()
                begin = max(begin, log.tail_offset(size, tail))
                end = None if follow else size  # what is written meanwhile would make it more lines
            return lambda given: log.open(begin + given, follow, end)
        if not follow:
            self._attempt(self._find(run_id), attempt, ask=True)
        return Pieces(found, patient=follow and not self._has_begun(run_id, attempt))

    def pull(self, ref: str, patterns: Sequence[str] = ()) -> Pulling:
        """Copy files that the run created or modified to this machine; all files without patterns. Another
        thread may call `close`."""
        return self._bringer.pull(self._find(ref), patterns)

    def attach(
        self, ref: str, attempt: int | None = None, out: int = 0, err: int = 0, input: bool = True
    ) -> Stream:
        """The framed stream of an attempt (by default the newest). Raises StateError if there is no
        attempt.

        Opens the stream of the backend at once. The server waits for the attempt, and the client follows a
        restart to the next one.
        """
        run = self._find(ref)
        number = self._attempt(run, attempt)
        return self._known_target(run).backend.attach(run.id, number, out, err, input)

    def events(self) -> Events:
        """{"run": run} at each change of a run, {"removed": id} after a removal, {} from time to time.
        Another thread may call `close`."""
        return Events(self.changed, self._hub.subscribe())

    # -- inside
    # -------------------------------------------------------------------------------------------------------

    def _again(self, q: Queries, run: Run) -> Run:
        """The run on its way to its next attempt."""
        if run.state is State.PENDING and run.wish == WISH_RUN and q.waits_of([run.id]):
            q.clear_waits(run.id)
            return run
        if not run.state.final or run.wish == WISH_RM:
            typed = self._typed(run)
            raise StateError(
                f"{run.name} is {run.state.value}. "
                "`stoker start` starts a run again only after the run has ended.",
                hint=f"stoker stop {typed}   first, or   stoker logs -f {typed}",
            )
        if run.limits.time_s is not None and run.used_s >= run.limits.time_s:
            typed = self._typed(run)
            raise StateError(
                f"{run.name} has used up its time limit of {format_duration(run.limits.time_s)}.",
                hint=f"stoker keep {typed} 2h   then   stoker start {typed}",
            )
        return start_again(q, self._known_target(run), run)

    def _go_on(self, run: Run, fresh: bool = False) -> None:
        """Let the reconciler see to what a verb changed: to the run itself, or to the queue."""
        if run.state is State.PENDING or run.state.final:
            self._reconciler.admit()
        else:
            self._reconciler.wake(run.id, run.target, fresh=fresh)

    def _wish(self, q: Queries, run: Run, **facts: object) -> Run:
        """Write a wish. Who waits in the queue needs no machine: it is obeyed in the same transaction."""
        run = q.update(run, **facts) or run
        if run.state is State.PENDING:
            for action in decide(run, None, time.time()):
                run = q.update(run, **action.facts) or run
        return run

    def _remove(self, ids: Sequence[str]) -> None:
        for run_id in ids:
            with self._store.write() as q:
                run = q.get(run_id)
                if run is not None:
                    run = self._wish(q, run, wish=WISH_RM, stop_asked=run.stop_asked + 1)
            if run is not None:
                self._bringer.give_way(run.id)
                self._reconciler.wake(run.id, run.target)

    def _gone(self, run_id: str, timeout_s: float) -> bool:
        def gone() -> bool:
            with self._store.read() as q:
                return q.get(run_id) is None
        return self._hub.wait_until(run_id, gone, timeout_s, time.monotonic)

    def changed(self, run_id: str | None) -> dict:
        """The event for a changed run."""
        if run_id is None:
            return {}
        try:
            return {"run": self.run(run_id)}
        except NotFound:
            return {"removed": run_id}


def _there(q: Queries, run_id: str) -> Run:
    run = q.get(run_id)
    if run is None:
        raise NotFound(f"There is no run '{run_id}'.")
    return run
