"""Brings files of runs home: what was asked for while a run goes on, all at its end,
and whatever `stoker pull` names.

A thread for each machine that has runs whose files are to come.
A try that fails is made again, with growing pauses, also by the next
server: the store says whose files are owed. Only files are read on the machine; what a run does there is
    the reconciler's.

While a run is active, the files of `spec.pull` (patterns) come; at its end, all, up to
`spec.pull_limit_bytes`. The transaction that ends a run writes a row `home/ID` into `meta`: files are owed.
The pauses between tries are at most 10 min. A `pull` that a user types first stops the copying of that
run's files.
"""

from __future__ import annotations

import json
import logging
import threading
import time
from collections.abc import Generator, Iterator, Sequence
from pathlib import Path
from typing import Any

from stoker.base.errors import InvalidSpec, NotFound, StateError, StokerError, TargetError
from stoker.base.state import State
from stoker.plane import homecoming, present
from stoker.plane.notifier import Hub
from stoker.plane.record import WISH_RM, Run
from stoker.plane.staging import fetching, outputs
from stoker.plane.staging.outputs import Ground
from stoker.plane.store.database import Store
from stoker.plane.targets import Target, Targets

log = logging.getLogger(__name__)

LOOK_FIRST_S, LOOK_MAX_S = 1.0, 10.0  # between two looks at the files of a running run; doubles each time
REST = 4.0  # times what a look and a bringing took: the pause is at least that
MOVING_MAX = 3  # looks after which a file that never stands still comes as it is at that moment
RETRY_FIRST_S, RETRY_MAX_S = 0.25, 600.0
AGAIN_S = 2.0  # after somebody else had the run's files in hand
TORN_TRIES = 3  # for files that changed on their way, once the run has ended
LOCK_S = 10.0  # that `pull` waits for a bringing that gives way
TOLD_S = 0.2  # between two words of progress
CUT_S = 60.0  # `pull` goes on this long without a byte
PAUSE_MAX_S = 2.0


