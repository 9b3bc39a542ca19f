"""Makes a run of a request: checks it, names it, writes its folder into the spool, commits its row.
Starts nothing itself."""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from stoker.base import crash, rundir
from stoker.base.errors import InvalidSpec, NotFound, StateError, StokerError
from stoker.base.spec import Limits, Spec
from stoker.base.state import RETRY_REASONS, State
from stoker.base.units import iso
from stoker.plane import datasets, names
from stoker.plane.capacity import Admission, Usage, admit, shared_gpus
from stoker.plane.control.admission import at_once
from stoker.plane.control.spool import Spool, fill
from stoker.plane.present import CROWDED, typed_ref
from stoker.plane.record import Run, command_key, folder_key
from stoker.plane.staging import installing, stage
from stoker.plane.store.database import Store
from stoker.plane.store.queries import Queries
from stoker.plane.targets import GPUS_OLD_S, Target, Targets
from stoker.plane.writers import may_write

SKIPPED_SHOWN = 5
NEIGHBOURS_SHOWN = 5


class Submitter:
    """Makes runs from requests. The row is committed only after the whole folder is on disk, so no
    accepted run is lost."""

    def __init__(self, store: Store, targets: Targets, spool: Spool) -> None:
        self._store, self._targets, self._spool = store, targets, spool
        self._settling = stage.Settling()
        self._lock = threading.Lock()
        self._reserved: set[str] = set()  # ids and names of requests on their way

    def find_named(self, q: Queries, asked: Spec, on_name_taken: str) -> Run | None:
        """The run with the requested name, if it can be continued. Raises StateError if another run uses
        the name."""
        there = q.by_name(asked.name) if asked.name else None
        if there is None:
            return None
        if (
            on_name_taken == "continue"
            and there.fingerprint == asked.fingerprint()
            and there.state is not State.DONE
        ):
            return there
        why = (
            ", with another command or options"
            if on_name_taken == "continue" and there.state is not State.DONE
            else ""
        )
        state = "finished" if there.state is State.DONE else there.state.value
        typed = typed_ref(there.id if q.older_of_name([there.id]) else there.name)
        free = (
            f"delete that run: stoker rm {typed}"
            if there.state.final
            else f"see that run: stoker show {typed}"
        )
        raise StateError(f"The name '{asked.name}' is already used by a run ({state}{why}).",
                         hint=f"Choose another --name, or {free}")

    def checked(self, asked: Spec) -> Target:
        """The target of the run, after all checks that need no copy. Raises StokerError."""
        target = self._targets.get(asked.target)
        _check_folders(asked, target)
        datasets.check(asked, target.here)
        if not target.here:
            _check_script(asked)
        self._check_size(asked, target)
        return target

    def submit(
        self, asked: Spec, limits: Limits, env: dict[str, str], stdin: bytes | None, now: float
    ) -> Run:
        """The new, committed run. Its state says whether it starts at once (STAGING) or waits (PENDING)."""
        target = self._targets.get(asked.target)
        _check_folders(asked, target)
        datasets.check(asked, target.here)
        if asked.pull and target.here:
            raise InvalidSpec(
                "--pull copies files from another machine, but this run is on this machine.",
                fields=["pull"],
                hint="stoker run --on NAME --pull '*.pt' train.py",
            )
        installing.check(asked, target)
        after = self._after(asked)
        if not target.here:  # the rest may hold secrets of this machine, and means nothing there
            _check_script(asked)
            env = {name: env[name] for name in asked.env_names if name in env}
        argv, warnings, wanted = _resolve(asked, target, env, stdin)
        self._check_size(asked, target)
        if asked.slots and target.config.slots is None:
            warnings.append(
                f"CPU slots are not counted on '{target.name}', so the run does not wait. "
                "To count slots, write `slots = N` into config.toml"
            )
        with self._named(asked) as (run_id, name, stem, number):
            shown = _shown_gpus(asked, target, env)
            spec = asked.with_(id=run_id, name=name, gpu_ids=asked.gpu_ids or shown,
                               argv=tuple(argv), after=tuple(after), retry_reasons=RETRY_REASONS,
                               machine_env=not target.here, created_at=iso(now),
                               pull_limit_bytes=0 if target.here else self._targets.config().pull_limit_bytes)
            run = Run(
                id=run_id,
                name=name,
                name_stem=stem,
                name_number=number,
                spec=spec,
                target=target.name,
                created_at=now,
                queued_at=now,
                priority=spec.priority,
                gpus=spec.gpus,
                slots=spec.slots,
                limits=limits,
                limits_written=limits.seq,
                fingerprint=asked.fingerprint(),
                folder_hash=folder_key(spec.folder),
                command_hash=command_key(spec.command),
                reachability="ok" if target.here else "unknown",
                warnings=tuple(warnings),
            )
            copy = spec.copy or bool(spec.mounts) or not target.here
            while True:
                copy = copy or not self._now(run, target)
                made = self._write(run, target, copy, wanted)
                crash.point("submit.spooled")
                committed = self._commit(made, target, copy)
                if committed is not None:
                    crash.point("submit.committed")
                    if copy:
                        self._settling.add(self._spool.path(run_id))  # nobody moves it before we return
                    return committed
                copy = True  # somebody took what was free: now it waits, so it is frozen

    # -- checks
    # -------------------------------------------------------------------------------------------------------

    def _after(self, asked: Spec) -> list[str]:
        """The ids that it waits for. Raises NotFound."""
        found = []
        with self._store.read() as q:
            for ref in asked.after:
                other = q.get(ref) or q.newest_named(ref)
                if other is None:
                    raise NotFound(f"--after: there is no run '{ref}'.")
                if other.state is not State.DONE:
                    found.append(other.id)
        return found

    def _check_size(self, asked: Spec, target: Target) -> None:
        """Refuse what the machine can never give, if it can be asked."""
        with contextlib.suppress(StokerError):
            if asked.gpus:
                target.capacity(max_age_s=GPUS_OLD_S)
        answer = admit(asked.gpus, asked.slots, Usage(), target.room(ask=False), asked.gpu_ids)
        if answer.verdict == "never":
            raise InvalidSpec(
                f"The run needs {answer.why}.",
                hint="Request fewer resources, or choose another machine with --on. See the machine: stoker "
                     "top",
            )

    def _now(self, run: Run, target: Target) -> bool:
        with self._store.read() as q:
            return not q.not_over(run.spec) and self._admission(q, run, target).verdict == "yes"

    def _admission(self, q: Queries, run: Run, target: Target) -> Admission:
        return at_once(q, target, gpus=run.gpus, slots=run.slots, priority=run.priority, ids=run.spec.gpu_ids)

    # -- names
    # --------------------------------------------------------------------------------------------------------

    @contextlib.contextmanager
    def _named(self, asked: Spec) -> Iterator[tuple[str, str, str, int]]:
        """(id, name, stem, number) that nobody has, reserved until the row is written."""
        with self._lock, self._store.read() as q:
            run_id = names.new_id(lambda i: i in self._reserved or q.get(i) is not None or self._spool.has(i))
            stem, number = asked.name or names.stem(asked.command), 1
            if asked.name:
                if asked.name in self._reserved or q.by_name(asked.name):
                    raise StateError(
                        f"The name '{asked.name}' is already used.", hint="Choose another --name."
                    )
            else:
                number = q.highest_number(stem) + 1
                while names.numbered(stem, number) in self._reserved or q.by_name(
                    names.numbered(stem, number)
                ):
                    number += 1
            mine = {run_id, names.numbered(stem, number)}
            self._reserved |= mine
        try:
            yield run_id, names.numbered(stem, number), stem, number
        finally:
            with self._lock:
                self._reserved -= mine

    # -- folder and row
    # -----------------------------------------------------------------------------------------------

    def _write(self, run: Run, target: Target, copy: bool, wanted: _Wanted) -> Run:
        spec, warnings, env = run.spec.with_(copy=copy), list(run.warnings), dict(wanted.env)
        with self._spool.build(run.id) as folder:
            copied = None
            if copy:
                spec, more, copied = self._freeze(spec, target, folder, env, wanted.interpreter)
                warnings += more
            stage.record_code(
                Path(spec.folder),
                folder / rundir.CODE,
                [str(wanted.script)] if wanted.script else None,
                copied,
            )
            fill(folder, spec, run.limits, env, wanted.stdin)
            installing.lay(folder, spec)
        return run.with_(spec=spec, in_place=not copy, warnings=tuple(warnings))

    def _freeze(self, spec: Spec, target: Target, folder: Path, env: dict[str, str],
                interpreter: str | None) -> tuple[Spec, list[str], stage.FrozenInfo]:
        """Copy the working folder; the spec and (in place) the environment that use the copy;
        the copy."""
        source, work = Path(spec.folder), folder / rundir.WORK
        info = stage.freeze(
            source, work, self._targets.config().copy_limit_bytes, tuple(map(os.path.normpath, spec.data))
        )
        stage.write_list(folder, source, info)
        warnings = info.skipped[:SKIPPED_SHOWN]
        if len(info.skipped) > SKIPPED_SHOWN:
            warnings.append(f"... and {len(info.skipped) - SKIPPED_SHOWN} more not in the copy")
        for name, place in spec.mounts.items():
            _mount(work, name, place)
        if target.here:
            datasets.link(work, spec.data)
        final = f"{target.run_folder(spec.id)}/{rundir.WORK}" if target.here else "."
        moved = stage.into_copy(spec.argv, source, work)
        argv = [
            final + word.removeprefix(str(work)) if word.startswith(f"{work}/") else word for word in moved
        ]
        if interpreter and target.here:
            redirected = stage.editables(source, work, interpreter, env)
            warnings += redirected.warnings
            env.update({name: value.replace(str(work), final) for name, value in redirected.env.items()})
        return spec.with_(argv=tuple(argv)), warnings, info

    def _commit(self, run: Run, target: Target, copy: bool) -> Run | None:
        """The committed run; None when it must wait after all and is not frozen."""
        try:
            with self._store.write() as q:
                after = q.not_over(run.spec)  # asked here: one may have ended while the folder was written
                answer = Admission("wait") if after else self._admission(q, run, target)
                if answer.verdict == "yes":
                    shared = shared_gpus(answer.gpus, Usage(), target.room(ask=False))
                    run = run.with_(
                        state=State.STAGING, gpu_uuids=answer.gpus, warnings=(*run.warnings, *shared)
                    )
                elif not copy:
                    return None
                if run.in_place:
                    run = run.with_(warnings=(*run.warnings, *_neighbours(q, run)))
                if target.here and run.state is State.STAGING:
                    run = run.with_(warnings=(*run.warnings, *_crowd(q, run)))
                q.insert(run)
                q.add_waits(run.id, after)
                return run
        except BaseException:
            self._spool.remove(run.id)
            raise


