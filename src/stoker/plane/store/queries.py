"""Every query of the store, each with a name and what it is for. Portable SQL; JSON columns are text."""

from __future__ import annotations

import functools
import json
import math
import time
from collections.abc import Iterable, Sequence
from dataclasses import fields

import sqlalchemy as sa

from stoker.base.spec import Limits, Spec
from stoker.base.state import FINAL, HOLDING, State
from stoker.plane import homecoming
from stoker.plane.record import WISH_RM, WISH_RUN, Holding, Run
from stoker.plane.store.tables import events, meta, runs, waits

_HOLDING = [s.value for s in HOLDING]
_FINAL = [s.value for s in FINAL]
_JSON = {"gpu_uuids", "stop_grace", "evidence", "warnings"}
_FIELDS = [f.name for f in fields(Run)]
_OF_ID = sa.select(runs).where(runs.c.id == sa.bindparam("run_id"))
SPECS_KEPT = 1024  # of the runs that were read last: nobody changes one


class Queries:
    """Queries within one transaction. `touched` collects the ids of changed runs."""

    def __init__(self, connection: sa.Connection) -> None:
        self._c = connection
        self.touched: list[str] = []

    # -- one run
    # ------------------------------------------------------------------------------------------------------

    def get(self, run_id: str) -> Run | None:
        """The run with this id."""
        row = self._c.execute(_OF_ID, {"run_id": run_id}).first()
        return _run(row) if row else None

    def by_name(self, name: str) -> Run | None:
        """The run with this name; names are unique."""
        row = self._c.execute(sa.select(runs).where(runs.c.name == name)).first()
        return _run(row) if row else None

    def by_prefix(self, prefix: str, limit: int = 6) -> list[Run]:
        """Runs whose id begins with this text. Ids are plain ASCII, so a range query replaces LIKE and
        uses the index."""
        clause = sa.and_(runs.c.id >= prefix, runs.c.id < prefix + "\x7f")
        return [
            _run(row)
            for row in self._c.execute(sa.select(runs).where(clause).order_by(runs.c.id).limit(limit))
        ]

    def insert(self, run: Run) -> None:
        """Insert a run. Raises IntegrityError if the id or the name exists."""
        self._c.execute(runs.insert().values(_row(run)))
        self._note(run)

    def update(self, run: Run, **facts: object) -> Run | None:
        """Write facts to `run` if it has not changed since it was loaded; returns the new run, else None."""
        new = run.with_(**facts, version=run.version + 1)
        values = {k: v for k, v in _row(new).items() if k in facts or k == "version"}
        done = self._c.execute(
            runs.update().where(runs.c.id == run.id, runs.c.version == run.version).values(values)
        )
        if done.rowcount == 0:
            return None
        if new.state.final and not run.state.final:
            self._ended(new)
        if (new.state, new.attempt, new.reason) != (run.state, run.attempt, run.reason):
            self._note(new)
        else:
            self.touched.append(run.id)
        return new

    def delete(self, run_id: str) -> None:
        """Delete a run and its events. A run that waits for its successful end continues to wait, and says
        so."""
        self._free(run_id)
        self._c.execute(runs.delete().where(runs.c.id == run_id))
        self._c.execute(events.delete().where(events.c.run_id == run_id))
        self._c.execute(waits.delete().where(waits.c.run_id == run_id))
        self._c.execute(meta.delete().where(meta.c.key.in_([f"label/{run_id}", homecoming.key(run_id)])))
        self.touched.append(run_id)

    def _note(self, run: Run) -> None:
        at = run.ended_at if run.state.final and run.ended_at else time.time()
        self._c.execute(
            events.insert().values(
                run_id=run.id, at=at, attempt=run.attempt, state=run.state.value, reason=run.reason
            )
        )
        self.touched.append(run.id)

    def newest_named(self, name: str, active: bool = False) -> Run | None:
        """The newest run of this name; `train` also means train-2, train-3. `active`: only runs that have
        not ended."""
        query = (
            sa.select(runs)
            .where(_called(name), _shown())
            .order_by(runs.c.created_at.desc(), runs.c.name_number.desc())
        )
        if active:
            query = query.where(runs.c.state.not_in(_FINAL))
        row = self._c.execute(query.limit(1)).first()
        return _run(row) if row else None

    def count_named(self, name: str) -> int:
        """The number of runs of this name, counted as in `newest_named`."""
        return (
            self._c.execute(
                sa.select(sa.func.count()).select_from(runs).where(_called(name), _shown())
            ).scalar()
            or 0
        )

    def older_of_name(self, ids: Sequence[str]) -> set[str]:
        """Those of these runs whose name means a newer run, so that users must type the id."""
        newer, found = runs.alias(), set()
        later = sa.or_(
            newer.c.created_at > runs.c.created_at,
            sa.and_(newer.c.created_at == runs.c.created_at, newer.c.name_number > runs.c.name_number),
        )
        shown = sa.not_(sa.and_(newer.c.wish == WISH_RM, newer.c.state.in_(_FINAL)))
        hidden = sa.exists().where(newer.c.name_stem == runs.c.name, newer.c.id != runs.c.id, later, shown)
        for start in range(0, len(ids), 500):
            found |= set(
                self._c.execute(
                    sa.select(runs.c.id).where(runs.c.id.in_(ids[start : start + 500]), hidden)
                ).scalars()
            )
        return found

    # -- names
    # --------------------------------------------------------------------------------------------------------

    def highest_number(self, stem: str) -> int:
        """The highest number of an automatic name of this stem (`train-7`: 7); 0 if there is none."""
        return (
            self._c.execute(
                sa.select(sa.func.max(runs.c.name_number)).where(runs.c.name_stem == stem)
            ).scalar()
            or 0
        )

    def newest_names(self, limit: int = 500) -> list[tuple[str, str]]:
        """(name, id) of the newest runs, newest first."""
        query = (
            sa.select(runs.c.name, runs.c.id).where(_shown()).order_by(runs.c.created_at.desc()).limit(limit)
        )
        return [(row.name, row.id) for row in self._c.execute(query)]

    # -- lists
    # --------------------------------------------------------------------------------------------------------

    def listing(self, *, everything: bool, folder_hash: str | None = None, limit: int = 200) -> list[Run]:
        """Runs, newest first: all runs, or those that are not final and those of the wish `everything`."""
        query = sa.select(runs).where(_shown())
        if not everything:
            query = query.where(runs.c.state.not_in(_FINAL))
        if folder_hash:
            query = query.where(runs.c.folder_hash == folder_hash)
        return [
            _run(row)
            for row in self._c.execute(query.order_by(runs.c.created_at.desc(), runs.c.id).limit(limit))
        ]

    def active_before(self, last: Run, *, folder_hash: str | None = None) -> list[Run]:
        """Runs that are not final and come after `last` in `listing`."""
        query = sa.select(runs).where(
            _shown(),
            runs.c.state.not_in(_FINAL),
            sa.or_(
                runs.c.created_at < last.created_at,
                sa.and_(runs.c.created_at == last.created_at, runs.c.id > last.id),
            ),
        )
        if folder_hash:
            query = query.where(runs.c.folder_hash == folder_hash)
        return [_run(row) for row in self._c.execute(query.order_by(runs.c.created_at.desc(), runs.c.id))]

    def candidates(self, folder_hash: str, command_hash: str, limit: int = 20) -> list[Run]:
        """Unfinished runs of one command in one folder, newest first, which `start` could continue. Runs
        that never started do not count."""
        began = sa.and_(
            runs.c.started_at.is_not(None), sa.or_(runs.c.attempt > 1, runs.c.reason != "start_failed")
        )
        query = sa.select(runs).where(
            runs.c.folder_hash == folder_hash,
            runs.c.command_hash == command_hash,
            _shown(),
            began,
            runs.c.state.in_([State.FAILED.value, State.STOPPED.value]),
        )
        return [_run(row) for row in self._c.execute(query.order_by(runs.c.created_at.desc()).limit(limit))]

    def neighbours(self, folder_hash: str) -> list[Run]:
        """Runs that hold resources and work in place in this folder, oldest first."""
        query = sa.select(runs).where(
            runs.c.folder_hash == folder_hash, runs.c.in_place == 1, runs.c.state.in_(_HOLDING)
        )
        return [_run(row) for row in self._c.execute(query.order_by(runs.c.created_at))]

    def holding(self, target: str) -> int:
        """Number of runs that hold resources of a target."""
        query = sa.select(sa.func.count()).where(runs.c.target == target, runs.c.state.in_(_HOLDING))
        return self._c.execute(query).scalar() or 0

    def beside(self, run: Run) -> list[tuple[str, str, float, float]]:
        """Other runs that worked in the same folder at the same time as `run`, newest first: id, target,
        begin and end in Unix seconds (inf if active)."""
        ended = run.ended_at if run.state.final and run.ended_at else math.inf
        query = sa.select(runs.c.id, runs.c.target, runs.c.created_at, runs.c.ended_at, runs.c.state).where(
            runs.c.folder_hash == run.folder_hash, runs.c.in_place == 1, runs.c.id != run.id,
            runs.c.created_at < min(ended, 1e18)).order_by(runs.c.created_at.desc())
        times = [
            (
                row.id,
                row.target,
                row.created_at,
                row.ended_at if row.state in _FINAL and row.ended_at else math.inf,
            )
            for row in self._c.execute(query)
        ]
        return [each for each in times if each[3] > run.created_at]

    def ended_before(self, moment: float) -> list[Run]:
        """Final runs that ended before `moment`, oldest first: candidates for gc."""
        query = sa.select(runs).where(runs.c.state.in_(_FINAL), runs.c.ended_at < moment)
        return [_run(row) for row in self._c.execute(query.order_by(runs.c.ended_at))]

    def counts(self) -> dict[str, int]:
        """Number of runs in each state, of the runs that listings show."""
        query = sa.select(runs.c.state, sa.func.count()).where(_shown()).group_by(runs.c.state)
        return dict(self._c.execute(query).all())

    def all_ids(self) -> set[str]:
        """The ids of all runs, for cleaning the spool."""
        return set(self._c.execute(sa.select(runs.c.id)).scalars())

    def known(self, ids: Iterable[str]) -> set[str]:
        """Those of these ids that are runs."""
        return set(self._c.execute(sa.select(runs.c.id).where(runs.c.id.in_(list(ids)))).scalars())

    # -- what the reconciler asks
    # -------------------------------------------------------------------------------------

    def in_care(self) -> list[tuple[str, str]]:
        """(id, target) of all runs that the reconciler must observe: they hold resources, or have an open
        request."""
        open_wish = sa.or_(runs.c.state.in_(_HOLDING),
                           sa.and_(runs.c.state == State.PENDING.value, runs.c.wish != WISH_RUN),
                           sa.and_(runs.c.state.in_(_FINAL), runs.c.wish == WISH_RM))
        return [
            (row.id, row.target)
            for row in self._c.execute(sa.select(runs.c.id, runs.c.target).where(open_wish))
        ]

    def holders(self, target: str) -> list[Holding]:
        """Held resources of a target, oldest first."""
        columns = (runs.c.id, runs.c.name, runs.c.gpus, runs.c.slots, runs.c.gpu_uuids)
        counted = sa.or_(runs.c.gpus > 0, runs.c.slots > 0, runs.c.gpu_uuids != "[]")
        query = (
            sa.select(*columns)
            .where(runs.c.state.in_(_HOLDING), runs.c.target == target, counted)
            .order_by(runs.c.queued_at)
        )
        return [
            Holding(row.id, row.name, row.gpus, row.slots, tuple(json.loads(row.gpu_uuids)))
            for row in self._c.execute(query)
        ]

    def targets_with_queue(self) -> list[str]:
        """Targets for which a run waits."""
        return list(
            self._c.execute(
                sa.select(runs.c.target).where(runs.c.state == State.PENDING.value).distinct()
            ).scalars()
        )

    def waiting_for(self) -> dict[str, int]:
        """Target -> number of runs that wait here for it, or for another run."""
        return self._counted(sa.and_(runs.c.state == State.PENDING.value, runs.c.wish == WISH_RUN))

    def coming_to(self) -> dict[str, int]:
        """Target -> number of runs that are being sent there and have not begun."""
        return self._counted(
            sa.and_(
                runs.c.state.in_([State.STAGING.value, State.STARTING.value]), runs.c.started_at.is_(None)
            )
        )

    def _counted(self, clause: sa.ColumnElement[bool]) -> dict[str, int]:
        return dict(
            self._c.execute(
                sa.select(runs.c.target, sa.func.count()).where(clause).group_by(runs.c.target)
            ).all()
        )

    def next_for_gpus(self, target: str, limit: int) -> list[Run]:
        """The first waiting runs that need GPUs."""
        return self._queue(target, limit, runs.c.gpus > 0)

    def next_for_slots(self, target: str, limit: int) -> list[Run]:
        """The first waiting runs that need CPU slots and no GPU."""
        return self._queue(target, limit, sa.and_(runs.c.gpus == 0, runs.c.slots > 0))

    def next_for_nothing(self, target: str, limit: int) -> list[Run]:
        """Waiting runs that need no counted resource."""
        return self._queue(target, limit, sa.and_(runs.c.gpus == 0, runs.c.slots == 0))

    def _queue(self, target: str, limit: int, clause: sa.ColumnElement[bool]) -> list[Run]:
        waiting = sa.exists().where(waits.c.run_id == runs.c.id)
        turn = sa.and_(
            runs.c.state == State.PENDING.value, runs.c.target == target, runs.c.wish == WISH_RUN, ~waiting
        )
        query = sa.select(runs).where(turn, clause)
        return [
            _run(row)
            for row in self._c.execute(
                query.order_by(runs.c.priority.desc(), runs.c.queued_at, runs.c.id).limit(limit)
            )
        ]

    # -- who waits for whom
    # -------------------------------------------------------------------------------------------

    def add_waits(self, run_id: str, after: Iterable[str]) -> None:
        """`run_id` may start only after these runs ended successfully."""
        rows = [{"run_id": run_id, "after_id": other} for other in dict.fromkeys(after)]
        if rows:
            self._c.execute(waits.insert(), rows)

    def clear_waits(self, run_id: str) -> None:
        """`run_id` no longer waits for other runs."""
        self._c.execute(waits.delete().where(waits.c.run_id == run_id))

    def _ended(self, run: Run) -> None:
        """Nobody waits any more for the end of this run; nor for its good end, if it ended well.
        Its files are owed now."""
        if row := homecoming.owed(run):
            self.set_meta(homecoming.key(run.id), row)
        if run.state is State.DONE:
            self._c.execute(waits.delete().where(waits.c.after_id == run.id))
        else:
            self._free(run.id)

    def _free(self, run_id: str) -> None:
        """Nobody waits any more for the end of `run_id`, however it came (`Spec.after_any`)."""
        ids = [row.run_id for row in self._c.execute(sa.select(waits).where(waits.c.after_id == run_id))]
        for waiting in filter(None, map(self.get, ids)):
            if run_id in waiting.spec.after_any:
                self._c.execute(
                    waits.delete().where(waits.c.run_id == waiting.id, waits.c.after_id == run_id)
                )

    def not_over(self, spec: Spec) -> list[str]:
        """Ids that a run with this spec waits for now."""
        well = [
            other for other in spec.after if (run := self.get(other)) is None or run.state is not State.DONE
        ]
        return well + self.not_ended(spec.after_any)

    def not_ended(self, ids: Iterable[str]) -> list[str]:
        """Those of these runs that exist and have not ended."""
        return [run.id for run in map(self.get, ids) if run is not None and not run.state.final]

    def waits_of(self, ids: Sequence[str]) -> dict[str, list[str]]:
        """For each of these runs, the ids that it waits for."""
        found: dict[str, list[str]] = {}
        for start in range(0, len(ids), 500):
            query = (
                sa.select(waits)
                .where(waits.c.run_id.in_(ids[start : start + 500]))
                .order_by(waits.c.after_id)
            )
            for row in self._c.execute(query):
                found.setdefault(row.run_id, []).append(row.after_id)
        return found

    # -- events and meta
    # ----------------------------------------------------------------------------------------------

    def events_of(self, run_id: str, limit: int = 200) -> list[dict]:
        """The newest `limit` events of a run, in order."""
        query = (
            sa.select(events).where(events.c.run_id == run_id).order_by(events.c.number.desc()).limit(limit)
        )
        rows = [
            {"at": row.at, "attempt": row.attempt, "state": row.state, "reason": row.reason}
            for row in self._c.execute(query)
        ]
        return rows[::-1]

    def meta(self, key: str) -> str | None:
        """A fact about the database."""
        return self._c.execute(sa.select(meta.c.value).where(meta.c.key == key)).scalar()

    def metas(self, keys: Sequence[str]) -> dict[str, str]:
        """Known values of these facts."""
        found: dict[str, str] = {}
        for start in range(0, len(keys), 500):
            query = sa.select(meta).where(meta.c.key.in_(keys[start:start + 500]))
            found |= {row.key: row.value for row in self._c.execute(query)}
        return found

    def metas_under(self, prefix: str) -> dict[str, str]:
        """All facts whose key begins with this text."""
        return {
            row.key: row.value
            for row in self._c.execute(sa.select(meta).where(meta.c.key.startswith(prefix, autoescape=True)))
        }

    def owed(self) -> list[str]:
        """Ids of the runs whose files must still be copied home."""
        of_runs = sa.and_(
            meta.c.key >= homecoming.PREFIX,
            meta.c.key < homecoming.key("\x7f"),
            meta.c.value.contains('"owed": true'),
        )
        return [
            row.key.removeprefix(homecoming.PREFIX) for row in self._c.execute(sa.select(meta).where(of_runs))
        ]

    def set_meta(self, key: str, value: str | None) -> None:
        """Write a fact; None deletes it."""
        self._c.execute(meta.delete().where(meta.c.key == key))
        if value is not None:
            self._c.execute(meta.insert().values(key=key, value=value))