class Bringer:
    """Copies files of runs from other machines. Call `start` once. After `close`, the next server
    continues unfinished copies."""

    def __init__(self, store: Store, targets: Targets, hub: Hub) -> None:
        self._store, self._targets, self._hub = store, targets, hub
        self._wake = threading.Condition()
        self._closed = False
        # run -> when (monotonic), target, whether it has ended
        self._due: dict[str, tuple[float, str, bool]] = {}
        self._busy: set[str] = set()
        self._lanes: dict[str, threading.Thread] = {}  # by target
        self._sendings: dict[str, fetching.Sending] = {}  # run -> what a lane receives now
        self._gave_way: set[str] = set()
        self._fails: dict[str, int] = {}
        # run -> until when it rests after its turn, and whether it had ended then
        self._rests: dict[str, tuple[float, bool]] = {}
        # running run -> path -> version, and looks in a row that found a new one
        self._seen: dict[str, dict[str, tuple[tuple, int]]] = {}
        self._looks: dict[str, int] = {}  # at a running run
        self._news = hub.subscribe()
        self._ear = threading.Thread(target=self._listen, name="bringer", daemon=True)

    def start(self) -> None:
        """Continue unfinished copies, and copy files of active runs."""
        with self._store.read() as q:
            ids = q.owed() + [run.id for run in q.listing(everything=False) if run.spec.pull]
        for run_id in ids:
            self._heard(run_id)
        self._ear.start()

    def close(self) -> None:
        """Stop all copies."""
        self._news.close()
        with self._wake:
            self._closed = True
            lanes, sendings = list(self._lanes.values()), list(self._sendings.values())
            self._wake.notify_all()
        for sending in sendings:
            sending.close()
        for thread in [self._ear, *lanes]:
            if thread.is_alive():
                thread.join(5)

    def give_way(self, run_id: str) -> None:
        """Stop copying files of this run, because another caller wants to copy or remove them."""
        with self._wake:
            sending = self._sendings.get(run_id)
            if sending is not None:
                self._gave_way.add(run_id)
        if sending is not None:
            sending.close()

    def pull(self, run: Run, patterns: Sequence[str]) -> Pulling:
        """Copy these files now."""
        return Pulling(self, run, self._targets.get(run.target), patterns)

    def pulled(self, run: Run, target: Target, places: list[tuple[dict, str]], cut: str) -> None:
        """A user copied files after the automatic copies: files that were left may be here now. `places`:
        all files of the run, each with its `Ground.place`."""
        _, row = self._look(run.id)
        if not row or row.get("owed") or not run.state.final:
            return
        failed = dict.fromkeys(row["failed"]["paths"], row["failed"].get("why", ""))
        left = [file for file, _ in places if file["path"] not in failed]
        try:
            row = homecoming.settled(places, left, failed, cut, time.time())
            self._settle(run, target, {**row, "log_left": _keep_logs(run, target)})
        except StokerError as e:  # what was pulled is here all the same
            log.warning("%s: %s", run.id, e.message)

    # -- whose turn it is
    # ---------------------------------------------------------------------------------------------

    def _listen(self) -> None:
        for run_id in self._news:
            if run_id is None:
                continue
            try:
                self._heard(run_id)
            except StokerError as e:  # the database was deleted, or the disk is full
                log.warning("%s: %s", run_id, e.message)

    def _heard(self, run_id: str) -> None:
        """A run may have changed: plan what is to be brought of it."""
        run, row = self._look(run_id)
        with self._wake:
            if run is None or not _wanted(run, row):
                for book in (self._due, self._seen, self._looks, self._fails, self._rests):
                    book.pop(run_id, None)
                return
            planned = self._due.get(run_id)
            if run_id in self._busy or (planned is not None and planned[2] == run.state.final):
                return
            self._plan(run)

    def _plan(self, run: Run) -> None:
        with self._wake:
            if self._closed:
                return
            until, ended = self._rests.get(run.id, (0.0, False))
            now = time.monotonic()
            self._due[run.id] = (
                max(now, until) if ended == run.state.final else now,
                run.target,
                run.state.final,
            )
            if run.target not in self._lanes:
                thread = threading.Thread(
                    target=self._lane, args=(run.target,), name=f"bring-{run.target}", daemon=True
                )
                self._lanes[run.target] = thread
                thread.start()
            self._wake.notify_all()

    def _lane(self, target: str) -> None:
        while (run_id := self._next(target)) is not None:
            rest = (RETRY_MAX_S, True)
            try:
                rest = self._turn(run_id)
            except Exception:  # whatever it was: the files of the others come
                log.exception("files of %s", run_id)
            with self._wake:
                self._rests[run_id] = (time.monotonic() + rest[0], rest[1])
                self._busy.discard(run_id)
            try:
                self._heard(run_id)
            except StokerError as e:
                log.warning("%s: %s", run_id, e.message)

    def _next(self, target: str) -> str | None:
        """The run of this machine whose turn it is; waits for it. None: there is none, and the lane ends."""
        with self._wake:
            while True:
                mine = [(when, run_id) for run_id, (when, name, _) in self._due.items() if name == target]
                if self._closed or not mine:
                    del self._lanes[target]
                    return None
                when, run_id = min(mine)
                left = when - time.monotonic()
                if left <= 0:
                    del self._due[run_id]
                    self._busy.add(run_id)
                    return run_id
                self._wake.wait(left)

    def _turn(self, run_id: str) -> tuple[float, bool]:
        """Bring what is to come now: seconds until the next turn, and whether the run had ended."""
        run, row = self._look(run_id)
        if run is None or not _wanted(run, row):
            return 0.0, False
        began, over = time.monotonic(), run.state.final
        try:
            (self._bring_all if over else self._bring_named)(run, self._targets.get(run.target))
        except (StateError, _GaveWay):
            return AGAIN_S, over
        except NotFound as e:
            self._write(run, homecoming.settled([], [], {}, e.message.rstrip("."), time.time()))
            return 0.0, over
        except (StokerError, OSError) as e:
            why = e.message if isinstance(e, StokerError) else f"{e.filename2 or e.filename}: {e.strerror}."
            log.warning("files of %s: %s", run_id, why)
            if over:
                self._write(run, homecoming.late(row, why))
            fails = self._fails[run_id] = self._fails.get(run_id, 0) + 1
            return min(RETRY_MAX_S, RETRY_FIRST_S * 2 ** min(fails - 1, 12)), over
        self._fails.pop(run_id, None)
        looks = self._looks[run_id] = self._looks.get(run_id, 0) + 1
        return max(
            min(LOOK_MAX_S, LOOK_FIRST_S * 2 ** min(looks - 1, 8)), REST * (time.monotonic() - began)
        ), over

    # -- bringing
    # -----------------------------------------------------------------------------------------------------

    def _bring_all(self, run: Run, target: Target) -> None:
        """All files of a run that has ended, up to the limit. Raises StokerError."""
        ground = _ground(run, target)
        with ground.locked():
            failed: dict[str, str] = {}
            log_left = _keep_logs(run, target)  # first: the machine may be switched off while files come
            for _ in range(TORN_TRIES):
                files, cut = fetching.files(run, target) if present.begun(run) else ([], "")
                come, left = homecoming.to_bring(files, run.spec.pull, run.spec.pull_limit_bytes)
                failed = self._bring(run, target, ground, come)
                if not failed:
                    break
            places = [(file, ground.place(file)) for file in files]
        row = homecoming.settled(places, left, failed, cut, time.time())
        self._settle(run, target, {**row, "log_left": log_left})

    def _settle(self, run: Run, target: Target, row: dict) -> None:
        """The files and logs are here as the row says: write it down, and tell a machine that waits for it.
        Raises StokerError."""
        if target.config.off and homecoming.nothing_missing(row):
            target.backend.power("home", {"runs": {run.id: present.begun(run)}})
        self._write(run, row)

    def _bring_named(self, run: Run, target: Target) -> None:
        """What was asked for, of a run that goes on:
        files that stand still, or have been written to for a while. Raises StokerError."""
        ground = _ground(run, target)
        with ground.locked():
            files = [
                f
                for f in fetching.files(run, target)[0]
                if any(homecoming.is_meant(f["path"], each) for each in run.spec.pull)
            ]
            before, now = self._seen.get(run.id, {}), {}
            for file in files:
                version = (file["size"], file["mtime_ns"])
                old, moves = before.get(file["path"], (None, 0))
                now[file["path"]] = (version, 0 if version == old else moves + 1)
            self._seen[run.id] = now
            self._bring(
                run, target, ground, [file for file in files if not 0 < now[file["path"]][1] < MOVING_MAX]
            )

    def _bring(self, run: Run, target: Target, ground: Ground, files: Sequence[dict]) -> dict[str, str]:
        """The files that are not here yet; path -> why, of those that did not come. Raises StokerError."""
        missing, failed = [file for file in files if ground.place(file) == "there"], {}
        ground.tidy(missing)
        if not missing:
            return {}
        outputs.room_for(missing, ground)
        sending = fetching.Sending(
            target, run, [(file["path"], outputs.offset_of(file, ground)) for file in missing]
        )
        with self._wake:
            self._sendings[run.id] = sending
            self._gave_way.discard(run.id)
            if self._closed:
                sending.close()
        waits, came = {file["path"] for file in missing}, False
        try:
            for file, word, where in outputs.receive(sending, missing, ground):
                if word == outputs.FAILED:
                    failed[file["path"]] = str(where)
                if word != outputs.COMING:
                    waits.discard(file["path"])
                came = True
        except TargetError as e:
            if self._closed or run.id in self._gave_way:
                raise _GaveWay from None
            if came and e.retry:  # a cut: go on soon, however often that happens
                self._fails.pop(run.id, None)
            raise
        finally:
            sending.close()
            with self._wake:
                self._sendings.pop(run.id, None)
        if waits:
            raise (
                _GaveWay
                if self._closed or run.id in self._gave_way
                else TargetError("The machine stopped sending data.")
            )
        return failed

    # -- the store
    # ----------------------------------------------------------------------------------------------------

    def _look(self, run_id: str) -> tuple[Run | None, dict]:
        with self._store.read() as q:
            return q.get(run_id), homecoming.read(q.meta(homecoming.key(run_id)))

    def _write(self, run: Run, row: dict) -> None:
        """What has come, unless the run has begun again or is gone."""
        with self._store.write() as q:
            now = q.get(run.id)
            if now is not None and now.state.final and now.attempt == run.attempt:
                q.set_meta(homecoming.key(run.id), json.dumps(row))
                q.touched.append(run.id)