@dataclass(frozen=True)
class _Wanted:
    """What goes into the run folder and nowhere else, and what the command was found to be."""

    env: dict[str, str]
    stdin: bytes | None
    script: Path | None = None
    interpreter: str | None = None


def _resolve(
    asked: Spec, target: Target, env: dict[str, str], stdin: bytes | None
) -> tuple[list[str], list[str], _Wanted]:
    """argv, warnings and the rest. What `python` means on another machine is found there."""
    if target.here:
        found = stage.resolve(list(asked.command), Path(asked.folder), env)
        return list(found.argv), list(found.warnings), _Wanted(env, stdin, found.script, found.interpreter)
    argv, python = list(asked.command), target.config.python or "python3"
    if argv[0].endswith(".py"):
        argv.insert(0, python)
    elif argv[0] in ("python", "python3") and target.config.python:
        argv[0] = python
    return installing.wrapped(asked, target, argv), [], _Wanted(env, stdin)


def _check_script(asked: Spec) -> None:
    """Raises NotFound for a script of the working folder that is not there, before anything is sent to
    another machine."""
    words = list(asked.command)
    named = words[0] if words[0].endswith(".py") else ""
    if os.path.basename(words[0]).startswith("python") and len(words) > 1 and words[1].endswith(".py"):
        named = words[1]
    if named and not os.path.isabs(named) and not os.path.exists(os.path.join(asked.folder, named)):
        raise NotFound(f"There is no file {named} in {asked.folder}.", hint="Check the path.")