def _called(name: str) -> sa.ColumnElement[bool]:
    return sa.or_(runs.c.name == name, runs.c.name_stem == name)


def _shown() -> sa.ColumnElement[bool]:
    """A final run that shall be removed is on its way out and not shown."""
    return sa.not_(sa.and_(runs.c.wish == WISH_RM, runs.c.state.in_(_FINAL)))


def _row(run: Run) -> dict:
    """Column values of a run."""
    values = {name: getattr(run, name) for name in _FIELDS}
    for name in _JSON:
        values[name] = None if values[name] is None else json.dumps(values[name])
    values["spec"] = json.dumps(run.spec.to_json())
    values["limits"] = json.dumps(run.limits.to_json())
    values["state"] = run.state.value
    values["pinned"], values["in_place"] = int(run.pinned), int(run.in_place)
    return values


def _run(row: sa.Row) -> Run:
    values = dict(row._mapping)
    for name in _JSON:
        values[name] = None if values[name] is None else json.loads(values[name])
    for name in ("gpu_uuids", "warnings", "stop_grace"):
        values[name] = None if values[name] is None else tuple(values[name])
    values["spec"], values["limits"] = _spec(values["spec"]), _limits(values["limits"])
    values["state"] = State(values["state"])
    values["pinned"], values["in_place"] = bool(values["pinned"]), bool(values["in_place"])
    return Run(**values)


@functools.lru_cache(SPECS_KEPT)
def _spec(text: str) -> Spec:
    return Spec.from_json(json.loads(text))


@functools.lru_cache(SPECS_KEPT)
def _limits(text: str) -> Limits:
    return Limits.from_json(json.loads(text))