class _GaveWay(Exception):
    """A bringing was ended by this server itself."""


class Pulling:
    """Progress of `stoker pull`, as lines of JSON: `{"to"}` first, `{"path", "came", "whole"}` from time
    to time, `{"file"}` with the result for each file, `{"done"}` or `{"error"}` at the end. Another thread
    may call `close`; a later pull then continues.

    First `{"to", "outputs"}`, at the end `{"done", "cut"}`. `file` is `{"path", "bytes", "change",
    "result": "brought", "here", "kept" or "failed", "at" or "why"}`.
    """

    def __init__(self, bringer: Bringer, run: Run, target: Target, patterns: Sequence[str]) -> None:
        self._bringer, self._run, self._target, self._patterns = bringer, run, target, patterns
        self._closed = threading.Event()
        self._turn = threading.Lock()
        self._sending: fetching.Sending | None = None
        self._events = self._all()

    def __iter__(self) -> Iterator[bytes]:
        return self

    def __next__(self) -> bytes:
        with self._turn:
            if self._closed.is_set():
                raise StopIteration
            return json.dumps(next(self._events)).encode("ascii") + b"\n"

    def close(self) -> None:
        """Stop copying."""
        self._closed.set()
        sending = self._sending
        if sending is not None:
            sending.close()
        with self._turn:
            self._events.close()

    def _all(self) -> Generator[dict]:
        try:
            yield from self._pull()
        except StokerError as e:
            yield e.to_json()
        except OSError as e:
            yield TargetError(
                f"{e.filename2 or e.filename}: {e.strerror}.",
                retry=False,
                hint="Free some space on this machine.",
            ).to_json()

    def _pull(self) -> Iterator[dict]:
        run, ground = self._run, _ground(self._run, self._target)
        if not run.spec.copy:
            raise InvalidSpec(
                f"{run.name} works in {run.spec.folder} itself, so the files of the run are already in that "
                "folder.",
                hint=f"To list the files: stoker show {present.typed_ref(run.name)}",
            )
        yield {"to": run.spec.folder, "outputs": str(ground.outputs)}
        self._bringer.give_way(run.id)
        with ground.locked(LOCK_S):
            files, cut = fetching.files(run, self._target)
            wanted, missing = outputs.chosen(files, self._patterns, run.name), []
            for file in wanted:
                verdict = ground.verdict(file)
                kept = ground.kept(file) if verdict == outputs.KEEP else None
                if verdict == outputs.HERE or kept:
                    yield {"file": _result(file, verdict, kept or ground.folder / file["path"])}
                else:
                    missing.append(file)
            outputs.room_for(missing, ground)
            yield from self._receive(missing, ground)
            self._bringer.pulled(run, self._target, [(file, ground.place(file)) for file in files], cut)
        yield {"done": True, "cut": cut}

    def _receive(self, missing: list[dict], ground: Ground) -> Iterator[dict]:
        """Each file; a stream that breaks is continued, for a while."""
        whole, told_at, since = sum(file["size"] for file in missing), 0.0, time.monotonic()
        came: dict[str, Any] = {}  # path -> what `receive` said last, its size when it is there
        while missing and not self._closed.is_set():
            wanted = [(file["path"], outputs.offset_of(file, ground)) for file in missing]
            sending = self._sending = fetching.Sending(self._target, self._run, wanted)
            if self._closed.is_set():
                sending.close()
            try:
                for file, word, where in outputs.receive(sending, missing, ground):
                    since = time.monotonic()
                    if word != outputs.COMING:
                        missing = [each for each in missing if each is not file]
                        yield {"file": _result(file, word, where)}
                    came[file["path"]] = where if word == outputs.COMING else file["size"]
                    if since - told_at >= TOLD_S:
                        told_at = since
                        yield {"path": file["path"], "came": sum(came.values()), "whole": whole}
                for file in missing:
                    yield {"file": _result(file, outputs.FAILED, "the machine sent no more data")}
                return
            except TargetError as e:
                gone_s = time.monotonic() - since
                if not e.retry or gone_s > CUT_S:
                    raise
                self._closed.wait(min(PAUSE_MAX_S, 0.1 + gone_s / 2))
            finally:
                sending.close()