def _check_folders(asked: Spec, target: Target) -> None:
    folder = asked.folder
    if not os.path.isabs(folder):
        raise InvalidSpec(
            f"The working folder '{folder}' is not an absolute path.", hint="stoker run --cwd /abs/folder ..."
        )
    if not os.path.isdir(folder):
        raise NotFound(
            f"The folder {folder} does not exist.", hint="Change to the folder of your script first."
        )
    for name, place in asked.mounts.items():
        clean = os.path.normpath(name)
        if not name or os.path.isabs(name) or clean.startswith("..") or clean == ".":
            raise InvalidSpec(
                f"'{name}' is not a valid mount: it must be a relative path inside the working folder.",
                hint="--mount data=/abs/path",
            )
        if not os.path.isabs(place):
            raise InvalidSpec(
                f"The mount '{name}' needs an absolute path, not '{place}'.", hint=f"--mount {name}=/abs/path"
            )
        if target.here and not os.path.exists(place):
            raise NotFound(
                f"Cannot mount '{name}': {place} does not exist.", hint=f"--mount {name}=/abs/path"
            )
    if asked.home is not None and not os.path.isabs(asked.home):
        raise InvalidSpec(f"HOME '{asked.home}' is not an absolute path.", hint="--home /abs/folder")


def _mount(work: Path, name: str, place: str) -> None:
    link = work / name
    if os.path.lexists(link):
        raise InvalidSpec(
            f"The mount '{name}' conflicts with {name} in the working folder.",
            hint=f"Choose another name, or add {name} to .stokerignore, so that Stoker does not copy {name}.",
        )
    link.parent.mkdir(parents=True, exist_ok=True)
    link.symlink_to(place)