def _wanted(run: Run, row: dict) -> bool:
    """Whether files of the run are to come: it has ended and they are owed,
    or it goes on and some were asked for."""
    if run.wish == WISH_RM:
        return False
    return (
        bool(row.get("owed"))
        if run.state.final
        else bool(run.spec.pull) and run.state in (State.RUNNING, State.STOPPING)
    )


def _keep_logs(run: Run, target: Target) -> str:
    """Copy the logs of all its attempts, within the limit for its files;
    why they stay there, "" when they are here.
    All of them come from a machine that is to be switched off. Raises StokerError for what may pass."""
    limit = None if target.config.off else run.spec.pull_limit_bytes
    attempt = present.begun(run)
    if target.here or not attempt or limit == 0 or target.reader(run.id, attempt) is not target.backend:
        return ""
    try:
        target.keep_logs(run.id, limit)
    except NotFound:  # the run folder was deleted: the list of files says so
        return ""
    except TargetError as e:
        if e.retry or limit is None:
            raise
        return e.message
    return ""


def _ground(run: Run, target: Target) -> Ground:
    return Ground(Path(run.spec.folder), target.kept / run.id, run.spec.inherit.get("umask", 0o022))


def _result(file: dict, word: str, where: object) -> dict:
    """A line about what was done with a file."""
    results = {outputs.PUT: "brought", outputs.REPLACE: "brought", outputs.KEEP: "kept", outputs.HERE: "here"}
    told = {
        "path": file["path"],
        "bytes": file["size"],
        "change": file["kind"],
        "result": results.get(word, "failed"),
    }
    return {**told, "at" if word in results else "why": str(where)}