def _neighbours(q: Queries, run: Run) -> list[str]:
    """What to know where other runs may write to the folder of this run."""
    if not may_write(run.spec.command):
        return []
    others = [other for other in q.neighbours(run.folder_hash) if may_write(other.spec.command)]
    if not others:
        return []
    named = ", ".join(other.name for other in others[:NEIGHBOURS_SHOWN])
    return [
        f"{named} {'writes' if len(others) == 1 else 'write'} to this folder too; "
        "files with the same name may be overwritten. "
        "To use a separate copy: --copy"
    ]


def _crowd(q: Queries, run: Run) -> list[str]:
    """What to know where more Python programs run on this machine than it has cores:
    each is slower, and nothing waits unasked."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    count = q.holding(run.target) + 1
    if run.slots or count <= cores:
        return []
    return [f"With this run, {count} runs share {cores} {'core' if cores == 1 else 'cores'} and {CROWDED}. "
            f"To let runs wait for free cores: write `slots = {cores}` into config.toml, then use `stoker "
            f"run --slots 1 ...`"]


def _shown_gpus(asked: Spec, target: Target, env: dict[str, str]) -> tuple[str, ...]:
    """The GPUs that a run names by its own CUDA_VISIBLE_DEVICES: it does not wait for them, and others do."""
    named = tuple(
        each.strip()
        for each in env.get("CUDA_VISIBLE_DEVICES", "").split(",")
        if each.strip() not in ("", "-1")
    )
    if asked.gpus or not named or not target.here:
        return ()
    with contextlib.suppress(StokerError):
        target.capacity(max_age_s=GPUS_OLD_S)
    return named
